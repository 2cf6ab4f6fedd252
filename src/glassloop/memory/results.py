"""Tool results that take less room: old ones cut, big ones kept where the model can read on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from glassloop.core.context import RunContext
from glassloop.core.encoding import dumps, loads
from glassloop.core.errors import ConfigurationError, ToolError
from glassloop.core.events import Event, RunStarted, ToolFinished
from glassloop.core.messages import Message, Reply, ToolResult
from glassloop.journal.journal import Journal
from glassloop.journal.projection import RunFilter
from glassloop.memory.groups import remembered
from glassloop.memory.view import Moment, Piece
from glassloop.tools.results import capped, head_and_tail
from glassloop.tools.tool import Tool, tool

_READ = "read_result"
_SHORTEST = 100  # characters of one reading, so that the next begins further on
_LOOK_BACK = 50
"""Runs of a session in which a result is looked for."""


class TrimResults:
    """Long tool results of older steps, cut to head and tail.

    The newest `keep` steps are left alone. So that a prompt cache holds, results are not cut one by one as they grow
    old, but those of `every` steps at once.

    Args:
        longest: characters that a result of an older step may have.
        keep: steps with tool calls that are left alone at least.
        every: steps with tool calls whose results are cut together.

    Raises:
        ConfigurationError: a number makes no sense.
    """

    def __init__(self, longest: int = 1_000, *, keep: int = 3, every: int = 4) -> None:
        if longest < 1 or keep < 0 or every < 1:
            raise ConfigurationError(
                f"TrimResults({longest}, keep={keep}, every={every}): give at least 1, or 0 for keep."
            )
        self._longest, self._keep, self._every = longest, keep, every

    async def view(self, pieces: Sequence[Piece], moment: Moment, /) -> Sequence[Piece]:
        """The view with older results cut; see `ContextStrategy`."""
        older = self._older(moment.conversation)
        return [self._cut(piece) if _is_long(piece.message, self._longest, older) else piece for piece in pieces]

    def _older(self, conversation: Sequence[Message]) -> set[str]:
        """The calls of steps whose results are cut."""
        steps = [message for message in conversation if isinstance(message, Reply) and message.calls]
        old = max(0, len(steps) - self._keep) // self._every * self._every
        return {call.id for step in steps[:old] for call in step.calls}

    def _cut(self, piece: Piece) -> Piece:
        result, longest = piece.message, self._longest
        assert isinstance(result, ToolResult)
        return Piece(
            remembered(result, f"_trimmed_{longest}", lambda: replace(result, content=capped(result.content, longest)))
        )


class Offload:
    """Big tool results, shown by head and tail; the tool `read_result` reads the rest from the journal.

    A result is shown like this from the first request on, so that a prompt cache holds. What was cut before, since no
    result enters a conversation with more than 40,000 characters, can be read too: the journal keeps the whole. Results
    of earlier runs of the session can be read as well; nobody else's can.

    Args:
        over: characters from which on a result is big.
        head: characters of its beginning that are shown.
        tail: characters of its end that are shown.

    Raises:
        ConfigurationError: a number makes no sense.
    """

    def __init__(self, over: int = 8_000, *, head: int = 1_500, tail: int = 500) -> None:
        if head < 0 or tail < 0 or head + tail > over or over < 1:
            given = f"Offload({over}, head={head}, tail={tail})"
            raise ConfigurationError(f"{given}: none may be negative, and head and tail together at most over.")
        self._over, self._head, self._tail = over, head, tail
        self._tools = (self.read_result,)

    def tools(self, context: RunContext[Any], /) -> Sequence[Tool]:
        """The tool that reads on."""
        return self._tools

    async def view(self, pieces: Sequence[Piece], moment: Moment, /) -> Sequence[Piece]:
        """The view with head and tail of big results; see `ContextStrategy`."""
        return [self._offloaded(piece) for piece in pieces]

    @tool
    async def read_result(self, context: RunContext[Any], id: str, offset: int = 0, length: int = 8_000) -> str:
        """Read more of a tool result that is shown only by its beginning and end.

        Args:
            id: of the result, as its notice names it
            offset: how many characters to skip
            length: how many characters to read
        """
        text = await _whole(context, id.strip())
        if text is None:
            raise ToolError(f"There is no result {id!r} in this conversation: take the id from the result's notice.")
        if offset < 0 or offset >= len(text):
            raise ToolError(f"offset={offset} is outside of the result, which has {len(text):,} characters.")
        part, _ = head_and_tail(text[offset:], min(max(length, _SHORTEST), self._over), 0)
        end = offset + len(part)
        rest = f"; read on with offset={end}" if end < len(text) else ""
        return f"[characters {offset} to {end} of {len(text)}{rest}]\n{part}"

    def _offloaded(self, piece: Piece) -> Piece:
        result = piece.message
        if not isinstance(result, ToolResult) or len(result.content) <= self._over or result.name == _READ:
            return piece
        return Piece(remembered(result, f"_offloaded_{self._head}_{self._tail}", lambda: self._short(result)))

    def _short(self, result: ToolResult) -> ToolResult:
        head, tail = head_and_tail(result.content, self._head, self._tail)
        hint = f'{_READ}(id="{result.call_id}", offset={len(head)})'
        return replace(result, content=f"{head}\n[... the middle is left out; {hint} reads on ...]\n{tail}")


def _is_long(message: Message, longest: int, calls: set[str]) -> bool:
    return isinstance(message, ToolResult) and len(message.content) > longest and message.call_id in calls


async def _whole(context: RunContext[Any], call_id: str) -> str | None:
    """The whole result of a call of this run or of its session's runs, as text."""
    if context.store is None:
        return None
    journal = context.store.journal
    found = await _found(journal, await journal.read(context.run_id), call_id)
    if found is not None or context.session is None:
        return found
    for row in await journal.runs(RunFilter(session=context.session, roots=True, limit=_LOOK_BACK)):
        if row.id != context.run_id:
            found = await _found(journal, await journal.read(row.id), call_id)
            if found is not None:
                return found
    return None


async def _found(journal: Journal, events: Iterable[Event], call_id: str) -> str | None:
    for event in events:
        match event.data:
            case ToolFinished(result=result, value=key) if result.call_id == call_id:
                return result.content if key is None else await _value(journal, key)
            case RunStarted(history=history):
                given = (m.content for m in history if isinstance(m, ToolResult) and m.call_id == call_id)
                if (content := next(given, None)) is not None:
                    return content
            case _:
                pass
    return None


async def _value(journal: Journal, key: str) -> str:
    try:
        value = loads(await journal.blob(key))
    except KeyError:
        raise ToolError("The whole of this result has been erased; what is shown is all that is left.") from None
    return value if isinstance(value, str) else dumps(value).decode()
