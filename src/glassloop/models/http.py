"""HTTP by aiohttp."""

from __future__ import annotations

import asyncio
import io
import os
import ssl
import threading
from collections.abc import AsyncGenerator, Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass
from weakref import WeakKeyDictionary

import aiohttp

from glassloop.core.errors import ConfigurationError, ModelError
from glassloop.models.transport import Response, host_of

CONNECT_SECONDS = 15.0
"""Longest wait for a connection; the time-out of the attempt covers the rest."""

_REST_SECONDS = 0.1
_LOOKS = 8  # while a stream may be silent
_LARGE_BODY = 1 << 20  # aiohttp warns about larger bodies in one piece
_PROXY_VARIABLES = ("http_proxy", "https_proxy", "all_proxy")
_USER_AGENT = "glassloop"


class AiohttpTransport:
    """HTTP by aiohttp: one session for each event loop, closed together with the loop.

    The number of connections is not limited here: a run holds at most one, and who starts a thousand runs means it.
    """

    async def post(self, url: str, headers: Mapping[str, str], body: bytes, timeout: float) -> Response:
        """See `Transport.post`."""
        session = _sessions.get(asyncio.get_running_loop()) or await _open_session()
        try:
            response = await session.client.post(
                url,
                headers=headers,
                data=body if len(body) < _LARGE_BODY else io.BytesIO(body),
                timeout=_limits(timeout),
                allow_redirects=False,
                proxy=session.proxy(url) if session.proxies else None,
            )
        except (aiohttp.ClientError, OSError) as error:
            raise _failure(error, url, timeout) from error
        return _AiohttpResponse(response, url, timeout)


class _Session:
    """The aiohttp session of one event loop, and its proxies (read from the environment when it is opened)."""

    def __init__(self) -> None:
        self.client = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=30),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"User-Agent": _USER_AGENT, "Accept-Encoding": "identity"},
            timeout=aiohttp.ClientTimeout(total=None),
        )
        self.holder: AsyncGenerator[None] | None = None
        self.proxies = _proxies()
        self._proxy_of: dict[str, str | None] = {}

    def proxy(self, url: str) -> str | None:
        """The proxy for `url`, by `http_proxy`, `https_proxy`, `all_proxy` and `no_proxy`."""
        parts = urlsplit(url)
        origin = f"{parts.scheme}://{parts.netloc}"
        if origin not in self._proxy_of:
            bypassed = bool(proxy_bypass(parts.netloc))
            found = self.proxies.get(parts.scheme) or self.proxies.get("all")
            self._proxy_of[origin] = None if bypassed else found
        return self._proxy_of[origin]


class _SilenceError(aiohttp.ServerTimeoutError):
    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds


class _AiohttpResponse:
    """See `Response`."""

    __slots__ = ("_reading", "_response", "_timeout", "_timer", "_url", "headers", "status")

    def __init__(self, response: aiohttp.ClientResponse, url: str, timeout: float) -> None:
        self._response = response
        self._url = url
        self._timeout = timeout
        self._reading = False
        self._timer: asyncio.TimerHandle | None = None
        self.status = response.status
        self.headers: Mapping[str, str] = response.headers

    async def read(self) -> bytes:
        try:
            return await self._response.content.read()
        except (aiohttp.ClientError, OSError) as error:
            raise _failure(error, self._url, self._timeout) from error

    async def read_some(self) -> bytes:
        self._reading = True
        try:
            return await self._response.content.readany()
        except (aiohttp.ClientError, OSError) as error:
            raise _failure(error, self._url, self._timeout) from error
        finally:
            self._reading = False

    def limit_silence(self, seconds: float) -> None:
        self._look(asyncio.get_running_loop(), seconds, seen=-1, since=0.0)

    def _look(self, loop: asyncio.AbstractEventLoop, seconds: float, seen: int, since: float) -> None:
        """See whether anything has come since the last look; the look costs, and a chunk does not."""
        content, now = self._response.content, loop.time()
        if content.total_bytes != seen or not self._reading:
            seen, since = content.total_bytes, now
        elif now - since >= seconds:
            content.set_exception(_SilenceError(seconds))
            return
        self._timer = loop.call_later(seconds / _LOOKS, self._look, loop, seconds, seen, since)

    async def finish(self) -> None:
        if self._response.content.at_eof():
            return
        try:
            async with asyncio.timeout(_REST_SECONDS):
                await self._response.content.read()
        except (aiohttp.ClientError, OSError):
            pass

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._response.content.at_eof():
            self._response.release()
        else:
            self._response.close()


_sessions: WeakKeyDictionary[asyncio.AbstractEventLoop, _Session] = WeakKeyDictionary()
_lock = threading.Lock()


async def _open_session() -> _Session:
    """Open the session of this loop, held by an async generator that the loop finishes when it shuts down."""
    loop = asyncio.get_running_loop()
    session = _Session()
    session.holder = _hold(loop, session)
    await anext(session.holder)
    with _lock:
        for other in [other for other in _sessions if other.is_closed()]:
            del _sessions[other]
        _sessions[loop] = session
    return session


async def _hold(loop: asyncio.AbstractEventLoop, session: _Session) -> AsyncGenerator[None]:
    try:
        yield
    finally:
        with _lock:
            _sessions.pop(loop, None)
        await session.client.close()


@lru_cache(maxsize=64)
def _limits(timeout: float) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(total=timeout, sock_connect=min(timeout, CONNECT_SECONDS))


def _proxies() -> dict[str, str]:
    environment = {name.lower() for name in os.environ}
    return getproxies() if environment.intersection(_PROXY_VARIABLES) else {}


def _failure(error: Exception, url: str, timeout: float) -> ModelError | ConfigurationError:
    host = host_of(url)
    match error:
        case aiohttp.InvalidURL():
            return ConfigurationError(f"The model's URL is not a URL of a host ({host or 'no host'}); correct it.")
        case aiohttp.ConnectionTimeoutError():
            seconds = min(timeout, CONNECT_SECONDS)
            return ModelError(f"{host} could not be reached within {seconds:g} s.", kind="timeout")
        case _SilenceError(seconds=silent):
            return ModelError(f"{host} stopped in the middle of its answer: nothing for {silent:g} s.", kind="timeout")
        case TimeoutError():
            return ModelError(f"{host} did not finish its answer within {timeout:g} s.", kind="timeout")
        case aiohttp.ClientConnectorCertificateError() | aiohttp.ClientConnectorSSLError() | ssl.SSLError():
            return ModelError(f"No secure connection to {host}: {_reason(error)}.", kind="connection")
        case aiohttp.ClientConnectorDNSError():
            return ModelError(f"Could not find the host {host}: check the URL and the network.", kind="connection")
        case aiohttp.ClientConnectorError():
            return ModelError(f"Could not connect to {host}: {_reason(error)}.", kind="connection")
        case aiohttp.ServerDisconnectedError():
            return ModelError(f"{host} closed the connection without an answer.", kind="connection")
        case aiohttp.ClientPayloadError():
            return ModelError(f"{host} broke off its answer.", kind="connection")
        case aiohttp.ClientResponseError():
            return ModelError(f"{host} did not answer in valid HTTP.", kind="protocol")
        case _:
            return ModelError(f"The connection to {host} broke: {_reason(error)}.", kind="connection")


def _reason(error: Exception) -> str:
    """The operating system's or OpenSSL's words, without addresses."""
    cause: Any = getattr(error, "os_error", None) or getattr(error, "certificate_error", None) or error
    number, words = getattr(cause, "errno", None), getattr(cause, "strerror", None)
    if isinstance(cause, ssl.SSLError):
        return str(getattr(cause, "verify_message", "") or cause.reason or "TLS failed").lower().replace("_", " ")
    if isinstance(number, int) and number > 0:
        return os.strerror(number).lower()
    return str(words) if words else type(cause).__name__
