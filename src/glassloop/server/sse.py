"""Server-sent events over HTTP (WHATWG HTML, 9.2): a stream that is never silent and notices when nobody listens."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from glassloop.core.encoding import dumps
from glassloop.server.closing import Closing

log = logging.getLogger("glassloop.server")

HEARTBEAT_S = 10.0
"""Seconds of silence after which a comment is sent; proxies cut connections that are idle for longer."""

RECONNECT = b"retry: 1000\n\n"
"""Tells a browser to come back after a second, before a run that it had started is cancelled for want of a watcher."""

_KEEP_ALIVE = b": keep-alive\n\n"
_STOPPING = b": the server is stopping; reconnect with Last-Event-ID\n\n"
_HEADERS = {"Content-Type": "text/event-stream", "Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
_FULL = 256 * 1024  # bytes that wait for a slow reader before the source is made to wait
_STALLED_S = 60.0  # so long a write may take before its reader counts as gone


def frame(event: str, data: object, id: int | None = None) -> bytes:
    """One event.

    Args:
        event: its type; one line.
        data: written as JSON, which has no line breaks.
        id: what the client sends back as `Last-Event-ID`; None for what cannot be asked for again.
    """
    number = b"" if id is None else b"id: %d\n" % id
    return b"%sevent: %s\ndata: %s\n\n" % (number, event.encode(), dumps(data))


class EventStream(StreamingResponse):
    """Answers with frames as they come from a generator, and with a comment whenever there is none for a while.

    The generator is closed when it ends, when the client has gone, or when the client does not read. When the server
    ends, the stream ends with a comment, and the generator is closed after the runtime has stopped.

    Args:
        source: makes the frames; it must not raise.
        closing: the server's end.
        heartbeat: seconds of silence before a comment.
        headers: beside those that keep proxies from buffering.
    """

    def __init__(
        self,
        source: AsyncGenerator[bytes],
        closing: Closing,
        *,
        heartbeat: float = HEARTBEAT_S,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(source, headers={**_HEADERS, **(headers or {})})
        self._source = source
        self._closing = closing
        self._heartbeat = heartbeat
        self._buffer = bytearray()
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self._over = False
        self._gone = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it all."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        feeding = asyncio.create_task(self._feed())
        listening = asyncio.create_task(self._listen(receive))
        try:
            with self._closing.wakes(self._news):
                await self._pump(send)
        finally:
            listening.cancel()
            if self._closing.begun and not self._over:
                self._closing.keep(feeding)
            else:
                feeding.cancel()
                await asyncio.wait([feeding])

    async def _feed(self) -> None:
        try:
            async with aclosing(self._source) as source:
                async for piece in source:
                    self._buffer += piece
                    self._news.set()
                    if len(self._buffer) > _FULL:
                        self._room.clear()
                        await self._room.wait()
        except Exception:
            log.exception("a stream broke off")
        finally:
            self._over = True
            self._news.set()

    async def _listen(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._gone = True
        self._news.set()

    async def _pump(self, send: Send) -> None:
        while not self._gone:
            if self._buffer:
                if not await _sent(send, self._take()):
                    return
            elif self._closing.begun:
                await _sent(send, b"" if self._over else _STOPPING, more=False)
                return
            elif self._over:
                await _sent(send, b"", more=False)
                return
            elif not await self._told() and not await _sent(send, _KEEP_ALIVE):
                return

    async def _told(self) -> bool:
        """Wait for news; False after a silence."""
        try:
            async with asyncio.timeout(self._heartbeat):
                await self._news.wait()
        except TimeoutError:
            return False
        self._news.clear()
        return True

    def _take(self) -> bytes:
        taken = bytes(self._buffer)
        self._buffer.clear()
        self._room.set()
        return taken


async def _sent(send: Send, body: bytes, *, more: bool = True) -> bool:
    """Send a piece; False if the client has gone, or does not read."""
    try:
        async with asyncio.timeout(_STALLED_S):
            await send({"type": "http.response.body", "body": body, "more_body": more})
    except (OSError, TimeoutError):
        return False
    return True
