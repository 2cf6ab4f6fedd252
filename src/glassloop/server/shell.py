"""What stands around every request: an id, a line in the log, limits, and who is calling."""

from __future__ import annotations

import ipaddress
import logging
import re
import time
from collections.abc import Collection
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from glassloop.core.context import Identity
from glassloop.core.ids import new_id
from glassloop.server.auth import Auth
from glassloop.server.closing import Closing
from glassloop.server.problems import Refused, as_problem, problem_response

log = logging.getLogger("glassloop.server")

PUBLIC = frozenset({"/healthz", "/readyz", "/openapi.json"})
"""Paths that need no key."""

_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_UNPRINTABLE = re.compile(r"[^\x21-\x7e]")
_CHALLENGE = 'Bearer realm="glassloop"'


class Shell:
    """Lets a request through to the app if it may pass, and answers in the app's place if not.

    Args:
        app: the app.
        auth: who may call.
        closing: the server's end.
        max_body: bytes that a request's body may have.
        public: paths that need no key.
    """

    def __init__(
        self, app: ASGIApp, *, auth: Auth, closing: Closing, max_body: int, public: Collection[str] = PUBLIC
    ) -> None:
        self._app = app
        self._auth = auth
        self._closing = closing
        self._max_body = max_body
        self._public = public

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008, "reason": "no websockets here"})
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = _Exchange(scope, send)
        try:
            await self._let_in(scope, receive, exchange)
        except Exception as error:  # noqa: BLE001 - the edge of the server: whatever it is, an answer and a line
            await self._fail(scope, receive, exchange, error)
        finally:
            exchange.log()

    async def _let_in(self, scope: Scope, receive: Receive, exchange: _Exchange) -> None:
        try:
            exchange.identity = scope["state"]["identity"] = self._check(scope["path"], Headers(scope=scope))
        except Refused as problem:
            await problem_response(problem, exchange.id)(scope, receive, exchange.send)
            return
        await self._app(scope, _Limited(receive, self._max_body), exchange.send)

    async def _fail(self, scope: Scope, receive: Receive, exchange: _Exchange, error: Exception) -> None:
        problem = as_problem(error)
        if problem.status_code >= 500:
            log.error("%s: %s", exchange.id, type(error).__name__, exc_info=error)
        if exchange.status is None:
            await problem_response(problem, exchange.id)(scope, receive, exchange.send)
        else:
            raise ConnectionAbortedError("the answer had begun")  # the server cuts the connection: no half answer

    def _check(self, path: str, headers: Headers) -> Identity | None:
        """Who is calling; None on a public path.

        Raises:
            Refused: the request may not pass.
        """
        public = path in self._public
        if self._closing.begun and not public:
            raise Refused(
                503, "stopping", "The server is stopping; try again in a moment.", headers={"Retry-After": "2"}
            )
        if self._auth.local and not _is_loopback(headers.get("host", "")):
            raise Refused(421, "not_local", "This server answers only to 127.0.0.1, [::1] and localhost.")
        length = headers.get("content-length", "")
        if length.isdecimal() and int(length) > self._max_body:
            raise too_large(self._max_body)
        return None if public else self._identify(headers.get("authorization"))

    def _identify(self, header: str | None) -> Identity:
        scheme, _, token = (header or "").partition(" ")
        token = token.strip() if scheme.lower() == "bearer" else ""
        identity = self._auth.identify(token or None)
        if identity is not None:
            return identity
        if not token:
            detail, challenge = "A key is needed: send the header `Authorization: Bearer KEY`.", _CHALLENGE
        else:
            detail = "This key is not known, or it has expired."
            challenge = f'{_CHALLENGE}, error="invalid_token"'
        raise Refused(401, "unauthorized", detail, headers={"WWW-Authenticate": challenge})


class _Exchange:
    """One request and its answer."""

    def __init__(self, scope: Scope, send: Send) -> None:
        given = Headers(scope=scope).get("x-request-id", "")
        self.id = given if _ID.fullmatch(given) else new_id("req")
        self.status: int | None = None
        self.identity: Identity | None = None
        self._began = time.perf_counter()
        self._scope = scope
        self._send = send
        state: dict[str, Any] = scope.setdefault("state", {})
        state["request_id"] = self.id

    async def send(self, message: Message) -> None:
        """Send a part of the answer."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            headers["X-Request-Id"] = self.id
            headers["X-Content-Type-Options"] = "nosniff"
            headers.setdefault("Cache-Control", "no-store")
        await self._send(message)

    def log(self) -> None:
        """One line; the query stays out of it."""
        who = self.identity
        log.info(
            "%s %s %s %.1f ms %s %s",
            self._scope["method"],
            _UNPRINTABLE.sub("?", self._scope["path"])[:200],
            self.status or "-",
            (time.perf_counter() - self._began) * 1000,
            "-" if who is None else _UNPRINTABLE.sub("?", f"{who.tenant}/{who.user}"),
            self.id,
        )


class _Limited:
    """Receives a body as long as it is small enough, also one that comes in chunks."""

    def __init__(self, receive: Receive, most: int) -> None:
        self._receive = receive
        self._most = most
        self._got = 0

    async def __call__(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.request":
            self._got += len(message.get("body", b""))
            if self._got > self._most:
                raise too_large(self._most)
        return message


def too_large(most: int) -> Refused:
    """The answer to a body of more than `most` bytes."""
    return Refused(413, "too_large", f"The body is larger than {most:,} bytes: send less.")


def is_loopback(host: str) -> bool:
    """Whether a host name or address means this machine alone."""
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _is_loopback(header: str) -> bool:
    """`is_loopback` of a Host header, which may name a port."""
    host = header[1:].partition("]")[0] if header.startswith("[") else header.partition(":")[0]
    return is_loopback(host)
