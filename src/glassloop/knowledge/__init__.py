"""Knowledge: files are loaded, split, indexed and searched. Loading needs `pip install 'glassloop[rag]'`."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

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


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
