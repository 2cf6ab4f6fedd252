"""What tests of context strategies share: conversations of every kind, and what providers say to a request."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import strategies as st

from glassloop.core.messages import (
    Media,
    Message,
    Reply,
    ResultStatus,
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
from glassloop.models.profiles import as_profile
from glassloop.testing.chat_rules import chat_violations
from glassloop.testing.messages_rules import messages_violations
from glassloop.testing.seals import Seals

TEXTS = st.sampled_from(["hello", "天气怎么样？" * 20, "word " * 60, "half \ud83d of it", "x" * 900])
STATUSES: st.SearchStrategy[ResultStatus | None] = st.sampled_from(["ok", "ok", "ok", "error", "held", None])
IMAGE = Media.of(b"png", "image/png")
CHATS = [ChatRenderer("m", "chat", as_profile(name, "model.example")) for name in (None, "strict-alternation")]
MESSAGES = MessagesRenderer("m", "messages", True)


@st.composite
def steps(draw: st.DrawFn) -> list[Message]:
    """A reply with calls and its results, seldom with a result that is missing, or an id that was there before."""
    ids = draw(
        st.lists(st.sampled_from("abcdefgh") | st.uuids().map(lambda one: f"call_{one.hex}"), min_size=1, max_size=3)
    )
    calls = [ToolCall(id_, "look", '{"n": 1}', draw(st.sampled_from(["", "p1", "p2"]))) for id_ in ids]
    thinking = draw(st.sampled_from([(), (Thinking("hm", "SIGNED"),), (Thinking(redacted="SEALED"),)]))
    results: list[ToolResult] = []
    for call in calls:
        status = draw(STATUSES)
        if status is not None:
            text = draw(TEXTS) * draw(st.sampled_from([1, 8]))
            content = "Held for approval appr_1: not run." if status == "held" else text
            media = draw(st.sampled_from([(), (), (IMAGE,)]))
            results.append(ToolResult(call.id, call.name, content, status, media))
    return [Reply((*thinking, *calls), provider=draw(st.sampled_from(["", "messages"]))), *results]


def one(message: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Message]]:
    """A message alone."""
    return message.map(lambda made: [made])


@pytest.fixture(scope="session")
def any_history() -> st.SearchStrategy[list[Message]]:
    """Conversations as they happen, and as crashes, imports and trimming by others leave them."""
    piece = st.one_of(
        one(st.builds(UserMessage, TEXTS)),
        one(st.builds(UserMessage, TEXTS.map(lambda text: (Text(text), IMAGE)))),
        one(st.builds(Reply, TEXTS.map(lambda text: (Text(text),)))),
        steps(),
        steps(),
        one(st.just(UserMessage("Your reply was empty. Answer the user, or call a tool.", "nudge"))),
        one(st.just(UserMessage("[A human decided on the held call of look. done]", "note"))),
        one(st.builds(SystemMessage, TEXTS)),
        one(st.just(Reply(()))),
        one(st.just(ToolResult("nobody", "look", "an orphan"))),
    )
    return st.lists(piece, max_size=9).map(lambda pieces: [message for each in pieces for message in each])


@pytest.fixture(scope="session")
def refusals() -> Callable[[ModelRequest], Sequence[str]]:
    """What each provider would refuse in a request."""

    def refusals(request: ModelRequest) -> Sequence[str]:
        headers = {"anthropic-version": "2023-06-01"}
        found = [problem for chat in CHATS for problem in chat_violations(json.loads(chat.body(request)))]
        return [*found, *messages_violations(json.loads(MESSAGES.body(request)), headers, _AnySeal(), set())]

    return refusals


@pytest.fixture(scope="session")
def wire() -> Callable[[ModelRequest], bytes]:
    """A request as it is sent."""
    return CHATS[0].body


class _AnySeal(Seals):
    """Takes every signature for one that it gave, in the order in which they come."""

    def __init__(self) -> None:
        super().__init__()
        self._seen = 0

    def order(self, block: Mapping[str, Any]) -> int:
        self._seen += 1
        return self._seen
