from __future__ import annotations

import asyncio
import gc
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from glassloop import Agent
from glassloop.core.errors import ConfigurationError, ModelError
from glassloop.core.events import AttemptFailed, RunFinished
from glassloop.core.messages import UserMessage
from glassloop.models import exchange
from glassloop.models.http import AiohttpTransport
from glassloop.models.model import ModelRequest, ModelSettings, TextPart, complete
from glassloop.models.openai_chat import OpenAIChat

OK = b'{"choices":[{"message":{"content":"hi"},"finish_reason":"stop"}]}'
CHUNK = b'data: {"choices":[{"delta":{"content":"x"}}]}\n\n'
END = b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
SSE_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
ASK = ModelRequest((UserMessage("q"),))
STREAM = ModelRequest((UserMessage("q"),), stream=True)


def answer(body: bytes, kind: bytes = b"application/json") -> list[bytes]:
    return [b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\ncontent-length: %d\r\n\r\n" % (kind, len(body)), body]


def chunked(*pieces: bytes) -> list[bytes]:
    return [b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces]


async def test_a_request_is_sent_once_with_its_headers_and_body(raw_server: Any) -> None:
    raw_server.answers = [answer(b"{}")]
    transport = AiohttpTransport()
    response = await transport.post(f"{raw_server.url}/path", {"authorization": "Bearer k"}, b'{"a":1}', 5)
    assert (response.status, response.headers["Content-Type"]) == (200, "application/json")
    assert await response.read() == b"{}"
    response.close()
    (request,) = raw_server.requests
    assert request.startswith(b"POST /path HTTP/1.1")
    assert b"\r\nauthorization: Bearer k" in request
    assert request.endswith(b'\r\n\r\n{"a":1}')


async def test_a_connection_is_used_again_also_after_a_stream(raw_server: Any) -> None:
    stream = [SSE_HEAD, *chunked(CHUNK, END), b"0\r\n\r\n"]
    raw_server.answers = [stream, answer(OK), stream]
    model = OpenAIChat("m", base_url=raw_server.url)
    for request in (STREAM, ASK, STREAM):
        assert (await complete(model, request)).text in ("x", "hi")
    assert raw_server.connections == 1


async def test_a_server_that_stays_on_the_line_after_the_end_is_not_waited_for(raw_server: Any) -> None:
    raw_server.answers, raw_server.hold = [[SSE_HEAD, *chunked(CHUNK, END)]], True
    began = time.perf_counter()
    assert (await complete(OpenAIChat("m", base_url=raw_server.url), STREAM)).text == "x"
    assert time.perf_counter() - began < 2
    await asyncio.wait_for(raw_server.left.wait(), 2)


async def test_a_server_that_ends_its_reply_and_not_its_answer_is_waited_for_a_moment(
    raw_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Public: maximhq/bifrost#6784, musistudio/claude-code-router#1271."""
    monkeypatch.setattr(exchange, "LINGER", 0.1)
    finished = END.partition(b"data: [DONE]")[0]
    raw_server.answers, raw_server.hold = [[SSE_HEAD, *chunked(CHUNK, finished, b": keep-alive\n\n")]], True
    async with asyncio.timeout(30):
        assert (await complete(OpenAIChat("m", base_url=raw_server.url), STREAM)).text == "x"
        await raw_server.left.wait()


async def test_leaving_a_stream_closes_the_connection(raw_server: Any) -> None:
    raw_server.answers, raw_server.hold = [[SSE_HEAD, *chunked(CHUNK)]], True
    async for part in OpenAIChat("m", base_url=raw_server.url).stream(STREAM):
        assert part == TextPart("x")
        break
    await asyncio.wait_for(raw_server.left.wait(), 2)


async def test_cancelling_a_request_closes_the_connection(raw_server: Any) -> None:
    raw_server.answers, raw_server.hold = [[]], True
    task = asyncio.ensure_future(complete(OpenAIChat("m", base_url=raw_server.url), ASK))
    await asyncio.wait_for(raw_server.asked.wait(), 2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.wait_for(raw_server.left.wait(), 2)


async def failure(
    raw_server: Any,
    *pieces: bytes,
    stream: bool = False,
    timeout: float = 5,
    settings: ModelSettings | None = None,
) -> ModelError:
    raw_server.answers = [list(pieces)]
    request = ModelRequest((UserMessage("q"),), settings=settings or ModelSettings(timeout=timeout), stream=stream)
    with pytest.raises(ModelError) as caught:
        await complete(OpenAIChat("m", base_url=raw_server.url), request)
    assert raw_server.url.removeprefix("http://") in str(caught.value)
    assert caught.value.retryable
    return caught.value


async def test_a_server_that_hangs_up_without_an_answer(raw_server: Any) -> None:
    error = await failure(raw_server)
    assert (error.kind, "without an answer" in str(error)) == ("connection", True)


async def test_a_body_that_breaks_off(raw_server: Any) -> None:
    error = await failure(raw_server, b"HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\n{")
    assert (error.kind, "broke off" in str(error)) == ("connection", True)


async def test_a_stream_that_breaks_off_keeps_what_was_shown(raw_server: Any) -> None:
    error = await failure(raw_server, SSE_HEAD, *chunked(CHUNK, CHUNK), stream=True)
    assert (error.kind, error.partial) == ("connection", "xx")


async def test_a_server_that_breaks_off_after_the_end_of_the_reply_has_answered(raw_server: Any) -> None:
    end = END.partition(b"data: [DONE]")[0]
    raw_server.answers = [[SSE_HEAD, *chunked(CHUNK, end)]]
    assert (await complete(OpenAIChat("m", base_url=raw_server.url), STREAM)).text == "x"


async def test_what_is_not_http(raw_server: Any) -> None:
    assert (await failure(raw_server, b"SSH-2.0-OpenSSH\r\n\r\n")).kind == "protocol"


@pytest.mark.parametrize("pieces", [[], [SSE_HEAD, *chunked(CHUNK)]], ids=["head", "body"])
async def test_time_out(raw_server: Any, pieces: list[bytes]) -> None:
    raw_server.hold = True
    error = await failure(raw_server, *pieces, stream=True, timeout=0.1)
    assert (error.kind, "within 0.1 s" in str(error)) == ("timeout", True)
    await asyncio.wait_for(raw_server.left.wait(), 2)


DRIP = b": keep-alive\n\n"


@pytest.mark.parametrize("first", [CHUNK, b'data: {"choices":[{"delta":{"reasoning_content":"x"}}]}\n\n'])
async def test_a_stream_that_falls_silent_ends_before_its_time_is_up(raw_server: Any, first: bytes) -> None:
    """openai/codex and langchain-openai end it, too; pi#7954, opencode#37580: sessions that hung for hours."""
    raw_server.hold = True
    settings = ModelSettings(timeout=60, idle_timeout=0.3)
    began = time.perf_counter()
    error = await failure(raw_server, SSE_HEAD, *chunked(first), stream=True, settings=settings)
    assert time.perf_counter() - began < 20
    assert (error.kind, error.partial) == ("timeout", "x" if first == CHUNK else "")
    assert "nothing for 0.3 s" in str(error)
    await asyncio.wait_for(raw_server.left.wait(), 5)


async def watched(agent: Agent) -> list[object]:
    async with agent.stream("q") as stream:
        return [event.data async for event in stream]


async def test_a_run_asks_again_where_nothing_was_shown_and_else_keeps_what_was(raw_server: Any) -> None:
    half = b'data: {"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c","function":{"name":"f"}}]}}]}\n\n'
    agent = Agent(OpenAIChat("m", base_url=raw_server.url), settings=ModelSettings(idle_timeout=0.3))
    raw_server.answers = [[SSE_HEAD, *chunked(half)], [SSE_HEAD, *chunked(CHUNK + END), b"0\r\n\r\n"]]
    told = await watched(agent)
    assert [one.kind for one in told if isinstance(one, AttemptFailed)] == ["timeout"]
    assert [one.output for one in told if isinstance(one, RunFinished)] == ["x"]
    raw_server.answers, raw_server.hold = [[SSE_HEAD, *chunked(CHUNK)]], True
    with pytest.raises(ModelError, match=r"nothing for 0\.3 s") as caught:
        await watched(agent)
    assert caught.value.partial == "x"
    assert caught.value.result is not None
    assert (caught.value.result.outcome, caught.value.result.output) == ("failed", "x")


async def test_what_keeps_the_line_alive_is_something(raw_server: Any) -> None:
    """Anthropic's pings, OpenRouter's comments: who passes them over cuts off a model that thinks
    (anthropics/claude-code#46987)."""
    raw_server.pause, raw_server.answers = 0.2, [[SSE_HEAD, *chunked(CHUNK, *[DRIP] * 17, END), b"0\r\n\r\n"]]
    request = replace(STREAM, settings=ModelSettings(idle_timeout=3))
    assert (await complete(OpenAIChat("m", base_url=raw_server.url), request)).text == "x"


async def test_who_only_keeps_the_line_alive_ends_with_the_whole_time(raw_server: Any) -> None:
    raw_server.pause = 0.05
    settings = ModelSettings(timeout=2.5, idle_timeout=1.5)
    error = await failure(raw_server, SSE_HEAD, *chunked(CHUNK, *[DRIP] * 400), stream=True, settings=settings)
    assert (error.kind, "within 2.5 s" in str(error)) == ("timeout", True)


@pytest.mark.parametrize("first", [DRIP, b'data: {"choices":[{"delta":{"role":"assistant"}}]}\n\n'])
async def test_a_model_that_has_not_begun_may_think_as_long_as_the_request_may_last(
    raw_server: Any, first: bytes
) -> None:
    raw_server.pause, raw_server.answers = 1.0, [[SSE_HEAD + b"".join(chunked(first)), *chunked(CHUNK + END)]]
    request = replace(STREAM, settings=ModelSettings(idle_timeout=0.1))
    assert (await complete(OpenAIChat("m", base_url=raw_server.url), request)).text == "x"


async def test_a_reader_that_takes_its_time_is_not_the_servers_silence(raw_server: Any) -> None:
    raw_server.answers, raw_server.hold, raw_server.pause = [[SSE_HEAD, *chunked(CHUNK, CHUNK, END)]], True, 0.05
    request = replace(STREAM, settings=ModelSettings(idle_timeout=1))
    text = ""
    async for part in OpenAIChat("m", base_url=raw_server.url).stream(request):
        if isinstance(part, TextPart):
            text += part.text
            if text == "xx":  # the end comes meanwhile
                await asyncio.sleep(2.5)
    assert text == "xx"


async def test_nobody_there(unused_tcp_port: int) -> None:
    with pytest.raises(ModelError, match=f"127.0.0.1:{unused_tcp_port}: connection refused") as caught:
        await complete(OpenAIChat("m", base_url=f"http://127.0.0.1:{unused_tcp_port}"), ASK)
    assert caught.value.kind == "connection"


async def test_a_host_that_does_not_exist() -> None:
    with pytest.raises(ModelError, match=r"host no-such-host\.invalid:") as caught:
        await complete(OpenAIChat("m", base_url="http://no-such-host.invalid:81"), ASK)
    assert caught.value.kind == "connection"


async def test_credentials_in_a_url_are_not_shown(unused_tcp_port: int) -> None:
    with pytest.raises(ModelError) as caught:
        await complete(OpenAIChat("m", base_url=f"http://user:secret@127.0.0.1:{unused_tcp_port}/v1?key=hidden"), ASK)
    assert "secret" not in str(caught.value)
    assert "hidden" not in str(caught.value)


async def test_no_secure_connection() -> None:
    async def speak_plainly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(4096)
        writer.write(b"220 this is no TLS\r\n")
        writer.close()

    async with await asyncio.start_server(speak_plainly, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(ModelError, match=r"No secure connection to 127\.0\.0\.1:") as caught:
            await complete(OpenAIChat("m", base_url=f"https://127.0.0.1:{port}"), ASK)
    assert caught.value.kind == "connection"


async def test_a_redirect_is_not_followed(raw_server: Any) -> None:
    raw_server.answers = [[b"HTTP/1.1 307 Moved\r\nlocation: http://elsewhere.invalid\r\ncontent-length: 0\r\n\r\n"]]
    with pytest.raises(ModelError, match="redirect") as caught:
        await complete(OpenAIChat("m", base_url=raw_server.url), ASK)
    assert not caught.value.retryable


async def test_an_url_that_is_none() -> None:
    with pytest.raises(ConfigurationError, match="not a URL"):
        await AiohttpTransport().post("http:///nowhere", {}, b"", 1)


async def test_a_large_body_arrives_whole(raw_server: Any) -> None:
    raw_server.answers = [answer(OK)]
    text = "x" * 3_000_000
    await complete(OpenAIChat("m", base_url=raw_server.url), ModelRequest((UserMessage(text),)))
    assert text.encode() in raw_server.requests[0]


async def test_a_proxy_of_the_environment_is_used(raw_server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", raw_server.url)
    monkeypatch.setenv("NO_PROXY", "direct.invalid")
    raw_server.answers = [answer(OK)]
    model = OpenAIChat("m", base_url="http://model.invalid/v1")
    assert (await complete(model, ASK)).text == "hi"
    assert raw_server.requests[0].startswith(b"POST http://model.invalid/v1/chat/completions")
    with pytest.raises(ModelError, match="Could not find the host"):
        await complete(OpenAIChat("m", base_url="http://direct.invalid"), ASK)


def on_a_new_loop(url: str, texts: list[str]) -> None:
    async def ask() -> None:
        texts.append((await complete(OpenAIChat("m", base_url=url), ASK)).text)

    asyncio.run(ask())


async def in_threads(count: int, work: Callable[[], None]) -> None:
    await asyncio.gather(*(asyncio.to_thread(work) for _ in range(count)))


async def test_one_session_per_loop_each_closed_with_its_loop(raw_server: Any) -> None:
    texts = list[str]()
    raw_server.answers = [answer(OK) for _ in range(8)]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        await in_threads(4, lambda: on_a_new_loop(raw_server.url, texts))
        await in_threads(4, lambda: on_a_new_loop(raw_server.url, texts))
        gc.collect()
    assert texts == ["hi"] * 8
    assert raw_server.connections == 8
    assert [str(warning.message) for warning in caught] == []


async def test_a_thousand_at_once(raw_server: Any) -> None:
    raw_server.answers = [answer(OK) for _ in range(1000)]
    model = OpenAIChat("m", base_url=raw_server.url)
    replies = await asyncio.gather(*(complete(model, ASK) for _ in range(1000)))
    assert [reply.text for reply in replies] == ["hi"] * 1000
    assert raw_server.connections > 100
