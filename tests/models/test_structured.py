"""Answers on the wire: as a schema that the server holds its reply to, or as the arguments of a tool."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal

import anthropic
import jsonschema_rs
import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, TypeAdapter

from glassloop import Agent, Output
from glassloop.core.messages import Reply, Text, ToolCall, UserMessage
from glassloop.models.answers import ANTHROPIC, OPENAI, Subset, answer_tool, fitted, with_answers_as_text
from glassloop.models.anthropic import Anthropic
from glassloop.models.fake_transport import FakeAnswer, FakeTransport
from glassloop.models.model import (
    FINAL_ANSWER,
    Model,
    ModelPart,
    ModelRequest,
    ModelSettings,
    OutputSpec,
    TextPart,
    ToolSpec,
)
from glassloop.models.openai_chat import OpenAIChat
from glassloop.testing import ModelServer
from glassloop.testing.chat_rules import chat_violations
from glassloop.testing.format_rules import chat_format_violations, messages_format_violations

Q = UserMessage("q")
ADD = ToolSpec("add", "Adds.", {"type": "object", "properties": {"a": {"type": "integer"}}})
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}}, "required": ["a"]}
SPEC = OutputSpec(SCHEMA, description="Both.")
OPENAI_URL, ANTHROPIC_URL = "https://api.openai.com/v1", "https://api.anthropic.com"

PART = '{"kind":"part","size":4,"code":"ab"}'

Play = Callable[..., Awaitable[tuple[Reply, list[ModelPart]]]]


async def body(model: Callable[[FakeTransport], Model], **request: Any) -> dict[str, Any]:
    """What a model sends."""
    transport = FakeTransport(FakeAnswer(status=418))
    with pytest.raises(Exception, match="418"):
        async for _ in model(transport).stream(ModelRequest((Q,), **request)):
            pass
    return transport.posts[0].json


def chat(url: str = "https://one.test/v1", **options: Any) -> Callable[[FakeTransport], Model]:
    return lambda transport: OpenAIChat("m", base_url=url, api_key="k", transport=transport, **options)


def claude(url: str = ANTHROPIC_URL, model: str = "claude-sonnet-5") -> Callable[[FakeTransport], Model]:
    return lambda transport: Anthropic(model, base_url=url, api_key="k", transport=transport)


# OpenAI's format


async def test_openai_is_sent_a_strict_schema() -> None:
    sent = await body(chat(OPENAI_URL), output=SPEC, tools=(ADD,), instructions="Be brief.")
    assert chat_violations(sent) == []
    assert sent["response_format"] == {
        "type": "json_schema",
        "json_schema": {
            "name": "answer",
            "schema": {
                "type": "object",
                "properties": {"a": {"type": "integer"}, "b": {"anyOf": [{"type": "string"}, {"type": "null"}]}},
                "required": ["a", "b"],
                "additionalProperties": False,
            },
            "description": "Both.",
            "strict": True,
        },
    }
    assert [tool["function"]["name"] for tool in sent["tools"]] == ["add"]
    assert sent["messages"][0] == {"role": "system", "content": "Be brief."}


async def test_a_schema_that_is_open_is_sent_as_it_is() -> None:
    open_one: dict[str, Any] = {"type": "object", "properties": {"a": {}}, "required": ["a"]}
    sent = await body(chat(OPENAI_URL), output=OutputSpec(open_one))
    assert sent["response_format"]["json_schema"] == {"name": "answer", "schema": open_one, "strict": False}


async def test_other_servers_are_sent_the_schema_as_it_is_and_have_it_told() -> None:
    sent = await body(chat(), output=SPEC)
    assert sent["response_format"]["json_schema"] == {"name": "answer", "schema": SCHEMA, "description": "Both."}
    assert sent["messages"][0]["content"].endswith('"required":["a"]} Both.')


async def test_what_is_told_already_is_not_told_again() -> None:
    sent = await body(chat(), output=OutputSpec(SCHEMA, "native", told=True))
    assert sent["messages"] == [{"role": "user", "content": "q"}]


@pytest.mark.parametrize(
    ("url", "tools", "mode", "constrained"),
    [
        ("http://localhost:11434/v1", (), "auto", True),
        ("http://localhost:11434/v1", (ADD,), "auto", False),
        ("http://localhost:11434/v1", (ADD,), "native", True),
        ("https://api.openai.com/v1", (ADD,), "auto", True),
        ("https://api.openai.com/v1", (), "tool", False),
        ("https://api.deepseek.com/v1", (), "auto", False),
        ("https://api.groq.com/openai/v1", (), "auto", False),
        ("https://api.mistral.ai/v1", (), "auto", True),
    ],
)
async def test_the_host_decides_unless_you_do(url: str, tools: Any, mode: Any, constrained: bool) -> None:
    sent = await body(chat(url), output=OutputSpec(SCHEMA, mode), tools=tools)
    assert chat_violations(sent) == []
    names = [tool["function"]["name"] for tool in sent.get("tools", [])]
    assert ("response_format" in sent, FINAL_ANSWER in names) == (constrained, not constrained)
    assert [name for name in names if name != FINAL_ANSWER] == [tool.name for tool in tools]


async def test_your_own_fields_win() -> None:
    own = {"response_format": {"type": "text"}}
    sent = await body(chat(OPENAI_URL), output=SPEC, settings=ModelSettings(extra=own))
    assert sent["response_format"] == {"type": "text"}


# Anthropic's format


async def test_anthropic_is_sent_a_closed_schema_beside_the_effort() -> None:
    settings = ModelSettings(thinking="high")
    sent = await body(claude(), output=SPEC, tools=(ADD,), settings=settings)
    assert messages_format_violations(sent) == []
    assert sent["output_config"] == {
        "effort": "high",
        "format": {"type": "json_schema", "schema": {**SCHEMA, "additionalProperties": False}},
    }
    assert [tool["name"] for tool in sent["tools"]] == ["add"]


@pytest.mark.parametrize(
    ("url", "model", "spec"),
    [
        ("https://one.test", "claude-sonnet-5", SPEC),
        (ANTHROPIC_URL, "claude-3-5-haiku-latest", SPEC),
        (ANTHROPIC_URL, "claude-sonnet-4-20250514", SPEC),
        (ANTHROPIC_URL, "claude-sonnet-5", OutputSpec(SCHEMA, "tool")),
        (ANTHROPIC_URL, "claude-sonnet-5", OutputSpec({"type": "object", "properties": {"a": {}}})),
    ],
)
async def test_a_tool_stands_in_where_anthropics_format_cannot(url: str, model: str, spec: OutputSpec) -> None:
    sent = await body(claude(url, model), output=spec)
    assert "output_config" not in sent
    assert [tool["name"] for tool in sent["tools"]] == [FINAL_ANSWER]


async def test_a_request_without_output_is_what_it_was() -> None:
    for make in (chat(OPENAI_URL), claude()):
        sent = await body(make)
        assert not {"response_format", "output_config", "tools"} & sent.keys()


# Schemas


class Part(BaseModel):
    kind: Literal["part"]
    size: int = Field(ge=1, multiple_of=2)
    code: str = Field(min_length=2, pattern="^[a-z]+$")


class Tree(BaseModel):
    name: str
    children: list[Tree] = []


@dataclass
class Order:
    parts: list[Part]
    note: str | None = None
    count: int = 1


NICE = [Part, Order, Tree, list[Part], Part | Order, Literal["a", "b"], int, str | None]
OPEN = [dict[str, int], Any, list[Any], tuple[int, str]]


@pytest.mark.parametrize("type_", NICE)
@pytest.mark.parametrize("subset", [OPENAI, ANTHROPIC])
def test_a_fitted_schema_breaks_no_rule(type_: Any, subset: Subset) -> None:
    schema = fitted(Output(type_).spec.schema, subset)
    if schema is None:
        assert type_ is Tree
        assert subset is ANTHROPIC
        return
    if subset is OPENAI:
        format_ = {"name": "a", "strict": True, "schema": schema}
        assert chat_format_violations({"response_format": {"type": "json_schema", "json_schema": format_}}) == []
    else:
        config = {"format": {"type": "json_schema", "schema": schema}}
        assert messages_format_violations({"output_config": config}) == []
    jsonschema_rs.validator_for(schema)


@pytest.mark.parametrize("type_", OPEN)
def test_a_type_that_is_open_has_no_fitted_schema(type_: Any) -> None:
    assert fitted(Output(type_).spec.schema, OPENAI) is None
    assert fitted(Output(type_).spec.schema, ANTHROPIC) is None


def test_a_schema_is_not_changed_by_fitting_it() -> None:
    schema = Output(Order).spec.schema
    before = TypeAdapter[Any](Any).dump_json(schema)
    fitted(schema, OPENAI)
    assert TypeAdapter[Any](Any).dump_json(schema) == before


def test_formats_that_a_server_does_not_know_are_left_out() -> None:
    node = {"type": "string", "format": "byte"}
    assert fitted({"type": "object", "properties": {"a": node}}, ANTHROPIC) == {
        "type": "object",
        "properties": {"a": {"type": "string"}},
        "additionalProperties": False,
    }


ORDERS = st.builds(
    Order,
    st.lists(st.builds(Part, kind=st.just("part"), size=st.just(2), code=st.sampled_from(["ab", "xyz"])), max_size=2),
    st.one_of(st.none(), st.just("note")),
    st.integers(0, 9),
)


@given(ORDERS, st.sampled_from([OPENAI, ANTHROPIC]))
def test_every_value_fits_the_fitted_schema(order: Order, subset: Subset) -> None:
    schema = fitted(Output(Order).spec.schema, subset)
    assert schema is not None
    value = TypeAdapter(Order).dump_python(order, mode="json")
    assert jsonschema_rs.validator_for(schema).is_valid(value)


def test_null_for_what_need_not_be_given_leaves_its_default() -> None:
    judged = Output(Order).judge(Reply((Text('{"parts":[],"note":null,"count":null}'),)))
    assert getattr(judged, "value", judged) == Order([], None, 1)


# As the official SDKs have it


def shape(schema: Any) -> Any:
    """What a schema says about its properties, without what the SDKs say in words."""
    names = sorted(schema["properties"])
    return names, sorted(schema["required"]), schema["additionalProperties"]


async def test_openais_sdk_sends_the_same_and_reads_the_same() -> None:
    async with ModelServer(lambda _: PART) as server:
        model = OpenAIChat("m", base_url=server.url, api_key="k", profile="openai")
        ours = (await Agent(model, output=Part).run("q")).value
        async with openai.AsyncOpenAI(base_url=server.url, api_key="k", max_retries=0) as client:
            history: Any = [{"role": "user", "content": "q"}]
            theirs = await client.chat.completions.parse(model="m", messages=history, response_format=Part)
        one, two = (request.body["response_format"]["json_schema"] for request in server.requests)
    assert theirs.choices[0].message.parsed == ours == Part(kind="part", size=4, code="ab")
    assert (one["strict"], two["strict"]) == (True, True)
    assert shape(one["schema"]) == shape(two["schema"])


async def test_anthropics_sdk_sends_the_same_and_reads_the_same() -> None:
    async with ModelServer(lambda _: PART) as server:
        model = Anthropic("m", base_url=server.anthropic_url, api_key="k")
        ours = (await Agent(model, output=Output(Part, mode="native")).run("q")).value
        async with anthropic.AsyncAnthropic(base_url=server.anthropic_url, api_key="k", max_retries=0) as client:
            history: Any = [{"role": "user", "content": "q"}]
            theirs = await client.messages.parse(model="m", max_tokens=99, messages=history, output_format=Part)
        one, two = (request.body["output_config"]["format"] for request in server.requests)
    assert theirs.parsed_output == ours == Part(kind="part", size=4, code="ab")
    assert shape(one["schema"]) == shape(two["schema"])


# Replies


def test_calls_of_the_answers_tool_become_texts() -> None:
    reply = Reply(
        (
            Text("Here."),
            ToolCall("1", "final_answer", '{"a":1}'),
            ToolCall("2", "add", "{}"),
            ToolCall("3", "functions.final_answer", ""),
            ToolCall("4", "final_answer<|channel|>", "{}", problem="cut"),
            ToolCall("5", 'final_answer" parameter="a', '{"a":2}'),
        )
    )
    texts = (Text("Here."), Text('{"a":1}'), ToolCall("2", "add", "{}"), Text("{}"), Text('{"a":2}'))
    assert with_answers_as_text(reply).parts == texts
    plain = Reply((Text("Here."),))
    assert with_answers_as_text(plain) is plain


def test_the_answers_tool_is_made_once() -> None:
    assert answer_tool(SPEC) is answer_tool(OutputSpec(SCHEMA, description="Both."))
    assert answer_tool(SPEC).description.endswith("Both.")


def streaming(*calls: Any) -> OpenAIChat:
    """A model whose server streams these pieces of calls."""
    chunks: list[Any] = [{"choices": [{"delta": {"tool_calls": [call]}}]} for call in calls]
    chunks.append({"choices": [{"delta": {}, "finish_reason": "tool_calls"}]})
    lines = [*map(json.dumps, chunks), "[DONE]"]
    answer = FakeAnswer.sse("".join(f"data: {line}\n\n" for line in lines))
    return OpenAIChat("m", base_url="https://one.test/v1", transport=FakeTransport(answer))


async def test_only_the_arguments_of_the_answers_tool_are_shown(play: Play) -> None:
    deltas = [
        {"index": 0, "id": "a", "function": {"name": "final_answer", "arguments": '{"a"'}},
        {"index": 1, "id": "b", "function": {"name": "add", "arguments": "{"}},
        {"index": 0, "function": {"arguments": ":1}"}},
        {"index": 1, "function": {"arguments": "}"}},
    ]
    request = ModelRequest((Q,), tools=(ADD,), output=OutputSpec(SCHEMA, "tool"), stream=True)
    reply, parts = await play(streaming(*deltas), request)
    assert parts == [TextPart('{"a"'), TextPart(":1}")]
    assert [call.name for call in reply.calls] == ["final_answer", "add"]


async def test_a_tool_of_that_name_is_like_any_other_where_no_answer_is_wanted(play: Play) -> None:
    call = {"index": 0, "id": "a", "function": {"name": "final_answer", "arguments": "{}"}}
    own = ToolSpec("final_answer", "Mine.", {"type": "object", "properties": {}})
    _, parts = await play(streaming(call), ModelRequest((Q,), tools=(own,), stream=True))
    assert parts == []
