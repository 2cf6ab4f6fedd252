"""Knowledge: files are loaded, split, indexed and searched. Loading needs `pip install 'glassloop[rag]'`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from glassloop.core.lazy import lazy

if TYPE_CHECKING:
    from glassloop.knowledge.conflicts import Conflict as Conflict
    from glassloop.knowledge.documents import Document as Document
    from glassloop.knowledge.documents import Passage as Passage
    from glassloop.knowledge.documents import Section as Section
    from glassloop.knowledge.index import Source as Source
    from glassloop.knowledge.ingest import IngestReport as IngestReport
    from glassloop.knowledge.knowledge import Hit as Hit
    from glassloop.knowledge.knowledge import Knowledge as Knowledge

_HOMES = {
    "Conflict": "conflicts",
    "Document": "documents",
    "Hit": "knowledge",
    "IngestReport": "ingest",
    "Knowledge": "knowledge",
    "Passage": "documents",
    "Section": "documents",
    "Source": "index",
}

__all__ = sorted(_HOMES)  # pyright: ignore[reportUnsupportedDunderAll]

__getattr__, __dir__ = lazy(__name__, _HOMES)
