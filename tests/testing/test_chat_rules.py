"""The model server refuses what OpenAI's Chat Completions refuses."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from glassloop.testing import ModelServer

Post = Callable[..., Coroutine[Any, Any, tuple[int, Any, dict[str, str]]]]
USER = {"role": "user", "content": "hi"}
TOOL: dict[str, Any] = {
    "type": "function",
    "function": {"name": "add", "parameters": {"type": "object", "properties": {}}},
}


def called(*ids: Any, arguments: Any = "{}", name: Any = "add") -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    calls = [{"id": call_id, "type": "function", "function": function} for call_id in ids]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def result(call_id: Any, content: Any = "3") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def tool(**function: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": "add", **function}}


GOOD: list[list[dict[str, Any]]] = [
    [USER],
    [USER, called("a", "b"), result("b"), result("a")],
    [USER, called("a"), result("a"), called("b"), result("b", ""), {"role": "assistant", "content": "3"}, USER],
    [{"role": "system", "content": "x"}, {"role": "user", "content": [{"type": "text", "text": "hi"}]}],
    [USER, {"role": "assistant", "content": None, "refusal": "no"}, USER],
]
BAD: list[tuple[list[Any], str]] = [
    ([], "at least one message"),
    ([USER, result("a")], "must be a response to a preceding message"),
    ([USER, called("a"), result("b")], "none of its calls is 'b'"),
    ([USER, called("a"), result("a"), USER, result("a")], "must be a response"),
    ([USER, called("a"), result("a"), result("a")], "a second response"),
    ([USER, called("a", "b"), result("a"), USER], "No response message for 'b' before messages"),
    ([USER, called("a")], "No response message for 'a' at the end"),
    ([USER, called("")], "non-empty string"),
    ([USER, called("a", "a"), result("a")], "used twice"),
    ([USER, called("a"), result("a"), called("a"), result("a")], "used twice"),
    ([USER, called("x" * 41), result("x" * 41)], "string too long"),
    ([USER, called("a", arguments={"x": 1}), result("a")], "string that holds a JSON object"),
    ([USER, called("a", arguments="[1]"), result("a")], "string that holds a JSON object"),
    ([USER, called("a", arguments='{"x": NaN}'), result("a")], "string that holds a JSON object"),
    ([USER, called("a", arguments='{"x": '), result("a")], "string that holds a JSON object"),
    ([USER, called("a", name="functions.add"), result("a")], "does not match"),
    ([USER, called("a"), result("a", None)], "got null"),
    ([{"role": "user", "content": None}], "got null"),
    ([USER, {"role": "assistant", "content": ""}], "content or tool calls"),
    ([USER, {"role": "assistant", "content": "x", "tool_calls": []}], "empty array"),
    ([USER, called(*map(str, range(129))), *(result(str(n)) for n in range(129))], "array too long"),
    ([{"role": "robot", "content": "x"}], "Invalid value for 'messages[0].role'"),
]
BAD_TOOLS: list[tuple[dict[str, Any], str]] = [
    ({"tools": []}, "empty array"),
    ({"tools": None}, "expected an array"),
    ({"tool_choice": "auto"}, "only allowed when 'tools'"),
    ({"parallel_tool_calls": False}, "only allowed when 'tools'"),
    ({"tools": [tool(name="加")]}, "does not match"),
    ({"tools": [tool(name="x" * 65)]}, "does not match"),
    ({"tools": [tool(parameters={"type": "array"})]}, "must be a JSON Schema of"),
    ({"tools": [tool(parameters={})]}, "must be a JSON Schema of"),
    ({"tools": [TOOL, TOOL]}, "unique"),
    ({"tools": [tool(name=f"t{n}") for n in range(129)]}, "array too long"),
    ({"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "sub"}}}, "not one of the tools"),
    ({"model": None}, "model parameter"),
]


@pytest.mark.parametrize("messages", GOOD)
async def test_takes_a_history_in_order(post: Post, messages: list[dict[str, Any]]) -> None:
    body: dict[str, Any] = {"model": "m", "messages": messages, "tools": [TOOL], "tool_choice": "auto"}
    async with ModelServer(script=["fine"]) as server:
        status, answer, _ = await post(server, "/v1/chat/completions", body)
    assert (status, answer["choices"][0]["message"]["content"]) == (200, "fine")
    assert server.violations == []


@pytest.mark.parametrize(("messages", "reason"), BAD)
async def test_refuses_a_broken_history(post: Post, messages: list[Any], reason: str) -> None:
    async with ModelServer(lambda _: "never") as server:
        status, answer, _ = await post(server, "/v1/chat/completions", {"model": "m", "messages": messages})
    assert status == 400
    assert reason in answer["error"]["message"]
    assert server.violations
    assert server.requests[0].conversation is None


@pytest.mark.parametrize(("fields", "reason"), BAD_TOOLS)
async def test_refuses_broken_tools(post: Post, fields: dict[str, Any], reason: str) -> None:
    async with ModelServer(lambda _: "never") as server:
        status, answer, _ = await post(server, "/v1/chat/completions", {"model": "m", "messages": [USER], **fields})
    assert status == 400
    assert reason in answer["error"]["message"]


@pytest.mark.parametrize("raw", [b'{"x": NaN}', b"", b'{"messages": "\xff"}', b'{"x": "\\ud83d"}', b"[]", b"{"])
async def test_refuses_what_is_not_strict_json(post: Post, raw: bytes) -> None:
    async with ModelServer(lambda _: "never") as server:
        status, answer, _ = await post(server, "/v1/chat/completions", raw)
    assert status == 400
    assert "JSON" in answer["error"]["message"]
