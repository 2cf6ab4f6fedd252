"""Memory: what of a conversation a model sees, and what outlives it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from glassloop.core.lazy import lazy

if TYPE_CHECKING:
    from glassloop.memory.entities import Entities as Entities
    from glassloop.memory.fact_store import Fact as Fact
    from glassloop.memory.fact_store import FactOwner as FactOwner
    from glassloop.memory.fact_store import FactStore as FactStore
    from glassloop.memory.facts import Facts as Facts
    from glassloop.memory.results import Offload as Offload
    from glassloop.memory.results import TrimResults as TrimResults
    from glassloop.memory.summary import Summary as Summary
    from glassloop.memory.view import ContextStrategy as ContextStrategy
    from glassloop.memory.view import Moment as Moment
    from glassloop.memory.view import Piece as Piece
    from glassloop.memory.windows import LastMessages as LastMessages
    from glassloop.memory.windows import LastTurns as LastTurns
    from glassloop.memory.windows import TokenWindow as TokenWindow

_HOMES = {
    "ContextStrategy": "view",
    "Entities": "entities",
    "Fact": "fact_store",
    "FactOwner": "fact_store",
    "FactStore": "fact_store",
    "Facts": "facts",
    "LastMessages": "windows",
    "LastTurns": "windows",
    "Moment": "view",
    "Offload": "results",
    "Piece": "view",
    "Summary": "summary",
    "TokenWindow": "windows",
    "TrimResults": "results",
}

__all__ = sorted(_HOMES)  # pyright: ignore[reportUnsupportedDunderAll]

__getattr__, __dir__ = lazy(__name__, _HOMES)
