from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from glassloop.core.encoding import loads
from glassloop.core.messages import (
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
from glassloop.models.chat_request import ChatRenderer
from glassloop.models.messages_request import MessagesRenderer
from glassloop.models.model import ModelRequest
from glassloop.models.profiles import PROFILES
from glassloop.models.sendable import INTERRUPTED, sendable
from glassloop.testing.chat_rules import chat_violations

QUESTION = UserMessage("q")


def reply(*ids: str, text: str = "") -> Reply:
    calls = tuple(ToolCall(id_, "add") for id_ in ids)
    return Reply((Text(text), *calls) if text else calls)


def result(id_: str, content: str = "done") -> ToolResult:
    return ToolResult(id_, "add", content)


def interrupted(id_: str) -> ToolResult:
    return ToolResult(id_, "add", INTERRUPTED, "unknown")


def test_what_is_in_order_is_returned_as_it_is() -> None:
    messages = (SystemMessage("s"), QUESTION, reply("a", "b"), result("a"), result("b"), reply(text="fine"))
    assert sendable(messages) is messages
    assert sendable(messages) is messages


REPAIRS: dict[str, tuple[Sequence[Message], Sequence[Message]]] = {
    "a call without result at the end": ([QUESTION, reply("a")], [QUESTION, reply("a"), interrupted("a")]),
    "one of two results missing": (
        [reply("a", "b"), result("b"), QUESTION],
        [reply("a", "b"), interrupted("a"), result("b"), QUESTION],
    ),
    "results in another order": (
        [reply("a", "b"), result("b"), result("a")],
        [reply("a", "b"), result("a"), result("b")],
    ),
    "a result that comes late": (
        [reply("a"), QUESTION, result("a", "late")],
        [reply("a"), result("a", "late"), QUESTION],
    ),
    "a result of no call": ([QUESTION, result("x")], [QUESTION]),
    "results whose call was trimmed": ([result("a"), reply("b"), result("b")], [reply("b"), result("b")]),
    "a second result": ([reply("a"), result("a", "1"), result("a", "2")], [reply("a"), result("a", "1")]),
    "a reply that is there twice": (
        [QUESTION, reply("a"), result("a"), QUESTION, reply("a"), result("a"), reply(text="end")],
        [QUESTION, reply("a"), result("a"), QUESTION, reply(text="end")],
    ),
    "a reply with one old and one new call": (
        [reply("a"), result("a"), reply("a", "b"), result("b")],
        [reply("a"), result("a"), reply("b"), result("b")],
    ),
    "one id twice in a reply": ([reply("a", "a"), result("a")], [reply("a"), result("a")]),
    "replies that say nothing": (
        [QUESTION, Reply(()), Reply((Text(""),)), Reply((Text(" \n"), Thinking("hm"))), QUESTION],
        [QUESTION, QUESTION],
    ),
}


@pytest.mark.parametrize(("messages", "expected"), REPAIRS.values(), ids=REPAIRS)
def test_repairs(messages: Sequence[Message], expected: Sequence[Message]) -> None:
    assert list(sendable(messages)) == list(expected)


@pytest.mark.parametrize(
    "speaking",
    [
        Reply((), refusal="no"),
        Reply((Thinking("", signature="S"),)),
        Reply((Thinking(redacted="X"),)),
        Reply((Opaque({"type": "server_tool_use"}),)),
    ],
)
def test_replies_that_say_something_stay(speaking: Reply) -> None:
    assert list(sendable([QUESTION, speaking])) == [QUESTION, speaking]


def test_what_was_checked_is_not_trusted_in_another_conversation() -> None:
    calling, answer = reply("a"), result("a")
    assert sendable((QUESTION, calling, answer)) == (QUESTION, calling, answer)
    assert list(sendable((calling, QUESTION, answer))) == [calling, answer, QUESTION]
    again = (QUESTION, calling, answer, reply("a"), result("a"))
    assert list(sendable(again)) == [QUESTION, calling, answer]
    assert list(sendable((QUESTION, calling, answer, QUESTION))) == [QUESTION, calling, answer, QUESTION]


@given(data=st.data())
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_repairing_twice_changes_nothing(
    data: st.DataObject, any_conversation: st.SearchStrategy[list[Message]]
) -> None:
    once = list(sendable(data.draw(any_conversation)))
    assert list(sendable(once)) == once
    assert sendable(tuple(once)) == tuple(once)


@given(data=st.data())
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_growing_step_by_step_gives_what_checking_at_once_gives(
    data: st.DataObject, any_conversation: st.SearchStrategy[list[Message]]
) -> None:
    messages = data.draw(any_conversation)
    cuts = data.draw(st.lists(st.integers(0, len(messages))).map(sorted))
    for cut in cuts:
        sendable(tuple(messages[:cut]))
    copies = [*map(_copy, messages)]
    assert list(sendable(tuple(messages))) == list(sendable(tuple(copies)))


def _copy(message: Message) -> Message:
    """An equal message that nothing is remembered about."""
    kind: Any = type(message)
    return kind(**{name: getattr(message, name) for name in kind.__dataclass_fields__})


RENDERERS = {name: ChatRenderer("m", "openai-chat:one.test", profile) for name, profile in PROFILES.items()}
MESSAGES = MessagesRenderer("m", "anthropic-messages:one.test", caching=True)


@given(data=st.data(), name=st.sampled_from(sorted(RENDERERS)))
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None, max_examples=200)
def test_every_conversation_is_accepted_by_openai(
    data: st.DataObject, name: str, any_conversation: st.SearchStrategy[list[Message]]
) -> None:
    messages = data.draw(any_conversation)
    request = ModelRequest(messages, "Be brief.")
    body = RENDERERS[name].body(request)
    assert chat_violations(loads(body)) == []
    assert RENDERERS[name].body(request) == body


@given(data=st.data())
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None, max_examples=200)
def test_every_conversation_is_accepted_by_anthropic(
    data: st.DataObject,
    any_conversation: st.SearchStrategy[list[Message]],
    anthropic_violations: Callable[[Mapping[str, Any]], list[str]],
) -> None:
    messages = data.draw(any_conversation)
    request = ModelRequest(messages, "Be brief.")
    body = MESSAGES.body(request)
    assert anthropic_violations(loads(body)) == []
    assert MESSAGES.body(request) == body


@given(data=st.data())
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None, max_examples=200)
def test_under_strict_alternation_turns_alternate(
    data: st.DataObject, any_conversation: st.SearchStrategy[list[Message]]
) -> None:
    body = loads(RENDERERS["strict-alternation"].body(ModelRequest(data.draw(any_conversation), "Be brief.")))
    roles = [message["role"] for message in body["messages"]]
    assert roles[:2] in (["system"], ["system", "user"])
    assert roles.count("system") == 1
    assert not {("user", "user"), ("assistant", "assistant"), ("tool", "user")}.intersection(pairwise(roles))
    assert roles[-1] != "assistant"
