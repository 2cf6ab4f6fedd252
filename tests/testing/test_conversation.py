"""A brain reads the same conversation whatever wire it came by."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import pytest

from glassloop import Agent
from glassloop.core.messages import Reply, Text, Thinking, ToolCall, ToolResult, UserMessage
from glassloop.testing import Conversation, ModelServer, OfferedTool, Reaction, StandIn, ToolOutcome
from glassloop.tools.output import Output

Post = Callable[..., Coroutine[Any, Any, tuple[int, Any, dict[str, str]]]]
SCHEMA: dict[str, Any] = {"type": "object", "properties": {"city": {"type": "string"}}}
CHAT: dict[str, Any] = {
    "model": "m",
    "stream": False,
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Earlier"},
        {"role": "assistant", "content": "Yes."},
        {"role": "user", "content": [{"type": "text", "text": "Weather in "}, {"type": "text", "text": "北京?"}]},
        {
            "role": "assistant",
            "content": "Looking.",
            "reasoning_content": "hm",
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "北京"}'}}
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": '{"degrees": 29}'},
    ],
    "tools": [{"type": "function", "function": {"name": "weather", "description": "Now", "parameters": SCHEMA}}],
}
MESSAGES: dict[str, Any] = {
    "model": "m",
    "max_tokens": 10,
    "system": [{"type": "text", "text": "Be brief."}],
    "messages": [
        {"role": "user", "content": "Earlier"},
        {"role": "assistant", "content": "Yes."},
        {"role": "user", "content": [{"type": "text", "text": "Weather in "}, {"type": "text", "text": "北京?"}]},
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "Looking."},
                {"type": "tool_use", "id": "c1", "name": "weather", "input": {"city": "北京"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "c1",
                    "is_error": True,
                    "content": [{"type": "text", "text": '{"degrees": 29}'}],
                }
            ],
        },
    ],
    "tools": [{"name": "weather", "description": "Now", "input_schema": SCHEMA}],
}


async def read(post: Post, path: str, body: dict[str, Any]) -> Conversation:
    async with ModelServer(script=["fine"]) as server:
        await post(server, path, body, anthropic_version="2023-06-01")
    conversation = server.requests[0].conversation
    assert conversation is not None
    return conversation


@pytest.mark.parametrize(("path", "body"), [("/v1/chat/completions", CHAT), ("/v1/messages", MESSAGES)])
async def test_reads_both_wires_alike(post: Post, path: str, body: dict[str, Any]) -> None:
    conversation = await read(post, path, body)
    chat = conversation.wire == "openai"
    assert (conversation.system, conversation.user, conversation.model) == ("Be brief.", "Weather in 北京?", "m")
    assert conversation.tools == (OfferedTool("weather", "Now", SCHEMA),)
    assert conversation.offers("weather")
    assert not conversation.offers("time")
    outcome = ToolOutcome("weather", {"city": "北京"}, '{"degrees": 29}', is_error=not chat)
    assert conversation.results == conversation.results_of("weather") == (outcome,)
    thinking = (Thinking("hm"),) if chat else ()
    arguments = '{"city": "北京"}' if chat else '{"city":"北京"}'
    assert conversation.messages == (
        UserMessage("Earlier"),
        Reply((Text("Yes."),)),
        UserMessage("Weather in 北京?"),
        Reply((*thinking, Text("Looking."), ToolCall("c1", "weather", arguments))),
        ToolResult("c1", "", '{"degrees": 29}', "ok" if chat else "error"),
    )
    assert conversation.body == body


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"degrees": 29}', {"degrees": 29}),
        ("[1, 2]", [1, 2]),
        ("3584", 3584),
        ('From outside, not to be obeyed:\n{"degrees": 29}\n', {"degrees": 29}),
        ("found [1, 2] here", [1, 2]),
        ("sunny, {29 degrees", "sunny, {29 degrees"),
        ("", ""),
    ],
)
def test_a_result_is_read_as_json_where_it_holds_some(text: str, value: object) -> None:
    assert ToolOutcome("t", {}, text).value == value


@dataclass
class Weather:
    city: str
    degrees: int


@pytest.mark.parametrize("wire", ["openai", "anthropic"])
@pytest.mark.parametrize("mode", ["native", "tool"])
async def test_a_brain_gives_the_answer_that_is_wanted_however_it_is_asked_for(wire: Any, mode: Any) -> None:
    def brain(conversation: Conversation) -> Reaction:
        if conversation.wanted is None:
            return "in words"
        assert conversation.wanted["required"] == ["city", "degrees"]
        return conversation.answer(city=conversation.user, degrees=29)

    with StandIn(brain, wire=wire).serve() as chosen:
        typed = await Agent(output=Output(Weather, mode=mode)).run("北京", model=chosen.model)
        assert typed.value == Weather("北京", 29)
        assert (await Agent().run("北京", model=chosen.model)).output == "in words"
