from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassloop.core.errors import ModelError
from glassloop.core.messages import Opaque, Reply, Text, Thinking, ToolCall, UserMessage
from glassloop.core.usage import Usage
from glassloop.models.anthropic import Anthropic
from glassloop.models.fake_transport import FakeAnswer, FakeTransport
from glassloop.models.messages_reply import messages_usage
from glassloop.models.model import ModelRequest, TextPart, ThinkingPart, ToolSpec
from glassloop.testing.schema_rules import messages_schema_violations

PROVIDER = "anthropic-messages:one.test/m"


def model(*answers: Any) -> Anthropic:
    return Anthropic("m", base_url="https://one.test", transport=FakeTransport(*answers))


def sse(*events: dict[str, Any] | str) -> str:
    lines: list[str] = []
    for event in events:
        name = "" if isinstance(event, str) else f"event: {event['type']}\n"
        lines.append(f"{name}data: {event if isinstance(event, str) else json.dumps(event, ensure_ascii=False)}\n\n")
    return "".join(lines)


def start(**usage: int) -> dict[str, Any]:
    return {"type": "message_start", "message": {"model": "m-2", "content": [], "stop_reason": None, "usage": usage}}


def begin(index: int, **block: Any) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": block}


def piece(index: int, kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **fields}}


def end(reason: str = "end_turn", **usage: int) -> list[dict[str, Any]]:
    return [
        {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": usage},
        {"type": "message_stop"},
    ]


CONTENT: list[dict[str, Any]] = [
    {"type": "thinking", "thinking": "7   é", "signature": "SIG+/=="},
    {"type": "redacted_thinking", "data": "ENC"},
    {"type": "text", "text": "Let me see. 你好"},
    {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"q": "x"}},
    {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []},
    {"type": "tool_use", "id": "toolu_1", "name": "add", "input": {"a": 2}, "caller": {"type": "direct"}},
]
STREAMED = sse(
    start(input_tokens=10, cache_read_input_tokens=80, cache_creation_input_tokens=5, output_tokens=1),
    {"type": "ping"},
    begin(0, type="thinking", thinking="", signature=""),
    piece(0, "thinking_delta", thinking="7   "),
    piece(0, "thinking_delta", thinking="é"),
    piece(0, "signature_delta", signature="SIG"),
    piece(0, "signature_delta", signature="+/=="),
    {"type": "content_block_stop", "index": 0},
    begin(1, type="redacted_thinking", data="ENC"),
    begin(2, type="text", text=""),
    piece(2, "text_delta", text="Let me see. "),
    {"type": "future_event", "x": 1},
    piece(2, "text_delta", text="你好"),
    piece(2, "citations_delta", citation={"url": "u"}),
    begin(3, type="server_tool_use", id="s1", name="web_search", input={}),
    piece(3, "input_json_delta", partial_json='{"q":"x"}'),
    begin(4, type="web_search_tool_result", tool_use_id="s1", content=[]),
    begin(5, type="tool_use", id="toolu_1", name="add", input={}, caller={"type": "direct"}),
    piece(5, "input_json_delta", partial_json=""),
    piece(5, "input_json_delta", partial_json='{"a"'),
    piece(5, "input_json_delta", partial_json=":2}"),
    *end("tool_use", output_tokens=20, input_tokens=0),
)
REPLY = Reply(
    (
        Thinking("7   é", "SIG+/=="),
        Thinking(redacted="ENC"),
        Text("Let me see. 你好"),
        Opaque(CONTENT[3]),
        Opaque(CONTENT[4]),
        ToolCall("", "add", '{"a":2}', "toolu_1", extra={"caller": {"type": "direct"}}),
    ),
    usage=Usage(95, 20, cached=80, cache_write=5, requests=1),
    model="m-2",
    provider=PROVIDER,
)
SHOWN = [ThinkingPart("7   "), ThinkingPart("é"), TextPart("Let me see. "), TextPart("你好")]


async def test_a_whole_answer(play: Callable[..., Any]) -> None:
    usage = {"input_tokens": 10, "cache_read_input_tokens": 80, "cache_creation_input_tokens": 5, "output_tokens": 20}
    body = {"type": "message", "model": "m-2", "content": CONTENT, "stop_reason": "tool_use", "usage": usage}
    assert await play(model(FakeAnswer.json(body)), stream=False) == (REPLY, [])
    _, parts = await play(model(FakeAnswer.json(body)))
    assert parts == [ThinkingPart("7   é"), TextPart("Let me see. 你好")]


@given(split=st.integers(1, 200))
async def test_where_a_stream_is_cut_makes_no_difference(play: Callable[..., Any], split: int) -> None:
    assert await play(model(FakeAnswer.sse(STREAMED, split))) == (REPLY, SHOWN)


ENDED = len(STREAMED.partition('"message_delta"')[0].encode())


@given(length=st.integers(0, ENDED))
async def test_a_stream_that_ends_early_is_a_failure(play: Callable[..., Any], length: int) -> None:
    with pytest.raises(ModelError, match="broke off") as caught:
        await play(model(FakeAnswer.sse(STREAMED.encode()[:length])))
    assert caught.value.kind == "connection"
    assert "Let me see. 你好".startswith(caught.value.partial)


async def test_frames_that_gateways_add(play: Callable[..., Any]) -> None:
    stream = sse(
        {"type": "ping"},
        {"type": "message_start", "message": None},
        piece(0, "text_delta", text="hi"),
        {"type": "content_block_stop", "index": 0},
        *end(output_tokens=1),
        "[DONE]",
    )
    reply, parts = await play(model(FakeAnswer.sse(stream)))
    assert reply == Reply((Text("hi"),), usage=Usage(0, 1, requests=1), provider=PROVIDER)
    assert parts == [TextPart("hi")]


async def test_what_servers_do_that_only_resemble_anthropics(play: Callable[..., Any]) -> None:
    events = (
        begin(0, type="tool_use", id="t", name="add", input={}),
        piece(0, "input_json_delta", partial_json={"a": 2}),
    )
    spaced = sse(start(), *events, *end("tool_use")).replace("data: ", "data:  ")
    reply, _ = await play(model(FakeAnswer.sse(spaced)))
    assert [(call.name, call.arguments) for call in reply.calls] == [("add", '{"a":2}')]
    reply, _ = await play(model(FakeAnswer.json({"content": "hi", "stop_reason": "end_turn"})))
    assert reply.text == "hi"
    with pytest.raises(ModelError, match="upstream exploded"):
        await play(model(FakeAnswer.sse(sse(start()) + "event: error\ndata: upstream exploded\n\n")))


async def test_an_error_after_text_keeps_what_was_shown(play: Callable[..., Any]) -> None:
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    stream = sse(start(input_tokens=5), begin(0, type="text", text=""), piece(0, "text_delta", text="First, "), error)
    with pytest.raises(ModelError, match="Overloaded") as caught:
        await play(model(FakeAnswer.sse(stream)))
    assert (caught.value.kind, caught.value.partial) == ("overloaded", "First, ")


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ({"type": "error", "error": {"type": "overloaded_error", "message": "x"}}, "overloaded"),
        ({"type": "error", "error": {"type": "authentication_error", "message": "x"}}, "auth"),
        ({"type": "message"}, "protocol"),
        ({"choices": []}, "protocol"),
        ([], "protocol"),
    ],
)
async def test_answers_that_are_failures(play: Callable[..., Any], body: Any, kind: str) -> None:
    with pytest.raises(ModelError) as caught:
        await play(model(FakeAnswer.json(body)))
    assert caught.value.kind == kind


@pytest.mark.parametrize(
    ("reason", "stop"),
    [
        ("end_turn", "stop"),
        ("tool_use", "stop"),
        ("stop_sequence", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("refusal", "refusal"),
        ("pause_turn", "paused"),
        ("length", "length"),
        ("content_filter", "content_filter"),
        ("stop", "stop"),
    ],
)
async def test_stop_reasons(play: Callable[..., Any], reason: str, stop: str) -> None:
    reply, _ = await play(model(FakeAnswer.sse(sse(start(), begin(0, type="text", text="x"), *end(reason)))))
    assert reply.stop == stop


@pytest.mark.parametrize(
    ("events", "kind"),
    [
        (["[DONE]"], "protocol"),
        ([{"type": "ping"}, {"type": "message_stop"}], "protocol"),
        (['{"code": 500, "msg": "server busy"}', "[DONE]"], "overloaded"),
        (['{"base_resp": {"status_code": 1008, "status_msg": "insufficient balance"}}', "[DONE]"], "payment"),
    ],
)
async def test_a_stream_without_a_message_is_a_failure(play: Callable[..., Any], events: list[Any], kind: str) -> None:
    """Sibling of open-octo/octo-agent#910."""
    with pytest.raises(ModelError) as caught:
        await play(model(FakeAnswer.sse(sse(*events))))
    assert caught.value.kind == kind


async def test_that_a_reply_ended_naturally_takes_no_other_reason_back(play: Callable[..., Any]) -> None:
    """Public: smg-project/smg#2433."""
    stream = sse(start(), begin(0, type="text", text="half"), end("max_tokens")[0], *end())
    assert (await play(model(FakeAnswer.sse(stream))))[0].stop == "length"


@pytest.mark.parametrize(("reason", "kind"), [("error", "overloaded"), ("malformed_function_call", "bad_tool_call")])
async def test_a_stop_reason_that_reports_a_failure(play: Callable[..., Any], reason: str, kind: str) -> None:
    """A gateway passes on the words of the server behind it: vllm-project/vllm#57082, pydantic/pydantic-ai#631."""
    with pytest.raises(ModelError, match=reason) as caught:
        await play(model(FakeAnswer.sse(sse(start(), begin(0, type="text", text="half"), *end(reason)))))
    assert (caught.value.kind, caught.value.partial) == (kind, "half")


async def test_a_reply_that_ends_for_calls_and_has_none(play: Callable[..., Any]) -> None:
    """Public: askui/python-sdk#278."""
    tools = (ToolSpec("add", "", {"type": "object", "properties": {}}),)
    stream = FakeAnswer.sse(sse(start(), begin(0, type="text", text="Reading it."), *end("tool_use")))
    assert (await play(model(stream), ModelRequest((UserMessage("q"),), tools=tools)))[0].stop == "no_calls"


async def test_why_it_refused(play: Callable[..., Any]) -> None:
    details = {"type": "refusal", "category": "bio", "explanation": "Not this."}
    body: Any = {"type": "message", "content": [], "stop_reason": "refusal", "stop_details": details}
    reply, _ = await play(model(FakeAnswer.json(body)), stream=False)
    assert (reply.stop, reply.refusal, reply.parts) == ("refusal", "Not this.", ())


TAGGED: dict[str, tuple[str, str]] = {
    "<think>\nhm\n</think>\n\nAnswer": ("\nhm\n", "Answer"),
    "<mm:think>hm</mm:think>Answer": ("hm", "Answer"),
    "<think>never ends </thi": ("never ends </thi", ""),
    "<thin": ("", "<thin"),
    "About <think> tags": ("", "About <think> tags"),
}


@pytest.mark.parametrize(("said", "expected"), TAGGED.items())
async def test_tagged_thinking_is_no_text(play: Callable[..., Any], said: str, expected: tuple[str, str]) -> None:
    """Public: earendil-works/pi#7155."""
    body: Any = {"content": [{"type": "text", "text": said}], "stop_reason": "end_turn"}
    reply, _ = await play(model(FakeAnswer.json(body)), stream=False)
    assert (reply.thinking, reply.text) == expected
    stop: dict[str, Any] = {"type": "content_block_stop", "index": 0}
    for last in ([stop], []):
        pieces = [piece(0, "text_delta", text=one) for one in said]
        stream = sse(start(), begin(0, type="text", text=""), *pieces, *last, *end())
        reply, parts = await play(model(FakeAnswer.sse(stream)))
        assert (reply.thinking, reply.text) == expected
        assert "".join(part.text for part in parts if isinstance(part, ThinkingPart)) == expected[0]
        assert "".join(part.text for part in parts if isinstance(part, TextPart)) == expected[1]


async def test_only_the_first_text_may_begin_with_thinking(play: Callable[..., Any]) -> None:
    body: Any = {"content": [{"type": "text", "text": text} for text in ("A ", "<think>", "B")]}
    reply, _ = await play(model(FakeAnswer.json(body)), stream=False)
    assert (reply.thinking, reply.text) == ("", "A <think>B")


async def test_empty_blocks_are_nothing_and_content_may_be_null(play: Callable[..., Any]) -> None:
    for content in (None, [], [{"type": "text", "text": ""}]):
        body = {"type": "message", "content": content, "stop_reason": "end_turn"}
        reply, parts = await play(model(FakeAnswer.json(body)))
        assert (reply.parts, parts) == ((), [])


async def test_tool_names_are_mapped_back(play: Callable[..., Any]) -> None:
    tools = (ToolSpec("docs.open", "", {"type": "object", "properties": {}}),)
    transport = FakeTransport(FakeAnswer(status=500))
    request = ModelRequest((UserMessage("q"),), tools=tools)
    with pytest.raises(ModelError):
        await play(Anthropic("m", transport=transport), request)
    wire = transport.posts[0].json["tools"][0]["name"]
    content: Any = [{"type": "tool_use", "id": "1", "name": wire, "input": {}}]
    reply, _ = await play(model(FakeAnswer.json({"type": "message", "content": content})), request)
    assert reply.calls[0].name == "docs.open"


async def test_arguments_that_cannot_travel_under_their_names_have_others_there(play: Callable[..., Any]) -> None:
    """beautyfree/appstore-connect-mcp#1, decocms/studio#6874: one such property is a 400 for the whole request."""
    asked = {"城市": {"type": "string"}, "filter[id]": True, "x" * 70: {}, "plain.one": {}}
    spec = ToolSpec("find", "", {"type": "object", "properties": asked, "required": ["城市", "plain.one"]})
    request = ModelRequest((UserMessage("q"),), tools=(spec,))
    transport = FakeTransport(FakeAnswer(status=500))
    with pytest.raises(ModelError):
        await play(Anthropic("m", transport=transport), request)
    schema = transport.posts[0].json["tools"][0]["input_schema"]
    assert messages_schema_violations("t", schema) == []
    city, identity, long, plain = schema["properties"]
    assert schema["properties"][city] == {"title": "城市", "type": "string"}
    assert (plain, schema["required"]) == ("plain.one", [city, "plain.one"])

    ours = {city: "城市", identity: "filter[id]", long: "x" * 70}
    for written in ({city: "Oslo", identity: 1, long: 2, plain: 3}, {"城市": "Oslo"}):
        block = {"type": "tool_use", "id": "t", "name": "find", "input": written}
        reply, _ = await play(model(FakeAnswer.json({"content": [block]})), request)
        assert json.loads(reply.calls[0].arguments) == {ours.get(key, key): value for key, value in written.items()}
    for text in ("{", "[1]"):
        block = {"type": "tool_use", "id": "t", "name": "find", "input": text}
        reply, _ = await play(model(FakeAnswer.json({"content": [block]})), request)
        assert reply.calls[0].arguments == text


async def test_the_requests_head() -> None:
    transport = FakeTransport(FakeAnswer(status=500))
    asking = Anthropic("m", api_key="sk-ant", base_url="https://one.test/v1/", transport=transport)
    with pytest.raises(ModelError):
        async for _ in asking.stream(ModelRequest((UserMessage("q"),))):
            pass
    (post,) = transport.posts
    assert post.url == "https://one.test/v1/messages"
    assert {"x-api-key": "sk-ant", "anthropic-version": "2023-06-01"}.items() <= post.headers.items()
    assert "cache_control" not in str(post.json)


async def test_caching_is_on_at_anthropic() -> None:
    for base_url, caching, marked in [
        ("https://api.anthropic.com", None, True),
        ("https://api.anthropic.com", False, False),
        ("https://one.test", True, True),
    ]:
        transport = FakeTransport(FakeAnswer(status=500))
        asking = Anthropic("m", base_url=base_url, caching=caching, transport=transport)
        with pytest.raises(ModelError):
            async for _ in asking.stream(ModelRequest((UserMessage("q"),))):
                pass
        assert ("cache_control" in str(transport.posts[0].json)) == marked


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({}, Usage(requests=1, unreported=1)),
        ({"input_tokens": 7, "output_tokens": 2}, Usage(7, 2, requests=1)),
        ({"input_tokens": 7, "output_tokens": 5, "thinking_tokens": 3}, Usage(7, 5, reasoning=3, requests=1)),
    ],
)
def test_usage(usage: Any, expected: Usage) -> None:
    assert messages_usage(usage) == expected


async def test_usage_that_is_not_reported(play: Callable[..., Any]) -> None:
    body = {"type": "message", "content": [{"type": "text", "text": "x"}], "usage": None}
    reply, _ = await play(model(FakeAnswer.json(body)))
    assert reply.usage == Usage(requests=1, unreported=1)
    details = {"input_tokens": 7, "output_tokens": 5, "output_tokens_details": {"thinking_tokens": 3}}
    reply, _ = await play(model(FakeAnswer.json({**body, "usage": details})))
    assert reply == replace(reply, usage=Usage(7, 5, reasoning=3, requests=1))
