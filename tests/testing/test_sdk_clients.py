"""The official SDKs, synchronous and not, streaming and not, take what the model server says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import anthropic
import openai
import pytest
from anthropic.types import MessageParam, ToolParam
from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolParam
from pydantic import BaseModel

from glassloop.core.messages import Thinking
from glassloop.testing import Answer, Conversation, ModelServer, ask, call, fail, say

SCHEMA: dict[str, Any] = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
QUESTION = "Which is hotter, 北京 or Shanghai?"
ANSWER = "Shanghai, 31 degrees; 北京 has 29."
CHAT_TOOLS: list[ChatCompletionToolParam] = [
    {"type": "function", "function": {"name": "get_weather", "description": "Weather now", "parameters": SCHEMA}}
]
TOOLS: list[ToolParam] = [{"name": "get_weather", "description": "Weather now", "input_schema": SCHEMA}]


def brain(conversation: Conversation) -> Answer:
    if conversation.results:
        degrees = [str(result.value["degrees"]) for result in conversation.results]
        assert [result.arguments["city"] for result in conversation.results] == ["北京", "Shanghai"]
        assert degrees == ["29", "31"]
        return say(ANSWER)
    assert conversation.user == QUESTION
    assert conversation.system == "Be brief."
    assert conversation.offers("get_weather")
    both = call("get_weather", city="北京"), call("get_weather", city="Shanghai")
    return ask(*both, text="I look it up.", thinking="Two cities, two calls.")


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer(brain, api_key="sk-right") as server:
        yield server
    assert server.violations == []


def chat_history() -> list[ChatCompletionMessageParam]:
    return [{"role": "system", "content": "Be brief."}, {"role": "user", "content": QUESTION}]


def echo(objects: Sequence[BaseModel]) -> list[Any]:
    """What came, as plain JSON values to send back."""
    return [item.model_dump(exclude_unset=True) for item in objects]


def chat_results(history: list[ChatCompletionMessageParam], ids: list[str]) -> None:
    for call_id, degrees in zip(ids, (29, 31), strict=True):
        history.append({"role": "tool", "tool_call_id": call_id, "content": f'{{"degrees": {degrees}}}'})


def tool_results(ids: list[str]) -> MessageParam:
    return {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": call_id, "content": f'{{"degrees": {degrees}}}'}
            for call_id, degrees in zip(ids, (29, 31), strict=True)
        ],
    }


def test_openai_sync(server: ModelServer) -> None:
    with openai.OpenAI(base_url=server.url, api_key="sk-right", max_retries=0) as client:
        history = chat_history()
        first = client.chat.completions.create(model="m", messages=history, tools=CHAT_TOOLS).choices[0]
        assert first.finish_reason == "tool_calls"
        assert first.message.content == "I look it up."
        calls = first.message.tool_calls or []
        assert [c.function.arguments for c in calls if c.type == "function"] == [
            '{"city":"北京"}',
            '{"city":"Shanghai"}',
        ]
        history.append({"role": "assistant", "content": None, "tool_calls": echo(calls)})
        chat_results(history, [c.id for c in calls])
        last = client.chat.completions.create(model="m", messages=history, tools=CHAT_TOOLS)
        assert last.choices[0].message.content == ANSWER
        assert last.usage is not None
        assert last.usage.total_tokens == last.usage.prompt_tokens + last.usage.completion_tokens > 50


def test_openai_sync_stream(server: ModelServer) -> None:
    with (
        openai.OpenAI(base_url=server.url, api_key="sk-right", max_retries=0) as client,
        client.chat.completions.stream(
            model="m", messages=chat_history(), tools=CHAT_TOOLS, stream_options={"include_usage": True}
        ) as stream,
    ):
        deltas = [event.delta for event in stream if event.type == "content.delta"]
        final = stream.get_final_completion()
    assert "".join(deltas) == "I look it up."
    calls = final.choices[0].message.tool_calls or []
    assert [c.function.arguments for c in calls] == ['{"city":"北京"}', '{"city":"Shanghai"}']
    assert final.usage is not None
    assert final.usage.completion_tokens > 0


async def test_openai_async(server: ModelServer) -> None:
    async with openai.AsyncOpenAI(base_url=server.url, api_key="sk-right", max_retries=0) as client:
        completion = await client.chat.completions.create(model="m", messages=chat_history(), tools=CHAT_TOOLS)
        calls = completion.choices[0].message.tool_calls or []
        history = chat_history()
        history.append({"role": "assistant", "tool_calls": echo(calls)})
        chat_results(history, [c.id for c in calls])
        stream = await client.chat.completions.create(model="m", messages=history, tools=CHAT_TOOLS, stream=True)
        chunks = [chunk async for chunk in stream]
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == ANSWER
    assert chunks[-1].choices[0].finish_reason == "stop"


def test_openai_errors(server: ModelServer) -> None:
    client = openai.OpenAI(base_url=server.url, api_key="sk-wrong", max_retries=0)
    with client, pytest.raises(openai.AuthenticationError, match="Incorrect API key"):
        client.chat.completions.create(model="m", messages=chat_history())
    assert [request.status for request in server.requests] == [401]


def test_openai_retries_a_rate_limit() -> None:
    with (
        ModelServer(script=[fail(429, retry_after=0.01), fail(500), "fine"]) as server,
        openai.OpenAI(base_url=server.url, api_key="k", max_retries=2) as client,
    ):
        completion = client.chat.completions.create(model="m", messages=chat_history())
    assert completion.choices[0].message.content == "fine"
    assert [request.status for request in server.requests] == [429, 500, 200]


def test_openai_broken_stream() -> None:
    with (
        ModelServer(
            script=[Answer("half an answer, cut", cut_after=2), Answer("some", failure=fail(500).failure)]
        ) as server,
        openai.OpenAI(base_url=server.url, api_key="k", max_retries=0) as client,
    ):
        stream = client.chat.completions.create(model="m", messages=chat_history(), stream=True)
        with pytest.raises(openai.APIConnectionError):
            list(stream)
        stream = client.chat.completions.create(model="m", messages=chat_history(), stream=True)
        with pytest.raises(openai.APIError, match="server had an error"):
            list(stream)


def test_anthropic_sync(server: ModelServer) -> None:
    with anthropic.Anthropic(base_url=server.anthropic_url, api_key="sk-right", max_retries=0) as client:
        history: list[MessageParam] = [{"role": "user", "content": QUESTION}]
        first = client.messages.create(model="m", max_tokens=1000, system="Be brief.", messages=history, tools=TOOLS)
        assert first.stop_reason == "tool_use"
        assert [block.type for block in first.content] == ["thinking", "text", "tool_use", "tool_use"]
        uses = [block for block in first.content if block.type == "tool_use"]
        assert [use.input for use in uses] == [{"city": "北京"}, {"city": "Shanghai"}]
        history.append({"role": "assistant", "content": first.content})
        history.append(tool_results([use.id for use in uses]))
        last = client.messages.create(model="m", max_tokens=1000, system="Be brief.", messages=history, tools=TOOLS)
    assert last.content[0].type == "text"
    assert last.content[0].text == ANSWER
    assert last.usage.input_tokens > 50
    assert last.usage.output_tokens > 5


def test_anthropic_sync_stream(server: ModelServer) -> None:
    with (
        anthropic.Anthropic(base_url=server.anthropic_url, api_key="sk-right", max_retries=0) as client,
        client.messages.stream(
            model="m",
            max_tokens=2000,
            system="Be brief.",
            messages=[{"role": "user", "content": QUESTION}],
            tools=TOOLS,
            thinking={"type": "enabled", "budget_tokens": 1024},
        ) as stream,
    ):
        assert "".join(stream.text_stream) == "I look it up."
        first = stream.get_final_message()
    uses = [block for block in first.content if block.type == "tool_use"]
    assert [use.input for use in uses] == [{"city": "北京"}, {"city": "Shanghai"}]
    assert first.content[0].type == "thinking"
    assert first.content[0].thinking == "Two cities, two calls."
    assert first.content[0].signature


async def test_anthropic_async(server: ModelServer) -> None:
    async with anthropic.AsyncAnthropic(base_url=server.anthropic_url, api_key="sk-right", max_retries=0) as client:
        history: list[MessageParam] = [{"role": "user", "content": QUESTION}]
        first = await client.messages.create(
            model="m", max_tokens=1000, system="Be brief.", messages=history, tools=TOOLS
        )
        uses = [block for block in first.content if block.type == "tool_use"]
        history.append({"role": "assistant", "content": first.content})
        history.append(tool_results([use.id for use in uses]))
        async with client.messages.stream(
            model="m", max_tokens=1000, system="Be brief.", messages=history, tools=TOOLS
        ) as stream:
            assert "".join([text async for text in stream.text_stream]) == ANSWER
            assert (await stream.get_final_message()).stop_reason == "end_turn"


def test_anthropic_errors() -> None:
    script = [fail(429, retry_after=0.01), fail(529), "fine", Answer("some", failure=fail(529).failure)]
    with (
        ModelServer(script=script) as server,
        anthropic.Anthropic(base_url=server.anthropic_url, api_key="k", max_retries=2) as client,
    ):
        message = client.messages.create(model="m", max_tokens=10, messages=[{"role": "user", "content": "hi"}])
        assert message.content[0].type == "text"
        with (
            pytest.raises(anthropic.APIStatusError, match="Overloaded"),
            client.messages.stream(model="m", max_tokens=10, messages=[{"role": "user", "content": "hi"}]) as stream,
        ):
            stream.get_final_message()
        with pytest.raises(anthropic.BadRequestError, match="at least one message"):
            client.messages.create(model="m", max_tokens=10, messages=[])
    assert [request.status for request in server.requests] == [429, 529, 200, 200, 400]


def test_anthropic_refuses_changed_thinking() -> None:
    script = [
        ask(call("get_weather", city="x"), thinking="hm"),
        Answer(thinking=(Thinking(redacted="abc"),), text="ok"),
    ]
    with (
        ModelServer(script=script) as server,
        anthropic.Anthropic(base_url=server.anthropic_url, api_key="k", max_retries=0) as client,
    ):
        history: list[MessageParam] = [{"role": "user", "content": QUESTION}]
        first = client.messages.create(model="m", max_tokens=1000, messages=history, tools=TOOLS)
        use = next(block for block in first.content if block.type == "tool_use")
        result: MessageParam = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": use.id}]}
        changed = echo(first.content)
        changed[0]["thinking"] = "hm, hm"
        broken: list[MessageParam] = [*history, {"role": "assistant", "content": changed}, result]
        with pytest.raises(anthropic.BadRequestError, match="Invalid `signature`"):
            client.messages.create(model="m", max_tokens=1000, messages=broken, tools=TOOLS)
        kept: list[MessageParam] = [*history, {"role": "assistant", "content": first.content}, result]
        last = client.messages.create(model="m", max_tokens=1000, messages=kept, tools=TOOLS)
    assert [block.type for block in last.content] == ["redacted_thinking", "text"]
