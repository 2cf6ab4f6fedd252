"""Images and files outlive the process that was given them: the journal keeps their bytes, messages get them back."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from glassloop import Agent, Identity, Limits, Media, tool
from glassloop.core.events import Event, RunStarted
from glassloop.core.messages import Message, Reply, Text, ToolResult, UserMessage
from glassloop.journal.journal import MemoryJournal
from glassloop.journal.media import contents, recall
from glassloop.models.anthropic import Anthropic
from glassloop.models.openai_chat import OpenAIChat
from glassloop.runtime import Runtime
from glassloop.stores import Store, open_store
from glassloop.testing import Conversation, ModelServer, call, say

CAT = Media.of(b"\x89PNG\r\n\x1a\n" + b"cat" * 40, "image/png", "cat.png")
DOG = Media.of(b"\x89PNG\r\n\x1a\n" + b"dog" * 40, "image/png", "dog.png")
OWL = Media.of(b"\x89PNG\r\n\x1a\n" + b"owl" * 40, "image/png", "owl.png")
IMAGES = {"cat": CAT, "dog": DOG, "owl": OWL}
LOOK = UserMessage((Text("What is it?"), CAT))
BEFORE: Sequence[Message] = (UserMessage((Text("And this?"), DOG)), Reply((Text("A dog."),)))


@pytest.fixture(params=["sqlite", "postgres", "redis"])
def reopen(request: pytest.FixtureRequest, tmp_path: Any) -> Callable[[], Store]:
    """Opens the store, as another process would."""
    if request.param == "postgres":
        return lambda: open_store(request.getfixturevalue("postgres_url"))
    sessions = request.getfixturevalue("redis_url") if request.param == "redis" else None
    return lambda: open_store(f"sqlite:///{tmp_path}/runs.db", sessions)


@tool(approval=True)
def photograph(animal: str) -> Media:
    """Take a picture."""
    return OWL


def brain(conversation: Conversation) -> Any:
    answered = any(isinstance(message, ToolResult) for message in conversation.messages)
    return say("I see.") if answered else [call("photograph", animal="owl")]


def agent_for(server: ModelServer, wire: str) -> Agent:
    chat = OpenAIChat("scripted", base_url=server.url, api_key="sk-fake")
    messages = Anthropic("scripted", base_url=server.anthropic_url, api_key="sk-fake")
    return Agent(chat if wire == "chat" else messages, [photograph])


def seen(body: Any) -> list[str]:
    """The images in a request, in their order."""
    text = json.dumps(body)
    shown = {name: b64encode(media.content or b"").decode() for name, media in IMAGES.items()}
    return sorted((name for name in shown if shown[name] in text), key=lambda name: text.index(shown[name]))


@pytest.mark.parametrize("wire", ["chat", "messages"])
async def test_a_run_that_goes_on_elsewhere_and_the_next_turn_see_what_was_shown(
    wire: str, reopen: Callable[[], Store]
) -> None:
    """Azure/azure-sdk-for-python#47391, pydantic/pydantic-ai#5811: images are lost when history is read back."""
    async with ModelServer(brain) as server:
        async with reopen() as store:
            held = await agent_for(server, wire).run(LOOK, history=BEFORE, session="s", store=store)
            assert held.outcome == "waiting"
        async with reopen() as store:
            decisions = {held.pending[0].approval_id: True}
            done = await agent_for(server, wire).resume(held.run_id, decisions=decisions, store=store)
            assert done.output == "I see."
        async with reopen() as store:
            again = await agent_for(server, wire).run("Which was first?", session="s", store=store)
    assert [seen(request.body) for request in server.requests] == [
        ["dog", "cat"],
        ["dog", "cat", "owl"],
        ["cat", "owl"],  # a history that is given to a run is not the session's
    ]
    assert [message for message in again.messages if message == LOOK] == [LOOK]


async def test_a_run_in_the_background_sees_what_it_was_given(reopen: Callable[[], Store]) -> None:
    async with ModelServer(script=["I see."]) as server, Runtime(agent_for(server, "chat"), store=reopen()) as runtime:
        result = await runtime.run("agent", LOOK, history=BEFORE)
    assert result.output == "I see."
    assert seen(server.requests[0].body) == ["dog", "cat"]


async def test_what_was_erased_is_named(reopen: Callable[[], Store]) -> None:
    async with ModelServer(script=["I see.", "I do not know."]) as server, reopen() as store:
        first = await agent_for(server, "chat").run(LOOK, session="s", store=store)
        await store.journal.erase_blobs(first.run_id)
        await agent_for(server, "chat").run("Which was it?", session="s", store=store)
    assert [seen(request.body) for request in server.requests] == [["cat"], []]
    assert "[cat.png: image/png, 128 bytes, not shown again]" in json.dumps(server.requests[1].body)


async def test_no_more_is_read_than_a_request_can_show() -> None:
    journal = MemoryJournal()
    big = [Media.of(bytes([number]) * 3_000_000, "image/png") for number in range(4)]
    event = Event("run_1", 0, 0, 0, RunStarted("a", "f", Identity(), None, Limits()))
    await journal.append("run_1", [event], after=0, epoch=None, blobs=contents([UserMessage(tuple(big))]))
    stored = [Media(media.media_type, media.digest, media.size) for media in big]
    await recall(
        journal, [UserMessage(tuple(stored[:2])), UserMessage("no"), ToolResult("c", "f", "", "ok", (*stored[2:],))]
    )
    assert [media.content is not None for media in stored] == [False, False, True, True]
