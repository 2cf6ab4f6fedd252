"""A real server on loopback, real HTTP clients of several users, and models that are told what to say."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import uvicorn
from fastapi import FastAPI

from glassloop import Agent
from glassloop.models.openai_chat import OpenAIChat
from glassloop.runtime import Runtime
from glassloop.server import create_app, make_auth
from glassloop.testing import ModelServer, ScriptedModel

Agents = Agent | Sequence[Agent]


@dataclass(frozen=True)
class Frame:
    """One server-sent event: its type, its data, and its id if it has one."""

    event: str
    data: dict[str, Any]
    id: int | None = None


@dataclass
class Answer:
    """An HTTP answer."""

    status: int
    headers: Mapping[str, str]
    text: str

    @property
    def json(self) -> Any:
        """The body."""
        return json.loads(self.text)

    @property
    def problem(self) -> dict[str, Any]:
        """The body, which must be a problem (RFC 9457) of the answer's status."""
        assert self.headers["Content-Type"] == "application/problem+json"
        body: dict[str, Any] = self.json
        assert body["status"] == self.status
        assert {"type", "title", "detail", "code", "request_id"} <= body.keys()
        return body


@dataclass
class Stream:
    """A stream that is being read."""

    response: aiohttp.ClientResponse
    comments: list[str] = field(default_factory=list[str])

    async def frames(self) -> AsyncIterator[Frame]:
        """The events as they come; comments are put aside."""
        block: dict[str, str] = {}
        async for raw in self.response.content:
            line = raw.decode().rstrip("\n")
            if line.startswith(":"):
                self.comments.append(line[1:].strip())
            elif line:
                name, _, value = line.partition(": ")
                block[name] = value
            elif "event" in block:
                number = block.get("id")
                yield Frame(block["event"], json.loads(block["data"]), int(number) if number else None)
                block = {}
            else:
                block = {}

    async def until(self, event: str) -> Frame:
        """The next event of this type."""
        async for frame in self.frames():
            if frame.event == event:
                return frame
        raise AssertionError(f"the stream ended without {event}")

    async def all(self) -> list[Frame]:
        """All events up to the end."""
        return [frame async for frame in self.frames()]


class Client:
    """What one user calls the server with."""

    def __init__(self, http: aiohttp.ClientSession, url: str, key: str | None) -> None:
        self.http = http
        self.url = url
        self.headers = {"Authorization": f"Bearer {key}"} if key else {}

    async def __call__(self, method: str, path: str, body: Any = None, **options: Any) -> Answer:
        """Call and read the whole answer."""
        headers = {**self.headers, **options.pop("headers", {})}
        if body is not None:
            options["json"] = body
        async with self.http.request(method, self.url + path, headers=headers, **options) as response:
            return Answer(response.status, response.headers, await response.text())

    async def get(self, path: str, **options: Any) -> Answer:
        """GET."""
        return await self("GET", path, **options)

    async def post(self, path: str, body: Any = None, **options: Any) -> Answer:
        """POST."""
        return await self("POST", path, body, **options)

    @asynccontextmanager
    async def stream(self, method: str, path: str, body: Any = None, **headers: str) -> AsyncGenerator[Stream]:
        """Call and read the answer as a stream; leaving the block closes the connection."""
        sent = {**self.headers, **{name.replace("_", "-"): value for name, value in headers.items()}}
        async with (
            aiohttp.ClientSession() as http,  # a connection of its own, which is closed with the block
            http.request(method, self.url + path, json=body, headers=sent) as response,
        ):
            assert response.status == 200, await response.text()
            yield Stream(response)

    async def run(self, input: str = "hi", **options: Any) -> str:
        """Start a run and return its id."""
        started = await self.post("/v1/runs", {"input": input, **options})
        assert started.status == 202, started.text
        return started.json["run_id"]

    async def rested(self, run_id: str) -> dict[str, Any]:
        """Wait until a run rests and return it."""
        async with self.stream("GET", f"/v1/runs/{run_id}/events") as stream:
            await stream.until("end")
        return (await self.get(f"/v1/runs/{run_id}")).json


@dataclass
class Site:
    """A running server and its users."""

    app: FastAPI
    url: str
    runtime: Runtime
    http: aiohttp.ClientSession

    def client(self, key: str | None) -> Client:
        """A user, by key."""
        return Client(self.http, self.url, key)

    @property
    def alice(self) -> Client:
        """A user."""
        return self.client("demo-alice")

    @property
    def bob(self) -> Client:
        """Another user of the same tenant."""
        return self.client("demo-bob")

    @property
    def sam(self) -> Client:
        """A supervisor of the same tenant."""
        return self.client("demo-sam")

    @property
    def nobody(self) -> Client:
        """Somebody without a key."""
        return self.client(None)


@asynccontextmanager
async def served(app: FastAPI) -> AsyncGenerator[str]:
    """Serve an app on loopback while the block runs; its URL."""
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(
        app, log_config=None, access_log=False, lifespan="on", ws="none", timeout_graceful_shutdown=3
    )
    server = uvicorn.Server(config)
    task = asyncio.create_task(server.serve([listener]))
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        app.state.glassloop.closing.begin()
        server.should_exit = True
        await task
        listener.close()


@pytest.fixture
def store(tmp_path: Path) -> str:
    """Where the runtime keeps everything."""
    return f"sqlite:///{tmp_path}/store.db"


@pytest.fixture
async def serve(store: str) -> AsyncIterator[Callable[..., Any]]:
    """`await serve(agents, **options)`: a running server with the demonstration keys; options are `create_app`'s."""
    async with AsyncExitStack() as held:

        async def start(agents: Agents | Runtime, **options: Any) -> Site:
            runtime = agents if isinstance(agents, Runtime) else Runtime(agents, store=store)
            app = create_app(runtime, auth=options.pop("auth", make_auth({}, demo=True)), **options)
            url = await held.enter_async_context(served(app))
            http = await held.enter_async_context(aiohttp.ClientSession())
            return Site(app, url, runtime, http)

        yield start


@pytest.fixture
async def site(serve: Callable[..., Any]) -> Site:
    """A server with one agent that answers at once."""
    return await serve(Agent(ScriptedModel(lambda _: "It is 21 degrees in Oslo."), name="weather"))


@pytest.fixture
def model_at() -> Callable[[ModelServer], OpenAIChat]:
    """A model behind a model server."""
    return lambda server: OpenAIChat("test", base_url=server.url, api_key="k")
