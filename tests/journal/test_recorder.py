"""The one writer of a run: its time, whatever becomes of the wall clock, and commits that seemed to fail."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from glassloop import Agent, Limits
from glassloop.core.context import Identity
from glassloop.core.errors import Fenced
from glassloop.core.events import (
    ApprovalDecided,
    CancelRequested,
    DriverClaimed,
    DriverRested,
    Event,
    ModelReplied,
    Nudged,
    RunContinued,
    RunFinished,
    RunStarted,
    ToolFinished,
)
from glassloop.core.messages import Reply, ToolCall, ToolResult, UserMessage
from glassloop.journal.journal import MemoryJournal
from glassloop.journal.recorder import Recorder
from glassloop.journal.state import State, fold
from glassloop.models.scripted import ScriptedModel, call
from glassloop.stores import Store, open_store

HOUR = 3_600_000


@pytest.fixture
def store() -> Store:
    return open_store("memory:")


@pytest.fixture
def set_clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Sets the wall clock forward by so many milliseconds, or back."""
    true = time.time_ns

    def set_forward(by: int) -> None:
        monkeypatch.setattr(time, "time_ns", lambda: true() + by * 1_000_000)
        monkeypatch.setattr(time, "time", lambda: true() / 1e9 + by / 1e3)

    return set_forward


@pytest.mark.parametrize("jump", [HOUR, -HOUR])
async def test_a_wall_clock_that_is_set_meanwhile_is_no_time_of_the_run(
    store: Store, set_clock: Callable[[int], None], jump: int
) -> None:
    def work() -> str:
        """Work."""
        set_clock(jump)
        return "worked"

    agent = Agent(ScriptedModel([call("work"), "done"]), [work], limits=Limits(seconds=30))
    began = time.time_ns() // 1_000_000
    result = await agent.run("go", store=store)
    assert (result.outcome, result.output) == ("completed", "done")
    assert 0 <= result.seconds < 30
    stamps = [event.at for event in await store.journal.read(result.run_id)]
    assert stamps == sorted(stamps)
    assert began - 1 <= stamps[0] <= stamps[-1] < began + 30_000


async def test_a_run_goes_on_with_the_time_that_it_has_left_after_the_clock_was_set(
    store: Store, set_clock: Callable[[int], None]
) -> None:
    async def work() -> str:
        """Work."""
        await asyncio.sleep(0.03)
        return "worked"

    model = ScriptedModel([call("work"), call("work"), "done"])
    agent = Agent(model, [work], limits=Limits(steps=1, seconds=30, on_limit="return"))
    first = await agent.run("go", store=store)
    assert first.outcome == "limited"
    set_clock(-HOUR)
    second = await agent.resume(first.run_id, store=store, limits=Limits(seconds=30))
    assert second.outcome == "completed"
    assert first.seconds + 0.02 <= second.seconds < 30


def active(*events: tuple[int, Any]) -> int:
    """The time that these events make."""
    started = RunStarted("desk", "f", Identity(), UserMessage("go"), Limits())
    told = [(1_000, started), (1_000, DriverClaimed(1, "one")), *events]
    return fold(Event("run_1", seq, at, 0, data) for seq, (at, data) in enumerate(told, 1)).active_ms


SAID = Nudged(UserMessage("go on"), "promised")


def test_time_is_counted_between_the_events_of_one_driver() -> None:
    assert active((1_500, SAID), (1_700, SAID)) == 700
    assert active((1_500, SAID), (1_400, SAID), (1_600, SAID)) == 600
    assert active((1_500, DriverRested()), (HOUR, DriverClaimed(2, "two")), (HOUR + 300, SAID)) == 800
    assert active((HOUR, DriverRested()), (2_000, DriverClaimed(2, "two")), (2_300, SAID)) == HOUR - 1_000 + 300
    assert active((1_500, SAID), (2_000, RunContinued()), (2_100, SAID)) == 600


def test_the_time_of_a_human_and_anothers_clock_are_not_counted() -> None:
    assert active((1_500, SAID), (9_000, ApprovalDecided("appr_1", "approve")), (9_100, SAID)) == 600
    assert active((1_500, SAID), (HOUR, CancelRequested("ann")), (1_600, SAID)) == 600


class Interrupted(MemoryJournal):
    """A journal whose first append is written, and cancelled before it says so."""

    async def append(self, run_id: str, events: Sequence[Event], **options: Any) -> int:
        """See `Journal.append`."""
        last = await super().append(run_id, events, **options)
        if last == len(events):
            raise asyncio.CancelledError
        return last


async def test_a_claim_that_was_written_when_its_commit_was_cancelled_fences_nobody_out() -> None:
    journal = Interrupted()
    recorder = Recorder(journal, State(run_id="run_1"), epoch=1)
    recorder.record(RunStarted("agent", "f", Identity(), UserMessage("go"), Limits()))
    recorder.record(DriverClaimed(1, "me"))
    with pytest.raises(asyncio.CancelledError):
        await recorder.commit()
    recorder.record(RunFinished("cancelled"))
    await recorder.commit()
    types = [event.type for event in await journal.read("run_1")]
    assert types == ["run_started", "driver_claimed", "run_finished"]
    assert recorder.clean

    other = Recorder(journal, State(run_id="run_1", seq=3), epoch=1)
    other.record(DriverClaimed(1, "another"))
    for _ in range(2):
        with pytest.raises(Fenced):
            await other.commit()
    assert not other.clean


class CutOff(MemoryJournal):
    """A journal whose next reader is cancelled."""

    cuts = False

    async def read(self, run_id: str, after: int = 0) -> list[Event]:
        if self.cuts:
            self.cuts = False
            raise asyncio.CancelledError
        return await super().read(run_id, after)


async def test_what_was_cut_off_while_it_made_way_for_another_is_still_to_be_written() -> None:
    journal = CutOff()
    recorder = Recorder(journal, State(run_id="run_1"), epoch=1)
    recorder.record(RunStarted("agent", "f", Identity(), UserMessage("go"), Limits()))
    await recorder.commit()
    await journal.append("run_1", [Event("run_1", 0, 0, 0, CancelRequested())], after=None, epoch=None)
    recorder.record(RunFinished("cancelled"))
    journal.cuts = True
    with pytest.raises(asyncio.CancelledError):
        await recorder.commit()
    await recorder.commit()
    types = [event.type for event in await journal.read("run_1")]
    assert types == ["run_started", "cancel_requested", "run_finished"]
    assert recorder.clean


async def test_what_happens_during_a_transaction_stands_behind_it(tmp_path: Path) -> None:
    began, goes_on = threading.Event(), threading.Event()

    def work(_: Any) -> tuple[None, Nudged]:
        began.set()
        assert goes_on.wait(30)
        return None, Nudged(UserMessage("in it"), "promised")

    async with open_store(f"sqlite:///{tmp_path}/a.db") as store:
        recorder = Recorder(store.journal, State(run_id="run_1"), epoch=1)
        recorder.record(RunStarted("agent", "f", Identity(), UserMessage("go"), Limits()))
        transacting = asyncio.create_task(recorder.transact(work))
        assert await asyncio.to_thread(began.wait, 30)
        recorder.record(Nudged(UserMessage("meanwhile"), "empty_reply"))
        goes_on.set()
        await transacting
        await recorder.commit()
        assert recorder.state == fold(await store.journal.read("run_1"))


@pytest.mark.parametrize("cancelled", [False, True])
async def test_a_transaction_that_was_cancelled_too_late_has_its_one_result(tmp_path: Path, cancelled: bool) -> None:
    began, goes_on = threading.Event(), threading.Event()
    done = ToolFinished("call_1", ToolResult("call_1", "pay", "paid"), 0.0)

    def work(_: Any) -> tuple[None, ToolFinished]:
        began.set()
        assert goes_on.wait(30)
        return None, done

    async with open_store(f"sqlite:///{tmp_path}/a.db") as store:
        recorder = Recorder(store.journal, State(run_id="run_1"), epoch=1)
        recorder.record(RunStarted("agent", "f", Identity(), UserMessage("go"), Limits()))
        recorder.record(ModelReplied(Reply((ToolCall("call_1", "pay"),)), 0.0))
        transacting = asyncio.create_task(recorder.transact(work))
        assert await asyncio.to_thread(began.wait, 30)
        if cancelled:
            transacting.cancel()
        goes_on.set()
        await asyncio.wait([transacting])
        if cancelled:
            recorder.record(ToolFinished("call_1", ToolResult("call_1", "pay", "Not finished.", "cancelled"), 0.0))
        await recorder.commit()
        events = await store.journal.read("run_1")
        assert [event.data for event in events if isinstance(event.data, ToolFinished)] == [done]
        assert recorder.state == fold(events)
