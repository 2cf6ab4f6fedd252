"""The journal in a SQLite file."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from glassloop.core.events import Event, RunFinished
from glassloop.journal.feed import Feed
from glassloop.journal.journal import Transaction, Turn, check_position, check_writer
from glassloop.journal.projection import OPEN_STATUSES, ApprovalFilter, ApprovalRow, RunFilter, RunRow, growth, project
from glassloop.stores.codec import pack, storable
from glassloop.stores.rows import (
    CHANGING_COLUMNS,
    EVENT_COLUMNS,
    READ_COLUMNS,
    RUN_COLUMNS,
    changed_values,
    event_values,
    read_event,
    run_values,
)
from glassloop.stores.sqlite.approvals import list_approvals, project_approval
from glassloop.stores.sqlite.blobs import keep_blobs
from glassloop.stores.sqlite.database import Database
from glassloop.stores.sqlite.sessions import append_messages, big_results

_ROW = ", ".join(RUN_COLUMNS)
_FIND = f"SELECT seq, epoch, {_ROW} FROM glassloop_runs WHERE id = ?"
_PUT_RUN = f"""
    INSERT INTO glassloop_runs (seq, epoch, {_ROW}) VALUES ({", ".join("?" * 16)})
    ON CONFLICT (id) DO UPDATE SET seq = excluded.seq, epoch = excluded.epoch,
    {", ".join(f"{column} = excluded.{column}" for column in RUN_COLUMNS[1:])}
"""
_UPDATE_RUN = f"""
    UPDATE glassloop_runs SET seq = ?, epoch = ?, {", ".join(f"{column} = ?" for column in CHANGING_COLUMNS)}
    WHERE id = ?
"""
_GROW_RUN = """
    UPDATE glassloop_runs SET seq = ?, epoch = ?, updated_at = ?, steps = steps + ?, tokens = tokens + ?,
    cost_usd = cost_usd + ? WHERE id = ? AND seq = ? AND epoch <= ? AND agent IS NOT NULL
"""
_INSERT_EVENT = f"INSERT INTO glassloop_events VALUES ({', '.join('?' * len(EVENT_COLUMNS))})"
_READ = f"SELECT {', '.join(READ_COLUMNS)} FROM glassloop_events WHERE run_id = ? AND seq > ? ORDER BY seq"
_OPEN = "status IN ('running', 'waiting', 'cancelling')"  # spelled as in the partial index


class SqliteJournal:
    """A journal in a SQLite file.

    Args:
        database: the file.
        feed: who follows which run in this process; the database's watch tells it what other processes write.
    """

    def __init__(self, database: Database, feed: Feed) -> None:
        self._database = database
        self._feed = feed

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
        """See `Journal.append`."""
        last = await self._database.write(partial(_append, run_id, tuple(events), after, epoch, blobs, turn))
        self._feed.publish(run_id, last)
        return last

    async def read(self, run_id: str, after: int = 0) -> list[Event]:
        """See `Journal.read`."""
        return await self._database.read(partial(_read, run_id, after))

    async def follow(self, run_id: str, after: int = 0) -> AsyncIterator[Event]:
        """See `Journal.follow`."""
        with self._feed.subscribe(run_id, after) as news:
            finished = False
            while not finished:
                events, finished = await self._database.read(partial(_read_on, run_id, news.seen))
                for event in events:
                    news.seen = event.seq
                    yield event
                if not finished:
                    await news.wait()

    async def runs(self, filter: RunFilter | None = None) -> list[RunRow]:
        """See `Journal.runs`."""
        return await self._database.read(partial(_list_runs, filter or RunFilter()))

    async def approvals(self, filter: ApprovalFilter | None = None) -> list[ApprovalRow]:
        """See `Journal.approvals`."""
        return await self._database.read(partial(list_approvals, filter or ApprovalFilter()))

    async def transact(self, run_id: str, work: Transaction, *, after: int, epoch: int) -> tuple[Any, list[Event]]:
        """See `Journal.transact`."""
        done = await self._database.write(partial(transact, run_id, work, after, epoch))
        self._feed.publish(run_id, done[1][-1].seq)
        return done

    async def blob(self, digest: str) -> bytes:
        """See `Journal.blob`."""
        return await self._database.read(partial(_read_blob, digest))

    async def erase_blobs(self, run_id: str) -> int:
        """See `Journal.erase_blobs`."""
        return await self._database.write(partial(_erase_blobs, run_id))

    async def close(self) -> None:
        """See `Journal.close`."""
        await self._database.close()


class Watch:
    """Tells a feed what other processes append to the runs that are followed here.

    Args:
        feed: who follows which run.
    """

    interval = 0.2

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._version: int | None = None

    def needed(self) -> bool:
        """Whether anybody follows a run."""
        return bool(self._feed.topics())

    def tick(self, connection: sqlite3.Connection) -> None:
        """Tell the followers of those runs that have grown, if the file has changed at all."""
        version = connection.execute("PRAGMA data_version").fetchone()[0]
        if version == self._version:
            return
        self._version = version
        topics = json.dumps(self._feed.topics())
        for run_id, seq in connection.execute(
            "SELECT id, seq FROM glassloop_runs WHERE id IN (SELECT value FROM json_each(?))", (topics,)
        ).fetchall():
            self._feed.publish(run_id, seq)


def _append(
    run_id: str,
    events: Sequence[Event],
    after: int | None,
    epoch: int | None,
    blobs: Mapping[str, bytes] | None,
    turn: Turn | None,
    cursor: sqlite3.Cursor,
) -> int:
    last = append_events(run_id, events, after, epoch, blobs, cursor)
    if turn is not None:
        append_messages(storable(turn.session), turn.key, turn.messages, cursor, big_results(run_id, cursor))
    return last


def append_events(
    run_id: str,
    events: Sequence[Event],
    after: int | None,
    epoch: int | None,
    blobs: Mapping[str, bytes] | None,
    cursor: sqlite3.Cursor,
) -> int:
    """Append inside the transaction that is open; see `Journal.append`."""
    last = _grow(run_id, events, after, epoch, cursor)
    if last is None:
        last = _move(run_id, events, after, epoch, bool(blobs), cursor)
    stored = [event_values(run_id, seq, event, epoch=epoch, pack=pack) for seq, event in enumerate(events, last + 1)]
    cursor.executemany(_INSERT_EVENT, stored)
    if blobs:
        keep_blobs(run_id, blobs, cursor)
    return last + len(stored)


def _grow(
    run_id: str, events: Sequence[Event], after: int | None, epoch: int | None, cursor: sqlite3.Cursor
) -> int | None:
    """Move a run's row on by what only adds to it, which is nearly every append: `after`, or None for `_move` to do it.

    One statement looks and writes; the indexes hold nothing of what it changes, and stay as they are.
    """
    if after is None or epoch is None or (grown := growth(events)) is None:
        return None
    cursor.execute(_GROW_RUN, (after + len(events), epoch, *grown, run_id, after, epoch))
    return after if cursor.rowcount else None


def _move(
    run_id: str,
    events: Sequence[Event],
    after: int | None,
    epoch: int | None,
    blobs: bool,
    cursor: sqlite3.Cursor,
) -> int:
    """Move a run's row, and the inbox, on by any events; the `seq` that they come after. Raises like `append`."""
    found = cursor.execute(_FIND, (run_id,)).fetchone()
    last, known = found[:2] if found else (0, 0)
    raised = check_writer(run_id, events, epoch=epoch, known=known)
    check_position(run_id, after=after, last=last)
    if not events and not blobs:
        return last
    before = row = RunRow(*found[2:]) if found and found[3] is not None else None
    for event in events:
        row = project(row, event)
        if row is not None:
            project_approval(row, event, cursor)
    seq = last + len(events)
    if row is None or before is None:
        cursor.execute(_PUT_RUN, (seq, raised, *run_values(run_id, row)))
    else:
        cursor.execute(_UPDATE_RUN, (seq, raised, *changed_values(row), run_id))
    return last


def transact(run_id: str, work: Transaction, after: int, epoch: int, cursor: sqlite3.Cursor) -> tuple[Any, list[Event]]:
    """Somebody's own statements and the events that tell of them, inside the transaction that is open."""
    from glassloop.stores.sqlite.transaction import Writing

    value, events = work(Writing(cursor))
    last = append_events(run_id, events, after, epoch, None, cursor)
    return value, [replace(event, seq=last - len(events) + number) for number, event in enumerate(events, 1)]


def _erase_blobs(run_id: str, cursor: sqlite3.Cursor) -> int:
    cursor.execute(
        """
        DELETE FROM glassloop_blobs
        WHERE digest IN (SELECT digest FROM glassloop_run_blobs WHERE run_id = ?)
        AND digest NOT IN (SELECT digest FROM glassloop_run_blobs WHERE run_id <> ?)
        """,
        (run_id, run_id),
    )
    erased = cursor.rowcount
    cursor.execute("DELETE FROM glassloop_run_blobs WHERE run_id = ?", (run_id,))
    return erased


def _read(run_id: str, after: int, cursor: sqlite3.Cursor) -> list[Event]:
    return [read_event(run_id, stored) for stored in cursor.execute(_READ, (run_id, after)).fetchall()]


def _read_on(run_id: str, after: int, cursor: sqlite3.Cursor) -> tuple[list[Event], bool]:
    """Events after `after`, and whether the run's last event is its end."""
    events = _read(run_id, after, cursor)
    if events:
        return events, isinstance(events[-1].data, RunFinished)
    last = cursor.execute(
        "SELECT type, seq FROM glassloop_events WHERE run_id = ? ORDER BY seq DESC LIMIT 1", (run_id,)
    ).fetchone()
    # an end that was written since the first look is still to be read, with what came before it
    return [], last is not None and last[0] == RunFinished.type and last[1] <= after


def _read_blob(digest: str, cursor: sqlite3.Cursor) -> bytes:
    found = cursor.execute("SELECT data FROM glassloop_blobs WHERE digest = ?", (digest,)).fetchone()
    if found is None:
        raise KeyError(digest)
    return found[0]


def _list_runs(wanted: RunFilter, cursor: sqlite3.Cursor) -> list[RunRow]:
    conditions, values = ["agent IS NOT NULL"], list[object]()
    is_open = wanted.status in OPEN_STATUSES or wanted.finished is False
    plus = "+" if is_open else ""  # open runs are few, those of a session or user many: keeps SQLite off their indexes
    for column in ("agent", "session", "user", "tenant", "status"):
        value = getattr(wanted, column)
        if value is not None:
            conditions.append(f"{plus}{column} = ?")
            values.append(storable(value))
    if is_open:
        conditions.append(_OPEN)
    if wanted.finished:
        conditions.append(f"NOT ({_OPEN})")
    if wanted.before is not None:
        conditions.append("id < ?")
        values.append(wanted.before)
    if wanted.below is not None:
        conditions.append("id > ? AND id < ?")
        values += [f"{wanted.below}.", f"{wanted.below}/"]
    if wanted.roots:
        conditions.append("instr(id, '.') = 0")
    query = f"SELECT {_ROW} FROM glassloop_runs WHERE {' AND '.join(conditions)} ORDER BY id DESC LIMIT ?"
    return [RunRow(*row) for row in cursor.execute(query, (*values, wanted.limit)).fetchall()]
