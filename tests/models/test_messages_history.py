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
