from __future__ import annotations

from typing import Any

import pytest

from glassloop.core.encoding import loads
from glassloop.core.errors import ConfigurationError
from glassloop.core.messages import Media, Opaque, Reply, Text, Thinking, ToolResult, UserMessage
from glassloop.models.anthropic import from_anthropic
from glassloop.models.messages_request import MessagesRenderer
from glassloop.models.model import ModelRequest

HISTORY: list[dict[str, Any]] = [
    {"role": "user", "content": [{"type": "text", "text": "q"}]},
    {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "7   é", "signature": "SIG+/=="},
            {"type": "redacted_thinking", "data": "ENC"},
            {"type": "text", "text": "Let me see."},
            {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"q": "x"}},
            {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []},
            {"type": "tool_use", "id": "toolu_1", "name": "add", "input": {"a": 2}},
        ],
    },
    {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "toolu_1", "is_error": True, "content": "bad"},
            {"type": "text", "text": "go on"},
        ],
    },
]


def rendered(history: list[dict[str, Any]]) -> list[dict[str, Any]]:
    body = MessagesRenderer("m", "p", caching=False).body(ModelRequest(from_anthropic(history, provider="p")))
    return loads(body)["messages"]


def test_what_was_read_is_sent_as_it_was() -> None:
    assert rendered(HISTORY) == HISTORY


def test_messages() -> None:
    question, reply, result, go_on = from_anthropic(HISTORY)
    assert (question, go_on) == (UserMessage("q"), UserMessage("go on"))
    assert isinstance(reply, Reply)
    assert reply.parts[:3] == (Thinking("7   é", "SIG+/=="), Thinking(redacted="ENC"), Text("Let me see."))
    assert isinstance(reply.parts[3], Opaque)
    assert result == ToolResult(reply.calls[0].id, "add", "bad", "error")


def test_plain_text_and_images() -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "cG5n"}}
    messages = from_anthropic(
        [
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": "yes"},
            {"role": "user", "content": [image]},
        ]
    )
    assert messages == [
        UserMessage("hi"),
        Reply((Text("yes"),)),
        UserMessage((Media.of(b"png", "image/png"),)),
    ]


def test_a_document_of_text_is_read() -> None:
    document = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "The policy."}}
    assert from_anthropic([{"role": "user", "content": [document]}]) == [UserMessage("The policy.")]


def test_what_a_search_found_is_read() -> None:
    """A result that is not text is no reason to lose what it says."""
    found: dict[str, Any] = {
        "type": "search_result",
        "source": "https://one.test",
        "title": "One",
        "content": [{"type": "text", "text": "1"}],
    }
    pieces: dict[str, Any] = {
        "type": "document",
        "title": "Two",
        "source": {"type": "content", "content": [{"type": "text", "text": "2"}]},
    }
    asked: dict[str, Any] = {
        "role": "assistant",
        "content": [{"type": "tool_use", "id": "t", "name": "search", "input": {}}],
    }
    done: dict[str, Any] = {"type": "tool_result", "tool_use_id": "t", "content": [found, pieces]}
    image = {"type": "image", "source": {"type": "url", "url": "https://one.test/cat.png"}}
    (_, result, user) = from_anthropic([asked, {"role": "user", "content": [done, image]}])
    assert isinstance(result, ToolResult)
    assert result.content == "One\nhttps://one.test\n1\nTwo\n2\n"
    assert user == UserMessage("[image: https://one.test/cat.png]")


def test_calls_that_share_an_id_each_get_their_own_result() -> None:
    """sipeed/picoclaw#2528: a gateway that counts calls by tool, or not at all."""
    calls: list[Any] = [{"type": "tool_use", "id": "call_0", "name": name, "input": {}} for name in ("add", "now")]
    results = [{"type": "tool_result", "tool_use_id": "call_0", "content": f"{name}'s"} for name in ("add", "now")]
    sent = rendered([HISTORY[0], {"role": "assistant", "content": calls}, {"role": "user", "content": results}])
    assert [block["content"] for block in sent[-1]["content"]] == ["add's", "now's"]
    assert len({block["tool_use_id"] for block in sent[-1]["content"]}) == 2


def test_ids_are_the_same_for_the_same_beginning() -> None:
    (first,) = (message.calls for message in from_anthropic(HISTORY) if isinstance(message, Reply))
    (again,) = (message.calls for message in from_anthropic(HISTORY[:2]) if isinstance(message, Reply))
    assert first == again


@pytest.mark.parametrize(
    ("history", "words"),
    [(["x"], r"history\[0\] is not a message"), ([{"role": "system"}], r"history\[0\] has the role 'system'")],
)
def test_what_is_no_message_is_named(history: Any, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        from_anthropic(history)
