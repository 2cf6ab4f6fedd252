"""What tests of models share: a server of raw bytes, strategies for conversations, and Anthropic's rules."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import strategies as st

from glassloop.core.encoding import dumps
from glassloop.core.messages import (
    Media,
    Message,
    Opaque,
    Part,
    Reply,
    SystemMessage,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    UserMessage,
)
from glassloop.models.fake_transport import FakeAnswer, FakeTransport
from glassloop.models.model import Model, ModelPart, ModelRequest, ReplyPart


@dataclass
class RawServer:
    """A server that answers each connection with given bytes, one list of them per request, and sees who leaves."""

    answers: list[list[bytes]] = field(default_factory=list[list[bytes]])
    requests: list[bytes] = field(default_factory=list[bytes])
    connections: int = 0
    pause: float = 0.0
    """Seconds after each piece."""
    hold: bool = False
    """Whether connections are kept open after the last answer, until the client goes."""
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a request has arrived."""
    left: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a client closed its connection."""
    port: int = 0

    @property
    def url(self) -> str:
        """Base URL."""
        return f"http://127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        self.connections += 1
        try:
            while await self._exchange(reader, writer):
                pass
            if self.hold:
                await reader.read()
                self.left.set()
        except ConnectionError:
            self.left.set()
        finally:
            writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = await reader.readuntil(b"\r\n\r\n") if not reader.at_eof() else b""
        length = re.search(rb"(?i)content-length: (\d+)", head)
        body = await reader.readexactly(int(length[1])) if length else b""
        self.requests.append(head + body)
        self.asked.set()
        for piece in self.answers.pop(0):
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(self.pause)
        return bool(self.answers) and not self.hold


@pytest.fixture
async def raw_server() -> AsyncIterator[RawServer]:
    """A running `RawServer`."""
    server = RawServer()
    listening = await asyncio.start_server(_quiet(server.serve), "127.0.0.1", 0)
    server.port = listening.sockets[0].getsockname()[1]
    yield server
    listening.close()


Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def _quiet(serve: Serve) -> Serve:
    async def served(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve(reader, writer)
        except asyncio.IncompleteReadError:
            writer.close()

    return served


Play = Callable[..., Awaitable[tuple[Reply, list[ModelPart]]]]


@pytest.fixture(scope="session")
def play() -> Play:
    """Asks a model and gives the reply (ids of calls taken out, for they are new each time) and all parts."""

    async def play(model: Model, request: ModelRequest | None = None, *, stream: bool = True) -> Any:
        asked = request or ModelRequest((UserMessage("hi"),), stream=stream)
        parts = [part async for part in model.stream(asked)]
        last = parts[-1]
        assert isinstance(last, ReplyPart)
        assert not any(isinstance(part, ReplyPart) for part in parts[:-1])
        return without_ids(last.reply), parts[:-1]

    return play


def without_ids(reply: Reply) -> Reply:
    """The reply with the fresh ids of its calls taken out."""
    parts = (replace(part, id="") if isinstance(part, ToolCall) else part for part in reply.parts)
    return replace(reply, parts=tuple(parts))


@pytest.fixture(scope="session")
def sent() -> Callable[[Callable[[FakeTransport], Model], ModelRequest], Awaitable[Any]]:
    """Sends a request to nowhere and gives its body, decoded."""

    async def sent(make: Callable[[FakeTransport], Model], request: ModelRequest) -> Any:
        transport = FakeTransport(FakeAnswer(status=418))
        with pytest.raises(Exception, match="418"):
            async for _ in make(transport).stream(request):
                pass
        return transport.posts[0].json

    return sent


_NAME = re.compile(r"[a-zA-Z0-9_-]+")


@pytest.fixture(scope="session")
def anthropic_violations() -> Callable[[Mapping[str, Any]], list[str]]:
    """What Anthropic's Messages would refuse in a request."""
    return _anthropic_violations


def _anthropic_violations(body: Mapping[str, Any]) -> list[str]:
    found = ["tools: empty"] if body.get("tools") == [] else []
    previous, seen, waiting = "assistant", set[str](), list[str]()
    for number, message in enumerate(body["messages"]):
        role, blocks = message["role"], message["content"]
        if role == previous or not blocks:
            found.append(f"{number}: {role} follows {previous}, or is empty")
        previous = role
        answered = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        if sorted(answered) != sorted(waiting):
            found.append(f"{number}: results {answered} for calls {waiting}")
        if any(block["type"] == "tool_result" for block in blocks[len(answered) :]):
            found.append(f"{number}: results are not first")
        waiting = [block["id"] for block in blocks if block["type"] == "tool_use"]
        found += [f"{number}: id {id_!r}" for id_ in waiting if id_ in seen or not _NAME.fullmatch(id_)]
        seen.update(waiting)
        found += [f"{number}: {problem}" for block in blocks if (problem := _block_problem(block))]
    return [*found, *(["calls without results at the end"] if waiting else [])]


def _block_problem(block: Mapping[str, Any]) -> str | None:
    match block["type"]:
        case "text" if not block["text"].strip():
            return "empty text"
        case "tool_use" if not isinstance(block["input"], dict):
            return "input is no object"
        case "thinking" if not block["signature"]:
            return "unsigned thinking"
        case "tool_result" if block.get("is_error") and '"base64"' in dumps(block).decode():
            return "an error with something other than text"
        case _:
            return None


IDS = st.sampled_from(["a", "b", "c", "d", "e"])
WORDS = st.sampled_from(["", " ", "hello", "你好 🌍", "half \ud83d of it", "\x00\n"])
NAMES = st.sampled_from(["add", "docs.open", "查询", "add<|channel|>x", "", "x" * 90])
ARGUMENTS = st.sampled_from(['{"a": 1}', "", "null", '"{\\"a\\": 1}"', '{"a": 1', "[1]", '{"a": NaN}', "{'a': True}"])
PROVIDER_IDS = st.sampled_from(["", "p1", "p2", "a", "functions.add:0", "x" * 80])
MEDIA = st.sampled_from(
    [
        Media.of(b"png", "image/png"),
        Media.of(b"x" * 3_000_000, "image/png", "big.png"),
        Media.of(b"%PDF", "application/pdf"),
        Media("image/png", "0" * 32, 7),
        Media.of(b"zip", "application/zip"),
    ]
)
PARTS: st.SearchStrategy[Part] = st.one_of(
    st.builds(Text, WORDS),
    st.builds(Thinking, WORDS, st.sampled_from([None, "", "SIGNED"])),
    st.just(Thinking(redacted="SEALED")),
    st.builds(ToolCall, IDS, NAMES, ARGUMENTS, PROVIDER_IDS),
    st.builds(Opaque, st.just({"type": "server_tool_use", "id": "s1", "name": "search", "input": {}})),
)
MESSAGES: st.SearchStrategy[Message] = st.one_of(
    st.builds(UserMessage, WORDS),
    st.builds(UserMessage, st.lists(st.one_of(st.builds(Text, WORDS), MEDIA), max_size=3).map(tuple)),
    st.builds(SystemMessage, WORDS),
    st.builds(
        Reply,
        st.lists(PARTS, max_size=4).map(tuple),
        provider=st.sampled_from(["", "openai-chat:one.test", "anthropic-messages:one.test", "other"]),
        refusal=st.sampled_from([None, "I can't."]),
        extra=st.sampled_from([{}, {"reasoning_content": None}]),
    ),
    st.builds(
        ToolResult,
        IDS,
        NAMES,
        WORDS,
        st.sampled_from(["ok", "error", "unknown"]),
        media=st.lists(MEDIA, max_size=2).map(tuple),
    ),
)


@pytest.fixture(scope="session")
def any_conversation() -> st.SearchStrategy[list[Message]]:
    """Conversations of every kind, most of them in a bad state."""
    return st.lists(MESSAGES, max_size=10)
