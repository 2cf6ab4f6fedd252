"""Server-sent events, parsed as the bytes come in."""

from __future__ import annotations

from typing import NamedTuple

_BOM = b"\xef\xbb\xbf"


class SSEEvent(NamedTuple):
    """One event: its name (empty where the stream gave none) and its data, still UTF-8 bytes."""

    name: bytes
    data: bytes


class SSEParser:
    """An incremental parser of `text/event-stream` (WHATWG HTML, section 9.2.6).

    Feed it network reads of any size: a boundary may fall inside a character, between CR and LF, anywhere. Comments,
    `id` and `retry` are passed over. One rule differs from the specification: an event whose final blank line is
    missing when the stream ends is dispatched by `close`, because there are servers that close right after their last
    line; whether its data is whole is for the reader to see (an event cut in the middle is not valid JSON).
    """

    __slots__ = ("_after_cr", "_at_start", "_pending")

    def __init__(self) -> None:
        self._pending = bytearray()
        self._at_start = True
        self._after_cr = False

    def feed(self, data: bytes) -> list[SSEEvent]:
        """The events that `data` completes."""
        if self._at_start:
            data = self._without_bom(data)
        data = self._with_line_feeds(data)
        pending = self._pending
        if b"\n\n" not in data and not (data.startswith(b"\n") and pending.endswith(b"\n")):
            pending += data
            return []
        blocks = (bytes(pending) + data if pending else data).split(b"\n\n")
        self._pending = bytearray(blocks.pop())
        return _events(blocks)

    def close(self) -> list[SSEEvent]:
        """The event that was left without its blank line, if there is one."""
        block = bytes(self._pending)
        self._pending = bytearray()
        return _events([block])

    def _without_bom(self, data: bytes) -> bytes:
        data = bytes(self._pending) + data
        self._pending.clear()
        if len(data) < len(_BOM) and _BOM.startswith(data):
            self._pending += data
            return b""
        self._at_start = False
        return data.removeprefix(_BOM)

    def _with_line_feeds(self, data: bytes) -> bytes:
        if self._after_cr and data:
            data = data.removeprefix(b"\n")
            self._after_cr = False
        if b"\r" in data:
            self._after_cr = data.endswith(b"\r")
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        return data


def _events(blocks: list[bytes]) -> list[SSEEvent]:
    events: list[SSEEvent] = []
    for block in blocks:
        if block.startswith(b"data: ") and b"\n" not in block:
            events.append(SSEEvent(b"", block[6:]))
        elif (event := _event(block)) is not None:
            events.append(event)
    return events


def _event(block: bytes) -> SSEEvent | None:
    name = b""
    data: list[bytes] = []
    for line in block.split(b"\n"):
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            data.append(value)
        elif field == b"event":
            name = value
    return SSEEvent(name, b"\n".join(data)) if data else None
