"""The journal in PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from sqlalchemy import Boolean, ColumnElement, Connection, bindparam, literal_column, not_, select

from glassloop.core.events import Event, RunFinished
from glassloop.journal.journal import Transaction, Turn
from glassloop.journal.projection import OPEN_STATUSES, ApprovalFilter, ApprovalRow, RunFilter, RunRow
from glassloop.stores.postgres.append import (
    Addition,
    Position,
    append,
    append_at_once,
    append_unless_there,
    is_plain,
)
from glassloop.stores.postgres.approvals import list_approvals
from glassloop.stores.postgres.blobs import erase_blobs, read_blob
from glassloop.stores.postgres.engine import Database
from glassloop.stores.postgres.errors import CutOff
from glassloop.stores.postgres.line import topic_of
from glassloop.stores.postgres.schema import events as entries
from glassloop.stores.postgres.schema import rows_of, runs
from glassloop.stores.postgres.transaction import Raised, Writing, not_the_store_s
from glassloop.stores.rows import READ_COLUMNS, RUN_COLUMNS, read_event

_POLL_S = 2.0  # news come by NOTIFY; they may be lost with a connection

_MOST_KNOWN = 10_000

_ROW = [runs.c[name] for name in RUN_COLUMNS]
_READ = (
    select(*[entries.c[name] for name in READ_COLUMNS])
    .where(entries.c.run_id == bindparam("run"), entries.c.seq > bindparam("after"))
    .order_by(entries.c.seq)
)
_LAST = (
    select(entries.c.type, entries.c.seq)
    .where(entries.c.run_id == bindparam("run"))
    .order_by(entries.c.seq.desc())
    .limit(1)
)
_OPEN = literal_column("status IN ('running', 'waiting', 'cancelling')", Boolean)  # spelled as in the partial index


class PostgresJournal:
    """A journal in PostgreSQL.

    Args:
        database: the database.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._known: dict[str, Position] = {}  # where this process left the runs that it drives

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
        adding = Addition(run_id, tuple(events), after, epoch, blobs, turn)
        topic, known = topic_of("run", run_id), self._known.pop(run_id, None)
        if known is not None and known.row is not None and is_plain(adding, known):
            try:
                at_once = partial(append_at_once, adding, known.row)
                position = await self._database.write(at_once, topic=topic, alone=True)
            except CutOff:
                return await self._database.write(partial(append_unless_there, adding), topic=topic)
            if position is not None:
                return self._remember(run_id, position)
        return self._remember(run_id, await self._database.write(partial(append, adding), topic=topic))

    def _remember(self, run_id: str, position: Position) -> int:
        if position.row is not None and not position.row.finished:
            self._known[run_id] = position
            if len(self._known) > _MOST_KNOWN:
                self._known.pop(next(iter(self._known)), None)
        return position.seq

    async def read(self, run_id: str, after: int = 0) -> list[Event]:
        """See `Journal.read`."""
        return await self._database.read(partial(_read, run_id, after))

    async def follow(self, run_id: str, after: int = 0) -> AsyncIterator[Event]:
        """See `Journal.follow`."""
        await self._database.listen()
        with self._database.feed.subscribe(topic_of("run", run_id), after) as news:
            finished = False
            while not finished:
                events, finished = await self._database.read(partial(_read_on, run_id, news.seen))
                for event in events:
                    news.seen = event.seq
                    yield event
                if not finished:
                    await news.wait(_POLL_S)

    async def runs(self, filter: RunFilter | None = None) -> list[RunRow]:
        """See `Journal.runs`."""
        return await self._database.read(partial(_list_runs, filter or RunFilter()))

    async def approvals(self, filter: ApprovalFilter | None = None) -> list[ApprovalRow]:
        """See `Journal.approvals`."""
        return await self._database.read(partial(list_approvals, filter or ApprovalFilter()))

    async def transact(self, run_id: str, work: Transaction, *, after: int, epoch: int) -> tuple[Any, list[Event]]:
        """See `Journal.transact`; `work` gets a `Writing`, whose `transaction` is a SQLAlchemy `Connection`."""
        doing = partial(_transact, run_id, work, after, epoch)
        self._known.pop(run_id, None)
        try:
            return await self._database.write(doing, topic=topic_of("run", run_id))
        except Raised as raised:
            raise raised.error from None

    async def blob(self, digest: str) -> bytes:
        """See `Journal.blob`."""
        return await self._database.read(partial(read_blob, digest))

    async def erase_blobs(self, run_id: str) -> int:
        """See `Journal.erase_blobs`."""
        return await self._database.write(partial(erase_blobs, run_id))

    async def close(self) -> None:
        """See `Journal.close`."""
        await self._database.close()


def _transact(
    run_id: str, work: Transaction, after: int, epoch: int, connection: Connection
) -> tuple[Any, list[Event]]:
    """Somebody's own statements and the events that tell of them, inside the transaction that is open."""
    with not_the_store_s(connection):
        value, events = work(Writing(connection))
    last = append(Addition(run_id, events, after, epoch), connection).seq
    return value, [replace(event, seq=last - len(events) + number) for number, event in enumerate(events, 1)]


def _read(run_id: str, after: int, connection: Connection) -> list[Event]:
    found = connection.execute(_READ, {"run": run_id, "after": after})
    return [read_event(run_id, stored) for stored in rows_of(found)]


def _read_on(run_id: str, after: int, connection: Connection) -> tuple[list[Event], bool]:
    """Events after `after`, and whether the run's last event is its end."""
    events = _read(run_id, after, connection)
    if events:
        return events, isinstance(events[-1].data, RunFinished)
    last = connection.execute(_LAST, {"run": run_id}).first()
    # an end that was written since the first look is still to be read, with what came before it
    return [], last is not None and last.type == RunFinished.type and last.seq <= after


def _list_runs(wanted: RunFilter, connection: Connection) -> list[RunRow]:
    conditions: list[ColumnElement[bool]] = [runs.c.agent.is_not(None)]
    for column in ("agent", "session", "user", "tenant", "status"):
        value = getattr(wanted, column)
        if value is not None:
            conditions.append(runs.c[column] == value)
    if wanted.status in OPEN_STATUSES or wanted.finished is False:
        conditions.append(_OPEN)
    if wanted.finished:
        conditions.append(not_(_OPEN))
    if wanted.before is not None:
        conditions.append(runs.c.id < wanted.before)
    if wanted.below is not None:
        conditions.append(runs.c.id.startswith(f"{wanted.below}.", autoescape=True))
    if wanted.roots:
        conditions.append(~runs.c.id.contains("."))
    query = select(*_ROW).where(*conditions).order_by(runs.c.id.desc()).limit(wanted.limit)
    return [RunRow(*row) for row in rows_of(connection.execute(query))]
