"""Notes: what a strategy puts before the run's input, made once for a run so that its steps see the same."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence

from glassloop.core.encoding import dumps
from glassloop.core.messages import Message, UserMessage
from glassloop.memory.view import Moment, Piece

_MOST_RUNS = 256

MakeNote = Callable[[Moment, UserMessage], Awaitable[str | None]]
"""The note's text for a run and its input; None for no note."""


class Notes:
    """The notes of one strategy.

    Args:
        make: writes the note of a run.
    """

    def __init__(self, make: MakeNote) -> None:
        self._make = make
        self._made: OrderedDict[str, str | None] = OrderedDict()

    async def add(self, pieces: Sequence[Piece], moment: Moment) -> Sequence[Piece]:
        """The view with the run's note before its input; as it was where there is no note or no input."""
        at = input_at(moment)
        if at is None:
            return pieces
        text = await self._text(moment, at)
        if text is None:
            return pieces
        place = next((n for n, piece in enumerate(pieces) if piece.at is not None and piece.at >= at), len(pieces))
        return [*pieces[:place], Piece(UserMessage(text, origin="note")), *pieces[place:]]

    async def _text(self, moment: Moment, at: int) -> str | None:
        asked = moment.conversation[at]
        assert isinstance(asked, UserMessage)
        run_id = moment.context.run_id
        if not run_id:
            return await self._make(moment, asked)
        if run_id not in self._made:
            self._made[run_id] = await self._make(moment, asked)
            if len(self._made) > _MOST_RUNS:
                self._made.popitem(last=False)
        self._made.move_to_end(run_id)
        return self._made[run_id]


def input_at(moment: Moment) -> int | None:
    """Where in the conversation the run's input is: its first message, or for a run without one the user's last."""
    conversation, first = moment.conversation, moment.history_length
    if first < len(conversation) and _is_users(conversation[first]):
        return first
    return next((at for at in range(min(first, len(conversation)) - 1, -1, -1) if _is_users(conversation[at])), None)


def _is_users(message: Message) -> bool:
    return isinstance(message, UserMessage) and message.origin == "user"


def quoted(value: object, most: int) -> str:
    """A value as JSON on one line, as data that cannot end the note which it stands in.

    Args:
        value: a text, a number, or anything else that has a JSON form.
        most: characters of a text, or of the JSON of anything else; the rest is cut off.
    """
    if isinstance(value, str):
        text = " ".join(value.split())
        value = text if len(text) <= most else f"{text[: most - 1]}…"
    json = dumps(value).decode()
    if not isinstance(value, str) and len(json) > most:
        return quoted(json, most)
    return json.replace("<", "\\u003c").replace(">", "\\u003e")
