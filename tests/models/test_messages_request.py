from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from glassloop.core.encoding import loads
from glassloop.core.errors import ConfigurationError
from glassloop.core.messages import (
    Media,
    Message,
    Opaque,
    Part,
    Reply,
    SystemMessage,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    UserMessage,
)
from glassloop.models.anthropic import Anthropic
from glassloop.models.fake_transport import FakeAnswer, FakeTransport
from glassloop.models.messages_request import MessagesRenderer
from glassloop.models.model import ModelRequest, ModelSettings, ToolSpec, complete

HERE = "anthropic-messages:one.test"
Q = UserMessage("q")
SCHEMA: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "integer"}}}
ADD = ToolSpec("add", "Adds.", SCHEMA)
ASKED = Reply((ToolCall("call_1", "add", '{"a":1}', "toolu_1"),))
DONE = ToolResult("call_1", "add", "3")

Ask = Callable[..., dict[str, Any]]


@pytest.fixture
def ask(anthropic_violations: Callable[[Mapping[str, Any]], list[str]]) -> Ask:
    """Renders a request, twice, and checks it."""

    def ask(*messages: Message, caching: bool = False, **request: Any) -> dict[str, Any]:
        renderer = MessagesRenderer("m", HERE, caching)
        body = renderer.body(ModelRequest(messages, **request))
        assert renderer.body(ModelRequest(messages, **request)) == body
        assert anthropic_violations(loads(body)) == []
        return loads(body)

    return ask


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def blocks(body: dict[str, Any]) -> list[Any]:
    """Role and blocks of each turn."""
    return [(message["role"], message["content"]) for message in body["messages"]]


def test_a_whole_request(ask: Ask) -> None:
    body = ask(Q, ASKED, DONE, instructions="S", tools=(ADD,), settings=ModelSettings(max_tokens=9), stream=True)
    assert body == {
        "model": "m",
        "max_tokens": 9,
        "stream": True,
        "system": "S",
        "tools": [{"name": "add", "description": "Adds.", "input_schema": SCHEMA}],
        "messages": [
            {"role": "user", "content": [text("q")]},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_1", "name": "add", "input": {"a": 1}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "3"}]},
        ],
    }


def test_settings(ask: Ask) -> None:
    settings = ModelSettings(
        temperature=0.0, top_p=0.5, stop=("END", " "), seed=1, extra={"top_k": 3, "tools": [{"type": "web_search_1"}]}
    )
    body = ask(Q, settings=settings)
    assert body.pop("messages") == [{"role": "user", "content": [text("q")]}]
    assert body == {
        "model": "m",
        "max_tokens": 8192,
        "temperature": 0.0,
        "top_p": 0.5,
        "stop_sequences": ["END"],
        "top_k": 3,
        "tools": [{"type": "web_search_1"}],
    }
    with pytest.raises(ConfigurationError, match="history="):
        ask(Q, settings=ModelSettings(extra={"messages": []}))


@pytest.mark.parametrize(
    ("choice", "parallel", "wire"),
    [
        (None, None, None),
        (None, True, None),
        (None, False, {"type": "auto", "disable_parallel_tool_use": True}),
        ("auto", None, {"type": "auto"}),
        ("none", False, {"type": "none"}),
        ("required", False, {"type": "any", "disable_parallel_tool_use": True}),
        ("add", None, {"type": "tool", "name": "add"}),
    ],
)
def test_tool_choice(ask: Ask, choice: str | None, parallel: bool | None, wire: Any) -> None:
    settings = ModelSettings(tool_choice=choice, parallel_tool_calls=parallel)
    assert ask(Q, tools=(ADD,), settings=settings).get("tool_choice") == wire
    assert "tool_choice" not in ask(Q, settings=settings)


def test_tools_of_history_are_defined_where_none_are_on_offer(ask: Ask) -> None:
    body = ask(Q, ASKED, DONE)
    assert [tool["name"] for tool in body["tools"]] == ["add"]
    assert body["tool_choice"] == {"type": "none"}


@pytest.mark.parametrize(
    ("thinking", "most", "fields"),
    [
        (None, 8192, {}),
        (4000, 8192, {"thinking": {"type": "enabled", "budget_tokens": 4000}}),
        (100, 8192, {"thinking": {"type": "enabled", "budget_tokens": 1024}}),
        (32000, 8192, {"thinking": {"type": "enabled", "budget_tokens": 7168}}),
        (32000, 1500, {}),
        ("high", 8192, {"thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}}),
    ],
)
def test_thinking(ask: Ask, thinking: Any, most: int, fields: dict[str, Any]) -> None:
    body = ask(Q, settings=ModelSettings(thinking=thinking, max_tokens=most))
    assert {key: body[key] for key in ("thinking", "output_config") if key in body} == fields


def test_a_budget_is_not_asked_for_while_a_call_without_thinking_is_answered(ask: Ask) -> None:
    thoughtful = Reply((Thinking("hm", "S"), *ASKED.parts), provider=HERE)
    wanted = ModelSettings(thinking=2000)
    assert "thinking" in ask(Q, thoughtful, DONE, settings=wanted)
    assert "thinking" not in ask(Q, ASKED, DONE, settings=wanted)
    assert "thinking" in ask(Q, ASKED, DONE, Reply((Text("ok"),)), Q, settings=wanted)
    assert "thinking" in ask(Q, ASKED, DONE, settings=ModelSettings(thinking="low"))


def test_system_messages_join_the_instructions(ask: Ask) -> None:
    body = ask(SystemMessage("S"), Q, SystemMessage("summary"), Q, instructions="I")
    assert body["system"] == "I\n\nS\n\nsummary"
    assert blocks(body) == [("user", [text("q"), text("q")])]
    assert "system" not in ask(Q, SystemMessage(" "))


def test_turns_alternate_from_the_user_to_the_user(ask: Ask) -> None:
    body = ask(Reply((Text("a"),)), Reply((Text("b"),)))
    assert [role for role, _ in blocks(body)] == ["user", "assistant", "user"]
    assert blocks(body)[1][1] == [text("a"), text("b")]
    assert blocks(body)[2][1] == [text("Please go on.")]
    assert [role for role, _ in blocks(ask())] == ["user"]


def test_results_of_one_turn_come_first_and_together(ask: Ask) -> None:
    two = Reply((ToolCall("call_1", "add", "{}", "t1"), ToolCall("call_2", "add", "{}", "t2")))
    body = ask(Q, two, ToolResult("call_2", "add", "2"), Q, ToolResult("call_1", "add", "1", "denied"))
    assert blocks(body)[2][1] == [
        {"type": "tool_result", "tool_use_id": "t1", "is_error": True, "content": "1"},
        {"type": "tool_result", "tool_use_id": "t2", "content": "2"},
        text("q"),
    ]


@pytest.mark.parametrize("blank", ["", " \n", "\u200b", "\ufeff", " \u00ad\u2060\n"])
def test_nothing_is_blank(ask: Ask, blank: str) -> None:
    """Nor invisible (zoedolan/Vybn#2895): "text content blocks must contain non-whitespace text"."""
    body = ask(
        SystemMessage(blank),
        UserMessage(blank),
        Reply((Text(blank), *ASKED.parts)),
        ToolResult("call_1", "add", blank),
        UserMessage((Text(blank),)),
        Reply((Text(blank),)),
    )
    assert "system" not in body
    assert blocks(body) == [
        ("user", [text("(empty message)")]),
        ("assistant", [{"type": "tool_use", "id": "toolu_1", "name": "add", "input": {"a": 1}}]),
        ("user", [{"type": "tool_result", "tool_use_id": "toolu_1"}, text("(empty message)")]),
    ]


@pytest.mark.parametrize(
    ("raw", "sent"),
    [
        ("", {}),
        ("null", {}),
        ('"{\\"a\\": 1}"', {"a": 1}),
        ('{"a": 1, "b"', {"_invalid_arguments": '{"a": 1, "b"'}),
        ("[1]", {"_invalid_arguments": "[1]"}),
    ],
)
def test_input_is_always_an_object(ask: Ask, raw: str, sent: Any) -> None:
    body = ask(Q, Reply((ToolCall("call_1", "add", raw),)), DONE)
    assert blocks(body)[1][1][0]["input"] == sent


def test_ids_are_legal_and_unique(ask: Ask) -> None:
    calls = [
        ToolCall("call_1", "add", "{}", "t"),
        ToolCall("call_2", "add", "{}", "t"),
        ToolCall("call_3", "add", "{}", "ü"),
    ]
    messages = [message for call in calls for message in (Reply((call,)), ToolResult(call.id, "add", "ok"))]
    ids = [block["id"] for role, turn in blocks(ask(Q, *messages)) if role == "assistant" for block in turn]
    assert ids == ["t", "call_2", "call_3"]


SERVER_TOOL = Opaque({"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"q": "x"}})
PARTS: tuple[Part, ...] = (
    Thinking("7   é", "SIG+/=="),
    Thinking(redacted="ENC"),
    Thinking("unsigned"),
    Thinking("cut off", ""),
    Thinking("", "S2"),
    SERVER_TOOL,
    ToolCall("call_1", "add", "{}", "toolu_1"),
)


def test_signed_thinking_goes_back_unchanged_and_unsigned_does_not(ask: Ask) -> None:
    for provider in (HERE, ""):
        _, (_, sent), _ = blocks(ask(Q, Reply(PARTS, provider=provider), DONE))
        assert sent == [
            {"type": "thinking", "thinking": "7   é", "signature": "SIG+/=="},
            {"type": "redacted_thinking", "data": "ENC"},
            {"type": "thinking", "thinking": "", "signature": "S2"},
            SERVER_TOOL.data,
            {"type": "tool_use", "id": "toolu_1", "name": "add", "input": {}},
        ]


def test_what_another_provider_thought_is_not_sent(ask: Ask) -> None:
    _, (_, sent), _ = blocks(ask(Q, Reply(PARTS, provider="openai-chat:api.openai.com"), DONE))
    assert [block["type"] for block in sent] == ["tool_use"]


def test_a_refusal_is_said_and_what_cannot_be_read_is_left_out(ask: Ask) -> None:
    body = ask(Q, Reply((), refusal="No."), Reply((Thinking("", "S"),), provider="other"), Q)
    assert blocks(body) == [("user", [text("q")]), ("assistant", [text("No.")]), ("user", [text("q")])]


def test_marks_for_the_cache(ask: Ask) -> None:
    mark = {"cache_control": {"type": "ephemeral"}}
    body = ask(Q, ASKED, DONE, instructions="S", tools=(ADD,), caching=True)
    assert body["system"] == [{**text("S"), **mark}]
    assert "cache_control" not in body["tools"][0]
    assert [turn[-1].get("cache_control") for _, turn in blocks(body)] == [
        mark["cache_control"],
        None,
        mark["cache_control"],
    ]
    alone = ask(Q, tools=(ADD,), caching=True)
    assert alone["tools"][0]["cache_control"] == mark["cache_control"]
    assert str(ask(Q, ASKED, DONE, instructions="S", tools=(ADD,))).count("cache_control") == 0


PNG = Media.of(b"\x89PNG", "image/png")


def test_images_and_documents(ask: Ask) -> None:
    image = {"type": "base64", "media_type": "image/png", "data": base64.b64encode(b"\x89PNG").decode()}
    pdf = {"type": "base64", "media_type": "application/pdf", "data": base64.b64encode(b"%PDF").decode()}
    document = Media.of(b"%PDF", "application/pdf")
    user, _, results = blocks(
        ask(UserMessage((Text("see"), PNG, document)), ASKED, ToolResult("call_1", "add", "shot", media=(PNG,)))
    )
    assert user[1] == [text("see"), {"type": "image", "source": image}, {"type": "document", "source": pdf}]
    assert results[1][0]["content"] == [text("shot"), {"type": "image", "source": image}]


def test_a_failed_call_shows_no_image(ask: Ask) -> None:
    _, _, results = blocks(ask(Q, ASKED, ToolResult("call_1", "add", "failed", "error", media=(PNG,))))
    assert results[1][0]["content"] == [text("failed"), text("[image/png, 4 bytes, not shown]")]


def test_the_newest_images_fit(ask: Ask) -> None:
    big = Media.of(b"x" * 2_000_000, "image/png")
    body = ask(*[UserMessage((big,)) for _ in range(4)])
    assert [block["type"] for block in blocks(body)[0][1]] == ["text", "text", "image", "image"]


def png(width: int, height: int) -> Media:
    return Media.of(b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", width, height), "image/png")


def test_an_image_with_too_many_pixels_is_named(ask: Ask) -> None:
    """anthropics/claude-code#5147: one screenshot of a long page, and each later request of the session is a 400."""
    _, _, results = blocks(ask(Q, ASKED, ToolResult("call_1", "add", "", media=(png(800, 8_001), png(8_000, 8_000)))))
    assert [block["type"] for block in results[1][0]["content"]] == ["text", "image"]
    assert results[1][0]["content"][0] == text("[image/png, 24 bytes, not shown]")


def test_of_many_images_those_with_more_than_2000_pixels_are_named(ask: Ask) -> None:
    """anthropics/claude-code#52220: the limit is another one beyond twenty images."""
    few = [png(2_001, 900), *[png(1_000, 900)] * 19]
    for images, kinds in ((few, ["image"] * 20), ([*few, png(2_000, 10)], ["text", *["image"] * 20])):
        body = ask(*[UserMessage((image,)) for image in images])
        assert [block["type"] for block in blocks(body)[0][1]] == kinds


def test_an_image_without_a_byte_is_named(ask: Ask) -> None:
    assert blocks(ask(UserMessage((Media.of(b"", "image/png"),))))[0][1] == [text("[image/png, 0 bytes, not shown]")]


def test_unions_at_the_top_of_a_schema_are_laid_side_by_side(ask: Ask) -> None:
    one = {"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]}
    other = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    common = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    given: dict[str, Any] = {"anyOf": [one, other], "allOf": [common]}
    (tool,) = ask(Q, tools=(ToolSpec("find", "", given),))["tools"]
    schema = tool["input_schema"]
    assert not {"anyOf", "allOf"} & schema.keys()
    assert (schema["type"], sorted(schema["properties"]), schema["required"]) == ("object", ["id", "n", "name"], ["n"])
    assert set(given) == {"anyOf", "allOf"}


def test_alternatives_are_told_whole(ask: Ask) -> None:
    """What tells them apart names all of its values, references are followed, and what each demands is demanded."""
    card = {"properties": {"by": {"const": "card"}, "number": {"type": "string"}}, "required": ["by", "number"]}
    bank = {"properties": {"by": {"const": "bank"}, "number": {"type": "integer"}}, "required": ["by"]}
    given = {"oneOf": [{"$ref": "#/$defs/card"}, bank], "not": {"required": ["x"]}, "$defs": {"card": card}}
    (tool,) = ask(Q, tools=(ToolSpec("pay", "", given),))["tools"]
    number = {"anyOf": [{"type": "string"}, {"type": "integer"}]}
    assert tool["input_schema"] == {
        "type": "object",
        "properties": {"by": {"enum": ["card", "bank"]}, "number": number},
        "required": ["by"],
    }


def test_alternatives_that_hold_themselves_end(ask: Ask) -> None:
    (tool,) = ask(Q, tools=(ToolSpec("find", "", {"anyOf": [*[{"$ref": "#"}] * 20, SCHEMA]}),))["tools"]
    assert tool["input_schema"]["properties"] == SCHEMA["properties"]


@pytest.mark.parametrize("thinking", [2_000, "high"])
@pytest.mark.parametrize(("choice", "thinks"), [("required", False), ("add", False), ("auto", True), (None, True)])
def test_a_model_that_must_call_does_not_think(ask: Ask, thinking: Any, choice: str | None, thinks: bool) -> None:
    """strands-agents/sdk-typescript#798: "Thinking may not be enabled when tool_choice forces tool use"."""
    body = ask(Q, tools=(ADD,), settings=ModelSettings(thinking=thinking, tool_choice=choice))
    assert ("thinking" in body) is thinks
    assert "thinking" in ask(Q, settings=ModelSettings(thinking=thinking, tool_choice=choice))


def test_redacted_thinking_without_data_is_left_out(ask: Ask) -> None:
    _, (_, sent), _ = blocks(ask(Q, Reply((Thinking(redacted=""), *ASKED.parts), provider=HERE), DONE))
    assert [block["type"] for block in sent] == ["tool_use"]


THOUGHT = {"type": "thinking", "thinking": "hm", "signature": ""}
NO_THOUGHT = {"type": "thinking", "thinking": "", "signature": ""}


@pytest.mark.parametrize(
    ("base_url", "own", "others"),
    [
        ("https://api.anthropic.com", [], []),
        ("https://api.kimi.com/coding", [THOUGHT], []),
        ("https://api.deepseek.com/anthropic", [THOUGHT], [NO_THOUGHT]),
    ],
)
async def test_servers_that_do_not_sign_get_their_thinking_back(base_url: str, own: Any, others: Any) -> None:
    """QwenLM/qwen-code#3786: "The content[].thinking in the thinking mode must be passed back to the API"."""
    transport = FakeTransport(*[FakeAnswer.json({"content": [{"type": "text", "text": "ok"}]})] * 2)
    model = Anthropic("m", base_url=base_url, api_key="sk-fake", transport=transport)
    answer = Reply((Text("5"),))
    for provider in (model.provider, "other"):
        called = Reply((Thinking("hm"), *ASKED.parts), provider=provider)
        await complete(model, ModelRequest((Q, called, DONE, answer, Q)))
    for post, thinking in zip(transport.posts, (own, others), strict=True):
        sent = [content for _, content in blocks(post.json)]
        assert sent[1][:-1] == thinking
        assert sent[3] == [text("5")]


async def test_models_behind_one_gateway_do_not_read_each_others_signatures() -> None:
    """can1357/oh-my-pi#6379: "Invalid `signature` in `thinking` block"."""
    transport = FakeTransport(*[FakeAnswer.json({"content": [{"type": "text", "text": "ok"}]})] * 2)
    one, two = (
        Anthropic(name, base_url="https://gateway.test", api_key="sk-fake", transport=transport) for name in ("a", "b")
    )
    for model in (one, two):
        called = Reply((Thinking("hm", "S"), *ASKED.parts), provider=one.provider)
        await complete(model, ModelRequest((Q, called, DONE)))
    first, second = ([block["type"] for block in blocks(post.json)[1][1]] for post in transport.posts)
    assert (first, second) == (["thinking", "tool_use"], ["tool_use"])
