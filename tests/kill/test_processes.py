"""Two processes on one store: each run has one driver, and what it does happens once."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
from collections.abc import Callable

import pytest
from audit import audit_end, cut_off
from life import Life, until
from plan import plan_of
from snapshot import Snapshot, take
from world import World

from glassloop import Agent
from glassloop.core.errors import Fenced
from glassloop.core.events import DriverClaimed, DriverRested, RunFinished
from glassloop.journal.projection import RunFilter
from glassloop.stores import open_store
from glassloop.testing import ScriptedModel

SEED, RUNS = 5, 12
STOP_SECONDS = float(os.environ.get("STOP_SECONDS", "5"))

Begin = Callable[..., Life]


@pytest.fixture
def begin(world: World, lives: list[Life]) -> Begin:
    """A function that starts a life of the program in `world`, without waiting for it."""
    numbers = itertools.count(1)

    def begin(**wishes: object) -> Life:
        lives.append(Life(world, next(numbers), **{"seed": SEED, "runs": RUNS, **wishes}))
        return lives[-1]

    return begin


def finish(*lives: Life, seconds: float = 30.0) -> None:
    for life in lives:
        assert life.wait(seconds), f"the runs did not finish: {life.complaints()}"
        assert "finished" in life.words, life.complaints()


def drivers(snapshot: Snapshot) -> dict[str, list[str]]:
    """Who has driven each run, in order."""
    claims = {
        run_id: [event.data.owner for event in events if isinstance(event.data, DriverClaimed)]
        for run_id, events in snapshot.events.items()
    }
    return {run_id: owners for run_id, owners in claims.items() if owners}


@pytest.mark.timeout(180)
@pytest.mark.parametrize("point", ["effect:5:0", "enter:4:0", "commit:30:300"])
def test_two_processes_take_over_the_runs_of_a_dead_one(point: str, world: World, begin: Begin) -> None:
    """F12: a run crashed after a call was recorded as started, and two recovery processes start at once."""
    first = begin(kill_at=point)
    assert first.wait(30)
    assert first.killed, first.complaints()
    before = take(world)
    cut = cut_off(before, world)
    left = {run_id for run_id, events in before.events.items() if not isinstance(events[-1].data, RunFinished)}
    assert left
    both = [begin(starts=number) for number in (1, 0)]
    finish(*both)
    snapshot = take(world)
    assert audit_end(snapshot, world, plan_of(SEED, RUNS), cut).faults == []
    assert {run_id for run_id, owners in drivers(snapshot).items() if len(owners) > 1} >= left & drivers(before).keys()


def assert_nothing_was_taken(snapshot: Snapshot) -> None:
    """No run was claimed while another process was driving it."""
    for run_id, events in snapshot.events.items():
        driver = ""
        for event in events:
            match event.data:
                case DriverClaimed(owner=owner):
                    assert driver in ("", owner), f"{run_id} was taken from {driver} by {owner}"
                    driver = owner
                case DriverRested():
                    driver = ""
                case _:
                    pass


@pytest.mark.timeout(180)
@pytest.mark.parametrize("clocks", [("0", "0"), ("3600", "-3600"), ("-3600", "3600")])
def test_a_process_leaves_the_runs_of_a_living_one_alone(clocks: tuple[str, str], world: World, begin: Begin) -> None:
    """Whatever their clocks say: two processes of a machine, or a clock that was set between their starts."""
    first = begin(slow=0.6, clock=clocks[0])
    until(lambda: len(world.entries()) > 10, 30, "runs")
    second = begin(starts=0, decides=0, clock=clocks[1])
    finish(first, second)
    snapshot = take(world)
    assert audit_end(snapshot, world, plan_of(SEED, RUNS), ()).faults == []
    assert_nothing_was_taken(snapshot)


@pytest.mark.timeout(240)
def test_the_runs_of_a_stopped_process_wait_for_it(world: World, begin: Begin) -> None:
    """A process that is stopped and continued later has never ceased to be: on one host this can be seen.

    So nobody takes its runs over, however long it stands still; what it was in the middle of goes on when it does. Only
    its end would leave calls in doubt.
    """
    first = begin(slow=0.6)
    until(lambda: sum(entry.what == "effect" for entry in world.entries()) > 5, 30, "effects")
    first.send(signal.SIGSTOP)
    second = begin(starts=0, decides=0)
    assert second.hear("ready", 30), second.complaints()
    assert not second.wait(STOP_SECONDS)
    driven = asyncio.run(resume_all(world))
    first.send(signal.SIGCONT)
    finish(first, second)
    snapshot = take(world)
    assert driven
    assert audit_end(snapshot, world, plan_of(SEED, RUNS), ()).faults == []
    assert_nothing_was_taken(snapshot)
    assert [e for events in snapshot.events.values() for e in events if getattr(e.data, "kind", "") == "doubt"] == []


async def resume_all(world: World) -> int:
    """Try to go on with every run that a process is driving; how many there were."""
    async with open_store(world.url) as store:
        rows = await store.journal.runs(RunFilter(finished=False, roots=True, limit=100))
        driven = [row for row in rows if row.owner]
        for row in driven:
            with pytest.raises(Fenced, match="taken"):
                await Agent(ScriptedModel([]), name=row.agent).resume(row.id, store=store)
    return len(driven)
