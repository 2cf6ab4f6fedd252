# pyright: basic, reportMissingImports=false
"""A deterministic, stateless model server: bare ASGI, the providers' wire formats, their refusals.

    .venvs/server/bin/python -m uvicorn bench.server:app --port 8099 --loop uvloop --http httptools

    POST /v1/chat/completions   OpenAI chat completions, whole or streamed
    POST /v1/messages           Anthropic messages, whole or streamed
    GET  /stats, /reset         counters; never used for an answer

What to answer is written in the model's name, `fake-k10-p1-d0-c1-g0-nadd`, every part optional:
    k  rounds of tool calls before the final text     c  chunks of the final text when streamed
    p  parallel calls per round                       g  gap between those chunks, microseconds
    d  delay before each answer, milliseconds         n  name of the tool to call
The round is counted from the request itself.  A history that the real service refuses (a result without its
call, a call without its result, a missing field) is refused with 400, so a peer cannot win by sending less.
"""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import orjson

Json = dict[str, Any]
Send = Callable[[Json], Awaitable[None]]
Receive = Callable[[], Awaitable[Json]]

TOKENS = [f" tk{i}" for i in range(7)]
BROKEN = (KeyError, TypeError, AttributeError, IndexError, ValueError)
JSON_HEADERS = [(b"content-type", b"application/json")]
SSE_HEADERS = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")]


class Refused(Exception):
    """The request is one that the real service answers with 400."""


# ------------------------------------------------------------------------------------------ what to answer


@dataclass(frozen=True)
class Spec:
    """The wishes in a model's name."""

    k: int = 0
    p: int = 1
    d: int = 0
    c: int = 1
    g: int = 0
    n: str = "add"


@lru_cache(maxsize=1024)
def spec(model: str) -> Spec:
    """Reads a model's name; unknown parts are ignored."""
    numbers: dict[str, int] = {}
    tool = "add"
    for part in model.split("-")[1:]:
        if match := re.fullmatch(r"([kpdcg])(\d+)", part):
            numbers[match[1]] = int(match[2])
        elif part.startswith("n"):
            tool = part[1:]
    return Spec(**numbers, n=tool)


@dataclass(frozen=True)
class Call:
    """One tool call of an answer."""

    id: str
    name: str
    a: int
    b: int

    @property
    def arguments(self) -> str:
        return f'{{"a":{self.a},"b":{self.b}}}'


@dataclass(frozen=True)
class Answer:
    """The server's next message: either calls or the final text."""

    model: str
    round: int
    spec: Spec
    calls: list[Call]

    @classmethod
    def to(cls, body: Json, calls_done: int) -> "Answer":
        """The answer to a request that already holds `calls_done` calls."""
        wish = spec(str(body["model"]))
        done = calls_done // wish.p
        calls = [Call(f"call_{done}_{i}", wish.n, done, i) for i in range(wish.p)] if done < wish.k else []
        return cls(str(body["model"]), done, wish, calls)

    @property
    def text(self) -> str:
        return "".join(self.pieces(f"done {self.round}"))

    def pieces(self, first: str) -> Iterator[str]:
        """The final text, chunk by chunk."""
        yield first
        for i in range(self.spec.c - 1):
            yield TOKENS[i % len(TOKENS)]

    def stamped_pieces(self) -> Iterator[str]:
        """The same with the server's clock in front, which tells the client the time to first text."""
        return self.pieces(f"T{time.monotonic_ns()};done {self.round}")


# ----------------------------------------------------------------------------------- OpenAI chat completions

CHAT_USAGE: Json = {
    "prompt_tokens": 10,
    "completion_tokens": 5,
    "total_tokens": 15,
    "prompt_tokens_details": {"cached_tokens": 0},
    "completion_tokens_details": {"reasoning_tokens": 0},
}


def chat_check(body: Json) -> int:
    """Refuses a broken history; returns the number of calls in it."""
    messages: list[Json] | None = body.get("messages")
    if not messages:
        raise Refused("'messages' must be a non-empty array")
    pending: set[str] = set()
    calls = 0
    for index, message in enumerate(messages):
        role = message.get("role")
        if role == "tool":
            _chat_check_result(index, message, pending)
            continue
        if pending:
            raise Refused(f"messages[{index}]: 'tool_calls' without their tool messages: {sorted(pending)}")
        if role == "assistant":
            pending.update(_chat_check_calls(index, message))
            calls += len(pending)
        elif role not in ("system", "developer", "user"):
            raise Refused(f"messages[{index}]: invalid role {role!r}")
    if pending:
        raise Refused(f"'tool_calls' without response: {sorted(pending)}")
    return calls


def _chat_check_result(index: int, message: Json, pending: set[str]) -> None:
    call_id = message.get("tool_call_id")
    if call_id not in pending:
        raise Refused(f"messages[{index}]: role 'tool' answers no preceding call ({call_id!r})")
    if message.get("content") is None:
        raise Refused(f"messages[{index}]: missing content")
    pending.discard(call_id)


def _chat_check_calls(index: int, message: Json) -> list[str]:
    calls = message.get("tool_calls") or []
    if not calls and message.get("content") is None:
        raise Refused(f"messages[{index}]: assistant message without content or tool_calls")
    for call in calls:
        if call.get("type") != "function" or not call.get("id"):
            raise Refused(f"messages[{index}]: bad tool call {call}")
        orjson.loads(call["function"]["arguments"])
    return [call["id"] for call in calls]


def chat_whole(answer: Answer) -> Json:
    """The answer as one chat completion."""
    message: Json = {"role": "assistant", "content": None if answer.calls else answer.text, "refusal": None}
    if answer.calls:
        message["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in answer.calls
        ]
    reason = "tool_calls" if answer.calls else "stop"
    choice: Json = {"index": 0, "message": message, "logprobs": None, "finish_reason": reason}
    return {**_chat_head(answer, "chat.completion"), "usage": CHAT_USAGE, "choices": [choice]}


def chat_stream(answer: Answer, body: Json) -> Iterator[bytes]:
    """The answer as server-sent chunks."""
    head = _chat_head(answer, "chat.completion.chunk")

    def chunk(delta: Json, reason: str | None = None) -> bytes:
        choice: Json = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        return _sse({**head, "choices": [choice]})

    yield chunk({"role": "assistant", "content": None if answer.calls else ""})
    for index, call in enumerate(answer.calls):
        opening: Json = {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": ""}}
        yield chunk({"tool_calls": [{"index": index, **opening}]})
        yield chunk({"tool_calls": [{"index": index, "function": {"arguments": call.arguments}}]})
    if not answer.calls:
        for piece in answer.stamped_pieces():
            yield chunk({"content": piece})
    yield chunk({}, "tool_calls" if answer.calls else "stop")
    if (body.get("stream_options") or {}).get("include_usage"):
        yield _sse({**head, "choices": [], "usage": CHAT_USAGE})
    yield b"data: [DONE]\n\n"


def _chat_head(answer: Answer, kind: str) -> Json:
    return {
        "id": f"chatcmpl-{answer.round}",
        "object": kind,
        "created": 1700000000,
        "model": answer.model,
        "system_fingerprint": "fp_fake",
    }


# ---------------------------------------------------------------------------------------- Anthropic messages


def messages_check(body: Json) -> int:
    """Refuses a broken history; returns the number of calls in it."""
    if not body.get("max_tokens"):
        raise Refused("max_tokens: Field required")
    if not body.get("messages"):
        raise Refused("messages: at least one message is required")
    pending: set[str] = set()
    calls = 0
    messages: list[Json] = body["messages"]
    for index, message in enumerate(messages):
        blocks: list[Json] = [] if isinstance(message["content"], str) else message["content"]
        if message["role"] == "assistant" and not pending:
            pending.update(block["id"] for block in blocks if block["type"] == "tool_use")
            calls += len(pending)
            continue
        for block in blocks:
            if block["type"] == "tool_result" and block["tool_use_id"] not in pending:
                raise Refused(f"messages.{index}: unexpected tool_use_id in tool_result")
            pending.discard(block.get("tool_use_id", ""))
        if pending:
            raise Refused(f"messages.{index}: tool_use ids without tool_result: {sorted(pending)}")
    if pending:
        raise Refused(f"tool_use ids without tool_result: {sorted(pending)}")
    return calls


def messages_whole(answer: Answer) -> Json:
    """The answer as one message."""
    content: list[Json] = [
        {"type": "tool_use", "id": call.id, "name": call.name, "input": {"a": call.a, "b": call.b}}
        for call in answer.calls
    ]
    return {
        "id": f"msg_{answer.round}",
        "type": "message",
        "role": "assistant",
        "model": answer.model,
        "content": content or [{"type": "text", "text": answer.text}],
        "stop_reason": "tool_use" if answer.calls else "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 10, "output_tokens": 5},
    }


def messages_stream(answer: Answer, body: Json) -> Iterator[bytes]:
    """The answer as server-sent events."""
    whole = messages_whole(answer)
    yield _event("message_start", message={**whole, "content": [], "stop_reason": None})
    for index, block in enumerate(whole["content"]):
        if block["type"] == "tool_use":
            yield _event("content_block_start", index=index, content_block={**block, "input": {}})
            delta = {"type": "input_json_delta", "partial_json": orjson.dumps(block["input"]).decode()}
            yield _event("content_block_delta", index=index, delta=delta)
        else:
            yield _event("content_block_start", index=index, content_block={"type": "text", "text": ""})
            for piece in answer.stamped_pieces():
                yield _event("content_block_delta", index=index, delta={"type": "text_delta", "text": piece})
        yield _event("content_block_stop", index=index)
    ending: Json = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
    yield _event("message_delta", delta=ending, usage={"output_tokens": 5})
    yield _event("message_stop")


# ---------------------------------------------------------------------------------------------- the ASGI side


def _sse(data: Json) -> bytes:
    return b"data: " + orjson.dumps(data) + b"\n\n"


def _event(kind: str, **fields: Any) -> bytes:
    return b"event: " + kind.encode() + b"\n" + _sse({"type": kind, **fields})


@dataclass(frozen=True)
class Route:
    """One wire format: how to check a request and how to write the answer."""

    check: Callable[[Json], int]
    whole: Callable[[Answer], Json]
    stream: Callable[[Answer, Json], Iterator[bytes]]


ROUTES = {
    "/v1/chat/completions": Route(chat_check, chat_whole, chat_stream),
    "/v1/messages": Route(messages_check, messages_whole, messages_stream),
}


@dataclass
class Stats:
    """What the server saw since the last reset."""

    requests: int = 0
    bytes_in: int = 0
    max_body: int = 0
    errors: int = 0
    last_error: str = ""
    in_flight: int = 0
    max_in_flight: int = 0
    clients: set[Any] = field(default_factory=set[Any])

    def reset(self) -> None:
        vars(self).update(vars(Stats(in_flight=self.in_flight)))

    def count(self, client: Any, size: int) -> None:
        self.requests += 1
        self.bytes_in += size
        self.max_body = max(self.max_body, size)
        self.max_in_flight = max(self.max_in_flight, self.in_flight)
        self.clients.add(client)

    def as_json(self) -> Json:
        counters = {name: value for name, value in vars(self).items() if name != "clients"}
        return {**counters, "connections": len(self.clients)}


STATS = Stats()


async def app(scope: Json, receive: Receive, send: Send) -> None:
    """The ASGI application."""
    if scope["type"] == "lifespan":
        return await _lifespan(receive, send)
    path = scope["path"]
    if path == "/stats":
        return await _reply(send, 200, STATS.as_json())
    if path == "/reset":
        STATS.reset()
        return await _reply(send, 200, {})
    if path not in ROUTES:
        return await _reply(send, 404, {"error": {"message": f"no route {path}"}})
    STATS.in_flight += 1
    try:
        await _answer(ROUTES[path], await _body(scope, receive), send)
    finally:
        STATS.in_flight -= 1


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        kind = (await receive())["type"]
        await send({"type": f"{kind}.complete"})
        if kind == "lifespan.shutdown":
            return


async def _body(scope: Json, receive: Receive) -> bytes:
    parts: list[bytes] = []
    more = True
    while more:
        message = await receive()
        parts.append(message.get("body", b""))
        more = message.get("more_body", False)
    raw = b"".join(parts)
    STATS.count(scope["client"], len(raw))
    return raw


async def _answer(route: Route, raw: bytes, send: Send) -> None:
    try:
        body = orjson.loads(raw)
        answer = Answer.to(body, route.check(body))
    except (Refused, *BROKEN) as error:
        await _refuse(error, send)
        return
    if answer.spec.d:
        await asyncio.sleep(answer.spec.d / 1000)
    if body.get("stream"):
        await _stream(route.stream(answer, body), answer.spec.g / 1e6, send)
    else:
        await _reply(send, 200, route.whole(answer))


async def _refuse(error: Exception, send: Send) -> None:
    STATS.errors += 1
    STATS.last_error = repr(error)
    problem = {"type": "invalid_request_error", "message": str(error), "param": None, "code": None}
    await _reply(send, 400, {"type": "error", "error": problem})


async def _stream(chunks: Iterator[bytes], gap: float, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": SSE_HEADERS})
    for chunk in chunks:
        await send({"type": "http.response.body", "body": chunk, "more_body": True})
        if gap:
            await asyncio.sleep(gap)
    await send({"type": "http.response.body", "body": b""})


async def _reply(send: Send, status: int, data: Json) -> None:
    raw = orjson.dumps(data)
    headers = [*JSON_HEADERS, (b"content-length", b"%d" % len(raw))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": raw})
