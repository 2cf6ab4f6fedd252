"""Big results of tools in a session: they stand once, in an event of their run, and the session's row says where."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from glassloop.core.encoding import dumps, loads
from glassloop.core.messages import Message, ToolResult
from glassloop.stores.codec import unpack

IN_EVENT = 2
"""In the place of a message's version: the message is the number of the event that has it, a result of its run."""


class InEvent(NamedTuple):
    """A tool's result as it stands in an event of its run, so that the session need not have it again.

    Args:
        seq: the event's number.
        result: the message, as JSON values.
    """

    seq: int
    result: Any


def results_in(events: Iterable[tuple[int, str | bytes]]) -> dict[str, InEvent]:
    """The results in events `tool_finished`, given as number and data, by their calls; damaged ones are left out."""
    found = ((seq, _result(data)) for seq, data in events)
    return {result["call_id"]: InEvent(seq, result) for seq, result in found if result}


def event_with(message: Message, data: bytes, results: Mapping[str, InEvent]) -> int | None:
    """The number of the event that has a message; None where none of `results` is exactly this one.

    Args:
        message: of the session.
        data: the same as JSON.
        results: what `results_in` found.
    """
    there = results.get(message.call_id) if isinstance(message, ToolResult) else None
    return there.seq if there is not None and there.result == loads(data) else None


def message_in(event: str | bytes | None) -> str:
    """The message in an event's data, as JSON; `null`, which is no message, where that is damaged or gone."""
    return dumps(None if event is None else _result(event)).decode()


def _result(data: str | bytes) -> Any:
    """The message in a `tool_finished`, as JSON values; None where the event is damaged."""
    try:
        result = loads(unpack(data))["result"]
        return result if "call_id" in result else None
    except (ValueError, KeyError, TypeError):
        return None
