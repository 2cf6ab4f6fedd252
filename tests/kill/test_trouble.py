"""Trouble that is not a crash: a file that is locked, a disk that is full, a clock that goes backwards."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest
from audit import Begun, audit_end, audit_now, cut_off
from life import Life, until
from plan import plan_of
from snapshot import Snapshot, take
from world import World

LOCK_SECONDS = float(os.environ.get("LOCK_SECONDS", "10"))
SEED, RUNS = 11, 8

Begin = Callable[..., Life]


@pytest.fixture
def begin(world: World, lives: list[Life]) -> Begin:
    """A function that starts a life of the program in `world`."""

    def begin(number: int = 1, **wishes: object) -> Life:
        lives.append(Life(world, number, **{"seed": SEED, "runs": RUNS, **wishes}))
        assert lives[-1].hear("ready", 30), lives[-1].complaints()
        return lives[-1]

    return begin


def happened(world: World, what: str) -> int:
    return sum(entry.what == what for entry in world.entries())


def finish(life: Life, seconds: float = 60.0) -> None:
    assert life.wait(seconds), "the runs did not finish"
    assert "finished" in life.words, life.complaints()


def assert_all_done(world: World, cut: Iterable[Begun] | None = ()) -> Snapshot:
    snapshot = take(world)
    assert audit_end(snapshot, world, plan_of(SEED, RUNS), cut).faults == []
    return snapshot


@pytest.mark.timeout(180)
def test_a_held_lock_delays_runs_and_fails_none(world: World, begin: Begin) -> None:
    life = begin()
    until(lambda: happened(world, "effect") >= 3, 20, "effects")
    with closing(sqlite3.connect(world.database, isolation_level=None, timeout=20)) as other:
        other.execute("BEGIN EXCLUSIVE")
        began = time.monotonic()
        assert not life.wait(LOCK_SECONDS)
        assert time.monotonic() - began >= LOCK_SECONDS
        other.execute("COMMIT")
    finish(life)
    assert happened(world, "store_error") == 0
    assert_all_done(world)


# A full disk


@pytest.mark.timeout(180)
@pytest.mark.parametrize("room", [4, 12])
def test_a_full_file_stops_runs_and_loses_nothing(room: int, world: World, begin: Begin) -> None:
    finish(begin(1, starts=0))  # the tables are made
    with closing(sqlite3.connect(world.database)) as store:
        pages = store.execute("PRAGMA page_count").fetchone()[0]
    full = begin(2, max_pages=pages + room, lasts=3)
    assert full.wait(30)
    assert full.process.returncode == 0, full.complaints()
    assert "left" in full.words
    assert "The disk is full" in full.complaints()
    assert "Traceback" not in full.complaints()
    snapshot = take(world)
    assert audit_now(snapshot, world) == []
    ended = [row for row in snapshot.rows.values() if row.status in ("failed", "limited", "cancelled")]
    assert {row.input for row in ended} <= {run.name for run in plan_of(SEED, RUNS).values() if run.collapses}
    finish(begin(3))
    assert_all_done(world, cut=None)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of sixteen megabytes at the place of the store."""
    disk = tmp_path / "world" / "disk"
    disk.mkdir(parents=True)
    command = ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(disk)]
    if sys.platform != "linux" or subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip("mounting a small disk needs Linux and root")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


@pytest.mark.timeout(180)
def test_runs_go_on_when_a_full_disk_has_room_again(small_disk: Path, world: World, begin: Begin) -> None:
    life = begin()
    until(lambda: happened(world, "effect") >= 3, 20, "effects")
    filler = small_disk / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(65536))
        except OSError:
            pass
    until(lambda: "The disk is full" in life.complaints(), 30, "the disk is full")
    assert not life.wait(3)
    filler.unlink()
    finish(life)
    assert_all_done(world, cut=None)


# A wrong clock


@pytest.mark.timeout(180)
def test_a_clock_that_goes_backwards_changes_nothing(world: World, begin: Begin) -> None:
    first = begin(1, clock="3600", kill_at="effect:6:0")
    first.wait(20)
    assert first.killed
    cut = cut_off(take(world), world)
    second = begin(2, clock="0", kill_at="effect:4:0")  # an hour earlier
    second.wait(20)
    assert second.killed
    cut |= cut_off(take(world), world)
    began = time.monotonic()
    finish(begin(3, clock="-600,-900,-1200,-300"))  # and back and forth
    assert time.monotonic() - began < 30  # no lease of the dead is waited for
    snapshot = assert_all_done(world, cut)
    jumps = [b.at - a.at for events in snapshot.events.values() for a, b in pairwise(events)]
    assert min(jumps) < -60_000, "the clock did not go backwards within a run"


# Leaving


@pytest.mark.timeout(180)
def test_leaving_interrupts_no_write_and_loses_nothing(world: World, begin: Begin) -> None:
    life = begin(1, slow=0.5)
    until(lambda: happened(world, "effect") >= 3, 20, "effects")
    life.send(signal.SIGTERM)
    assert life.wait(20)
    assert life.words[:2] == ["ready", "left"], life.complaints()
    began = {(e.key, e.tool) for e in world.entries() if e.what == "enter"}
    done = {(e.key, e.tool) for e in world.entries() if e.what == "effect" or e.tool == "book"}
    assert began == done
    finish(begin(2))
    assert_all_done(world)
