"""Rounds of lives: the program is started, killed and started again until its work is done; then all is counted."""

from __future__ import annotations

import random
import shutil
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from audit import Begun, Findings, audit_end, audit_now, cut_off
from life import Life
from places import Database, Place
from plan import plan_of
from points import POINTS
from snapshot import take
from world import World

READY_S = 120.0
FINISH_S = 120.0
_PATIENCE_S = 1.5  # for a point that the program may never reach


@dataclass(frozen=True)
class End:
    """How a life is to end.

    Args:
        way: `starting` (killed before it is ready), `running` (at any time after), `point` (by its own hand), `leaving`
            (SIGTERM), `whole` (it may finish).
        seconds: when, for the first two and the fourth.
        point: where, for the third.
    """

    way: str
    seconds: float = 0.0
    point: str = ""


def choose_end(chance: random.Random, startup: float) -> End:
    """How the next life ends."""
    draw = chance.random()
    if draw < 0.04:
        return End("starting", startup * chance.uniform(0.5, 1.0))
    if draw < 0.08:
        return End("leaving", chance.uniform(0.0, 0.4))
    if draw < 0.40:
        return End("running", chance.uniform(0.0, 0.5))
    point = chance.choice([*POINTS, "statement", "statement", "statement"])
    count = chance.randint(1, POINTS[point])
    delay = chance.choice((0, 0, chance.randint(1, 3_000)))
    if point in ("leave", "commit"):
        delay = chance.randint(1, 2_000)
    return End("point", point=f"{point}:{count}:{delay}")


@dataclass
class Tally:
    """What has been done so far.

    Args:
        kills: lives ended by SIGKILL.
        rounds: rounds that are over.
        ways: how often lives ended in which way.
        found: what the audits found.
        seconds: since the start.
    """

    kills: int = 0
    rounds: int = 0
    ways: Counter[str] = field(default_factory=Counter[str])
    found: Findings = field(default_factory=Findings)
    seconds: float = 0.0


class Round:
    """One world and its lives.

    Args:
        folder: of the world.
        seed: of the plan, and of how lives end.
        runs: how many.
        most: kills after which a life may finish.
        place: of the store; a file in the folder if not given.
        may_kill: asked before each kill; False lets the round finish.
        killed: told of each kill.
    """

    def __init__(
        self,
        folder: Path,
        *,
        seed: int,
        runs: int,
        most: int,
        place: Place | None = None,
        may_kill: Callable[[], bool] = lambda: True,
        killed: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.world = World.create(folder, place)
        self.seed, self.runs, self.most = seed, runs, most
        self.kills = 0
        self.cut: set[Begun] = set()
        self.faults: list[str] = []
        self.ways: Counter[str] = Counter()
        self._chance = random.Random(f"round {seed}")
        self._startup = 0.8
        self._late = False
        self._may_kill, self._killed = may_kill, killed

    def play(self) -> Findings:
        """Live, die and live again until all is done; then count."""
        number, finished = 0, False
        while not finished and not self.faults:
            number += 1
            whole = self.kills >= self.most or not self._may_kill()
            end = End("whole") if whole else choose_end(self._chance, self._startup)
            finished = self._live(number, end)
            snapshot = take(self.world)
            self.faults += audit_now(snapshot, self.world)
            self.cut |= cut_off(snapshot, self.world)
        if self.faults:
            return Findings(faults=[f"{self._name(number)}: {fault}" for fault in self.faults])
        found = audit_end(take(self.world), self.world, plan_of(self.seed, self.runs), self.cut)
        found.faults = [f"{self._name(number)}: {fault}" for fault in found.faults]
        return found

    def _name(self, number: int) -> str:
        return f"seed {self.seed}, life {number} ({self.world.folder})"

    def _live(self, number: int, end: End) -> bool:
        """One life; whether all work is done after it."""
        begun = time.monotonic()
        life = Life(self.world, number, seed=self.seed, runs=self.runs, kill_at=end.point)
        try:
            if end.way == "starting":
                time.sleep(end.seconds)
            elif self._is_ready(life):
                self._startup = time.monotonic() - begun
                self._let_live(life, end)
        finally:
            life.kill()
        return self._judge(life, end)

    def _is_ready(self, life: Life) -> bool:
        if life.hear("ready", READY_S):
            return True
        life.wait(5)
        if not life.killed:
            self.faults.append(f"the program did not start:\n{life.complaints()}")
        return False

    def _let_live(self, life: Life, end: End) -> None:
        match end.way:
            case "running":
                life.wait(end.seconds)
            case "leaving":
                time.sleep(end.seconds)
                life.send(signal.SIGTERM)
                if not life.wait(READY_S):
                    self.faults.append("SIGTERM did not end the program")
            case "point":
                self._late = not life.wait(_PATIENCE_S)
            case _:
                if not life.wait(FINISH_S):
                    self.faults.append(f"the runs did not finish within {FINISH_S:g} s:\n{life.complaints()}")

    def _judge(self, life: Life, end: End) -> bool:
        code = life.process.returncode
        if life.killed:
            self.kills += 1
            way = end.point.split(":")[0] if end.way == "point" and not self._late else end.way
            way = "running" if way == "point" else way
            self.ways[way] += 1
            self._killed(way)
            return False
        ended = "finished" in life.words or "left" in life.words
        if code != 0 and not (ended and code == -signal.SIGTERM):  # which came when it was ending by itself
            self.faults.append(f"the program ended with exit code {code}:\n{life.complaints()}")
        self.ways["left" if "left" in life.words else "finished"] += 1
        return "finished" in life.words


class Campaign:
    """Many rounds, several at a time.

    Args:
        folder: for the worlds; those without faults are deleted.
        seed: of everything.
        kills: how many are wanted.
        seconds: when to stop killing; None never.
        runs: in each round.
        lanes: rounds at a time.
        most: kills of a round.
        server: URL of a PostgreSQL server on which each round gets a database; None for a file each.
        tell: told how things stand, now and then.
    """

    def __init__(
        self,
        folder: Path,
        *,
        seed: int,
        kills: int,
        seconds: float | None = None,
        runs: int = 12,
        lanes: int = 2,
        most: int = 40,
        server: str | None = None,
        tell: Callable[[Tally], None] = lambda _: None,
    ) -> None:
        self.folder, self.seed, self.kills, self.seconds = folder, seed, kills, seconds
        self.runs, self.lanes, self.most, self._server = runs, lanes, most, server
        self.tally = Tally()
        self._tell = tell
        self._lock = threading.Lock()
        self._begun = time.monotonic()
        self._next = 0

    def play(self) -> Tally:
        """Play rounds until enough processes have been killed, or something is wrong."""
        with ThreadPoolExecutor(self.lanes) as pool:
            for lane in [pool.submit(self._lane) for _ in range(self.lanes)]:
                lane.result()
        self.tally.seconds = time.monotonic() - self._begun
        return self.tally

    def _lane(self) -> None:
        while self._goes_on():
            with self._lock:
                number, self._next = self._next, self._next + 1
            folder = self.folder / f"round-{number}"
            seed = self.seed * 100_000 + number
            round_ = Round(
                folder,
                seed=seed,
                runs=self.runs,
                most=self.most,
                place=self._place(seed),
                may_kill=self._goes_on,
                killed=self._killed,
            )
            found = round_.play()
            if not found.faults:
                round_.world.place.drop()
                shutil.rmtree(folder)
            with self._lock:
                self.tally.rounds += 1
                self.tally.found.add(found)
                self.tally.ways += round_.ways
            self._report()

    def _place(self, seed: int) -> Place | None:
        return Database.beside(self._server, f"glassloop_kill_{seed}") if self._server else None

    def _goes_on(self) -> bool:
        late = self.seconds is not None and time.monotonic() - self._begun > self.seconds
        return self.tally.kills < self.kills and not late and not self.tally.found.faults

    def _killed(self, way: str) -> None:
        with self._lock:
            self.tally.kills += 1
        self._report()

    def _report(self) -> None:
        self.tally.seconds = time.monotonic() - self._begun
        self._tell(self.tally)
