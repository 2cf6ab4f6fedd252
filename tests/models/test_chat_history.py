from __future__ import annotations

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassloop.core.encoding import loads
from glassloop.core.errors import ConfigurationError
from glassloop.core.messages import Media, Reply, SystemMessage, Text, Thinking, ToolCall, ToolResult, UserMessage
from glassloop.models.chat_request import ChatRenderer
from glassloop.models.model import ModelRequest
from glassloop.models.openai_chat import from_openai
from glassloop.models.profiles import Profile
from glassloop.models.sendable import sendable
from glassloop.testing.chat_rules import chat_violations

CALL: dict[str, Any] = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
ASKED: dict[str, Any] = {"role": "assistant", "content": None, "tool_calls": [CALL]}
DONE: dict[str, Any] = {"role": "tool", "tool_call_id": "c1", "content": "3"}
Q: dict[str, Any] = {"role": "user", "content": "q"}


def rendered(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    body = ChatRenderer("m", "p", Profile()).body(ModelRequest(from_openai(messages)))
    assert chat_violations(loads(body)) == []
    return loads(body)["messages"]


def test_every_role() -> None:
    developer, user, asked, done = from_openai([{"role": "developer", "content": "S"}, Q, ASKED, DONE])
    assert developer == SystemMessage("S")
    assert user == UserMessage("q")
    assert isinstance(asked, Reply)
    (call,) = asked.calls
    assert call == ToolCall(call.id, "add", '{"a": 1}', "c1")
    assert done == ToolResult(call.id, "add", "3")


def test_what_was_read_is_sent_as_it_was() -> None:
    history = [{"role": "system", "content": "S"}, Q, ASKED, DONE, {"role": "assistant", "content": "three"}, Q]
    assert rendered(history) == history


def test_ids_are_the_same_for_the_same_beginning_and_only_for_it() -> None:
    def ids(history: list[dict[str, Any]]) -> list[str]:
        return [call.id for message in from_openai(history) if isinstance(message, Reply) for call in message.calls]

    once = ids([Q, ASKED, DONE])
    assert ids([Q, ASKED, DONE, Q])[:1] == once
    assert ids([ASKED, DONE]) != once
    assert len({*ids([Q, ASKED, DONE, ASKED, DONE])}) == 2


def test_a_history_that_is_stored_and_passed_again_counts_once() -> None:
    history = [Q, ASKED, DONE]
    twice = [*from_openai(history), *from_openai(history)]
    assert list(sendable(twice)) == [*from_openai(history), UserMessage("q")]


def test_reused_ids_find_their_own_results() -> None:
    first, second = {**DONE, "content": "1"}, {**DONE, "content": "2"}
    sent = rendered([Q, ASKED, first, ASKED, second])
    results = [(message["tool_call_id"], message["content"]) for message in sent if message["role"] == "tool"]
    assert [content for _, content in results] == ["1", "2"]
    assert len({wire_id for wire_id, _ in results}) == 2


TWO: dict[str, Any] = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"function": {"name": name, "arguments": {}}} for name in ("add", "now")],
}


@pytest.mark.parametrize(
    ("call_ids", "results"),
    [
        ((None, None), [{"content": "add's"}, {"content": "now's"}]),
        ((None, None), [{"tool_name": "now", "content": "now's"}, {"tool_name": "add", "content": "add's"}]),
        ((None, None), [{"name": "now", "content": "now's"}, {"name": "add", "content": "add's"}]),
        (("a", "b"), [{"content": "add's"}, {"content": "now's"}]),
        (("call_0", "call_0"), [{"tool_call_id": "call_0", "content": f"{name}'s"} for name in ("add", "now")]),
    ],
    ids=["neither has ids", "names alone, as Ollama's", "names in another order", "results without ids", "one id"],
)
def test_a_result_that_no_id_of_its_own_ties_to_its_call_finds_it(
    call_ids: tuple[str | None, ...], results: list[dict[str, Any]]
) -> None:
    """decolua/9router#3369, sipeed/picoclaw#2528: by name where there is one, else in order; nobody else's result."""
    calls = [{**call, "id": given} for call, given in zip(TWO["tool_calls"], call_ids, strict=True)]
    sent = rendered([Q, {**TWO, "tool_calls": calls}, *({"role": "tool", **result} for result in results), Q])
    assert [message["content"] for message in sent if message["role"] == "tool"] == ["add's", "now's"]


def test_a_call_of_an_earlier_reply_does_not_take_the_result_of_a_later_one() -> None:
    """sipeed/picoclaw#2528: the first `c1` was interrupted, and its server counts anew in each reply."""
    sent = rendered([Q, ASKED, Q, ASKED, DONE])
    first, second = (message["content"] for message in sent if message["role"] == "tool")
    assert first.startswith("Interrupted")
    assert second == "3"


def test_an_image_in_a_tools_result_is_kept() -> None:
    png = base64.b64encode(b"png").decode()
    image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{png}"}}
    history = [Q, ASKED, {**DONE, "content": [{"type": "text", "text": "a cat"}, image]}]
    (*_, result) = from_openai(history)
    assert isinstance(result, ToolResult)
    assert (result.content, result.media) == ("a cat", (Media.of(b"png", "image/png"),))
    *_, done, shown = rendered(history)
    assert done["content"] == "a cat"
    assert shown["content"][-1] == image


def test_orphans_and_open_calls_become_sendable() -> None:
    sent = rendered([{**DONE, "tool_call_id": "x"}, Q, ASKED, Q])
    assert [message["role"] for message in sent] == ["user", "assistant", "tool", "user"]


def test_reasoning_is_kept_and_sent_where_it_belongs() -> None:
    thought = {**ASKED, "reasoning_content": "hm"}
    (reply, _) = from_openai([thought, DONE], provider="p")
    assert isinstance(reply, Reply)
    assert reply.parts[0] == Thinking("hm")
    body = ChatRenderer("m", "p", Profile()).body(ModelRequest(from_openai([thought, DONE], provider="p")))
    assert loads(body)["messages"][0]["reasoning_content"] == "hm"
    assert "reasoning_content" not in rendered([thought, DONE])[0]


def test_parts() -> None:
    png = base64.b64encode(b"png").decode()
    parts: list[Any] = [
        {"type": "text", "text": "look: "},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{png}"}},
        {"type": "image_url", "image_url": {"url": "https://example.com/cat.png"}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{png}"}},
        {"type": "input_audio", "input_audio": {}},
    ]
    (message,) = from_openai([{"role": "user", "content": parts}])
    assert message == UserMessage(
        (
            Text("look: "),
            Media.of(b"png", "image/png"),
            Text("[image: https://example.com/cat.png]"),
            Media.of(b"png", "application/pdf", "a.pdf"),
            Text("[input_audio]"),
        )
    )
    (plain,) = from_openai(
        [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]
    )
    assert plain == UserMessage("ab")


def test_what_a_model_said_in_parts_is_read_and_what_it_thought_in_parts_is_no_text() -> None:
    thought = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}
    for part in (
        {"type": "text", "text": "5"},
        {"type": "output_text", "text": "5"},
        {"type": "refusal", "refusal": "5"},
    ):
        assert from_openai([{"role": "assistant", "content": [thought, part]}]) == [Reply((Text("5"),))]
    assert from_openai([{"role": "assistant", "content": [thought]}]) == [Reply(())]


def test_the_old_function_format() -> None:
    old = [
        {"role": "assistant", "content": None, "function_call": {"name": "add", "arguments": "{}"}},
        {"role": "function", "name": "add", "content": "3"},
    ]
    sent = rendered(old)
    assert sent[0]["tool_calls"][0]["function"]["name"] == "add"
    assert sent[1]["content"] == "3"


NO_MESSAGES: list[tuple[list[Any], str]] = [
    ([Q, "hello"], r"history\[1\] is not a message"),
    ([{"role": "bot", "content": "x"}], r"history\[0\] has the role 'bot'; it must be system, "),
    ([{}], r"history\[0\] has the role None"),
]


@pytest.mark.parametrize(("history", "words"), NO_MESSAGES)
def test_what_is_no_message_is_named(history: Any, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        from_openai(history)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(["", "text", "c1", "\ud800"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["id", "function", "name", "arguments", "type", "text"]), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(
    st.lists(
        st.fixed_dictionaries(
            {"role": st.sampled_from(["user", "assistant", "tool", "system"])},
            optional=dict.fromkeys(["content", "tool_calls", "function_call", "tool_call_id", "refusal"], JSON),
        ),
        max_size=5,
    )
)
def test_whatever_is_in_a_message_becomes_sendable(history: list[dict[str, Any]]) -> None:
    rendered(history)
