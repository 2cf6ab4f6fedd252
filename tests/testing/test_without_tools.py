"""The server without tools: what it refuses, what its brain reads, and that it keeps to the schema."""

from __future__ import annotations

from typing import Any

import aiohttp
import openai
import pytest
from pydantic import BaseModel

from glassloop.core.errors import ScriptError
from glassloop.testing import Brain, Conversation, ModelServer, Reaction, call, fail

USER: dict[str, Any] = {"role": "user", "content": "1 + 2?"}


def wanted(schema: Any, *messages: Any) -> dict[str, Any]:
    format_ = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
    return {"model": "m", "messages": messages or [USER], "response_format": format_}


def one_of(*alternatives: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"next": {"anyOf": alternatives}}, "required": ["next"]}


def action(name: str, **more: Any) -> dict[str, Any]:
    properties: dict[str, Any] = {"action": {"const": name}, **more}
    return {"type": "object", "properties": properties, "required": list(properties)}


ADD = action("add", arguments={"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]})
ANSWER = action("final_answer", answer={"type": "string"})
STEP = one_of(ADD, ANSWER)


async def post(server: ModelServer, body: Any) -> tuple[int, Any]:
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{server.url}/chat/completions", json=body) as answer,
    ):
        return answer.status, await answer.json()


async def said(brain: Brain, body: Any) -> Any:
    async with ModelServer(brain, tools=False) as server:
        status, answer = await post(server, body)
    assert status == 200, answer
    return answer["choices"][0]["message"]["content"]


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ({"tools": [{"type": "function", "function": {"name": "add"}}]}, "does not support 'tools'"),
        ({"tool_choice": "auto"}, "does not support 'tool_choice'"),
        (
            {"messages": [USER, {"role": "tool", "content": "3", "tool_call_id": "c"}]},
            "messages[1]: this model knows",
        ),
        ({"messages": [{"role": "assistant", "tool_calls": [{"id": "c"}]}]}, "messages[0]: this model knows"),
    ],
)
async def test_tools_are_refused(more: Any, problem: str) -> None:
    async with ModelServer(lambda _: "hi", tools=False) as server:
        status, answer = await post(server, {"model": "m", "messages": [USER], **more})
    assert status == 400
    assert problem in answer["error"]["message"]


async def test_other_rules_hold_as_well() -> None:
    async with ModelServer(lambda _: "hi", tools=False) as server:
        assert (await post(server, {"messages": [USER]}))[0] == 400


async def test_a_brain_is_offered_the_tools_of_the_schema_and_its_calls_take_their_form() -> None:
    def brain(conversation: Conversation) -> Reaction:
        (offered,) = conversation.tools
        assert (offered.name, offered.schema["required"]) == ("add", ["a"])
        return call("add", a=1)

    assert await said(brain, wanted(STEP)) == '{"next":{"action":"add","arguments":{"a":1}}}'
    several = one_of({"type": "array", "items": {"anyOf": [ADD]}, "minItems": 1}, ANSWER)
    assert await said(brain, wanted(several)) == '{"next":[{"action":"add","arguments":{"a":1}}]}'


async def test_a_brain_reads_calls_and_results() -> None:
    def brain(conversation: Conversation) -> Reaction:
        assert conversation.user == "1 + 2?"
        assert [(one.name, one.arguments, one.value, one.is_error) for one in conversation.results] == [
            ("add", {"a": 1}, 3, False),
            ("pay", {}, "no", True),
        ]
        return "It is 3."

    calls = '{"next":[{"action":"add","arguments":{"a":1}},{"action":"pay","arguments":{}}]}'
    results = '<result tool="add">\n3\n</result>\n\n<result tool="pay" status="error">\nno\n</result>'
    history = [USER, {"role": "assistant", "content": calls}, {"role": "user", "content": results}]
    answered = await said(brain, wanted(STEP, *history))
    assert answered == '{"next":{"action":"final_answer","answer":"It is 3."}}'


async def test_an_answer_of_an_earlier_turn_is_text() -> None:
    def brain(conversation: Conversation) -> Reaction:
        assert [message.role for message in conversation.messages] == ["user", "assistant", "user"]
        return getattr(conversation.messages[1], "text", "")

    before = {"role": "assistant", "content": '{"next":{"action":"final_answer","answer":"It is 3."}}'}
    assert "It is 3." in await said(brain, wanted(STEP, USER, before, USER))


async def test_a_schema_of_another_kind_holds_too() -> None:
    weather = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    assert await said(lambda _: '{"city":"Oslo"}', wanted(weather)) == '{"city":"Oslo"}'


async def test_without_a_schema_a_reply_is_what_it_is() -> None:
    assert await said(lambda _: "hi", {"model": "m", "messages": [USER]}) == "hi"


@pytest.mark.parametrize(
    ("reaction", "problem"),
    [
        (call("add", a="one"), "which the schema of the request forbids"),
        (call("pay"), "which the schema of the request forbids"),
        ("not JSON", "the request wants JSON"),
    ],
)
async def test_what_the_schema_forbids_is_a_fault_of_the_brain(reaction: Reaction, problem: str) -> None:
    schema = {"type": "object"} if reaction == "not JSON" else STEP
    with pytest.raises(ScriptError, match=problem):
        async with ModelServer(lambda _: reaction, tools=False) as server:
            assert (await post(server, wanted(schema)))[0] == 400


async def test_failures_pass() -> None:
    async with ModelServer(lambda _: fail(503), tools=False) as server:
        assert (await post(server, wanted(STEP)))[0] == 503


async def test_openais_sdk_gets_what_it_asks_for() -> None:
    class City(BaseModel):
        city: str

    server = ModelServer(lambda _: '{"city":"Oslo"}', tools=False)
    async with server, openai.AsyncOpenAI(base_url=server.url, api_key="k", max_retries=0) as client:
        history: Any = [USER]
        got = await client.chat.completions.parse(model="m", messages=history, response_format=City)
    assert got.choices[0].message.parsed == City(city="Oslo")
