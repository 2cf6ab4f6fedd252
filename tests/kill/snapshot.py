"""What a store holds at one moment, read from a copy, and whether it is valid whatever happened to its writers."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from world import World

from glassloop.core.events import (
    DriverClaimed,
    EffectStarted,
    Event,
    ModelReplied,
    ModelRequested,
    RunContinued,
    RunFinished,
    ToolFinished,
)
from glassloop.core.ids import root_of
from glassloop.core.messages import Message
from glassloop.core.result import RunResult
from glassloop.journal.projection import RunFilter, RunRow
from glassloop.journal.state import fold
from glassloop.results import result_of
from glassloop.stores import Store, open_store
from glassloop.tree import with_below


@dataclass(frozen=True)
class Snapshot:
    """A store at one moment.

    Args:
        integrity: `ok`, or what is wrong with how it is stored.
        rows: the list of runs.
        events: of each run.
        epochs: of each event of a run, in order; None for external ones.
        settled: run and call of every effect that the ledger knows to have happened.
        bookings: planned calls in the program's own table, one per row.
        sessions: the messages of each session.
        results: of each run that has begun others, with all of them.
    """

    integrity: str
    rows: dict[str, RunRow]
    events: dict[str, list[Event]]
    epochs: dict[str, list[int | None]]
    settled: set[tuple[str, str]]
    bookings: list[str]
    sessions: dict[str, list[Message]]
    results: dict[str, RunResult]


def take(world: World) -> Snapshot:
    """Read a copy of the store."""
    with world.place.copied() as copy:
        bookings = [id for (id,) in copy.rows("SELECT id FROM bookings")]
        epochs: dict[str, list[int | None]] = {}
        settled: set[tuple[str, str]] = set()
        if copy.has("glassloop_events"):
            done = copy.rows("SELECT run_id, call_id FROM glassloop_ledger WHERE result IS NOT NULL")
            settled = {(run_id, call_id) for run_id, call_id in done}
            for run_id, epoch in copy.rows("SELECT run_id, epoch FROM glassloop_events ORDER BY run_id, seq"):
                epochs.setdefault(run_id, []).append(epoch)
        rows, events, sessions, results = asyncio.run(_read(open_store(copy.url)))
        return Snapshot(copy.integrity(), rows, events, epochs, settled, bookings, sessions, results)


Read = tuple[dict[str, RunRow], dict[str, list[Event]], dict[str, list[Message]], dict[str, RunResult]]


async def _read(opened: Store) -> Read:
    async with opened as store:
        rows = {row.id: row for row in await store.journal.runs(RunFilter(limit=100_000))}
        events = {run_id: await store.journal.read(run_id) for run_id in rows}
        names = {row.session for row in rows.values() if row.session is not None}
        sessions = {name: await store.sessions.load(name) for name in names}
        roots = {root_of(run_id) for run_id in rows if root_of(run_id) != run_id}
        results = {root: await with_below(store, result_of(fold(events[root]))) for root in roots if root in events}
    return rows, events, sessions, results


def faults(snapshot: Snapshot) -> Iterator[str]:
    """What is wrong with the store; true at every instant, so nothing may be."""
    if snapshot.integrity != "ok":
        yield f"the store is damaged: {snapshot.integrity}"
    if strays := snapshot.epochs.keys() - snapshot.events.keys():
        yield f"events of runs that are in no list: {sorted(strays)}"
    for run_id, events in snapshot.events.items():
        for fault in _faults_of(events, snapshot.epochs[run_id], snapshot.rows[run_id]):
            yield f"{run_id}: {fault}"
        root = snapshot.rows.get(root_of(run_id))
        if root is None:
            yield f"{run_id} belongs to a run that is in no list"
        elif root.finished and not snapshot.rows[run_id].finished:
            yield f"{run_id} has not ended, and the run that it belongs to has"


def _faults_of(events: Sequence[Event], epochs: Sequence[int | None], row: RunRow) -> Iterator[str]:
    if [event.seq for event in events] != list(range(1, len(events) + 1)):
        yield f"seq is not contiguous: {[event.seq for event in events]}"
    written = [epoch for epoch in epochs if epoch is not None]
    if written != sorted(written):
        yield f"an older driver wrote after a newer one: {written}"
    claims = [event.data.epoch for event in events if isinstance(event.data, DriverClaimed)]
    if claims != sorted(set(claims)):
        yield f"epochs do not rise: {claims}"
    asked = {call.id for event in events if isinstance(event.data, ModelReplied) for call in event.data.reply.calls}
    finished = Counter(event.data.call_id for event in events if isinstance(event.data, ToolFinished))
    if twice := [call_id for call_id, times in finished.items() if times > 1]:
        yield f"calls with more than one result: {twice}"
    if row.status not in ("running", "waiting", "cancelling") and asked - finished.keys():
        yield f"a finished run with calls that have no result: {asked - finished.keys()}"
    yield from _faults_of_the_end(events)


def _faults_of_the_end(events: Sequence[Event]) -> Iterator[str]:
    open_ = True
    for event in events:
        if isinstance(event.data, RunFinished):
            if not open_:
                yield "finished twice"
            open_ = False
        elif not open_ and isinstance(event.data, DriverClaimed | ModelRequested | EffectStarted):
            yield f"driven after it had ended: {event.type}"
        open_ = open_ or isinstance(event.data, RunContinued)
    try:
        state = fold(events)
    except Exception as error:  # noqa: BLE001 - whatever it is, the journal cannot be folded
        yield f"the fold fails: {error!r}"
        return
    if state.seq != len(events) or (state.finished is None) != open_:
        yield "the fold disagrees with the events"
