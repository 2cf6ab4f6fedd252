from __future__ import annotations

import base64
from collections.abc import Sequence
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
from glassloop.testing.chat_rules import chat_violations

Q = UserMessage("q")
HERE = "openai-chat:one.test"
SCHEMA: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "integer"}}}
ADD = ToolSpec("add", "Adds. 加。", SCHEMA)


class Asker:
    """A model whose requests are caught; asking again shows that what was encoded before is still right."""

    def __init__(self, base_url: str = "https://one.test/v1", **options: Any) -> None:
        answer = FakeAnswer.json({"choices": [{"message": {"content": "ok"}}]})
        self.transport = FakeTransport(*[answer] * 50)
        self.model = OpenAIChat("m", base_url=base_url, transport=self.transport, **options)

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
    messages = (await asker.ask(*group))["messages"]
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
