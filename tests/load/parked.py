"""Many runs that wait for a human: what they cost the process, and whether another process decides and ends them."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from served import Served, Weight, model_of, serving

from glassloop.journal.projection import RunFilter
from glassloop.stores import open_store

COMPLAINT = "Order 2024001 was never shipped, and nobody answers me."
AT_ONCE = 50
WARM_ROUNDS = 2
"""So many rounds are parked before the first weighing: pools, caches and the heap have grown to their size then."""

IDLE_SECONDS = 33.0
"""After so long the threads of sync tools have ended, and a process rests."""

MOST_BYTES = 1024
"""What a parked run may take of the process."""


@dataclass
class Tally:
    """What came of it.

    Args:
        runs: how many were parked between the two weighings.
        before: the process at rest, with `WARM_ROUNDS` times as many parked runs behind it.
        after: the process at rest, with `runs` more.
        decided: approvals that the second process took.
        seconds: what deciding and finishing all took it.
        faults: everything that went wrong.
    """

    runs: int
    before: Weight = field(default_factory=lambda: Weight(0, 0))
    after: Weight = field(default_factory=lambda: Weight(0, 0))
    decided: int = 0
    seconds: float = 0.0
    faults: list[str] = field(default_factory=list[str])

    @property
    def bytes_each(self) -> float:
        """What a parked run costs the process."""
        return (self.after.kilobytes - self.before.kilobytes) * 1024 / self.runs


async def park_and_decide(folder: Path, runs: int) -> Tally:
    """Park `runs` runs again and again, weigh the process before and after the last round, decide all in another."""
    tally, file = Tally(runs), folder / "parked.db"
    with model_of("ticket") as model:  # which remembers every request, and so must not be weighed too
        async with serving("ticket", file, most=4 * AT_ONCE, model=model) as server:
            tally.before = await _parked(server, WARM_ROUNDS * runs, tally)
            tally.after = await _parked(server, runs, tally)
            complaints = server.complaints
        async with serving("ticket", file, most=4 * AT_ONCE, model=model) as server:
            began = time.perf_counter()
            tally.decided = await _decide_all(server, tally)
            tally.seconds = time.perf_counter() - began
            complaints += server.complaints
    tally.faults += [f"the server said: {line.strip()}" for line in complaints]
    tally.faults += await _audit(file, (WARM_ROUNDS + 1) * runs)
    if tally.bytes_each > MOST_BYTES:
        tally.faults.append(f"a parked run costs {tally.bytes_each:.0f} bytes, more than {MOST_BYTES}")
    if tally.after.threads > tally.before.threads:
        tally.faults.append(f"{tally.runs} parked runs cost {tally.after.threads - tally.before.threads} threads")
    return tally


async def _parked(server: Served, runs: int, tally: Tally) -> Weight:
    """Start runs until so many more wait, and weigh the process at rest."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def one() -> None:
        async with gate:
            status = await server.rested(await server.start(COMPLAINT, agent="ticket"))
            if status != "waiting":
                tally.faults.append(f"a run that must wait is {status}")

    await asyncio.gather(*(one() for _ in range(runs)))
    await asyncio.sleep(IDLE_SECONDS)
    return server.weight()


async def _decide_all(server: Served, tally: Tally) -> int:
    """Approve everything in the inbox, page by page, and wait for the ends; how many there were."""
    gate, rows = asyncio.Semaphore(AT_ONCE), await _inbox(server, "pending")

    async def one(row: Any) -> None:
        async with gate:
            await server.call("POST", f"/v1/approvals/{row['approval_id']}", {"decision": "approve"})
            status = await server.rested(row["run_id"])
            if status != "completed":
                tally.faults.append(f"{row['run_id']} was approved and is {status}")

    await asyncio.gather(*map(one, rows))
    if left := await _inbox(server, "pending"):
        tally.faults.append(f"{len(left)} approvals are left")
    if len(approved := await _inbox(server, "approved")) != len(rows):
        tally.faults.append(f"{len(approved)} approvals are listed as approved, not {len(rows)}")
    return len(rows)


async def _inbox(server: Served, status: str) -> list[Any]:
    rows: list[Any] = []
    before = ""
    while True:
        page = await server.call("GET", f"/v1/approvals?status={status}&limit=200{before}")
        rows += page["approvals"]
        if page["next"] is None:
            return rows
        before = f"&before={page['next']}"


async def _audit(file: Path, runs: int) -> list[str]:
    """What is wrong in the file where `runs` runs have each opened one ticket."""
    faults: list[str] = []
    async with open_store(f"sqlite:///{file}") as store:
        rows = await store.journal.runs(RunFilter(limit=10 * runs))
    if len(rows) != runs:
        faults.append(f"{len(rows)} runs are in the journal, not {runs}")
    if wrong := [row.id for row in rows if row.status != "completed"]:
        faults.append(f"{len(wrong)} runs have not completed, {wrong[0]} for one")
    with closing(sqlite3.connect(file)) as connection:
        (tickets,) = connection.execute("SELECT count(*) FROM tickets").fetchone()
    if tickets != runs:
        faults.append(f"{tickets} tickets were opened, not {runs}")
    return faults


def report(tally: Tally) -> str:
    """The table."""
    return "\n".join(
        (
            f"parked runs         {tally.runs:>9}, after {WARM_ROUNDS * tally.runs} before",
            f"memory before       {tally.before.kilobytes:>9} KB",
            f"memory after        {tally.after.kilobytes:>9} KB",
            f"bytes a run         {tally.bytes_each:>9.0f}",
            f"threads             {tally.before.threads:>9} before, {tally.after.threads} after",
            f"decided elsewhere   {tally.decided:>9} after a restart, in {tally.seconds:.1f} s",
            f"lost or wrong       {len(tally.faults):>9}",
        )
    )
