from __future__ import annotations

import base64
import copy
import pickle
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from pydantic import TypeAdapter

from glassloop.core.encoding import dumps, loads
from glassloop.core.errors import ConfigurationError
from glassloop.core.messages import (
    Media,
    Message,
    Opaque,
    Reply,
    SystemMessage,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    UserMessage,
)
from glassloop.models.fake_transport import FakeAnswer, FakeTransport
from glassloop.models.model import ModelRequest, ModelSettings, ToolSpec, complete
from glassloop.models.openai_chat import OpenAIChat
from glassloop.models.profiles import Profile
from glassloop.models.replay import wire_ids as replayed_ids
from glassloop.testing.chat_rules import chat_violations

Q = UserMessage("q")
HERE = "openai-chat:one.test/m"
SCHEMA: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "integer"}}}
ADD = ToolSpec("add", "Adds. 加。", SCHEMA)


class Asker:
    """A model whose requests are caught; asking again shows that what was encoded before is still right."""

    def __init__(self, base_url: str = "https://one.test/v1", model: str = "m", **options: Any) -> None:
        answer = FakeAnswer.json({"choices": [{"message": {"content": "ok"}}]})
        self.transport = FakeTransport(*[answer] * 50)
        self.model = OpenAIChat(model, base_url=base_url, transport=self.transport, **options)

    async def ask(self, *messages: Message, **request: Any) -> dict[str, Any]:
        for _ in range(2):
            await complete(self.model, ModelRequest(messages, **request))
        once, again = self.transport.posts[-2:]
        assert once.body == again.body
        assert chat_violations(once.json) == []
        return once.json


def calling(*calls: ToolCall, text: str = "", **fields: Any) -> Reply:
    return Reply((Text(text), *calls) if text else calls, **fields)


def done(call_id: str, content: str = "3", **fields: Any) -> ToolResult:
    return ToolResult(call_id, "add", content, **fields)


async def test_a_whole_request() -> None:
    asker = Asker(api_key="sk-1", headers={"x-title": "app"})
    call = ToolCall("call_1", "add", '{"a":1}', "p1")
    body = await asker.ask(
        Q, calling(call), done("call_1", "三"), instructions="S", tools=(ADD,), settings=ModelSettings(max_tokens=9)
    )
    assert body == {
        "model": "m",
        "max_tokens": 9,
        "tools": [{"type": "function", "function": {"name": "add", "description": "Adds. 加。", "parameters": SCHEMA}}],
        "messages": [
            {"role": "system", "content": "S"},
            {"role": "user", "content": "q"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "p1", "type": "function", "function": {"name": "add", "arguments": '{"a":1}'}}],
            },
            {"role": "tool", "tool_call_id": "p1", "content": "三"},
        ],
    }
    post = asker.transport.posts[0]
    assert post.url == "https://one.test/v1/chat/completions"
    assert "加".encode() in post.body
    assert (post.headers["Authorization"], post.headers["x-title"]) == ("Bearer sk-1", "app")


async def test_settings() -> None:
    settings = ModelSettings(
        temperature=0.0,
        top_p=0.5,
        stop=("END",),
        seed=0,
        parallel_tool_calls=False,
        tool_choice="docs.open",
        thinking="low",
        extra={"top_k": 3, "temperature": 1.0, "tools": [{"type": "function", "function": {"name": "web"}}]},
    )
    body = await Asker().ask(Q, tools=(ToolSpec("docs.open", "", SCHEMA),), settings=settings, stream=True)
    tools, messages = body.pop("tools"), body.pop("messages")
    name = tools[0]["function"]["name"]
    assert name.startswith("docs_open_")
    assert tools[1] == {"type": "function", "function": {"name": "web"}}
    assert messages == [{"role": "user", "content": "q"}]
    assert body == {
        "model": "m",
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 1.0,
        "top_p": 0.5,
        "stop": ["END"],
        "seed": 0,
        "reasoning_effort": "low",
        "parallel_tool_calls": False,
        "tool_choice": {"type": "function", "function": {"name": name}},
        "top_k": 3,
    }


async def test_without_tools_nothing_is_said_about_tools() -> None:
    body = await Asker().ask(Q, settings=ModelSettings(tool_choice="auto", parallel_tool_calls=True))
    assert body == {"model": "m", "messages": [{"role": "user", "content": "q"}]}


@pytest.mark.parametrize(("thinking", "effort"), [(1_024, "low"), (8_000, "medium"), (32_000, "high")])
async def test_a_number_of_thinking_tokens_becomes_an_effort(thinking: int, effort: str) -> None:
    body = await Asker().ask(Q, settings=ModelSettings(thinking=thinking))
    assert body["reasoning_effort"] == effort


async def test_messages_in_extra_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="history="):
        await Asker().ask(Q, settings=ModelSettings(extra={"messages": []}))


async def test_tools_that_change_are_sent_as_they_are_now() -> None:
    asker = Asker()
    for specs in [(ADD,), (ADD, ToolSpec("sub", "", SCHEMA)), (), (ADD,)]:
        body = await asker.ask(Q, tools=specs)
        assert [tool["function"]["name"] for tool in body.get("tools", ())] == [spec.name for spec in specs]


async def test_a_schema_that_is_no_objects_becomes_one_and_is_not_changed() -> None:
    given: dict[str, Any] = {}
    body = await Asker().ask(Q, tools=[ToolSpec("now", "", given)])
    assert body["tools"][0]["function"] == {"name": "now", "parameters": {"type": "object", "properties": {}}}
    assert given == {}


ARGUMENTS = {
    '{"a": 1}': '{"a": 1}',
    "": "{}",
    "  \n": "{}",
    "null": "{}",
    '"{\\"a\\": 1}"': '{"a":1}',
    '"null"': "{}",
    '{"a": 1, "b"': '{"_invalid_arguments":"{\\"a\\": 1, \\"b\\""}',
    "[1]": '{"_invalid_arguments":"[1]"}',
    '{"a": NaN}': '{"_invalid_arguments":"{\\"a\\": NaN}"}',
    "x" * 500: '{"_invalid_arguments":"%s"}' % ("x" * 200),
}


@pytest.mark.parametrize(("raw", "wire"), ARGUMENTS.items())
async def test_arguments_are_always_an_object(raw: str, wire: str) -> None:
    body = await Asker().ask(Q, calling(ToolCall("call_1", "add", raw)), done("call_1"))
    assert body["messages"][1]["tool_calls"][0]["function"]["arguments"] == wire


def wire_ids(body: dict[str, Any]) -> list[str]:
    asked = [call["id"] for message in body["messages"] for call in message.get("tool_calls", ())]
    assert asked == [message["tool_call_id"] for message in body["messages"] if message["role"] == "tool"]
    return asked


@pytest.mark.parametrize(
    ("provider_ids", "expected"),
    [
        (["p1", "p2"], ["p1", "p2"]),
        (["", ""], ["call_0", "call_1"]),
        (["p1", "p1"], ["p1", "call_1"]),
        (["functions.add:0", "x" * 41], ["call_0", "call_1"]),
    ],
)
@pytest.mark.parametrize("one_reply", [True, False])
async def test_ids_on_the_wire(provider_ids: list[str], expected: list[str], one_reply: bool) -> None:
    calls = [ToolCall(f"call_{number}", "add", "{}", id_) for number, id_ in enumerate(provider_ids)]
    results = [done(call.id) for call in calls]
    groups: Sequence[Message] = [message for pair in zip(map(calling, calls), results, strict=True) for message in pair]
    body = await Asker().ask(Q, *([calling(*calls), *results] if one_reply else groups))
    assert wire_ids(body) == expected


@pytest.mark.parametrize("own", [True, False])
async def test_a_model_gets_its_own_ids_back(own: bool) -> None:
    """MoonshotAI/kimi-code#2503, vybestack/llxprt-code#712: Kimi loses its way once `functions.name:0` is rewritten."""
    asker = Asker()
    ids = ["functions.add:0", f"functions.{'x' * 20}:100", "functions.add:0", " "]
    calls = [ToolCall(f"call_{number}", "add", "{}", id_) for number, id_ in enumerate(ids)]
    reply = calling(*calls, provider=asker.model.provider if own else "other")
    kept = ids[:2] if own else ["call_0", "call_1"]
    assert wire_ids(await asker.ask(Q, reply, *[done(call.id) for call in calls])) == [*kept, "call_2", "call_3"]


def test_an_id_may_be_long_where_its_maker_wants_it_back() -> None:
    long, other = f"functions.{'x' * 64}:12", "x" * 41
    calls = [ToolCall("call_0", "add", "{}", long), ToolCall("call_1", "add", "{}", other)]
    assert replayed_ids(calls, own=True) == (long, "call_1")
    assert replayed_ids(calls) == ("call_0", "call_1")


async def test_an_id_depends_on_what_came_before_and_is_not_remembered_wrongly() -> None:
    asker = Asker()
    first = (calling(ToolCall("call_0", "add", "{}", "p")), done("call_0"))
    second = (calling(ToolCall("call_1", "add", "{}", "p")), done("call_1"))
    assert wire_ids(await asker.ask(Q, *second)) == ["p"]
    assert wire_ids(await asker.ask(Q, *first, *second)) == ["p", "call_1"]
    assert wire_ids(await asker.ask(Q, *second)) == ["p"]


async def test_short_ids_where_the_server_wants_them() -> None:
    calls = (ToolCall("call_0", "add", "{}", "abcDEF123"), ToolCall("call_1", "add", "{}", "call_too_long"))
    asker = Asker("https://api.mistral.ai/v1")
    ids = wire_ids(await asker.ask(Q, calling(*calls), done("call_0"), done("call_1")))
    assert ids[0] == "abcDEF123"
    assert len(ids[1]) == 9
    assert ids[1].isalnum()


async def test_text_beside_calls_and_the_key_content_are_always_there() -> None:
    group = (calling(ToolCall("call_1", "add")), done("call_1"))
    assert (await Asker().ask(Q, *group))["messages"][1]["content"] is None
    assert (await Asker(profile=Profile(empty_content="")).ask(Q, *group))["messages"][1]["content"] == ""
    spoken = await Asker().ask(Q, calling(ToolCall("call_1", "add"), text="Let me"), done("call_1"))
    assert spoken["messages"][1]["content"] == "Let me"


async def test_leaked_names_are_not_sent_back() -> None:
    body = await Asker().ask(Q, calling(ToolCall("call_1", "add<|channel|>commentary")), done("call_1"))
    assert body["messages"][1]["tool_calls"][0]["function"]["name"].startswith("add_channel_commentary_")


SIGNED = {"extra_content": {"google": {"thought_signature": "S"}}}


def thoughtful(provider: str, **fields: Any) -> tuple[Message, ...]:
    call = ToolCall("call_1", "add", "{}", "p1", extra={**SIGNED, "novel": 1})
    extra = {"reasoning_content": None, "reasoning_details": [{"text": "hm"}], "annotations": [1]}
    return Reply((Thinking("hm"), call), provider=provider, extra=extra), done("call_1")


async def test_reasoning_of_a_call_goes_back_to_where_it_came_from() -> None:
    message = (await Asker().ask(Q, *thoughtful(HERE)))["messages"][1]
    assert (message["reasoning_content"], message["reasoning_details"]) == ("hm", [{"text": "hm"}])
    assert message["tool_calls"][0]["extra_content"] == SIGNED["extra_content"]
    assert "novel" not in message["tool_calls"][0]
    assert "annotations" not in message


@pytest.mark.parametrize("provider", ["openai-chat:two.test", ""])
async def test_reasoning_of_others_is_not_sent(provider: str) -> None:
    message = (await Asker().ask(Q, *thoughtful(provider)))["messages"][1]
    assert set(message) == {"role", "content", "tool_calls"}
    assert set(message["tool_calls"][0]) == {"id", "type", "function"}


async def test_a_conversation_that_moves_between_providers_gives_each_its_own() -> None:
    here, there = Asker(), Asker("https://two.test/v1")
    conversation = (Q, *thoughtful(HERE))
    for _ in range(2):
        assert "reasoning_content" in (await here.ask(*conversation))["messages"][1]
        assert "reasoning_content" not in (await there.ask(*conversation))["messages"][1]


async def test_reasoning_of_answers_is_not_sent() -> None:
    answer = Reply((Thinking("hm"), Text("5")), provider=HERE, extra={"reasoning_content": None})
    assert (await Asker().ask(Q, answer, Q))["messages"][1] == {"role": "assistant", "content": "5"}


@pytest.mark.parametrize(("host", "said"), [("api.deepseek.com", ""), ("api.moonshot.ai", " ")])
async def test_servers_that_demand_reasoning_get_some(host: str, said: str) -> None:
    asker = Asker(f"https://{host}/v1")
    assert (await asker.ask(Q, *thoughtful("other")))["messages"][1]["reasoning_content"] == said
    assert (await asker.ask(Q, *thoughtful(f"openai-chat:{host}")))["messages"][1]["reasoning_content"] == "hm"


async def test_replies_that_only_another_provider_can_read_are_left_out() -> None:
    body = await Asker().ask(Q, Reply((Thinking("", "S"), Opaque({"type": "x"}))), Reply((), refusal="No."), Q)
    assert [message["content"] for message in body["messages"]] == ["q", "No.", "q"]


async def test_half_characters_do_not_break_a_request() -> None:
    body = await Asker().ask(
        UserMessage("a\ud83d"), calling(ToolCall("call_1", "add", "\udc00")), done("call_1", "\udfff")
    )
    assert body["messages"][0]["content"] == "a?"


async def test_the_default_profile_leaves_the_order_alone() -> None:
    body = await Asker().ask(SystemMessage("S"), Q, SystemMessage("summary"), Q)
    assert [message["role"] for message in body["messages"]] == ["system", "user", "system", "user"]


async def test_strict_alternation() -> None:
    asker = Asker(profile="strict-alternation")
    talk = (SystemMessage("S"), UserMessage("a"), SystemMessage("summary"), UserMessage("b"))
    assert (await asker.ask(*talk, instructions="I"))["messages"] == [
        {"role": "system", "content": "I\n\nS\n\nsummary"},
        {"role": "user", "content": "a\n\nb"},
    ]
    group = (
        calling(ToolCall("call_1", "add"), text="one"),
        done("call_1"),
        Reply((Text("two"),)),
        Reply((Text("three"),)),
    )
    messages = (await asker.ask(*group, Q))["messages"][:-1]
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "assistant"]
    assert messages[-1]["content"] == "two\n\nthree"


PNG = Media.of(b"\x89PNG" * 10, "image/png", "cat.png")
URL = "data:image/png;base64," + base64.b64encode(b"\x89PNG" * 10).decode()


async def test_images_of_a_user() -> None:
    body = await Asker().ask(UserMessage((Text("What is it?"), PNG)))
    assert body["messages"][0]["content"] == [
        {"type": "text", "text": "What is it?"},
        {"type": "image_url", "image_url": {"url": URL}},
    ]


async def test_images_of_tools_follow_their_group_in_a_message() -> None:
    calls = (ToolCall("call_0", "add"), ToolCall("call_1", "add"))
    results = (done("call_0", "saved", media=(PNG,)), done("call_1", "", media=(PNG,)))
    body = await Asker().ask(Q, calling(*calls), *results, Reply((Text("nice"),)), Q)
    roles = [message["role"] for message in body["messages"]]
    assert roles == ["user", "assistant", "tool", "tool", "user", "assistant", "user"]
    kinds = [part["type"] for part in body["messages"][4]["content"]]
    assert kinds == ["text", "image_url", "text", "image_url"]


@pytest.mark.parametrize(
    ("media", "host", "text"),
    [
        (Media.of(b"x" * 2_000_000, "application/zip"), "one.test", "[application/zip, 2.0 MB, not shown]"),
        (PNG, "api.deepseek.com", "[cat.png: image/png, 40 bytes, not shown]"),
        (Media("image/png", "0" * 32, 1_500), "one.test", "[image/png, 1.5 kB, not shown again]"),
        (Media.of(b"%PDF", "application/pdf"), "one.test", "[application/pdf, 4 bytes, not shown]"),
    ],
)
async def test_what_a_server_cannot_see_is_named(media: Media, host: str, text: str) -> None:
    asker = Asker(f"https://{host}/v1")
    body = await asker.ask(UserMessage((media,)))
    assert body["messages"][0]["content"] == text
    body = await asker.ask(Q, calling(ToolCall("call_1", "add")), done("call_1", "made", media=(media,)))
    assert body["messages"][-1]["content"] == f"Returned by add:\n\n{text}"


async def test_a_pdf_for_openai() -> None:
    body = await Asker("https://api.openai.com/v1").ask(UserMessage((Media.of(b"%PDF", "application/pdf", "a.pdf"),)))
    data = "data:application/pdf;base64,JVBERg=="
    assert body["messages"][0]["content"] == [{"type": "file", "file": {"filename": "a.pdf", "file_data": data}}]


async def test_the_newest_images_fit_and_the_rest_is_named() -> None:
    big = Media.of(b"x" * 2_000_000, "image/png")
    messages: list[Message] = [Q]
    for number in range(10):
        id_ = f"call_{number}"
        messages += [calling(ToolCall(id_, "add")), done(id_, "shot", media=(big,))]
    asker = Asker()
    body = await asker.ask(*messages, Q)
    shown = ["image_url" in dumps(message).decode() for message in body["messages"] if message["role"] == "user"]
    assert shown == [False] * 9 + [True, True, False]
    assert len(asker.transport.posts[-1].body) < 6_100_000
    assert "not shown again" in body["messages"][3]["content"]


async def test_profiles_by_host() -> None:
    ask = ModelSettings(max_tokens=5)
    at_openai = await Asker("https://api.openai.com/v1").ask(Q, settings=ask, stream=True)
    assert at_openai["max_completion_tokens"] == 5
    at_mistral = await Asker("https://api.mistral.ai/v1").ask(Q, settings=ask, stream=True)
    assert at_mistral["max_tokens"] == 5
    assert "stream_options" not in at_mistral
    with pytest.raises(ConfigurationError, match=r"no profile 'odd'; there are .*default, "):
        Asker(profile="odd")


async def test_a_conversation_without_messages_has_one() -> None:
    body = await Asker().ask(instructions="S")
    assert [message["role"] for message in body["messages"]] == ["system", "user"]


async def test_encodings_are_no_part_of_a_message() -> None:
    messages = (Q, calling(ToolCall("call_1", "add")), done("call_1"))
    before = [dumps(message) for message in messages]
    await Asker().ask(*messages)
    assert [dumps(message) for message in messages] == before
    assert list(messages) == [loads_again(message) for message in messages]


def loads_again(message: Any) -> Any:
    """An equal message, read back from JSON."""
    return TypeAdapter[Any](Message).validate_python(loads(dumps(message)))


async def test_a_pickled_message_has_none_of_its_encodings() -> None:
    """Another process keeps another server's encoding under the same name."""
    messages = (UserMessage((Text("q"), PNG)), *thoughtful(HERE))
    wanted = await Asker().ask(*messages)
    for copied in (pickle.loads(pickle.dumps(messages)), copy.deepcopy(messages)):
        assert copied == messages
        assert [set(vars(message)) for message in copied] == [set(message.__dataclass_fields__) for message in messages]
        assert await Asker().ask(*copied) == wanted


@pytest.mark.parametrize("options", [{"profile": "strict-alternation"}, {"base_url": "https://api.mistral.ai/v1"}])
async def test_strict_servers_read_a_reply_between_tool_results_and_the_user(options: dict[str, Any]) -> None:
    """NousResearch/hermes-agent#20154, BerriAI/litellm#17761: "Unexpected role 'user' after role 'tool'"."""
    group = (Q, calling(ToolCall("call_1", "add")), done("call_1", media=(PNG,)))
    for after in ((), (UserMessage("stop"),), (SystemMessage("S"), UserMessage("stop"))):
        messages = (await Asker(**options).ask(*group, *after))["messages"]
        roles = [message["role"] for message in messages if message["role"] != "system"]
        assert roles == ["user", "assistant", "tool", "assistant", "user"]
        assert messages[0]["role"] == ("system" if len(after) == 2 else "user")
        assert messages[-2]["content"]


@pytest.mark.parametrize("profile", ["default", "strict-alternation", "openai"])
async def test_the_model_does_not_have_the_last_word(profile: str) -> None:
    """anomalyco/opencode#27920, ggml-org/llama.cpp#20861: refused, or taken for the start of the next reply."""
    silent = Reply((Thinking("", "S"),), provider="other")
    for last in ((), (silent,)):
        messages = (await Asker(profile=profile).ask(Q, Reply((Text("hello"),)), *last))["messages"]
        assert messages[1:] == [
            {"role": "assistant", "content": "hello"},
            {"role": "user", "content": "Please go on."},
        ]


@pytest.mark.parametrize("blank", ["", " \n", "\u200b", "\ufeff", (Text(""),), (Text(" "), Text("\n"))])
async def test_what_a_user_says_is_never_blank(blank: Any) -> None:
    """labring/FastGPT#3575: "the message at position 4 must not be empty"."""
    for profile in ("default", "strict-alternation"):
        messages = (await Asker(profile=profile).ask(Q, Reply((Text("hello"),)), UserMessage(blank)))["messages"]
        assert messages[-1] == {"role": "user", "content": "(empty message)"}


@pytest.mark.parametrize("blank", ["", " \n", "\u200b"])
async def test_what_a_tool_returned_is_never_blank(blank: str) -> None:
    """HKUDS/nanobot#949: "text content blocks must be non-empty", over an empty result in an old history."""
    messages = (await Asker().ask(Q, calling(ToolCall("call_1", "add")), done("call_1", blank)))["messages"]
    assert messages[-1] == {"role": "tool", "tool_call_id": "call_1", "content": "(no output)"}


async def test_a_tool_that_returned_an_image_alone_has_returned_something() -> None:
    """A screenshot, in a history from Anthropic, whose results need no text."""
    messages = (await Asker().ask(Q, calling(ToolCall("call_1", "add")), done("call_1", "", media=(PNG,))))["messages"]
    assert messages[-2] == {"role": "tool", "tool_call_id": "call_1", "content": "(the output follows)"}
    assert messages[-1]["content"][-1] == {"type": "image_url", "image_url": {"url": URL}}


async def test_a_blank_system_message_is_left_out() -> None:
    """BiFangKNT/mtga#68: proxies hand it on to Anthropic, which refuses it."""
    messages = (await Asker().ask(SystemMessage(""), Q, SystemMessage(" \n"), SystemMessage("S")))["messages"]
    assert messages == [{"role": "user", "content": "q"}, {"role": "system", "content": "S"}]


async def test_deepseek_wants_the_reasoning_of_answers_too() -> None:
    """openclaw/openclaw#73417: "The `reasoning_content` in the thinking mode must be passed back to the API"."""
    asker = Asker("https://api.deepseek.com/v1")
    answer = Reply((Thinking("sum"), Text("5")), provider=asker.model.provider, extra={"reasoning_content": None})
    for said, reasoning in ((answer, "sum"), (replace(answer, provider="other"), "")):
        messages = (await asker.ask(Q, *thoughtful(asker.model.provider), said, Q))["messages"]
        assert [messages[1]["reasoning_content"], messages[3]["reasoning_content"]] == ["hm", reasoning]


async def test_gemini_gets_a_signature_where_another_model_called() -> None:
    """earendil-works/pi#6996: "Function call is missing a thought_signature"; only the first of a step has one."""
    asker = Asker("https://generativelanguage.googleapis.com/v1beta/openai")
    calls = (ToolCall("call_1", "add", "{}", "a"), ToolCall("call_2", "add", "{}", "b"))
    messages = (await asker.ask(Q, calling(*calls), done("call_1"), done("call_2")))["messages"]
    first, second = messages[1]["tool_calls"]
    assert first["extra_content"] == {"google": {"thought_signature": "skip_thought_signature_validator"}}
    assert "extra_content" not in second
    own = (await asker.ask(Q, *thoughtful(asker.model.provider)))["messages"][1]
    assert own["tool_calls"][0]["extra_content"] == SIGNED["extra_content"]


@pytest.mark.parametrize(
    ("base_url", "shared"),
    [("https://openrouter.ai/api/v1", False), ("http://gateway.test/v1", False), ("https://api.moonshot.ai/v1", True)],
)
async def test_models_behind_one_gateway_do_not_read_each_others_signatures(base_url: str, shared: bool) -> None:
    """CommonstackAI/UncommonRoute#19, can1357/oh-my-pi#6379: "Invalid signature in thinking block"."""
    one, two = (Asker(base_url, name) for name in ("a/one", "b/two"))
    for asker, sent in ((one, True), (two, shared)):
        message = (await asker.ask(Q, *thoughtful(one.model.provider)))["messages"][1]
        assert ("reasoning_details" in message) is sent


def parameters(body: dict[str, Any]) -> dict[str, Any]:
    return body["tools"][0]["function"]["parameters"]


async def test_an_array_says_what_it_holds() -> None:
    """sigoden/aichat#1049, mark3labs/mcphost#35: "array schema missing items" is a 400 for the whole request."""
    pair = {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "maxItems": 2}
    same = {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "integer"}], "items": False}
    deep = {"type": "object", "properties": {"in": {"type": ["array", "null"]}}}
    asked = {"any": {"type": "array"}, "pair": pair, "same": same, "deep": deep, "fine": {"items": {"type": "array"}}}
    given: dict[str, Any] = {"type": "object", "properties": asked}
    before = copy.deepcopy(given)
    seen = parameters(await Asker().ask(Q, tools=(ToolSpec("t", "", given),)))["properties"]
    assert given == before
    assert seen["any"] == {"type": "array", "items": {}}
    assert seen["pair"] == {**pair, "items": {"anyOf": [{"type": "integer"}, {"type": "string"}]}}
    assert seen["same"] == {**same, "items": {"type": "integer"}}
    assert seen["deep"]["properties"]["in"] == {"type": ["array", "null"], "items": {}}
    assert seen["fine"] == {"items": {"type": "array", "items": {}}}


@pytest.mark.parametrize(
    ("pattern", "sent"),
    [
        ("^a$", "^a$"),
        ("^a", "^a.*$"),
        ("a$", "^.*a$"),
        (r"a\$", r"^.*a\$.*$"),
        ("a|b", "^.*(a|b).*$"),
        ("^a|b$", "^a|b$"),
        ("^a|b", "^a|b"),
    ],
)
async def test_patterns_are_anchored(pattern: str, sent: str) -> None:
    """openclaw/openclaw#113562, aebrer/dreb#422: llama.cpp refuses the whole request over one that is not."""
    given = {"type": "object", "properties": {"a": {"type": "string", "pattern": pattern}}}
    seen = parameters(await Asker().ask(Q, tools=(ToolSpec("t", "", given),)))
    assert seen["properties"]["a"]["pattern"] == sent
    for text in ("a", "b", "xa", "ax", "xb", "a$", ""):
        assert bool(re.search(pattern, text)) is bool(re.search(sent, text))


async def test_properties_are_schemas_that_allow_something() -> None:
    """ggml-org/llama.cpp#17574: `not: {}` is a failed request; Ollama reads no booleans there."""
    asked: dict[str, Any] = {
        "any": True,
        "none": False,
        "never": {"not": {}},
        "not": {"type": "string", "not": {"const": "x"}},
    }
    given: dict[str, Any] = {"type": "object", "properties": {**asked, "in": {"anyOf": [True]}}}
    seen = parameters(await Asker().ask(Q, tools=(ToolSpec("t", "", given),)))
    assert seen["properties"] == {"any": {}, "not": asked["not"], "in": {"anyOf": [{}]}}


async def test_what_is_required_is_among_the_properties() -> None:
    """chatboxai/chatbox#2606: Gemini says "property is not defined" of a name in `required`; the gate demands it."""
    inner = {"type": "object", "properties": {}, "required": ["x"], "additionalProperties": {"type": "integer"}}
    bare = {"type": ["object", "null"], "required": ["y"]}  # Kilo-Org/kilocode#11955
    given: dict[str, Any] = {"type": "object", "properties": {"a": inner, "c": bare}, "required": ["a", "b"]}
    seen = parameters(await Asker().ask(Q, tools=(ToolSpec("t", "", given),)))
    assert seen["properties"] == {
        "a": {**inner, "properties": {"x": {"type": "integer"}}},
        "b": {},
        "c": {**bare, "properties": {"y": {}}},
    }
    assert seen["required"] == ["a", "b"]


async def test_unions_at_the_top_of_a_schema_are_laid_side_by_side() -> None:
    """chatanywhere/GPT_API_free#403: a schema must "not have 'oneOf'/'anyOf'/'allOf'/'enum'/'not' at the top level"."""
    one, other = ({name: {"type": "string"}} for name in ("id", "name"))
    either = [{"properties": one, "required": ["id"]}, {"properties": other, "required": ["name"]}]
    given: dict[str, Any] = {"type": "object", "oneOf": either, "allOf": [SCHEMA], "not": {}}
    seen = parameters(await Asker().ask(Q, tools=(ToolSpec("t", "", given),)))
    assert seen == {"type": "object", "properties": {**SCHEMA["properties"], **one, **other}}


async def test_a_description_that_is_too_long_for_openai_goes_on_in_its_parameters() -> None:
    """OpenHands/OpenHands#4838, getsentry/sentry-mcp#106: it takes 1,024 characters of it, and any number there."""
    words = " ".join(f"word{number}" for number in range(300))
    spec = ToolSpec("t", words, {**SCHEMA, "description": "All of it."})
    function = (await Asker("https://api.openai.com/v1").ask(Q, tools=(spec,)))["tools"][0]["function"]
    assert len(function["description"]) <= 1_024
    rest, own = function["parameters"]["description"].split("\n\n")
    assert (f"{function['description']} {rest}", own) == (words, "All of it.")
    solid = (await Asker("https://api.openai.com/v1").ask(Q, tools=(ToolSpec("t", "y" * 2_000, SCHEMA),)))["tools"][0]
    assert len(solid["function"]["description"]) <= 1_024
    elsewhere = (await Asker().ask(Q, tools=(spec,)))["tools"][0]["function"]
    assert elsewhere["description"] == words
