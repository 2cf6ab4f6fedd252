"""A part of a conversation as a text to be summarised."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from glassloop.core.encoding import dumps
from glassloop.core.messages import Media, Message, Reply, SystemMessage, ToolResult, UserMessage
from glassloop.journal.budget import BYTES_PER_TOKEN
from glassloop.tools.results import capped

_CAPS = (8_000, 4_000, 2_000, 1_000, 500, 200)
"""Characters of one text; the first with which the transcript is short enough."""


def transcript(messages: Sequence[Message], tokens: int) -> str:
    """One line of JSON for each thing that was said, called or returned, so that no text can pass for another line.

    A transcript that would be longer than about `tokens` has its long texts cut in the middle; one that still is goes
    without the lines in its middle, and says so.
    """
    room = tokens * BYTES_PER_TOKEN
    lines: list[bytes] = []
    for cap in _CAPS:
        lines = [dumps(line) for message in messages for line in _lines(message, cap)]
        if sum(map(len, lines)) <= room:
            return b"\n".join(lines).decode()
    return b"\n".join(_without_middle(lines, room)).decode()


def _without_middle(lines: Sequence[bytes], room: int) -> list[bytes]:
    """The first and the last lines, the last being what the conversation goes on from: two thirds of the room."""
    head, tail = _taken(lines, room // 3), _taken(lines[::-1], room * 2 // 3)
    left_out = {"left_out": len(lines) - head - tail}
    return [*lines[:head], dumps(left_out), *lines[len(lines) - tail :]]


def _taken(lines: Sequence[bytes], room: int) -> int:
    count = 0
    for line in lines:
        room -= len(line)
        if room < 0:
            break
        count += 1
    return count


def _lines(message: Message, cap: int) -> Iterator[dict[str, object]]:
    match message:
        case SystemMessage(text):
            yield {"system": capped(text, cap)}
        case UserMessage(content, origin):
            media = [] if isinstance(content, str) else [part for part in content if isinstance(part, Media)]
            said = capped(message.text, cap)
            yield {"user" if origin == "user" else origin: said, **_attached(media)}
        case ToolResult(name=name, content=content, status=status, media=media):
            failed = {} if status == "ok" else {"status": status}
            yield {"result_of": name, **failed, "content": capped(content, cap), **_attached(media)}
        case Reply():
            if message.text.strip():
                yield {"assistant": capped(message.text, cap)}
            for call in message.calls:
                yield {"call": call.name, "arguments": capped(call.arguments, cap)}


def _attached(media: Sequence[Media]) -> dict[str, object]:
    return {"attached": [item.name or item.media_type for item in media]} if media else {}
