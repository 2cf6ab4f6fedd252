"""One request and its answer, streamed or not, whichever provider it is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from glassloop.core.errors import ModelError
from glassloop.core.messages import Reply
from glassloop.models.decoding import decoded
from glassloop.models.failures import Peer, broken_off, http_failure, not_a_reply
from glassloop.models.model import ModelPart, ReplyPart
from glassloop.models.sse import SSEEvent, SSEParser
from glassloop.models.transport import Response, Transport

LINGER = 3.0
"""Seconds in which a reply that has ended may be followed by its usage and `[DONE]`. There are servers that then leave
the line open, and some that keep it alive."""

_LARGEST_ERROR = 1 << 20  # some servers quote the whole request in theirs
_BRACKETS = (b"{", b"[", b"<")
_FIELDS = (b"data:", b"event:", b"id:", b"retry:", b":")
_BLANK = b"\xef\xbb\xbf \t\r\n"


class ReplyReader(Protocol):
    """Turns a provider's answer into a reply."""

    done: bool
    """The provider said that nothing more comes."""

    @property
    def begun(self) -> bool:
        """Whether anything of the reply has come: text, thinking or a call."""
        ...

    @property
    def complete(self) -> bool:
        """Whether the reply has ended by the protocol."""
        ...

    @property
    def text(self) -> str:
        """Visible text so far."""
        ...

    def feed(self, event: SSEEvent) -> Sequence[ModelPart]:
        """Take one event of a stream and return what it shows."""
        ...

    def whole(self, body: Any) -> Sequence[ModelPart]:
        """Take a whole answer and return what it shows."""
        ...

    def reply(self) -> Reply:
        """The reply, once it is complete."""
        ...


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where requests go.

    Args:
        peer: the server, as error messages name it.
        headers: sent with every request; the key is in them.
        transport: how to get there.
    """

    peer: Peer
    headers: Mapping[str, str] = field(repr=False)
    transport: Transport


async def exchange(
    endpoint: Endpoint, body: bytes, reader: ReplyReader, *, stream: bool, timeout: float, idle: float | None = None
) -> AsyncIterator[ModelPart]:
    """Send one request and yield what the reply shows (if `stream`), then the whole reply.

    A server may answer in one piece although a stream was asked for, and the other way round. A connection that breaks
    after the reply has ended by the protocol does no harm.

    A stream that has begun may be silent for `idle` seconds. Before that a server may have to load the model, let the
    request wait its turn, or have the model think without a word: then `timeout` is all that limits it.

    Raises:
        ModelError: the request failed; `partial` holds the text that had been yielded.
    """
    peer = endpoint.peer
    response = await endpoint.transport.post(peer.url, endpoint.headers, body, timeout)
    try:
        if response.status // 100 != 2:
            raise http_failure(peer, response.status, response.headers, await _error_body(response))
        data = await _whole_or_start(response)
        if data.whole:
            for part in reader.whole(_json(peer, data.bytes)):
                if stream:
                    yield part
        parser, chunk = SSEParser(), data.bytes
        last: float | None = None
        while not reader.done:
            for event in parser.feed(chunk) if chunk else _last_event(parser):
                for part in (part for one in _each(event) for part in reader.feed(one)):
                    if stream:
                        yield part
            if not chunk or reader.done:
                break
            if idle is not None and reader.begun:
                response.limit_silence(idle)
                idle = None
            if reader.complete and last is None:
                last = asyncio.get_running_loop().time() + LINGER
            chunk = await _next_chunk(response, last)
        if not reader.complete:
            raise broken_off(peer)
        await response.finish()
        reply = reader.reply()
    except ModelError as error:
        if stream and not error.partial:
            error.partial = reader.text
        raise
    finally:
        response.close()
    yield ReplyPart(reply)


async def ask(endpoint: Endpoint, body: bytes, timeout: float) -> Any:
    """Send one request whose answer is JSON in one piece, and return that.

    Raises:
        ModelError: the request failed.
    """
    peer = endpoint.peer
    response = await endpoint.transport.post(peer.url, endpoint.headers, body, timeout)
    try:
        if response.status // 100 != 2:
            raise http_failure(peer, response.status, response.headers, await _error_body(response))
        return _json(peer, await response.read())
    finally:
        response.close()


class _Body(NamedTuple):
    bytes: bytes
    whole: bool


async def _whole_or_start(response: Response) -> _Body:
    """All of an answer that is JSON (or a page), the first bytes of one that is a stream.

    Servers get the content type wrong both ways (an error in JSON where events were announced above all), so the first
    bytes tell: no line of a stream begins with a bracket. Blanks before them keep the connection alive.
    """
    start = chunk = await response.read_some()
    while chunk and not start.strip():
        chunk = await response.read_some()
        start += chunk
    first, kind = start.lstrip(_BLANK), response.headers.get("Content-Type", "")
    if first.startswith(_BRACKETS) or ("json" in kind and not first.startswith(_FIELDS)):
        return _Body(start + await response.read(), whole=True)
    return _Body(start, whole=False)


async def _next_chunk(response: Response, last: float | None) -> bytes:
    """What comes next; where the reply has ended, only until `last`, and a line that breaks is only the end."""
    if last is None:
        return await response.read_some()
    try:
        async with asyncio.timeout_at(last):
            return await response.read_some()
    except (ModelError, TimeoutError):
        return b""


def _each(event: SSEEvent) -> Sequence[SSEEvent]:
    """The event, or one for each of its lines, where a server leaves out the blank lines between its events."""
    if b"\n" not in event.data or _is_json(event.data):
        return (event,)
    return [SSEEvent(event.name, line) for line in event.data.split(b"\n")]


def _last_event(parser: SSEParser) -> list[SSEEvent]:
    """What the server left without a blank line, unless it was cut in the middle."""
    events = [one for event in parser.close() for one in _each(event)]
    return [event for event in events if not event.data.lstrip().startswith(b"{") or _is_json(event.data)]


async def _error_body(response: Response) -> bytes:
    body = bytearray()
    try:
        while len(body) < _LARGEST_ERROR and (piece := await response.read_some()):
            body += piece
    except ModelError:
        pass  # the status says enough
    return bytes(body)


def _json(peer: Peer, body: bytes) -> Any:
    try:
        return decoded(body)
    except ValueError:
        what = "an HTML page" if body.lstrip().startswith(b"<") else "something that is not JSON"
        raise not_a_reply(peer, what) from None


def _is_json(data: bytes) -> bool:
    try:
        decoded(data)
    except ValueError:
        return False
    return True
