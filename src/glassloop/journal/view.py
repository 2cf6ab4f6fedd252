"""What one request shows of the conversation, as it is decided on and as the journal records it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from glassloop.core.encoding import digest, dumps
from glassloop.core.messages import Message
from glassloop.models.model import Model
from glassloop.models.prices import Prices

Shown = tuple[tuple[int, int] | str, ...]
"""`[start, stop)` ranges of the conversation, and digests of messages that stand in the place of others."""


@dataclass(frozen=True, slots=True)
class SummaryWanted:
    """A summary that a view needs before it can be shown.

    Args:
        start: where in the conversation what it stands for begins.
        stop: where that ends.
        covered: the digest of those messages.
        messages: what the model is asked.
        instructions: how it is to summarise.
        most: tokens that the reply may have.
        model: who is asked; None for the run's own model.
        prices: of that model.
    """

    start: int
    stop: int
    covered: str
    messages: tuple[Message, ...]
    instructions: str
    most: int
    model: Model | None = None
    prices: Prices | None = None


@dataclass(frozen=True, slots=True)
class View:
    """What the next request shows.

    Args:
        messages: what is sent.
        shown: the same, as the journal records it.
        placed: messages of it that are not the conversation's, by digest.
        wanted: a summary to be made first; the view is the one without it.
        too_big: why even the smallest view is bigger than it may be; None where it is not.
    """

    messages: tuple[Message, ...]
    shown: Shown
    placed: Mapping[str, Message] = field(default_factory=dict[str, Message])
    wanted: SummaryWanted | None = None
    too_big: str | None = None

    def beyond(self, before: Shown) -> Sequence[Message] | None:
        """What this view has after all that an earlier one has shown; None where it does not begin with that."""
        if not before or self.shown[: len(before) - 1] != before[:-1] or len(self.shown) < len(before):
            return None
        last, now = before[-1], self.shown[len(before) - 1]
        if isinstance(last, str) or isinstance(now, str):
            grown = last == now
        else:
            grown = last[0] == now[0] and last[1] <= now[1]
        count = sum(1 if isinstance(item, str) else item[1] - item[0] for item in before)
        return self.messages[count:] if grown else None


def message_digest(message: Message) -> str:
    """Digest of one message, computed once per object."""
    known: str | None = message.__dict__.get("_digest")
    if known is None:
        known = message.__dict__["_digest"] = digest(dumps(message))
    return known


def digest_of(messages: Sequence[Message]) -> str:
    """Digest of several messages."""
    return digest("".join(map(message_digest, messages)).encode())
