"""Why a reply of Chat Completions ended."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from glassloop.core.errors import ModelError
from glassloop.core.messages import Reply, UserMessage
from glassloop.models.fake_transport import FakeAnswer, FakeTransport
from glassloop.models.model import ModelRequest, ToolSpec
from glassloop.models.openai_chat import OpenAIChat

ADD = ToolSpec("add", "", {"type": "object", "properties": {}})


def model(*answers: Any) -> OpenAIChat:
    return OpenAIChat("m", base_url="https://one.test/v1", transport=FakeTransport(*answers))


def sse(*chunks: Any) -> str:
    return "".join(
        f"data: {one if isinstance(one, str) else json.dumps(one, ensure_ascii=False)}\n\n" for one in chunks
    )


def delta(finish: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}


async def whole(play: Callable[..., Any], message: Any, finish: Any = "stop", **more: Any) -> Reply:
    body = {"choices": [{"index": 0, "message": message, "finish_reason": finish}], **more}
    reply, parts = await play(model(FakeAnswer.json(body)), stream=False)
    assert parts == []
    return reply


@pytest.mark.parametrize(
    ("finish", "stop"),
    [
        ("stop", "stop"),
        ("tool_calls", "stop"),
        ("length", "length"),
        ("model_length", "length"),
        ("max_tokens", "length"),
        ("content_filter", "content_filter"),
        ("STOP", "stop"),
        ("MAX_TOKENS", "length"),
        ("content_filter: PROHIBITED_CONTENT", "content_filter"),
        ("recitation", "content_filter"),
        ("null", "unknown"),
        ("", "unknown"),
        (None, "unknown"),
        ("novel", "unknown"),
    ],
)
async def test_finish_reasons(play: Callable[..., Any], finish: Any, stop: str) -> None:
    assert (await whole(play, {"content": "x"}, finish)).stop == stop


@pytest.mark.parametrize(
    "finish", ["error", "ERROR", "network_error", "insufficient_system_resource", "abort", "cancelled"]
)
async def test_a_finish_reason_that_reports_a_failure(play: Callable[..., Any], finish: str) -> None:
    """Public: vllm-project/vllm#57082."""
    with pytest.raises(ModelError, match=finish) as caught:
        await whole(play, {"content": "x"}, finish)
    assert caught.value.retryable


@pytest.mark.parametrize("finish", ["function_call_filter: MALFORMED_FUNCTION_CALL", "unexpected_tool_call"])
@pytest.mark.parametrize("calls", [None, [{"id": "c1", "function": {"name": "add", "arguments": "{}"}}]])
async def test_a_call_that_its_own_server_could_not_read_is_the_models_mistake(
    play: Callable[..., Any], finish: str, calls: Any
) -> None:
    """Public: pydantic/pydantic-ai#631, NousResearch/hermes-agent#83886."""
    with pytest.raises(ModelError, match=finish) as caught:
        await whole(play, {"content": "", "tool_calls": calls}, finish)
    assert caught.value.kind == "bad_tool_call"


async def test_that_a_reply_ended_naturally_takes_no_other_reason_back(play: Callable[..., Any]) -> None:
    """Public: smg-project/smg#2433, vllm-project/vllm#58228."""
    reply, _ = await play(model(FakeAnswer.sse(sse(delta(content="half"), delta("length"), delta("stop"), "[DONE]"))))
    assert (reply.text, reply.stop) == ("half", "length")
    reply, _ = await play(model(FakeAnswer.sse(sse(delta("stop", content="half"), delta("length"), "[DONE]"))))
    assert reply.stop == "length"


async def test_null_as_a_word_is_no_finish_reason(play: Callable[..., Any]) -> None:
    """As DashScope writes it; sibling of adolfousier/opencrabs#1499."""
    stream = [delta("null", content="<thi"), delta("null", content="nk>hm</think>hi")]
    reply, _ = await play(model(FakeAnswer.sse(sse(*stream, delta("stop"), "[DONE]"))))
    assert (reply.thinking, reply.text) == ("hm", "hi")
    with pytest.raises(ModelError, match="broke off"):
        await play(model(FakeAnswer.sse(sse(*stream))))


@pytest.mark.parametrize("finish", ["tool_calls", "tool_use", "function_call"])
@pytest.mark.parametrize(("tools", "stop"), [((ADD,), "no_calls"), ((), "stop")], ids=["tools", "no tools"])
async def test_a_reply_that_ends_for_calls_and_has_none(
    play: Callable[..., Any], finish: str, tools: tuple[ToolSpec, ...], stop: str
) -> None:
    """Public: NousResearch/hermes-agent#75926, mastra-ai/mastra#14187."""
    message: dict[str, Any] = {"content": "Reading it.", "tool_calls": []}
    body: Any = {"choices": [{"message": message, "finish_reason": finish}]}
    reply, _ = await play(model(FakeAnswer.json(body)), ModelRequest((UserMessage("q"),), tools=tools))
    assert (reply.text, reply.stop) == ("Reading it.", stop)
