"""Many runs over HTTP at once: how long each takes, and whether one is lost."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from served import Served, serving

from glassloop.core.events import RunFinished
from glassloop.journal.projection import RunFilter
from glassloop.stores import open_store

QUESTION = "Where is order A-1024?"
ANSWER = "Wuhan"


@dataclass
class Tally:
    """What came of a load.

    Args:
        runs: how many were asked for.
        seconds: from the first request to the last end.
        took: seconds of each run that was followed to its end, from its request on.
        faults: everything that went wrong.
    """

    runs: int
    seconds: float = 0.0
    took: list[float] = field(default_factory=list[float])
    faults: list[str] = field(default_factory=list[str])

    def percentile(self, share: float) -> float:
        """The time that this share of the runs took at most, in seconds."""
        ordered = sorted(self.took)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")


async def all_at_once(folder: Path, runs: int) -> Tally:
    """Start `runs` runs at once, each in a session of its own, follow all to their ends, and audit the file."""
    tally, file = Tally(runs), folder / "load.db"
    async with serving("orders", file, most=runs + 1) as server:
        assert await server.rested(await server.start(QUESTION)) == "completed"  # everything is loaded and warm
        began = time.perf_counter()
        await asyncio.gather(*(_one(server, number, tally) for number in range(runs)))
        tally.seconds = time.perf_counter() - began
    tally.faults += [f"the server said: {line.strip()}" for line in server.complaints]
    tally.faults += await audit(file, runs + 1)
    return tally


async def _one(server: Served, number: int, tally: Tally) -> None:
    began = time.perf_counter()
    try:
        status = await server.rested(await server.start(QUESTION, f"load-{number}"))
    except Exception as error:  # noqa: BLE001 - whatever it is, the run is lost to who asked
        tally.faults.append(f"run {number}: {type(error).__name__}: {error}")
        return
    tally.took.append(time.perf_counter() - began)
    if status != "completed":
        tally.faults.append(f"run {number}: {status}")


async def audit(file: Path, runs: int) -> list[str]:
    """What is wrong in the journal where `runs` runs must have completed, each once, with all their events."""
    faults: list[str] = []
    async with open_store(f"sqlite:///{file}") as store:
        rows = await store.journal.runs(RunFilter(limit=10 * runs))
        if len(rows) != runs:
            faults.append(f"{len(rows)} runs are in the journal, not {runs}")
        for row in rows:
            events = await store.journal.read(row.id)
            kinds = Counter(event.type for event in events)
            if [event.seq for event in events] != list(range(1, len(events) + 1)):
                faults.append(f"{row.id}: events are missing or doubled")
            end = events[-1].data
            if not isinstance(end, RunFinished) or end.outcome != "completed" or kinds["run_finished"] != 1:
                faults.append(f"{row.id}: {row.status}, {kinds['run_finished']} ends")
            elif ANSWER not in (end.output or ""):
                faults.append(f"{row.id}: {end.output!r} is no answer")
            if row.session is not None and len(await store.sessions.load(row.session)) != 4:
                faults.append(f"{row.id}: its session has not its four messages")
    return faults


def report(tally: Tally) -> str:
    """The table."""
    done = len(tally.took)
    return "\n".join(
        (
            f"runs at once        {tally.runs:>9}",
            f"finished            {done:>9}",
            f"lost or wrong       {len(tally.faults):>9}",
            f"seconds in all      {tally.seconds:>9.2f}",
            f"runs a second       {done / tally.seconds:>9.1f}",
            f"p50 seconds         {tally.percentile(0.5):>9.2f}",
            f"p99 seconds         {tally.percentile(0.99):>9.2f}",
        )
    )
