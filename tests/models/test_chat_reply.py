from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassloop.core.errors import ModelError
from glassloop.core.messages import Reply, Text, Thinking, ToolCall, UserMessage
from glassloop.core.usage import Usage
from glassloop.models.chat_reply import chat_usage
from glassloop.models.fake_transport import FakeAnswer, FakeTransport
from glassloop.models.model import ModelRequest, TextPart, ThinkingPart, ToolSpec
from glassloop.models.openai_chat import OpenAIChat

PROVIDER = "openai-chat:one.test/m"


def model(*answers: Any) -> OpenAIChat:
    return OpenAIChat("m", base_url="https://one.test/v1", transport=FakeTransport(*answers))


def sse(*chunks: Any) -> str:
    return "".join(
        f"data: {one if isinstance(one, str) else json.dumps(one, ensure_ascii=False)}\n\n" for one in chunks
    )


def delta(finish: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}


def said(text: str, **fields: Any) -> Reply:
    return Reply((Text(text),), usage=Usage(requests=1, unreported=1), provider=PROVIDER, **fields)


async def whole(play: Callable[..., Any], message: Any, finish: Any = "stop", **more: Any) -> Reply:
    body = {"choices": [{"index": 0, "message": message, "finish_reason": finish}], **more}
    reply, parts = await play(model(FakeAnswer.json(body)), stream=False)
    assert parts == []
    return reply


async def test_a_whole_answer(play: Callable[..., Any]) -> None:
    usage = {
        "prompt_tokens": 100,
        "completion_tokens": 20,
        "total_tokens": 120,
        "prompt_tokens_details": {"cached_tokens": 80},
        "completion_tokens_details": {"reasoning_tokens": 15},
    }
    call = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    message = {"role": "assistant", "content": "Let me see.", "tool_calls": [call], "refusal": None, "annotations": []}
    assert await whole(play, message, "tool_calls", model="m-2", usage=usage) == Reply(
        (Text("Let me see."), ToolCall("", "add", '{"a": 1}', "c1")),
        usage=Usage(100, 20, cached=80, reasoning=15, requests=1),
        model="m-2",
        provider=PROVIDER,
    )


async def test_calls_are_calls_whatever_the_finish_reason_says(play: Callable[..., Any]) -> None:
    calls: list[Any] = [{"id": "", "function": {"name": "add\n", "arguments": None}}, {"function": {}}]
    reply = await whole(play, {"content": None, "tool_calls": calls}, "stop")
    assert [(call.name, call.arguments) for call in reply.calls] == [("add\n", ""), ("", "")]


@pytest.mark.parametrize("calls", [[], None])
async def test_no_calls(play: Callable[..., Any], calls: Any) -> None:
    assert await whole(play, {"content": "hi", "tool_calls": calls}) == said("hi")


async def test_the_old_function_call(play: Callable[..., Any]) -> None:
    reply = await whole(play, {"content": None, "function_call": {"name": "add", "arguments": "{}"}}, "function_call")
    assert reply.calls == (ToolCall("", "add", "{}"),)


async def test_a_call_in_both_forms_is_one(play: Callable[..., Any]) -> None:
    """Sibling of mastra-ai/mastra#22969."""
    function = {"name": "add", "arguments": "{}"}
    message = {"function_call": function, "tool_calls": [{"id": "c1", "function": function}]}
    reply = await whole(play, message, "tool_calls")
    assert (reply.calls, reply.extra) == ((ToolCall("", "add", "{}", "c1"),), {})


async def test_zeros_at_the_end_do_not_take_usage_back(play: Callable[..., Any]) -> None:
    """Sibling of router-for-me/CLIProxyAPI#4053."""
    some, none = {"prompt_tokens": 7, "completion_tokens": 1}, {"prompt_tokens": 0, "completion_tokens": 0}
    stream: list[Any] = [{"choices": [], "usage": none}, delta("stop", content="hi")]
    stream += [{"choices": [], "usage": some}, {"choices": [], "usage": none}]
    reply, _ = await play(model(FakeAnswer.sse(sse(*stream, "[DONE]"))))
    assert reply.usage == Usage(7, 1, requests=1)


async def test_a_refusal_is_no_answer(play: Callable[..., Any]) -> None:
    reply = await whole(play, {"content": None, "refusal": "I can't help with that."})
    assert (reply.stop, reply.refusal, reply.text) == ("refusal", "I can't help with that.", "")


SPLIT: dict[str, list[dict[str, Any]]] = {
    "without index": [{"message": {"content": "I will add."}, "finish_reason": "tool_calls"}, {}],
    "with index": [{"index": 0, "message": {"content": "I will add."}, "finish_reason": "stop"}, {"index": 1}],
}


@pytest.mark.parametrize(("first", "second"), SPLIT.values(), ids=SPLIT)
@pytest.mark.parametrize(("finish", "stop"), [("tool_calls", "stop"), ("length", "length")])
async def test_calls_in_a_choice_of_their_own_are_the_replys(
    play: Callable[..., Any], first: dict[str, Any], second: dict[str, Any], finish: str, stop: str
) -> None:
    """Public: HKUDS/nanobot#1555, zeroclaw-labs/zeroclaw#2136, BerriAI/litellm#35444."""
    call = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a":1}'}}
    calling = {**second, "message": {"content": None, "tool_calls": [call]}, "finish_reason": finish}
    reply, _ = await play(model(FakeAnswer.json({"choices": [first, calling]})))
    assert reply.parts == (Text("I will add."), ToolCall("", "add", '{"a":1}', "c1"))
    assert reply.stop == stop


async def test_calls_in_a_choice_of_their_own_may_be_streamed(play: Callable[..., Any]) -> None:
    def calling(finish: str | None = None, **function: str) -> dict[str, Any]:
        entries = [{"index": 0, "id": "c1", "function": function}] if function else []
        return {"choices": [{"index": 1, "delta": {"tool_calls": entries}, "finish_reason": finish}]}

    stream = [delta(content="I will add."), calling(name="add", arguments='{"a"'), delta("stop")]
    stream += [calling(arguments=":1}"), calling("tool_calls")]
    reply, _ = await play(model(FakeAnswer.sse(sse(*stream, "[DONE]"))))
    assert reply.parts == (Text("I will add."), ToolCall("", "add", '{"a":1}', "c1"))


async def test_another_choice_is_no_part_of_a_reply_that_calls(play: Callable[..., Any]) -> None:
    choices = [
        {"index": place, "message": {"tool_calls": [{"id": f"c{place}", "function": {"name": "add"}}]}}
        for place in (0, 1)
    ]
    reply, _ = await play(model(FakeAnswer.json({"choices": choices})))
    assert [call.provider_id for call in reply.calls] == ["c0"]


@pytest.mark.parametrize("finish", ["error", "stop", None])
async def test_an_error_in_a_choice_fails_the_attempt(play: Callable[..., Any], finish: str | None) -> None:
    """Public: genkit-ai/genkit#6259, damianvtran/local-operator#223."""
    failed: dict[str, Any] = {"error": {"message": "prompt is too long: 1284668 tokens > 1000000", "code": 400}}
    choice: dict[str, Any] = {"index": 0, "delta": {}, "finish_reason": finish, **failed}
    with pytest.raises(ModelError, match="1284668") as caught:
        await play(model(FakeAnswer.sse(sse(delta(content="half"), {"choices": [choice]}, "[DONE]"))))
    assert (caught.value.kind, caught.value.partial) == ("context_length", "half")
    with pytest.raises(ModelError, match="1284668"):
        await whole(play, {"content": "half"}, finish, choices=[{"message": {"content": "half"}, **failed}])


NO_CHOICES: list[tuple[list[Any], str]] = [
    ([], "protocol"),
    ([{"choices": [], "usage": {"prompt_tokens": 7}}], "protocol"),
    ([{"code": 500, "msg": "server busy"}, {"choices": [], "usage": {"prompt_tokens": 7}}], "overloaded"),
    ([{"detail": "no such thing"}], "overloaded"),
    ([{"choices": None, "base_resp": {"status_code": 1008, "status_msg": "insufficient balance"}}], "payment"),
]


@pytest.mark.parametrize(("chunks", "kind"), NO_CHOICES)
async def test_a_stream_without_a_choice_is_a_failure(play: Callable[..., Any], chunks: list[Any], kind: str) -> None:
    """Public: open-octo/octo-agent#910, earendil-works/pi#8473."""
    with pytest.raises(ModelError) as caught:
        await play(model(FakeAnswer.sse(sse(*chunks, "[DONE]"))))
    assert caught.value.kind == kind


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
async def test_thinking_is_never_visible_text(play: Callable[..., Any], field: str) -> None:
    reply = await whole(play, {"content": "5", field: "2 and 3"})
    assert (reply.text, reply.thinking, reply.extra) == ("5", "2 and 3", {field: None})


async def test_thinking_under_two_names_counts_once(play: Callable[..., Any]) -> None:
    stream = sse(
        delta(reasoning_content="a", reasoning="a"),
        delta(reasoning_content="b", reasoning="b"),
        delta("stop", content="c"),
    )
    reply, parts = await play(model(FakeAnswer.sse(stream)))
    assert reply.thinking == "ab"
    assert parts == [ThinkingPart("a"), ThinkingPart("b"), TextPart("c")]


async def test_blocks_of_thinking_and_text_as_mistral_sends_them(play: Callable[..., Any]) -> None:
    stream = sse(
        delta(content=[{"type": "thinking", "thinking": [{"type": "text", "text": "Hm"}]}]),
        delta(content=[{"type": "text", "text": "A"}, {"type": "reference", "reference_ids": [1]}]),
        delta("stop", content="B"),
    )
    reply, parts = await play(model(FakeAnswer.sse(stream)))
    assert (reply.thinking, reply.text) == ("Hm", "AB")
    assert parts == [ThinkingPart("Hm"), TextPart("A"), TextPart("B")]


THOUGHTS = {
    "<think>\nhm\n</think>\n\nAnswer": ("\nhm\n", "Answer"),
    " \n<think></think>Answer": ("", "Answer"),
    "<think>never ends </thin": ("never ends </thin", ""),
    "<think>a</think>b <think>c</think>": ("a", "b <think>c</think>"),
    "About <think> tags": ("", "About <think> tags"),
    "<thin": ("", "<thin"),
    "<thinker>": ("", "<thinker>"),
    "<thinking>hm</thinking>\n\nAnswer": ("hm", "Answer"),
    "<thought>hm</think></thought>Answer": ("hm</think>", "Answer"),
    "<mm:think>hm</mm:think>Answer": ("hm", "Answer"),
    "[THINK]hm[/THINK]Answer": ("hm", "Answer"),
    "<|channel>thought\nhm<channel|>Answer": ("\nhm", "Answer"),
    "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>Answer": ("hm", "Answer"),
    "<|channel|>analysis<|message|>hm<|end|>\n<Answer>": ("hm", "<Answer>"),
    "<|channel|>final<|message|>Answer": ("", "Answer"),
    "[1] says so": ("", "[1] says so"),
    "  ": ("", "  "),
}


@pytest.mark.parametrize(("said", "expected"), THOUGHTS.items())
async def test_tagged_thinking_is_no_text(play: Callable[..., Any], said: str, expected: tuple[str, str]) -> None:
    """Public, of others than `<think>`: HKUDS/nanobot#2991, livekit/agents#6398, NousResearch/hermes-agent#62680."""
    reply = await whole(play, {"content": said})
    assert (reply.thinking, reply.text) == expected
    for size in (1, 3, len(said)):
        pieces = [said[at : at + size] for at in range(0, len(said), size)]
        for end in (delta("stop"), "[DONE]"):
            stream = sse(*(delta(content=one) for one in pieces), end)
            reply, parts = await play(model(FakeAnswer.sse(stream)))
            assert (reply.thinking, reply.text) == expected
            assert "".join(part.text for part in parts if isinstance(part, ThinkingPart)) == expected[0]
            assert "".join(part.text for part in parts if isinstance(part, TextPart)) == expected[1]


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("It says hello.\n</think>\n\nHello.", ("It says hello.", "Hello.")),
        ("</think>\n\nHello.", ("", "Hello.")),
        ("It never stops.\n</think>", ("It never stops.", "")),
        ("Write </think> to end it.", ("", "Write </think> to end it.")),
        ("See:\n```\n</think>\n```", ("", "See:\n```\n</think>\n```")),
        ("Between <think> and\n</think>\nit thinks.", ("", "Between <think> and\n</think>\nit thinks.")),
    ],
)
async def test_thinking_that_the_template_began_is_no_answer(
    play: Callable[..., Any], said: str, expected: tuple[str, str]
) -> None:
    """Public: ollama/ollama#18044, vllm-project/vllm#39697."""
    for stream in (False, True):
        answer = FakeAnswer.json({"choices": [{"message": {"content": said}, "finish_reason": "stop"}]})
        reply, _ = await play(model(answer), stream=stream)
        assert (reply.thinking, reply.text) == expected


@pytest.mark.parametrize("content", [["hi ", {"type": "text", "text": "you"}], {"type": "text", "text": "hi you"}])
async def test_text_is_text_in_whatever_it_is_wrapped(play: Callable[..., Any], content: Any) -> None:
    assert (await whole(play, {"content": content})).text == "hi you"
    reply, _ = await play(model(FakeAnswer.sse(sse(delta(content=content), delta("stop")))))
    assert reply.text == "hi you"


async def test_a_message_in_a_stream_is_news_or_a_summary(play: Callable[..., Any]) -> None:
    message = {"choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}]}
    for before in ([], [delta(content="h"), delta(content="i")]):
        reply, _ = await play(model(FakeAnswer.sse(sse(*before, message))))
        assert reply.text == "hi"
    both = {"choices": [{"delta": {}, "message": {"content": "hi"}, "finish_reason": "stop"}]}
    for before in ([], [delta(content="hi")]):
        reply, _ = await play(model(FakeAnswer.sse(sse(*before, both))))
        assert reply.text == "hi"


async def test_one_call_that_is_not_in_a_list(play: Callable[..., Any]) -> None:
    reply = await whole(
        play, {"content": None, "tool_calls": {"id": "c", "function": {"name": "add", "arguments": "{}"}}}
    )
    assert reply.calls == (ToolCall("", "add", "{}", "c"),)


async def test_pieces_of_a_reasoning_detail_are_joined(play: Callable[..., Any]) -> None:
    def detail(index: int, **fields: Any) -> dict[str, Any]:
        return delta(reasoning_details=[{"type": "reasoning.text", "index": index, "format": None, **fields}])

    stream = sse(
        detail(0, text="We "), detail(0, text="add", signature="S1"), detail(1, text="!"), delta("stop", content="5")
    )
    reply, _ = await play(model(FakeAnswer.sse(stream)))
    first, second = reply.extra["reasoning_details"]
    assert (first["text"], first["signature"], second["text"]) == ("We add", "S1", "!")
    assert reply.thinking == "We add!"


async def test_unknown_fields_are_kept(play: Callable[..., Any]) -> None:
    reply = await whole(play, {"content": "x", "annotations": [{"url": "u"}], "audio": None})
    assert reply.extra == {"annotations": [{"url": "u"}]}


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ({"choices": []}, "protocol"),
        ({"choices": None}, "protocol"),
        ({"id": "x"}, "protocol"),
        ([], "protocol"),
        ({"error": {"message": "upstream overloaded", "code": 502}}, "overloaded"),
        ({"error": {"message": "odd"}}, "overloaded"),
        ({"error": "odd"}, "overloaded"),
        ({"error": {"message": "no key", "code": 401}}, "auth"),
        ({"error": {"message": "bad", "code": "400"}}, "invalid_request"),
        ({"error": {"message": "bad", "type": "invalid_request_error"}}, "invalid_request"),
        ({"error": {"message": "slow down", "code": "rate_limit_exceeded"}}, "rate_limit"),
        ([{"error": {"message": "bad", "code": 400}}], "invalid_request"),
        ({"code": 1113, "msg": "余额不足", "success": False}, "payment"),
        ({"choices": None, "base_resp": {"status_code": 1008, "status_msg": "insufficient balance"}}, "payment"),
        ({"detail": "no such thing"}, "overloaded"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_without_choices_is_a_failure(
    play: Callable[..., Any], body: Any, kind: str, stream: bool
) -> None:
    with pytest.raises(ModelError) as caught:
        await play(model(FakeAnswer.json(body)), stream=stream)
    assert caught.value.kind == kind


async def test_an_error_event_is_a_failure_whatever_it_holds(play: Callable[..., Any]) -> None:
    """Public: NousResearch/hermes-agent#86496."""
    stream = sse(delta(content="half")) + "event: error\ndata: upstream exploded\n\ndata: [DONE]\n\n"
    with pytest.raises(ModelError, match="upstream exploded") as caught:
        await play(model(FakeAnswer.sse(stream)))
    assert (caught.value.kind, caught.value.partial) == ("overloaded", "half")


async def test_blanks_before_the_data_of_an_event_are_nothing(play: Callable[..., Any]) -> None:
    stream = sse(delta(content="hi"), delta("stop"), "[DONE]").replace("data: ", "data:  ")
    assert (await play(model(FakeAnswer.sse(stream))))[0].text == "hi"


async def test_a_stream(play: Callable[..., Any]) -> None:
    stream = ": keep-alive\n\n" + sse(
        {"id": "x", "choices": [], "prompt_filter_results": []},
        {"choices": None},
        delta(role="assistant", content=""),
        delta(content="你"),
        {"choices": [{"index": 1, "delta": {"content": "another choice"}}]},
        delta("", content="好 🌍"),
        {"choices": [{"index": 0, "delta": None, "finish_reason": "stop"}], "model": "m-2"},
        {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 1, "total_tokens": 8}},
        "[DONE]",
    )
    reply, parts = await play(model(FakeAnswer.sse(stream)))
    assert reply == replace(said("你好 🌍"), usage=Usage(7, 1, requests=1), model="m-2")
    assert parts == [TextPart("你"), TextPart("好 🌍")]


CALLING = sse(
    delta(role="assistant", content=None, reasoning_content="二 + 三"),
    delta(content="Let me see. "),
    delta(tool_calls=[{"index": 0, "id": "c1", "type": "function", "function": {"name": "add", "arguments": ""}}]),
    delta(tool_calls=[{"index": 0, "function": {"arguments": '{"note":"é'}}]),
    delta(tool_calls=[{"index": 0, "function": {"arguments": '你"}'}}]),
    delta("tool_calls"),
    {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 1}},
    "[DONE]",
)
CALLED = Reply(
    (Thinking("二 + 三"), Text("Let me see. "), ToolCall("", "add", '{"note":"é你"}', "c1")),
    usage=Usage(7, 1, requests=1),
    provider=PROVIDER,
    extra={"reasoning_content": None},
)


@given(split=st.integers(1, 80))
async def test_where_a_stream_is_cut_makes_no_difference(play: Callable[..., Any], split: int) -> None:
    reply, parts = await play(model(FakeAnswer.sse(CALLING, split)))
    assert reply == CALLED
    assert parts == [ThinkingPart("二 + 三"), TextPart("Let me see. ")]


FINISHED = len(CALLING.partition('"tool_calls"}')[0].encode()) + len('"tool_calls"}]}')


@given(length=st.integers(FINISHED, len(CALLING.encode())))
async def test_a_stream_cut_after_its_finish_reason_is_complete(play: Callable[..., Any], length: int) -> None:
    reply, _ = await play(model(FakeAnswer.sse(CALLING.encode()[:length])))
    assert replace(reply, usage=CALLED.usage) == CALLED


@given(length=st.integers(0, FINISHED - 1))
async def test_a_stream_cut_before_its_finish_reason_is_a_failure(play: Callable[..., Any], length: int) -> None:
    with pytest.raises(ModelError, match="broke off") as caught:
        await play(model(FakeAnswer.sse(CALLING.encode()[:length])))
    assert caught.value.kind == "connection"
    assert caught.value.partial in ("", "Let me see. ")


@pytest.mark.parametrize(
    "end", [[delta("stop")], ["[DONE]"], [delta("stop"), "[DONE]"], [delta("stop"), "{broken"]], ids=str
)
async def test_complete_streams(play: Callable[..., Any], end: list[Any]) -> None:
    reply, _ = await play(model(FakeAnswer.sse(sse(delta(content="hi"), *end))))
    assert reply.text == "hi"


async def test_neither_finish_reason_nor_done_is_a_failure(play: Callable[..., Any]) -> None:
    with pytest.raises(ModelError, match=r"one\.test broke off") as caught:
        await play(model(FakeAnswer.sse(sse(delta(content="hi")))))
    assert (caught.value.kind, caught.value.partial) == ("connection", "hi")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ('data: {"choices":[],"error":{"code":502,"message":"no free worker"}}\n\n', "overloaded"),
        ('event: error\ndata: {"message":"no free worker"}\n\n', "overloaded"),
        ('data: {"object":"error","message":"no free worker","code":400}\n\n', "invalid_request"),
        ('event: error\ndata: {"error":{"message":"no free worker","code":"tool_use_failed"}}\n\n', "bad_tool_call"),
    ],
)
async def test_an_error_in_a_stream_fails_the_attempt(play: Callable[..., Any], error: str, kind: str) -> None:
    with pytest.raises(ModelError, match="no free worker") as caught:
        await play(model(FakeAnswer.sse(sse(delta(content="so far")) + error + sse("[DONE]"))))
    assert (caught.value.kind, caught.value.partial) == (kind, "so far")


async def test_an_event_that_is_not_json_is_a_failure(play: Callable[..., Any]) -> None:
    with pytest.raises(ModelError, match="not JSON") as caught:
        await play(model(FakeAnswer.sse('data: {"choices": [}\n\n' + sse(delta("stop", content="x")))))
    assert caught.value.kind == "protocol"


async def test_lines_that_are_no_objects_are_passed_over(play: Callable[..., Any]) -> None:
    reply, _ = await play(model(FakeAnswer.sse(sse("ping", "", delta("stop", content="x")))))
    assert reply.text == "x"


async def test_a_server_that_does_not_stream_although_asked(play: Callable[..., Any]) -> None:
    body = {"choices": [{"message": {"content": "hi", "reasoning": "hm"}, "finish_reason": "stop"}]}
    for kind in ("application/json; charset=utf-8", "", "text/plain"):
        answer = FakeAnswer(FakeAnswer.json(body).pieces, headers={"content-type": kind})
        reply, parts = await play(model(answer))
        assert reply.text == "hi"
        assert sorted(map(str, parts)) == sorted(map(str, [ThinkingPart("hm"), TextPart("hi")]))


@pytest.mark.parametrize("kind", ["text/event-stream", "text/plain", ""])
async def test_a_server_that_streams_although_not_asked(play: Callable[..., Any], kind: str) -> None:
    answer = FakeAnswer(FakeAnswer.sse(CALLING, 40).pieces, headers={"content-type": kind})
    assert await play(model(answer), stream=False) == (CALLED, [])


@pytest.mark.parametrize("kind", ["text/html", "application/json"])
async def test_a_page_in_place_of_an_answer(play: Callable[..., Any], kind: str) -> None:
    with pytest.raises(ModelError, match="HTML page; check the base URL"):
        await play(model(FakeAnswer([b"<!doctype html><p>", b"Log in"], headers={"content-type": kind})))


@pytest.mark.parametrize(
    ("chunks", "text"),
    [
        ([r'{"content":"\ud83c"}', r'{"content":"\udf0d!"}'], "🌍!"),
        ([r'{"content":"\ud83c"}', '{"content":" alone"}'], "\ufffd alone"),
        (['{"content":"x","logprobs":NaN}'], "x"),
    ],
)
async def test_a_character_cut_in_two_does_not_fail_the_reply(
    play: Callable[..., Any], chunks: list[str], text: str
) -> None:
    stream = sse(*(f'{{"choices":[{{"delta":{chunk}}}]}}' for chunk in chunks), delta("stop"))
    reply, _ = await play(model(FakeAnswer.sse(stream)))
    assert reply.text == text


async def test_bytes_that_are_not_utf8_do_not_fail_the_reply(play: Callable[..., Any]) -> None:
    body = b'data: {"choices":[{"delta":{"content":"caf\xe9"},"finish_reason":"stop"}]}\n\n'
    reply, _ = await play(model(FakeAnswer.sse(body)))
    assert reply.text == "caf\ufffd"


async def test_tool_names_are_mapped_back(play: Callable[..., Any]) -> None:
    tools = (ToolSpec("docs.open", "", {"type": "object", "properties": {}}),)
    transport = FakeTransport(FakeAnswer(status=500))
    asking = OpenAIChat("m", base_url="https://one.test", transport=transport)
    with pytest.raises(ModelError):
        await play(asking, ModelRequest((UserMessage("q"),), tools=tools))
    wire = transport.posts[0].json["tools"][0]["function"]["name"]
    assert wire != "docs.open"
    body = {"choices": [{"message": {"tool_calls": [{"id": "1", "function": {"name": wire, "arguments": "{}"}}]}}]}
    reply, _ = await play(model(FakeAnswer.json(body)), ModelRequest((UserMessage("q"),), tools=tools))
    assert reply.calls[0].name == "docs.open"


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (None, Usage(requests=1, unreported=1)),
        ({}, Usage(requests=1, unreported=1)),
        ({"prompt_tokens": 7, "completion_tokens": 2, "prompt_tokens_details": None}, Usage(7, 2, requests=1)),
        ({"prompt_tokens": 7, "completion_tokens": None}, Usage(7, 0, requests=1)),
        (
            {"prompt_tokens": 9, "completion_tokens": 2, "prompt_cache_hit_tokens": 4, "prompt_cache_miss_tokens": 5},
            Usage(9, 2, cached=4, requests=1),
        ),
        (
            {
                "prompt_tokens": 10,
                "completion_tokens": 2,
                "total_tokens": 17,
                "completion_tokens_details": {"reasoning_tokens": 5},
            },
            Usage(10, 7, reasoning=5, requests=1),
        ),
        (
            {"prompt_tokens": 9, "completion_tokens": 10, "completion_tokens_details": {"reasoning_tokens": 11}},
            Usage(9, 10, reasoning=10, requests=1),
        ),
        (
            {"prompt_tokens": 9, "completion_tokens": 1, "prompt_tokens_details": {"cache_write_tokens": 3}},
            Usage(9, 1, cache_write=3, requests=1),
        ),
    ],
)
def test_usage(usage: Any, expected: Usage) -> None:
    assert chat_usage(usage) == expected
