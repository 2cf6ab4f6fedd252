"""Tools that a provider runs itself: their calls and results are blocks of replies, and each is refused alone."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import replace

from glassloop.core.messages import Message, Opaque, Part, Reply, ToolResult

_Place = tuple[int, int]
"""Of a part: the message, and the part in it."""


def paired(messages: Sequence[Message]) -> Sequence[Message]:
    """The conversation without calls of a server's tools that have no result, and results that have no call.

    A reply that was cut off or cancelled ends with such a call; without it the conversation can go on. Two wait for
    their result rightly: what a paused turn ends with, and what stands beside calls whose results are sent now.
    """
    replies = [(place, message) for place, message in enumerate(messages) if isinstance(message, Reply)]
    waiting: dict[str, _Place] = {}
    alone: set[_Place] = set()
    for place, reply in replies:
        for number, part in enumerate(reply.parts):
            if call_id := _called(part):
                waiting[call_id] = place, number
            elif (call_id := _answered(part)) and waiting.pop(call_id, None) is None:
                alone.add((place, number))
    if waiting:
        last, reply = replies[-1]
        rest = messages[last + 1 :]
        goes_on = all(isinstance(message, ToolResult) for message in rest) if rest else reply.stop == "paused"
        alone |= {where for where in waiting.values() if not (goes_on and where[0] == last)}
    return [_without(message, place, alone) for place, message in enumerate(messages)] if alone else messages


def _without(message: Message, place: int, alone: Container[_Place]) -> Message:
    if not isinstance(message, Reply):
        return message
    parts = tuple(part for number, part in enumerate(message.parts) if (place, number) not in alone)
    return message if len(parts) == len(message.parts) else replace(message, parts=parts)


def _called(part: Part) -> str:
    """The id of a call (`server_tool_use`, `mcp_tool_use`); empty for anything else."""
    return _id(part, "_tool_use", "id")


def _answered(part: Part) -> str:
    return _id(part, "_tool_result", "tool_use_id")


def _id(part: Part, kind: str, key: str) -> str:
    if not isinstance(part, Opaque) or not str(part.data.get("type")).endswith(kind):
        return ""
    return str(part.data.get(key) or "")
