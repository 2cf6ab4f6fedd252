"""A run whose driving is cancelled at an awkward instant: it ends, or any driver can go on with it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from glassloop import Agent
from glassloop.core.context import Identity
from glassloop.core.events import DriverClaimed, Event, JournalData, RunFinished
from glassloop.journal.journal import MemoryJournal, Turn
from glassloop.models.model import ModelRequest
from glassloop.models.scripted import ScriptedModel
from glassloop.runtime import Runtime
from glassloop.stores import Store, open_store

SECONDS = 30.0


class SlowJournal(MemoryJournal):
    """A journal that stands still for ever, once, at the first append of an event of a kind."""

    def __init__(self, at: type[JournalData], *, written: bool) -> None:
        super().__init__()
        self.at, self.written = at, written
        self.reached = asyncio.Event()

    async def append(
        self,
        run_id: str,
        events: Sequence[Event],
        *,
        after: int | None,
        epoch: int | None,
        blobs: Mapping[str, bytes] | None = None,
        turn: Turn | None = None,
    ) -> int:
        stops = not self.reached.is_set() and any(isinstance(event.data, self.at) for event in events)
        if stops and not self.written:
            self.reached.set()
            await asyncio.Event().wait()
        last = await super().append(run_id, events, after=after, epoch=epoch, blobs=blobs, turn=turn)
        if stops:
            self.reached.set()
            await asyncio.Event().wait()
        return last


def on(journal: MemoryJournal) -> Store:
    return replace(open_store("memory:"), journal=journal)


async def test_a_runtime_that_stops_while_it_ends_a_run_leaves_that_to_the_next() -> None:
    journal = SlowJournal(DriverClaimed, written=True)
    agent = Agent(ScriptedModel(["done"]))
    async with asyncio.timeout(SECONDS):
        async with Runtime(agent, store=on(journal)) as first:
            first.stop_seconds = 0
            run_id = await first.start("agent", "go", identity=Identity(session="s"))
            await first.cancel(run_id)
            await journal.reached.wait()
        async with Runtime(agent, store=first.store) as second:
            result = await second.wait(run_id)
    assert result.outcome == "cancelled"


async def test_a_run_that_is_cancelled_twice_has_ended() -> None:
    journal, asked = SlowJournal(RunFinished, written=False), asyncio.Event()

    async def brain(request: ModelRequest) -> Any:
        asked.set()
        await asyncio.Event().wait()

    running = asyncio.create_task(Agent(ScriptedModel(brain)).run("go", store=on(journal)))
    async with asyncio.timeout(SECONDS):
        for reached in (asked, journal.reached):
            await reached.wait()
            running.cancel()
        with pytest.raises(asyncio.CancelledError) as cancelled:
            await running
    run: Any = cancelled.value
    assert run.result.outcome == "cancelled"
    assert isinstance((await journal.read(run.result.run_id))[-1].data, RunFinished)


async def test_a_run_that_is_cancelled_while_its_instructions_are_made_is_cancelled() -> None:
    asked = asyncio.Event()

    async def instructions(context: Any) -> str:
        asked.set()
        await asyncio.Event().wait()
        return ""

    store = open_store("memory:")
    running = asyncio.create_task(Agent(ScriptedModel([]), instructions=instructions).run("go", store=store))
    async with asyncio.timeout(SECONDS):
        await asked.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError) as cancelled:
            await running
    run: Any = cancelled.value
    assert run.result.outcome == "cancelled"
    assert [row.status for row in await store.journal.runs()] == ["cancelled"]
