"""The model server refuses what Anthropic's Messages API refuses."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from glassloop.testing import Conversation, ModelServer, Reaction, ask, call

Post = Callable[..., Coroutine[Any, Any, tuple[int, Any, dict[str, str]]]]
VERSION = {"anthropic_version": "2023-06-01"}
USER = {"role": "user", "content": "hi"}
SAID = {"role": "assistant", "content": "ho"}
TOOL: dict[str, Any] = {"name": "add", "input_schema": {"type": "object", "properties": {}}}


def called(*ids: Any, arguments: Any = None) -> dict[str, Any]:
    arguments = {} if arguments is None else arguments
    return {
        "role": "assistant",
        "content": [{"type": "tool_use", "id": call_id, "name": "add", "input": arguments} for call_id in ids],
    }


def results(*ids: Any, then: str = "", first: str = "") -> dict[str, Any]:
    blocks: list[dict[str, Any]] = [{"type": "tool_result", "tool_use_id": call_id, "content": "3"} for call_id in ids]
    before = [{"type": "text", "text": first}] if first else []
    after = [{"type": "text", "text": then}] if then else []
    return {"role": "user", "content": [*before, *blocks, *after]}


GOOD: list[list[dict[str, Any]]] = [
    [USER],
    [USER, SAID, USER],
    [USER, called("a", "b"), results("b", "a", then="and now?")],
    [USER, called("a"), results("a"), called("b"), results("b"), SAID, USER],
]
BAD: list[tuple[list[Any], str]] = [
    ([], "at least one message"),
    ([SAID], "first message must use the 'user' role"),
    ([USER, USER], "roles must alternate"),
    ([USER, {"role": "system", "content": "x"}], "should be 'user' or 'assistant'"),
    ([USER, called("a")], "were found without `tool_result` blocks immediately after: a"),
    ([USER, called("a", "b"), results("a")], "immediately after: b"),
    ([results("a")], "unexpected `tool_use_id` found in `tool_result` blocks: a"),
    ([USER, called("a"), results("a"), SAID, results("a")], "unexpected `tool_use_id`"),
    ([USER, called("a"), results("a", "a")], "must have a single result"),
    ([USER, called("a"), results("a", first="well")], "must come first"),
    ([USER, called("a"), results("a"), called("a"), results("a")], "must be unique"),
    ([USER, called("a.b"), results("a.b")], "should match pattern"),
    ([USER, called(""), results("")], "should match pattern"),
    ([USER, called("a", arguments="{}"), results("a")], "valid dictionary"),
    ([{"role": "user", "content": ""}], "text content blocks must be non-empty"),
    ([{"role": "user", "content": [{"type": "text", "text": " \n"}]}], "text content blocks must be non-empty"),
    ([{"role": "user", "content": []}], "non-empty content"),
]
BAD_FIELDS: list[tuple[dict[str, Any], str]] = [
    ({"tools": []}, "at least 1 item"),
    ({"tool_choice": {"type": "auto"}}, "only be specified while providing tools"),
    ({"tools": [TOOL], "tool_choice": {"type": "tool", "name": "sub"}}, "not found in provided tools"),
    ({"tools": [TOOL, TOOL]}, "unique"),
    ({"tools": [{**TOOL, "name": "a b"}]}, "should match pattern"),
    ({"tools": [{**TOOL, "input_schema": {}}]}, "Input should be 'object'"),
    ({"tools": [{**TOOL, "input_schema": {"type": "object", "anyOf": []}}]}, "at the top level"),
]


async def ask_server(post: Post, server: ModelServer, **fields: Any) -> tuple[int, Any]:
    body = {"model": "m", "max_tokens": 2000, "messages": [USER], **fields}
    status, answer, _ = await post(server, "/v1/messages", body, **VERSION)
    return status, answer


@pytest.mark.parametrize("messages", GOOD)
async def test_takes_a_history_in_order(post: Post, messages: list[dict[str, Any]]) -> None:
    async with ModelServer(script=["fine"]) as server:
        status, answer = await ask_server(post, server, messages=messages, tools=[TOOL])
    assert (status, answer["content"]) == (200, [{"type": "text", "text": "fine"}])
    assert server.violations == []


@pytest.mark.parametrize(("messages", "reason"), BAD)
async def test_refuses_a_broken_history(post: Post, messages: list[Any], reason: str) -> None:
    async with ModelServer(lambda _: "never") as server:
        status, answer = await ask_server(post, server, messages=messages)
    assert (status, answer["type"], answer["error"]["type"]) == (400, "error", "invalid_request_error")
    assert reason in answer["error"]["message"]
    assert server.violations


@pytest.mark.parametrize(("fields", "reason"), BAD_FIELDS)
async def test_refuses_broken_tools(post: Post, fields: dict[str, Any], reason: str) -> None:
    async with ModelServer(lambda _: "never") as server:
        status, answer = await ask_server(post, server, **fields)
    assert status == 400
    assert reason in answer["error"]["message"]


async def test_requires_the_version_header_and_the_required_fields(post: Post) -> None:
    async with ModelServer(lambda _: "never") as server:
        status, answer, _ = await post(server, "/v1/messages", {"messages": [USER]})
    assert status == 400
    assert server.violations == [
        "anthropic-version: header is required",
        "model: Field required",
        "max_tokens: Field required",
    ]
    assert all(violation in answer["error"]["message"] for violation in server.violations)


def thinker(conversation: Conversation) -> Reaction:
    step = len(conversation.results)
    return "done" if step == 2 else ask(call("add"), thinking=f"step {step}")


async def conversation_with_thinking(post: Post, server: ModelServer) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = [USER]
    for _ in range(2):
        _, answer = await ask_server(post, server, messages=messages, tools=[TOOL])
        use = next(block["id"] for block in answer["content"] if block["type"] == "tool_use")
        messages += [{"role": "assistant", "content": answer["content"]}, results(use)]
    return messages


async def test_thinking_must_come_back_as_given(post: Post) -> None:
    async with ModelServer(thinker) as server:
        messages = await conversation_with_thinking(post, server)
        assert (await ask_server(post, server, messages=messages))[0] == 200
        first, second = messages[1]["content"], messages[3]["content"]
        first[0], second[0] = second[0], first[0]
        assert (
            "order in which they were given"
            in (await ask_server(post, server, messages=messages))[1]["error"]["message"]
        )
        first[0], second[0] = second[0], first[0] | {"thinking": "forged"}
        _, answer = await ask_server(post, server, messages=messages)
        assert "Invalid `signature`" in answer["error"]["message"]


async def test_another_server_knows_the_signature(post: Post) -> None:
    async with ModelServer(thinker) as server:
        messages = await conversation_with_thinking(post, server)
    async with ModelServer(script=["fine", "fine"]) as later:
        assert (await ask_server(post, later, messages=messages))[0] == 200
        messages[1]["content"][0]["signature"] = "Zm9yZ2Vk"
        assert (await ask_server(post, later, messages=messages))[0] == 400
        messages[1]["content"].pop(0)
        assert (await ask_server(post, later, messages=messages))[0] == 200


async def test_with_thinking_on_the_last_call_needs_its_thinking(post: Post) -> None:
    async with ModelServer(thinker) as server:
        messages = await conversation_with_thinking(post, server)
        messages[3]["content"].pop(0)
        assert (await ask_server(post, server, messages=messages))[0] == 200
        status, answer = await ask_server(post, server, messages=messages, thinking={"type": "adaptive"})
    assert status == 400
    assert "must start with it" in answer["error"]["message"]
