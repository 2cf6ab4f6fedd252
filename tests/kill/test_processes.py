"""Two processes on one store: each run has one driver, and what it does happens once."""

from __future__ import annotations

import itertools
import signal
import time
from collections import Counter
from collections.abc import Callable

import pytest
from audit import audit_end, cut_off
from life import Life, until
from plan import plan_of
from snapshot import Snapshot, take
from world import World

from glassloop.core.events import DriverClaimed, DriverRested, RunFinished

SEED, RUNS = 5, 12

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


@pytest.mark.timeout(180)
def test_a_process_leaves_the_runs_of_a_living_one_alone(world: World, begin: Begin) -> None:
    first = begin(slow=0.6)
    until(lambda: len(world.entries()) > 10, 30, "runs")
    second = begin(starts=0, decides=0)
    finish(first, second)
    snapshot = take(world)
    assert audit_end(snapshot, world, plan_of(SEED, RUNS), ()).faults == []
    parked = {e.data.type for events in snapshot.events.values() for e in events if isinstance(e.data, DriverRested)}
    assert parked, "no run was parked"
    for run_id, events in snapshot.events.items():
        driving = Counter[str]()
        for event in events:
            match event.data:
                case DriverClaimed(owner=owner):
                    assert not driving, f"{run_id} was taken from {driving} by {owner}"
                    driving[owner] += 1
                case DriverRested():
                    driving.clear()
                case _:
                    pass


@pytest.mark.timeout(240)
def test_a_stopped_process_is_waited_for_or_fenced_and_never_acts_twice(world: World, begin: Begin) -> None:
    """A process on the same host that is stopped past its lease and continued."""
    first = begin(slow=0.6)
    until(lambda: sum(entry.what == "effect" for entry in world.entries()) > 5, 30, "effects")
    first.send(signal.SIGSTOP)
    second = begin(starts=0)
    time.sleep(25)
    first.send(signal.SIGCONT)
    finish(first, second)
    assert audit_end(take(world), world, plan_of(SEED, RUNS), ()).faults == []
