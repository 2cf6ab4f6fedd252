"""Watching a run: nothing is lost or comes too early, and nobody who left is remembered."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from glassloop import Agent, Identity, tool
from glassloop.core.errors import StoreError
from glassloop.core.events import DriverClaimed, Event, RunFinished, RunStarted, TextDelta, Unknown
from glassloop.core.limits import Limits
from glassloop.core.messages import Reply, Text, UserMessage
from glassloop.core.result import Decision
from glassloop.models.model import ModelPart, ModelRequest, ReplyPart, TextPart
from glassloop.models.scripted import ScriptedModel, call
from glassloop.runtime import Runtime
from glassloop.runtime import runtime as module
from glassloop.stores import Store, open_store
from glassloop.teams import Flow, agent_tool, sequence


class Speaker:
    """A model that says one word as soon as it is let, and the next ones at once."""

    name = "test:speaker"

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.go = asyncio.Event()
        self.said = asyncio.Event()
        self.end = asyncio.Event()

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelPart]:
        self.asked.set()
        await self.go.wait()
        for word in ("one ", "two"):
            yield TextPart(word)
        self.said.set()
        await self.end.wait()
        yield ReplyPart(Reply((Text("one two"),)))


@pytest.fixture(params=["memory:", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    url = f"sqlite:///{tmp_path / 'runs.db'}" if request.param == "sqlite" else request.param
    async with open_store(url) as opened:
        yield opened


async def test_what_is_streamed_between_the_call_and_the_first_look_is_kept_in_its_place(store: Store) -> None:
    model = Speaker()
    async with Runtime(Agent(model, name="desk"), store=store) as runtime:
        run_id = await runtime.start("desk", "go")
        await model.asked.wait()
        watching = runtime.watch(run_id)
        model.go.set()
        await model.said.wait()
        model.end.set()
        seen = [event async for event in watching]
    types = [event.type for event in seen]
    assert [event.data.text for event in seen if isinstance(event.data, TextDelta)] == ["one ", "two"]
    assert types.index("model_requested") < types.index("text_delta") < types.index("model_replied")
    assert [event.seq for event in seen if event.seq] == list(range(1, len(types) - 1))


async def test_a_watcher_that_never_looks_is_forgotten(store: Store) -> None:
    model = Speaker()
    async with Runtime(Agent(model, name="desk"), store=store) as runtime:
        runtime.leave_seconds = 0.0
        run_id = await runtime.start("desk", "go", attached=True)
        watching = runtime.watch(run_id)
        await model.asked.wait()
        await asyncio.sleep(0.05)
        [row] = await runtime.runs()
        assert row.status == "running"  # somebody watches
        del watching
        gc.collect()
        followed = [event async for event in store.journal.follow(run_id)]
    assert isinstance(followed[-1].data, RunFinished)
    assert followed[-1].data.outcome == "cancelled"  # nobody does any more


def held_below() -> Flow:
    """A flow of one agent, whose one call a human decides on."""

    @tool(effect="write", risk="high")
    def ticket(title: str) -> str:
        """Open a ticket."""
        return title

    return sequence(Agent(ScriptedModel([call("ticket", title="x"), "done"]), [ticket], name="clerk"), name="desk")


async def test_a_tree_is_watched_whole_over_a_decision_below(store: Store) -> None:
    async with Runtime(held_below(), store=store) as runtime:
        run_id = await runtime.start("desk", "go", identity=Identity("ann"))
        first = [event async for event in runtime.watch(run_id, whole=True)]
        assert first[-1].type == "driver_rested"
        assert [event.type for event in first if event.run_id != run_id and event.seq][:2] == [
            "run_started",
            "driver_claimed",
        ]
        watching = runtime.watch(run_id, max(event.seq for event in first if event.run_id == run_id), whole=True)
        [row] = await runtime.approvals()
        await runtime.decide(row.approval_id, Decision(), by=Identity("ann"))
        await runtime.wait(run_id)  # what happens before anybody looks is kept
        rest = [event async for event in watching]
        below = [event.type for event in rest if event.run_id == row.run_id and event.type != "tool_started"]
        assert below[:2] == ["approval_decided", "driver_claimed"]
        assert "tool_finished" in below
        assert (rest[-1].run_id, rest[-1].type) == (run_id, "run_finished")
        results = await runtime.tree(run_id)
        assert [(each.agent, [done.tool for done in each.tool_executions]) for each in results] == [
            ("desk", []),
            ("clerk", ["ticket"]),
        ]


async def test_what_the_root_streams_keeps_its_place_beside_runs_below(store: Store) -> None:
    def look(number: int) -> int:
        """Look."""
        return number

    looks = [call("look", number=number) for number in range(8)]
    below = agent_tool(Agent(ScriptedModel([*looks, "found"]), [look], name="clerk"))
    root = Agent(ScriptedModel([call("clerk", task="look"), "one two"]), [below], name="desk")
    async with Runtime(root, store=store) as runtime:
        run_id = await runtime.start("desk", "go")
        seen = [event async for event in runtime.watch(run_id, whole=True)]
    assert max(event.seq for event in seen if event.run_id != run_id) > 20
    types = [event.type for event in seen if event.run_id == run_id]
    assert types[-4:] == ["text_delta", "text_delta", "model_replied", "run_finished"]
    assert [kind for kind in types if kind in ("model_requested", "text_delta")][-3:] == [
        "model_requested",
        "text_delta",
        "text_delta",
    ]


async def test_a_run_that_waits_below_is_followed_once_a_human_has_decided_there(store: Store) -> None:
    async with Runtime(held_below(), store=store) as runtime:
        result = await runtime.run("desk", "go", identity=Identity("ann"))
        before = len(await store.journal.read(result.run_id))
    deaf = Runtime(Agent(Speaker(), name="other"), store=store)  # drives no run of this flow
    async with deaf as runtime:
        [row] = await runtime.approvals()
        assert [event async for event in runtime.watch(result.run_id, before)] == []
        await runtime.decide(row.approval_id, Decision(), by=Identity("ann"))
        watching = asyncio.ensure_future(anext(runtime.watch(result.run_id, before)))
        async with Runtime(held_below(), store=store):
            assert (await watching).type == "driver_claimed"


async def test_a_run_that_cannot_be_gone_on_with_is_warned_of_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store("memory:")
    looks = asyncio.Semaphore(0)
    read = store.journal.read

    async def counted(run_id: str, after: int = 0) -> list[Event]:
        looks.release()
        if run_id == "run_damaged":
            raise StoreError("Event 1 of run run_damaged is damaged and cannot be read.")
        return await read(run_id, after)

    monkeypatch.setattr(module, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(store.journal, "read", counted)
    data: list[Any] = [
        RunStarted("desk", "f", Identity("ann"), UserMessage("go"), Limits()),
        DriverClaimed(1, "boot/1/999999/1", 0),
        Unknown("model_replied", {"of": "tomorrow"}),
    ]
    for run_id in ("run_newer", "run_damaged"):
        events = [Event(run_id, 0, 1_000, 0, item) for item in data]
        await store.journal.append(run_id, events, after=0, epoch=1)
    with caplog.at_level(logging.DEBUG, "glassloop.runtime"):
        async with Runtime(Agent(Speaker(), name="desk"), store=store):
            for _ in range(15):  # one or two reads to find out, of each run, several times over
                await looks.acquire()
    warned = sorted(record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING)
    assert len(warned) == 2
    assert "is damaged" in warned[0]
    assert "A newer Glassloop wrote to run run_newer" in warned[1]
