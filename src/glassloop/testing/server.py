"""A model server on loopback: a provider's wire format outside, a brain of yours inside."""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any

from glassloop.core.encoding import dumps, loads
from glassloop.core.errors import ConfigurationError, ScriptError
from glassloop.testing.answer import Answer, Failure, Reaction, answer_of
from glassloop.testing.chat import ChatWire
from glassloop.testing.conversation import Conversation
from glassloop.testing.embeddings import embedding_answer, embedding_violations
from glassloop.testing.messages import MessagesWire
from glassloop.testing.shapes import record
from glassloop.testing.wire import Wire
from glassloop.testing.without_tools import ToollessWire

if TYPE_CHECKING:
    from aiohttp import web

Brain = Callable[[Conversation], Reaction | Awaitable[Reaction]]
"""Decides what to say. An async brain may wait; a plain one must not block, it runs on the server's event loop."""

HOST = "127.0.0.1"
_LARGEST_BODY = 64 * 1024 * 1024
_EMBEDDINGS = "/embeddings"
_ENDLESS_GAP = 0.005
_SSE_HEADERS = {"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache"}


@dataclass(eq=False)
class Received:
    """A request that reached the server.

    Args:
        path: e.g. `/v1/chat/completions`.
        headers: names in lower case.
        raw: the body's bytes.
        at: when it came, on `time.monotonic`.
        body: the body as JSON; an empty object where it is none.
        violations: rules of the provider that it breaks, one sentence each; it was answered with 400.
        conversation: the request as the brain read it; None if the brain was not asked.
        status: what it was answered with; None until then.
        disconnected_at: when the client went away before the answer was complete, on `time.monotonic`.
    """

    path: str
    headers: Mapping[str, str] = field(repr=False)
    raw: bytes = field(repr=False)
    at: float
    body: Mapping[str, Any] = field(repr=False, default_factory=dict[str, Any])
    violations: list[str] = field(default_factory=list[str])
    conversation: Conversation | None = field(repr=False, default=None)
    status: int | None = None
    disconnected_at: float | None = None
    _ended: threading.Event = field(repr=False, default_factory=threading.Event)

    def wait(self, timeout: float = 5.0) -> bool:
        """Block until the answer is complete or the client has gone; False if neither happened in `timeout` seconds."""
        return self._ended.wait(timeout)

    def finish(self, *, gone: bool = False) -> None:
        """The exchange is over; `gone`: because the client went away. Only the first word counts."""
        if gone and not self._ended.is_set():
            self.disconnected_at = time.monotonic()
        self._ended.set()


class ModelServer:
    """A server that speaks OpenAI Chat Completions and Anthropic Messages, streamed and not, and OpenAI Embeddings.

    Requests that the real service would refuse are answered with 400 and a readable message, so that a test fails
    where production would. Use it as a context manager: `with` runs it in a thread of its own, `async with` on the
    running event loop (which then must not be blocked, as by `run_sync`). Embeddings do not ask the brain: they are
    computed from the words (`glassloop.testing.embeddings`). Leaving the block raises `ScriptError` if
    the script was not used up, was asked for more than it has, or the brain raised.

    Args:
        brain: decides what to say.
        script: what to say, request by request, in place of a brain.
        api_key: answer 401 to every other key; None accepts any, and none.
        port: 0 for a free one.
        tools: False for a server without tools, as for models that were never taught to call: it refuses the field, and
            holds its replies to the schema of `response_format` (`glassloop.testing.without_tools`).
        keep: how many of the latest `requests` to keep, for a server that answers for days; None for all.
    """

    def __init__(
        self,
        brain: Brain | None = None,
        *,
        script: Sequence[Reaction] | None = None,
        api_key: str | None = None,
        port: int = 0,
        tools: bool = True,
        keep: int | None = None,
    ) -> None:
        if (brain is None) == (script is None):
            raise ConfigurationError("ModelServer needs a brain or a script, one of the two.")
        self.requests: list[Received] = []
        self._keep = keep
        self._script = list(script or ())
        self._brain = brain or self._next_of_script
        self._api_key = api_key
        self._port = port
        chat = ChatWire() if tools else ToollessWire()
        self._wires: dict[str, Wire] = {"/chat/completions": chat, "/messages": MessagesWire(), _EMBEDDINGS: ChatWire()}
        self._news = threading.Condition()
        self._problem: Exception | None = None
        self._active: set[asyncio.Task[Any]] = set()
        self._closing = False
        self._runner: web.AppRunner | None = None
        self._thread: threading.Thread | None = None
        self._stop: Callable[[], object] = lambda: None

    @property
    def anthropic_url(self) -> str:
        """Base URL for Anthropic clients."""
        return f"http://{HOST}:{self._port}"

    @property
    def url(self) -> str:
        """Base URL for OpenAI clients; ends in /v1."""
        return f"{self.anthropic_url}/v1"

    @property
    def port(self) -> int:
        """The port it listens on."""
        return self._port

    @property
    def violations(self) -> list[str]:
        """Every rule that any request broke."""
        return [violation for request in self.requests for violation in request.violations]

    def wait_for_requests(self, count: int, timeout: float = 5.0) -> bool:
        """Block until `count` requests have come; False if they have not within `timeout` seconds."""
        with self._news:
            return self._news.wait_for(lambda: len(self.requests) >= count, timeout)

    def verify(self) -> None:
        """Check that everything went as written.

        Raises:
            ScriptError: the script has answers left or was asked for more, or the brain raised.
        """
        if self._problem is not None:
            raise ScriptError(f"The stand-in model failed: {self._problem}") from self._problem
        if self._script:
            raise ScriptError(
                f"The script was not used up: {len(self._script)} answers left, {self._script[0]!r} first."
            )

    # Starting and stopping

    def start(self) -> None:
        """Serve from a thread of its own, until `stop`."""
        ready: Future[None] = Future()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._serve(ready)), name="glassloop-model-server", daemon=True
        )
        self._thread.start()
        ready.result()

    def stop(self) -> None:
        """Stop serving and wait for the thread to end; harmless when stopped already."""
        if self._thread is not None:
            self._stop()
            self._thread.join()
            self._thread = None

    def __enter__(self) -> ModelServer:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.stop()
        if kind is None:
            self.verify()

    async def __aenter__(self) -> ModelServer:
        await self._open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self._close()
        if kind is None:
            self.verify()

    async def _serve(self, ready: Future[None]) -> None:
        loop, over = asyncio.get_running_loop(), asyncio.Event()
        self._stop = lambda: loop.call_soon_threadsafe(over.set)
        try:
            await self._open()
        except OSError as error:
            ready.set_exception(error)
            return
        ready.set_result(None)
        await over.wait()
        await self._close()

    async def _open(self) -> None:
        from aiohttp import web

        app = web.Application(client_max_size=_LARGEST_BODY)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._closing = False
        self._runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=1.0)
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, HOST, self._port).start()
        except OSError:
            await self._close()
            raise
        self._port = self._runner.addresses[0][1]

    async def _close(self) -> None:
        self._closing = True
        for task in self._active:
            task.cancel()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    # One request

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        task = asyncio.current_task()
        assert task is not None
        self._active.add(task)
        headers = {name.lower(): value for name, value in request.headers.items()}
        received = Received(request.path, headers, await request.read(), time.monotonic())
        with self._news:
            self.requests.append(received)
            if self._keep is not None and len(self.requests) > self._keep:
                del self.requests[0]
            self._news.notify_all()
        try:
            return await self._reply(request, received)
        except (asyncio.CancelledError, ConnectionError):
            received.finish(gone=not self._closing)
            raise asyncio.CancelledError from None  # a client that leaves is no error, which aiohttp would log
        finally:
            received.finish()
            self._active.discard(task)

    async def _reply(self, request: web.Request, received: Received) -> web.StreamResponse:
        path = request.path.removeprefix("/v1")
        wire = self._wires.get(path)
        if wire is None or request.method != "POST":
            received.violations.append(f"Unknown request: {request.method} {request.path}")
            return _refusal(ChatWire(), Failure(404, received.violations[0]), received)
        if self._api_key is not None and _key(received.headers) != self._api_key:
            return _refusal(wire, Failure(401), received)
        if path == _EMBEDDINGS:
            return self._embed(received)
        received.violations = self._check(lambda body: wire.violations(body, received.headers), received)
        if received.violations:
            return _refusal(wire, Failure(400, " ".join(received.violations)), received)
        received.conversation = wire.read(received.body, received.headers)
        try:
            answer = wire.prepared(await self._think(received.conversation), received.conversation)
        except Exception as error:  # noqa: BLE001 a brain is user code; its error is raised when the block is left
            self._problem = self._problem or error
            return _refusal(wire, Failure(400, f"The stand-in model failed: {error}"), received)
        await asyncio.sleep(answer.delay)
        if answer.failure and not (answer.text and received.conversation.stream):
            return _refusal(wire, answer.failure, received)
        return await self._send(request, received, wire, answer)

    def _embed(self, received: Received) -> web.Response:
        from aiohttp import web

        received.violations = self._check(embedding_violations, received)
        if received.violations:
            return _refusal(ChatWire(), Failure(400, " ".join(received.violations)), received)
        received.status = 200
        return web.Response(body=dumps(embedding_answer(received.body)), content_type="application/json")

    def _check(self, violations: Callable[[object], list[str]], received: Received) -> list[str]:
        try:
            body = loads(received.raw)
        except ValueError as error:
            return [f"The request body is not strict JSON: {error}"]
        received.body = record(body)
        return violations(body)

    async def _think(self, conversation: Conversation) -> Answer:
        reaction = self._brain(conversation)
        return answer_of(await reaction if inspect.isawaitable(reaction) else reaction)

    def _next_of_script(self, conversation: Conversation) -> Reaction:
        if not self._script:
            raise ScriptError(f"The script has no answer left for request {len(self.requests)}.")
        return self._script.pop(0)

    async def _send(self, request: web.Request, received: Received, wire: Wire, answer: Answer) -> web.StreamResponse:
        from aiohttp import web

        conversation = received.conversation
        assert conversation is not None
        received.status = 200
        if not conversation.stream:
            body = dumps(wire.whole(answer, conversation))
            if answer.cut_after is None:
                return web.Response(body=body, content_type="application/json")
            response = web.StreamResponse(
                headers={"Content-Type": "application/json", "Content-Length": str(len(body))}
            )
            await response.prepare(request)
            await response.write(body[: len(body) // 2])
            return _drop(request, received, response)
        response = web.StreamResponse(headers=_SSE_HEADERS)
        await response.prepare(request)
        gap = max(answer.gap, _ENDLESS_GAP) if answer.endless else answer.gap
        sent = 0
        async for packet in _packets(wire.events(answer, conversation), answer.packet):
            if sent == answer.cut_after:
                return _drop(request, received, response)
            await response.write(packet)
            sent += 1
            if gap:
                await asyncio.sleep(gap)
        await response.write_eof()
        return response


def _key(headers: Mapping[str, str]) -> str | None:
    """The client's key, wherever its provider's clients put it."""
    return headers.get("x-api-key") or headers.get("authorization", "").removeprefix("Bearer ")


def _refusal(wire: Wire, failure: Failure, received: Received) -> web.Response:
    from aiohttp import web

    received.status = failure.status
    headers = {} if failure.retry_after is None else {"Retry-After": f"{failure.retry_after:g}"}
    body = dumps(wire.error(failure))
    return web.Response(status=failure.status, body=body, content_type="application/json", headers=headers)


def _drop(request: web.Request, received: Received, response: web.StreamResponse) -> web.StreamResponse:
    """Close the connection in the middle of the answer, as a dying server does."""
    received.finish()
    if request.transport is not None:
        request.transport.close()
    return response


async def _packets(events: Iterable[bytes], size: int | None) -> AsyncIterator[bytes]:
    """The events as they are written to the network."""
    rest = b""
    for event in events:
        if size is None:
            yield event
            continue
        rest += event
        while len(rest) >= size:
            yield rest[:size]
            rest = rest[size:]
    if rest:
        yield rest
