"""A call of a server's own tool without its result, or a result alone, is a 400 for each later request of a session."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from glassloop.core.encoding import loads
from glassloop.core.messages import (
    Message,
    Opaque,
    Part,
    Reply,
    StopReason,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    UserMessage,
)
from glassloop.models.messages_request import MessagesRenderer
from glassloop.models.model import ModelRequest

Q, GO_ON = UserMessage("q"), UserMessage("go on")
SEARCH = Opaque({"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}})
FOUND = Opaque({"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []})
THOUGHT = Thinking("hm", "SIG")
SAID = Text("I search.")


def reply(*parts: Part, stop: StopReason = "stop") -> Reply:
    return Reply(parts, stop, provider="p")


def sent(messages: Sequence[Message]) -> list[list[str]]:
    """The types of the blocks in each turn; asking again gives the same."""
    bodies = [MessagesRenderer("m", "p", caching=False).body(ModelRequest(messages)) for _ in range(2)]
    assert bodies[0] == bodies[1]
    return [[block["type"] for block in turn["content"]] for turn in loads(bodies[0])["messages"]]


CALL = ToolCall("call_1", "add")
DONE = ToolResult("call_1", "add", "3")


@pytest.mark.parametrize(
    ("messages", "turns"),
    [
        ([Q, reply(SAID, SEARCH, stop="length"), GO_ON], [["text"], ["text"], ["text"]]),
        ([Q, reply(THOUGHT, SEARCH, stop="paused"), GO_ON], [["text"], ["thinking"], ["text"]]),
        ([Q, reply(SEARCH, stop="paused"), GO_ON], [["text", "text"]]),
        ([Q, reply(SAID, FOUND), GO_ON], [["text"], ["text"], ["text"]]),
        ([Q, reply(FOUND, SEARCH, SAID), GO_ON], [["text"], ["text"], ["text"]]),
        ([Q, reply(SAID, SEARCH, stop="length")], [["text"], ["text"], ["text"]]),
        ([Q, reply(SAID, SEARCH, CALL), DONE, GO_ON], [["text"], ["text", "tool_use"], ["tool_result", "text"]]),
    ],
    ids=[
        "cut off",
        "paused and left",
        "nothing else",
        "a result alone",
        "in the wrong order",
        "cut off and last",
        "beside a call, left",
    ],
)
def test_what_has_lost_its_other_half_is_left_out(messages: list[Message], turns: list[list[str]]) -> None:
    """open-gsd/gsd-pi#1330, code-yeongyu/senpi#367, anthropics/claude-code#69828."""
    assert sent(messages) == turns


@pytest.mark.parametrize(
    "messages",
    [
        [Q, reply(THOUGHT, SEARCH, FOUND, SAID), GO_ON],
        [Q, reply(SAID, SEARCH, stop="paused")],
        [Q, reply(SAID, SEARCH, stop="paused"), reply(FOUND, SAID), GO_ON],
        [Q, reply(SEARCH, CALL), DONE],
        [Q, reply(SEARCH, CALL), DONE, reply(FOUND, SAID), GO_ON],
    ],
    ids=["both", "paused", "paused and gone on", "beside a call", "answered after the call"],
)
def test_what_has_its_other_half_or_waits_for_it_is_sent(messages: list[Message]) -> None:
    """anthropics/anthropic-sdk-python#961: the result comes in the next reply."""
    blocks = [kind for turn in sent(messages) for kind in turn]
    given = [part for message in messages if isinstance(message, Reply) for part in message.parts]
    for part in (SEARCH, FOUND):
        assert blocks.count(part.data["type"]) == given.count(part)
