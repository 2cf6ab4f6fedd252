"""The model server: starting, stopping, waiting, failing, breaking off."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import aiohttp
import pytest

from glassloop.core.errors import ConfigurationError, ScriptError
from glassloop.core.messages import Text, ToolCall
from glassloop.core.usage import Usage
from glassloop.testing import Answer, Conversation, Failure, ModelServer, Reaction, ask, call, fail, say

Post = Callable[..., Coroutine[Any, Any, tuple[int, Any, dict[str, str]]]]
CHAT = "/v1/chat/completions"
BODY: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
STREAM = {**BODY, "stream": True, "stream_options": {"include_usage": True}}
VERSION = {"anthropic-version": "2023-06-01"}


def text_of(sse: str) -> str:
    chunks = [json.loads(line[6:]) for line in sse.splitlines() if line.startswith("data: {")]
    return "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks if chunk["choices"])


def test_runs_in_a_thread_of_its_own_and_leaves_nothing_behind() -> None:
    before = threading.enumerate()
    with ModelServer(lambda _: "never") as server:
        assert server.url == f"http://127.0.0.1:{server.port}/v1"
        assert server.anthropic_url == f"http://127.0.0.1:{server.port}"
        assert len(threading.enumerate()) == len(before) + 1
    assert threading.enumerate() == before
    server.stop()


def test_says_when_the_port_is_taken() -> None:
    with ModelServer(lambda _: "never") as server, pytest.raises(OSError, match="address already in use"):
        ModelServer(lambda _: "never", port=server.port).start()


def test_needs_a_brain_or_a_script() -> None:
    with pytest.raises(ConfigurationError, match="a brain or a script"):
        ModelServer()
    with pytest.raises(ConfigurationError, match="a brain or a script"):
        ModelServer(lambda _: "x", script=["x"])


def test_costs_nothing_to_import() -> None:
    heavy = "{'aiohttp', 'sqlalchemy', 'openai', 'anthropic'}"
    code = f"import sys, glassloop.testing.server; print({heavy} & set(sys.modules))"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "set()\n"


async def test_a_script_must_be_used_up(post: Post) -> None:
    with pytest.raises(ScriptError, match=r"not used up: 1 answers left, 'two' first"):
        async with ModelServer(script=["one", "two"]) as server:
            await post(server, CHAT, BODY)


async def test_a_script_must_not_be_overrun(post: Post) -> None:
    server = ModelServer(script=["one"])

    async def ask_twice() -> None:
        async with server:
            await post(server, CHAT, BODY)
            _, answer, _ = await post(server, CHAT, BODY)
            assert "no answer left" in answer["error"]["message"]

    with pytest.raises(ScriptError, match="no answer left for request 2"):
        await ask_twice()
    assert [request.status for request in server.requests] == [200, 400]


@pytest.mark.parametrize(("keep", "kept"), [(None, "abcd"), (2, "cd"), (0, "")])
async def test_keeps_as_many_of_the_latest_requests_as_are_wanted(keep: int | None, kept: str, post: Post) -> None:
    async with ModelServer(lambda _: "yes", keep=keep) as server:
        for model in "abcd":
            assert (await post(server, CHAT, {**BODY, "model": model}))[0] == 200
    assert "".join(request.body["model"] for request in server.requests) == kept


async def test_a_failing_test_is_not_covered_up_by_its_script(post: Post) -> None:
    with pytest.raises(ZeroDivisionError):
        async with ModelServer(script=["one"]):
            raise ZeroDivisionError


async def test_a_brain_that_raises_is_heard(post: Post) -> None:
    def brain(conversation: Conversation) -> Reaction:
        raise LookupError(f"no idea about {conversation.user}")

    server = ModelServer(brain)

    async def ask_once() -> None:
        async with server:
            _, answer, _ = await post(server, CHAT, BODY)
            assert answer["error"]["message"] == "The stand-in model failed: no idea about hi"

    with pytest.raises(ScriptError, match="no idea about hi"):
        await ask_once()
    assert server.requests[0].status == 400


async def test_a_brain_may_return_less_than_an_answer(post: Post) -> None:
    script: list[Reaction] = [
        "text",
        call("add", a=1),
        [Text("Two."), ToolCall("", "add", '{"a": '), ToolCall("given", "add")],
        say("x", stop="length"),
    ]
    async with ModelServer(script=script) as server:
        answers = [(await post(server, CHAT, BODY))[1]["choices"][0] for _ in script]
    calls = [[c["function"]["arguments"] for c in answer["message"].get("tool_calls", [])] for answer in answers]
    assert calls == [[], ['{"a":1}'], ['{"a": ', "{}"], []]
    assert answers[2]["message"]["tool_calls"][1]["id"] == "given"
    assert [answer["finish_reason"] for answer in answers] == ["stop", "tool_calls", "tool_calls", "length"]


@pytest.mark.parametrize("nonsense", [None, 5, {"a": 1}, ["text", 5]])
async def test_a_brain_must_return_something_sayable(post: Post, nonsense: Any) -> None:
    server = ModelServer(lambda _: nonsense)
    await server.__aenter__()
    _, answer, _ = await post(server, CHAT, BODY)
    with pytest.raises(ScriptError, match="it must return an Answer, a text, a call or a list of these"):
        await server.__aexit__(None, None, None)
    assert "A brain returned" in answer["error"]["message"]


async def test_an_async_brain_may_wait(post: Post) -> None:
    asked, go = asyncio.Event(), asyncio.Event()

    async def brain(conversation: Conversation) -> Reaction:
        asked.set()
        await go.wait()
        return "at last"

    async with ModelServer(brain) as server:
        answer = asyncio.create_task(post(server, CHAT, BODY))
        await asked.wait()
        assert not answer.done()
        go.set()
        assert (await answer)[1]["choices"][0]["message"]["content"] == "at last"


@pytest.mark.parametrize(
    ("path", "headers"),
    [(CHAT, {"Authorization": "Bearer right"}), ("/v1/messages", {"x-api-key": "right", **VERSION})],
)
async def test_keys(session: aiohttp.ClientSession, path: str, headers: dict[str, str]) -> None:
    async with ModelServer(script=["fine"], api_key="right") as server:
        url, body = server.anthropic_url + path, {**BODY, "max_tokens": 5}
        wrong = {name: value.replace("right", "wrong") for name, value in headers.items()}
        for sent, status in ((wrong, 401), ({}, 401), (headers, 200)):
            async with session.post(url, json=body, headers=sent) as response:
                assert response.status == status
                assert "wrong" not in await response.text()
    assert [request.conversation is None for request in server.requests] == [True, True, False]


@pytest.mark.parametrize("path", [CHAT, "/v1/messages"])
async def test_http_errors(post: Post, path: str) -> None:
    script = [fail(429, "Slow down.", retry_after=2), fail(500), fail(418), fail(599)]
    async with ModelServer(script=script) as server:
        answers = [await post(server, path, {**BODY, "max_tokens": 1}, anthropic_version="x") for _ in script]
    assert [status for status, _, _ in answers] == [429, 500, 418, 599]
    assert [answer["error"]["message"] for _, answer, _ in answers] == [
        "Slow down.",
        "The server had an error while processing your request.",
        "I'm a Teapot",
        "Error 599",
    ]
    assert [headers.get("Retry-After") for _, _, headers in answers] == ["2", None, None, None]


async def test_unknown_paths(session: aiohttp.ClientSession) -> None:
    async with ModelServer(lambda _: "never") as server:
        for method, path in (("POST", "/v2/chat"), ("GET", CHAT)):
            async with session.request(method, server.anthropic_url + path) as response:
                assert response.status == 404
                assert path in await response.text()
    assert server.violations == ["Unknown request: POST /v2/chat", f"Unknown request: GET {CHAT}"]


@pytest.mark.parametrize("packet", [None, 1, 7, 1000])
async def test_streams_in_pieces_of_any_size(session: aiohttp.ClientSession, packet: int | None) -> None:
    text = "上海 31 度，🌤 hotter than Beijing."
    server = ModelServer(script=[say(text, piece=3, packet=packet)])
    async with server, session.post(server.url + "/chat/completions", json=STREAM) as response:
        sse = await response.text()
    assert text_of(sse) == text
    assert sse.endswith("data: [DONE]\n\n")
    assert '"prompt_tokens"' in sse


async def test_usage_can_be_told_or_left_out(post: Post) -> None:
    told = Usage(input=100, output=20, cached=60, cache_write=10, reasoning=5)
    async with ModelServer(script=[say("x", usage=told)] * 2 + [say("x", report_usage=False), "x"]) as server:
        chat = (await post(server, CHAT, BODY))[1]["usage"]
        messages = (await post(server, "/v1/messages", {**BODY, "max_tokens": 9}, anthropic_version="x"))[1]["usage"]
        assert "usage" not in (await post(server, CHAT, BODY))[1]
        estimate = (await post(server, CHAT, BODY))[1]["usage"]
    assert (chat["prompt_tokens"], chat["total_tokens"], chat["prompt_tokens_details"]["cached_tokens"]) == (
        100,
        120,
        60,
    )
    assert messages == {
        "input_tokens": 30,
        "output_tokens": 20,
        "cache_read_input_tokens": 60,
        "cache_creation_input_tokens": 10,
    }
    assert 10 <= estimate["prompt_tokens"] <= 40
    assert estimate["completion_tokens"] == 2


@pytest.mark.parametrize("streamed", [True, False])
async def test_breaks_off_in_the_middle(session: aiohttp.ClientSession, streamed: bool) -> None:
    async with ModelServer(script=[say("a long answer that is cut", cut_after=3)]) as server:
        async with session.post(server.anthropic_url + CHAT, json={**BODY, "stream": streamed}) as response:
            assert response.status == 200
            with pytest.raises(aiohttp.ClientPayloadError):
                await response.read()
        assert server.requests[0].disconnected_at is None


async def test_fails_half_way(session: aiohttp.ClientSession) -> None:
    answer = Answer("so far", failure=Failure(529))
    async with ModelServer(script=[answer, answer]) as server:
        async with session.post(server.anthropic_url + CHAT, json=STREAM) as response:
            sse = await response.text()
        assert text_of(sse.replace('data: {"error"', "data: [")) == "so far"
        assert "Overloaded" in sse.splitlines()[-2]
        async with session.post(server.anthropic_url + CHAT, json=BODY) as response:
            assert response.status == 529


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        (CHAT, say("on ", endless=True)),
        ("/v1/messages", say("on ", endless=True)),
        (CHAT, say("never", delay=60)),
        (CHAT, say("slow and slower", gap=60, piece=1)),
    ],
)
async def test_notices_that_the_client_has_gone(session: aiohttp.ClientSession, path: str, answer: Answer) -> None:
    async with ModelServer(script=[answer]) as server:
        url, body = server.anthropic_url + path, {**STREAM, "max_tokens": 1}

        async def client() -> None:
            async with session.post(url, json=body, headers=VERSION) as response:
                async for line in response.content:
                    if line.count(b"on ") == 1:
                        return

        task = asyncio.create_task(client())
        assert await asyncio.to_thread(server.wait_for_requests, 1)
        received = server.requests[0]
        if answer.endless:
            await task
        else:
            assert received.disconnected_at is None
            task.cancel()
        assert await asyncio.to_thread(received.wait)
        assert received.disconnected_at is not None
        assert received.disconnected_at >= received.at


async def test_stopping_does_not_wait_for_an_endless_answer(session: aiohttp.ClientSession) -> None:
    async with ModelServer(script=[say("on ", endless=True)]) as server:
        response = await session.post(server.url + "/chat/completions", json=STREAM)
        await response.content.readline()
    response.close()
    assert server.requests[0].disconnected_at is None


async def test_thinking_beside_calls(post: Post) -> None:
    async with ModelServer(script=[ask(call("add", a=1), text="Adding.", thinking="One.")]) as server:
        message = (await post(server, CHAT, BODY))[1]["choices"][0]["message"]
    assert (message["content"], message["reasoning_content"]) == ("Adding.", "One.")


async def test_refusals(post: Post) -> None:
    async with ModelServer(script=[say("I will not.", stop="refusal")] * 2) as server:
        choice = (await post(server, CHAT, BODY))[1]["choices"][0]
        message = (await post(server, "/v1/messages", {**BODY, "max_tokens": 9}, anthropic_version="x"))[1]
    assert (choice["message"]["content"], choice["message"]["refusal"]) == (None, "I will not.")
    assert message["stop_reason"] == "refusal"
