"""Run the app with uvicorn: one socket, one line per request on standard error, an end that leaves runs resumable."""

from __future__ import annotations

import logging
import signal
import socket
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType

import uvicorn
from fastapi import FastAPI

from glassloop.core.errors import ConfigurationError
from glassloop.server.closing import Closing
from glassloop.server.desk import Desk

_GRACE_S = 3
_BACKLOG = 2048
_LINE = "%(asctime)s %(levelname)-7s %(message)s"


def serve(
    app: FastAPI, *, host: str = "127.0.0.1", port: int = 8000, ready: Callable[[str], None] | None = None
) -> None:
    """Serve the app of `create_app` until SIGINT or SIGTERM, then return.

    At the end no request is taken any more, streams end with a comment, others get three seconds, and runs are left to
    be resumed.

    Args:
        app: made by `create_app`.
        host: address to listen on.
        port: 0 for a free one.
        ready: called with the URL once requests are answered.

    Raises:
        ConfigurationError: the address cannot be listened on, or the runtime could not start.
        GlassloopError: what the runtime raised when it started.
    """
    desk: Desk = app.state.glassloop
    listener = _listen(host, port)
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="on",
        ws="none",
        timeout_graceful_shutdown=_GRACE_S,
    )
    server = _Server(config, desk.closing, lambda: ready and ready(_url(listener)))
    _log_to_stderr()
    try:
        with listener, _signals_left_to_uvicorn():
            server.run([listener])
    except SystemExit:
        if desk.failure is None:
            raise ConfigurationError("The server could not start.") from None
    if desk.failure is not None:
        raise desk.failure


class _Server(uvicorn.Server):
    """uvicorn, with a word when it is ready and when its end begins."""

    def __init__(self, config: uvicorn.Config, closing: Closing, ready: Callable[[], object]) -> None:
        super().__init__(config)
        self._closing = closing
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._closing.begin()  # before uvicorn waits for connections: streams would never end by themselves
        await super().shutdown(sockets=sockets)


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OverflowError:
        raise ConfigurationError(f"There is no port {port}: use one from 0 to 65535.") from None
    except OSError as error:
        reason = (error.strerror or str(error)).partition(" (while ")[0].lower()
        raise ConfigurationError(
            f"Cannot listen on {host} port {port} ({reason}): use another --host or --port."
        ) from None


def _url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _log_to_stderr() -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter(_LINE))
    ours = logging.getLogger("glassloop")
    ours.handlers, ours.propagate = [handler], False
    ours.setLevel(logging.INFO)
    # what it would say is said by us: failures of requests and of the start
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)


@contextmanager
def _signals_left_to_uvicorn() -> Generator[None]:
    """After it has stopped, uvicorn sends itself the signals again that it got: here they have done their work."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, _nothing) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _nothing(number: int, frame: FrameType | None) -> None:
    pass
