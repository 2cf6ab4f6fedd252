"""The transport seam: one POST, its answer streamed, exactly one attempt."""

from __future__ import annotations

import asyncio
import importlib
import re
from collections.abc import Awaitable, Mapping
from typing import Protocol

_AFTER_HOST = re.compile(r"[/?#]")


class Response(Protocol):
    """An answer whose head has arrived."""

    @property
    def status(self) -> int:
        """HTTP status."""
        ...

    @property
    def headers(self) -> Mapping[str, str]:
        """Headers; names are looked up in any case."""
        ...

    async def read(self) -> bytes:
        """The whole body.

        Raises:
            ModelError: the connection broke, or time ran out.
        """
        ...

    async def read_some(self) -> bytes:
        """What has come of the body since the last read, as soon as there is something; empty at the end.

        Raises:
            ModelError: the connection broke, or time ran out.
        """
        ...

    def limit_silence(self, seconds: float) -> None:
        """From now on a read for which nothing comes for so long fails: `timeout`. Called at most once."""
        ...

    async def finish(self) -> None:
        """Nothing more is wanted: take what is left if it comes at once, so that the connection can be used again."""
        ...

    def close(self) -> None:
        """Let go; idempotent. A body that was not read to its end is cut off, and the server sees it at once."""
        ...


class Transport(Protocol):
    """How requests reach a provider. Retries are not its business."""

    def post(self, url: str, headers: Mapping[str, str], body: bytes, timeout: float) -> Awaitable[Response]:
        """Send `body` once and wait for the head of the answer, whatever its status; the caller closes the response.

        Redirects are not followed: a key belongs to the host it was given for.

        Args:
            url: where to.
            headers: sent as they are.
            body: JSON.
            timeout: seconds from now to the end of the body.

        Raises:
            ModelError: `connection` or `timeout`; the message names the host and nothing secret.
        """
        ...


class LazyTransport:
    """HTTP by aiohttp, which is loaded with the first request and not with the library.

    It is loaded in a thread: reading a hundred modules from the disk must not hold up the event loop.
    """

    def __init__(self) -> None:
        self._http: Transport | None = None

    def post(self, url: str, headers: Mapping[str, str], body: bytes, timeout: float) -> Awaitable[Response]:
        """See `Transport.post`."""
        if self._http is None:
            return self._load_and_post(url, headers, body, timeout)
        return self._http.post(url, headers, body, timeout)

    async def _load_and_post(self, url: str, headers: Mapping[str, str], body: bytes, timeout: float) -> Response:
        module = await asyncio.to_thread(importlib.import_module, "glassloop.models.http")
        http: Transport = self._http or module.AiohttpTransport()
        self._http = http
        return await http.post(url, headers, body, timeout)


DEFAULT_TRANSPORT = LazyTransport()
"""What models use that were given none."""


def host_of(url: str) -> str:
    """Host and port of a URL, for messages: never user, password, path or query."""
    return _AFTER_HOST.split(url.partition("://")[2] or url, maxsplit=1)[0].rpartition("@")[2]
