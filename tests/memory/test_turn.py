"""A session stays usable while one of its runs waits for a human, and is told what became of what was held."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from glassloop import Agent, Identity, ModelError, RunResult, tool
from glassloop.core.messages import Message, Reply, Text, ToolResult, UserMessage
from glassloop.core.result import Decision
from glassloop.memory.session import SessionBusy
from glassloop.memory.turn import turns_of
from glassloop.models.anthropic import Anthropic
from glassloop.models.model import Model, ModelRequest
from glassloop.models.openai_chat import OpenAIChat
from glassloop.models.scripted import ScriptedModel, call
from glassloop.models.sendable import sendable
from glassloop.runtime import Runtime
from glassloop.stores import Store, open_store
from glassloop.testing import Conversation, ModelServer, Reaction, fail, say
from glassloop.testing import call as calls

ANN = Identity("ann", session="s")


@tool(effect="write", risk="high")
def ticket(title: str) -> str:
    """Create a ticket."""
    return f"ticket {title}"


@tool
def look(title: str) -> str:
    """Look something up."""
    return f"found {title}"


class Desk:
    """An agent whose model makes the calls of its script for a task, and answers once none is held of them."""

    def __init__(self, store: Store, **scripts: list[list[Any]]) -> None:
        self.store, self.scripts = store, scripts
        self.asked: list[list[Message]] = []
        self.runtime = Runtime(Agent(ScriptedModel(self.answer), [ticket, look], name="desk"), store=store)

    def answer(self, request: ModelRequest) -> Any:
        self.asked.append(list(request.messages))
        tasks = [
            message for message in request.messages if isinstance(message, UserMessage) and message.origin == "user"
        ]
        task = tasks[-1].text
        since = list(request.messages)[list(request.messages).index(tasks[-1]) :]
        step = sum(isinstance(message, Reply) for message in since)
        script = self.scripts.get(task, [])
        return script[step] if step < len(script) else f"{task}: done"

    async def run(self, task: str, **more: Any) -> RunResult:
        return await self.runtime.run("desk", task, identity=ANN, **more)

    async def decide(self, result: RunResult, title: str, decision: Decision | None = None) -> RunResult:
        pending = next(each for each in result.pending if each.arguments["title"] == title)
        await self.runtime.decide(pending.approval_id, decision or Decision(), by=ANN)
        return await self.runtime.wait(result.run_id)

    async def session(self) -> list[str]:
        messages = await self.store.sessions.load("s")
        assert sendable(messages) is messages or list(sendable(messages)) == messages
        return [brief(message) for message in messages]


def brief(message: Message) -> str:
    match message:
        case UserMessage():
            return f"{message.origin}: {message.text}"
        case Reply():
            return f"model: {message.text}{''.join(f' {one.name}{one.arguments}' for one in message.calls)}"
        case ToolResult():
            return f"{message.status}: {message.content.split(' appr_')[0]}"
        case _:
            return "system"


@pytest.fixture(params=["memory:", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    url = request.param if request.param == "memory:" else f"sqlite:///{tmp_path / 'runs.db'}"
    async with open_store(url) as opened:
        yield opened


async def test_the_next_turn_reads_a_held_call_as_held_and_a_later_one_what_became_of_it(store: Store) -> None:
    desk = Desk(store, complaint=[[call("look", title="x"), call("ticket", title="a")]])
    async with desk.runtime:
        held = await desk.run("complaint")
        assert held.outcome == "waiting"
        await desk.run("meanwhile")
        shown = desk.asked[-1]
        placeholder = next(m for m in shown if isinstance(m, ToolResult) and m.name == "ticket")
        assert placeholder.status == "held"
        assert held.pending[0].approval_id in placeholder.content
        done = await desk.decide(held, "a")
        assert done.outcome == "completed"
        await desk.run("later")
        assert [brief(m) for m in desk.asked[-1]] == [
            "user: complaint",
            'model:  look{"title":"x"} ticket{"title":"a"}',
            "ok: found x",
            "held: Held for approval",
            "user: meanwhile",
            "model: meanwhile: done",
            "note: [A human decided on the held call of ticket. ticket a]",
            "model: complaint: done",
            "user: later",
        ]


async def test_calls_decided_one_by_one_are_told_one_by_one(store: Store) -> None:
    desk = Desk(store, two=[[call("ticket", title="a"), call("ticket", title="b")], [call("ticket", title="c")]])
    async with desk.runtime:
        result = await desk.run("two")
        await desk.run("first")
        told = ["user: two", 'model:  ticket{"title":"a"} ticket{"title":"b"}', *["held: Held for approval"] * 2]
        assert (await desk.session())[:-2] == told
        result = await desk.decide(result, "b")
        assert result.outcome == "waiting"
        await desk.run("second")
        told += ["user: first", "model: first: done", "note: [A human decided on the held call of ticket. ticket b]"]
        assert (await desk.session())[:-2] == told
        await desk.run("third")
        told += ["user: second", "model: second: done"]
        assert (await desk.session())[:-2] == told  # nothing new to tell
        result = await desk.decide(result, "a", Decision("deny", reason="not today"))
        assert result.outcome == "waiting"
        assert (await desk.decide(result, "c")).outcome == "completed"
        session = (await desk.session())[len(told) + 2 :]
        assert "not today" in session[0]
        assert session[1:] == ['model:  ticket{"title":"c"}', "ok: ticket c", "model: two: done"]


async def test_a_held_call_that_nobody_has_read_of_stands_in_its_place_once_it_has_run(store: Store) -> None:
    desk = Desk(store, complaint=[[call("ticket", title="a")]])
    async with desk.runtime:
        held = await desk.run("complaint")
        assert await desk.session() == []
        await desk.decide(held, "a")
        assert await desk.session() == [
            "user: complaint",
            'model:  ticket{"title":"a"}',
            "ok: ticket a",
            "model: complaint: done",
        ]


async def test_cancelling_a_held_run_is_told_to_the_session(store: Store) -> None:
    desk = Desk(store, complaint=[[call("ticket", title="a")]])
    async with desk.runtime:
        held = await desk.run("complaint")
        await desk.run("meanwhile")
        await desk.runtime.cancel(held.run_id)
        assert (await desk.runtime.wait(held.run_id)).outcome == "cancelled"
        assert (await desk.session())[-1].startswith("note: [A human decided on the held call of ticket. Not finished")


async def test_a_session_that_waits_refuses_a_run_that_will_not_queue(store: Store) -> None:
    desk = Desk(store, complaint=[[call("ticket", title="a")]])
    async with desk.runtime:
        held = await desk.run("complaint")
        with pytest.raises(SessionBusy, match=held.pending[0].approval_id) as refused:
            await desk.run("meanwhile", when_busy="refuse")
        assert (refused.value.holder, refused.value.approval_id) == (held.run_id, held.pending[0].approval_id)
        agent = Agent(ScriptedModel(["x"]), name="other")
        with pytest.raises(SessionBusy, match=held.pending[0].approval_id):
            await agent.run("meanwhile", identity=ANN, store=store, when_busy="refuse")
        assert (await desk.decide(held, "a")).outcome == "completed"
        assert (await desk.run("meanwhile", when_busy="refuse")).outcome == "completed"


async def test_what_a_run_hands_over_can_be_told_again_from_its_journal(store: Store) -> None:
    desk = Desk(store, two=[[call("ticket", title="a"), call("ticket", title="b")]])
    async with desk.runtime:
        held = await desk.run("two")
        await desk.run("meanwhile")
        result = await desk.decide(held, "b")
        await desk.decide(result, "a")
        session = await store.sessions.load("s")
        events = await store.journal.read(held.run_id)
        first, second = turns_of(events, [])
        assert session[:4] == list(first.messages)
        assert session[6:] == list(second.messages)
        for turn in (first, second):
            await store.sessions.append(*turn)
        assert await store.sessions.load("s") == session


def small(talk: Conversation) -> Reaction:
    """A model with a small context, which dumps on demand."""
    last = talk.messages[-1]
    if sum(len(repr(message)) for message in talk.messages) > 12_000:
        return fail(400, "This model's maximum context length is 8192 tokens.")
    return calls("dump") if isinstance(last, UserMessage) and last.text == "dump" else say("ok")


@pytest.mark.parametrize("task", ["word " * 20_000, "dump", UserMessage((Text("word " * 20_000), Text("See above.")))])
@pytest.mark.parametrize("wire", ["openai", "anthropic"])
async def test_a_session_outlives_a_turn_that_was_too_long_for_the_model(wire: str, task: str | UserMessage) -> None:
    """gi-dellav/zerostack#132, open-software-network/os-clovy#250: "prompt is too long", in each later turn as well."""

    def dump() -> str:
        return "line " * 20_000

    async with ModelServer(small) as server:
        model: Model = OpenAIChat("m", base_url=server.url, api_key="k")
        if wire == "anthropic":
            model = Anthropic("m", base_url=server.anthropic_url, api_key="k")
        agent = Agent(model, [dump], name="desk")
        async with open_store("memory:") as store:
            with pytest.raises(ModelError) as raised:
                await agent.run(task, session="s", store=store)
            assert raised.value.kind == "context_length"
            for said in ("hi", "and now?"):
                assert (await agent.run(said, session="s", store=store)).output == "ok"
            told = [*(await store.sessions.load("s"))]
    assert [message.text for message in told if isinstance(message, UserMessage)][1:] == ["hi", "and now?"]
    assert "characters omitted" in str(told[0 if task != "dump" else 2])


async def test_nor_does_what_a_human_has_let_through_make_each_later_turn_too_long(store: Store) -> None:
    @tool(approval=True)
    def dump() -> str:
        return "line " * 20_000

    async with ModelServer(small) as server:
        agent = Agent(OpenAIChat("m", base_url=server.url, api_key="k"), [dump], name="desk")
        waiting = await agent.run("dump", session="s", store=store)
        assert (await agent.run("meanwhile", session="s", store=store)).output == "ok"
        with pytest.raises(ModelError) as raised:
            await agent.resume(waiting.run_id, store=store, decisions={waiting.pending[0].approval_id: True})
        assert raised.value.kind == "context_length"
        assert (await agent.run("hi", session="s", store=store)).output == "ok"
