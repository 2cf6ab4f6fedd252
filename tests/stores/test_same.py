"""Whatever is done to them, a store in a file and a store in memory give the same answers."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from glassloop.core.errors import StoreError
from glassloop.core.events import (
    ApprovalAsked,
    ApprovalDecided,
    CancelRequested,
    DriverClaimed,
    DriverRested,
    JournalData,
    RunContinued,
    RunFinished,
    SessionTold,
)
from glassloop.core.messages import UserMessage
from glassloop.journal.feed import Feed
from glassloop.journal.journal import Journal, MemoryJournal
from glassloop.journal.ledger import Ledger, MemoryLedger
from glassloop.journal.projection import RunFilter
from glassloop.memory.session import MemorySessions, SessionBusy, SessionStore
from glassloop.stores.sqlite.database import Database
from glassloop.stores.sqlite.journal import SqliteJournal
from glassloop.stores.sqlite.ledger import SqliteLedger
from glassloop.stores.sqlite.sessions import SqliteSessions
from glassloop.testing.conformance.journal import event, replied, requested, started
from glassloop.testing.conformance.ledger import Clock

RUNS = ("run_1", "run_2")
THE_END = -1
"""In the place of a position: the run's last event, wherever that is."""
few = settings(max_examples=40, deadline=None)


async def answer(asked: Awaitable[object]) -> object:
    """What was answered: a value, or the kind of error."""
    try:
        return await asked
    except (StoreError, KeyError, SessionBusy) as error:
        return type(error).__name__


def with_file(body: Callable[[Database], Awaitable[None]]) -> None:
    """Run `body` with a fresh file."""

    async def main(path: Path) -> None:
        database = Database(str(path))
        await body(database)
        await database.close()

    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(main(Path(directory) / "store.db"))


# The journal


@dataclass(frozen=True)
class Append:
    run_id: str
    data: tuple[JournalData, ...]
    after: int | None
    epoch: int | None
    blobs: tuple[str, ...]
    erase: bool

    async def __call__(self, journal: Journal) -> list[object]:
        events = [event(self.run_id, data) for data in self.data]
        blobs = {name: name.encode() for name in self.blobs}
        after = len(await journal.read(self.run_id)) if self.after == THE_END else self.after
        written = await answer(journal.append(self.run_id, events, after=after, epoch=self.epoch, blobs=blobs or None))
        erased = await journal.erase_blobs(self.run_id) if self.erase else None
        kept = [await answer(journal.blob(name)) for name in "abc"]
        lists = [await journal.runs(wanted) for wanted in (None, RunFilter(finished=True), RunFilter(status="waiting"))]
        return [written, erased, kept, lists, await journal.read(self.run_id)]


DATA: list[Any] = [
    started("").data,
    requested("").data,
    replied("").data,
    replied("", None).data,
    SessionTold(),
    CancelRequested(),
    RunContinued(),
    RunFinished("completed"),
    ApprovalAsked("a", "c", "t", "{}", "f", "s"),
    ApprovalDecided("a", "approve"),
    *(DriverClaimed(epoch, "driver") for epoch in (1, 2, 3)),
    *(DriverRested(waiting) for waiting in (True, False, None)),
]
appends = st.builds(
    Append,
    st.sampled_from(RUNS),
    st.lists(st.sampled_from(DATA), max_size=3).map(tuple),
    st.none() | st.integers(0, 4) | st.just(THE_END),
    st.none() | st.integers(1, 3),
    st.lists(st.sampled_from("abc"), max_size=2, unique=True).map(tuple),
    st.booleans(),
)


@few
@given(st.lists(appends, min_size=1, max_size=12))
def test_journals_agree(appends: Sequence[Append]) -> None:
    async def body(database: Database) -> None:
        memory, file = MemoryJournal(), SqliteJournal(database, Feed())
        for append in appends:
            assert await append(file) == await append(memory), append

    with_file(body)


def test_journals_agree_on_each_kind_of_event() -> None:
    async def body(database: Database) -> None:
        memory, file = MemoryJournal(), SqliteJournal(database, Feed())
        for number, (data, waits) in enumerate(product(DATA, (True, False))):
            for batch in ((DATA[0], DriverRested(waits)), (data,)):
                append = Append(f"run_{number}", batch, THE_END, 1, (), erase=False)
                assert await append(file) == await append(memory), data

    with_file(body)


def test_journals_agree_on_sums() -> None:
    prices: tuple[tuple[float | None, ...], ...] = ((0.1,), (0.2, 0.3), (None, 0.1), (0.2,))

    async def body(database: Database) -> None:
        memory, file = MemoryJournal(), SqliteJournal(database, Feed())
        last = 0
        for batch in ((), *prices):
            events = [each for price in batch for each in (requested("r"), replied("r", price))] or [started("r")]
            for journal in (memory, file):
                await journal.append("r", events, after=last, epoch=1)
            last += len(events)
            assert await file.runs() == await memory.runs(), batch

    with_file(body)


# The ledger

actions = st.tuples(
    st.sampled_from(["claim", "claim", "settle", "release", "force", "later"]),
    st.sampled_from(["k", "l"]),
    st.sampled_from([("run_1", "call_1"), ("run_2", "call_1")]),
    st.sampled_from([10, 60, 100]),
)


@few
@given(st.lists(actions, min_size=1, max_size=20))
def test_ledgers_agree(actions: Sequence[tuple[str, str, tuple[str, str], int]]) -> None:
    async def body(database: Database) -> None:
        clock = Clock()
        memory, file = MemoryLedger(clock), SqliteLedger(database, clock)

        async def do(ledger: Ledger, action: str, key: str, owner: tuple[str, str], seconds: int) -> object:
            match action:
                case "claim":
                    return await ledger.claim(key, owner, seconds, 75)
                case "settle":
                    return await ledger.settle(key, owner, f"{owner}".encode())
                case "release" | "force":
                    return await ledger.release(key, owner if action == "release" else None)
                case _:
                    return None

        for action, key, owner, seconds in actions:
            if action == "later":
                clock.now += seconds
            answers = [await do(ledger, action, key, owner, seconds) for ledger in (memory, file)]
            assert answers[0] == answers[1], (action, key, owner)

    with_file(body)


# Sessions

turns = st.tuples(st.sampled_from(["s", "t"]), st.integers(1, 6), st.integers(0, 3), st.none() | st.integers(0, 8))


@few
@given(st.lists(turns, min_size=1, max_size=12))
def test_sessions_agree(turns: Sequence[tuple[str, int, int, int | None]]) -> None:
    async def body(database: Database) -> None:
        stores: tuple[SessionStore, ...] = (MemorySessions(), SqliteSessions(database))
        for session, run, length, limit in turns:
            loaded: list[object] = []
            for store in stores:
                messages = [UserMessage(f"{run}.{n}") for n in range(length)]
                await store.append(session, f"run_{run}", messages)
                loaded.append([await store.load(name, limit) for name in ("s", "t")])
            assert loaded[0] == loaded[1]

    with_file(body)
