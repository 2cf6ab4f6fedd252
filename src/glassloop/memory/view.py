"""The context seam: what of a conversation the model gets to see.

The journal keeps everything; a view is what one request shows of it. Strategies are applied in the order in which the
agent names them, each to what the one before it left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from glassloop.core.context import RunContext
from glassloop.core.events import Summarized
from glassloop.core.messages import Message
from glassloop.journal.view import SummaryWanted


@dataclass(frozen=True, slots=True)
class Piece:
    """One message of a view.

    Args:
        message: what the model reads.
        at: its position in the conversation; None for a message that stands in the place of others, or was added.
    """

    message: Message
    at: int | None = None


@dataclass
class Moment:
    """What a strategy may know of the run, and what it may ask of it.

    Args:
        conversation: all of it, also what the view leaves out.
        history_length: how many messages came before this run; its input is the next one.
        context: user, session, deps and store.
        head_tokens: estimated tokens of instructions and tools, which precede the conversation in every request.
        summaries: what the run knows of its older part, in the order it was made.
        wanted: set by a strategy that wants a summary first. What it returns meanwhile is the view without.
        too_big: set by a strategy that cannot make the view as small as it must be: a sentence, which ends the run.
    """

    conversation: Sequence[Message]
    history_length: int
    context: RunContext[Any]
    head_tokens: int = 0
    summaries: Sequence[Summarized] = ()
    wanted: SummaryWanted | None = None
    too_big: str | None = None


class ContextStrategy(Protocol):
    """Makes a view smaller, or adds to it. A strategy that also has `tools(context)` brings its tools along."""

    async def view(self, pieces: Sequence[Piece], moment: Moment, /) -> Sequence[Piece]:
        """The view that remains. Must be quick, and give the same for the same conversation, so that a provider's
        prompt cache holds; it need not take care of orphans: the renderer keeps every request sendable. A piece
        that is changed loses its `at`."""
        ...
