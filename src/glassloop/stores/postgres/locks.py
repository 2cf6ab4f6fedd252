"""The lock of a session in PostgreSQL: a queue of tickets, whose first holds the session.

A ticket belongs to a run and names the process that drives it; the tickets of a process that is gone are void. On one
host a process is gone as soon as it has ended, elsewhere when its lease has lapsed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Collection
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial

from sqlalchemy import Connection, delete, func, insert, select, update

from glassloop.core.errors import Fenced, StoreError
from glassloop.core.ids import new_id
from glassloop.memory.session import SessionBusy, WhenBusy
from glassloop.stores.owner import alive_here, this_process
from glassloop.stores.postgres.engine import Database
from glassloop.stores.postgres.line import lock_key, topic_of
from glassloop.stores.postgres.schema import processes, rows_of
from glassloop.stores.postgres.schema import session_locks as tickets

_POLL_S = 1.0  # a process that has ended tells nobody


class SessionLocks:
    """The locks of all sessions in a database.

    Args:
        database: the database.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._places: dict[str, str] = {}

    @asynccontextmanager
    async def hold(self, session: str, run_id: str, when_busy: WhenBusy) -> AsyncGenerator[None]:
        """See `SessionStore.lock`."""
        token = new_id("lock")
        self._places[token] = session
        try:
            if not await self._enter(session, run_id, token, when_busy):
                await self._turn(session, run_id, token)
            yield
        except BaseException:  # a cancelled `_enter` too may have been written
            self._abandon(token)
            raise
        if self._places.pop(token, None) is not None:
            await self._database.write(partial(_leave, token), topic=_topic(session), order=session)

    def abandon_all(self) -> None:
        """Give up every lock and every place in a queue."""
        for token in list(self._places):
            self._abandon(token)

    def _abandon(self, token: str) -> None:
        """Give a place up without waiting, for this may be called where nothing can be awaited."""
        session = self._places.pop(token, None)
        if session is not None:
            with suppress(StoreError):  # closed meanwhile: the place lapses with the process
                self._database.post(partial(_leave, token), topic=_topic(session), order=session)

    async def _enter(self, session: str, run_id: str, token: str, when_busy: WhenBusy) -> bool:
        """Take a place in the queue, or the run's own where it has one; whether it is the first."""
        while True:
            entering = partial(_enter, session, run_id, token, when_busy)
            entered, queue = await self._database.write(entering, order=session)
            if any(place.run_id == run_id for place in queue):
                self._database.tell(_topic(session))  # whoever waited there in vain
            if entered:
                return not queue or queue[0].run_id == run_id
            gone = [place.token for place in queue if await asyncio.to_thread(place.gone)]
            if not gone:
                raise SessionBusy(session, queue[0].run_id)
            await self._database.write(partial(_clear, gone), topic=_topic(session))

    async def _turn(self, session: str, run_id: str, token: str) -> None:
        """Wait until the place of `token` is the first of the queue."""
        with self._database.feed.subscribe(_topic(session)) as news:
            while True:
                queue = await self._database.read(partial(_queue, session))
                if all(place.token != token for place in queue):
                    raise Fenced(f"Another driver of run {run_id} waits for session {session!r} in its place.")
                if queue[0].token == token:
                    return
                if await asyncio.to_thread(queue[0].gone):
                    await self._database.write(partial(_clear, [queue[0].token]), topic=_topic(session))
                else:
                    await news.wait(_POLL_S)


@dataclass(frozen=True, slots=True)
class _Place:
    run_id: str
    token: str
    process: str
    leased: bool

    def gone(self) -> bool:
        """Whether the process that drives the run is no more; looks at the system's list of processes."""
        running = alive_here(self.process)
        return not (self.leased if running is None else running)


def _topic(session: str) -> str:
    return topic_of("session", session)


def _queue(session: str, connection: Connection) -> list[_Place]:
    leased = func.coalesce(processes.c.until > func.clock_timestamp(), False)
    query = (
        select(tickets.c.run_id, tickets.c.token, tickets.c.process, leased)
        .join_from(tickets, processes, tickets.c.process == processes.c.process, isouter=True)
        .where(tickets.c.session == session)
        .order_by(tickets.c.ticket)
    )
    return [_Place(*row) for row in rows_of(connection.execute(query))]


def _enter(
    session: str, run_id: str, token: str, when_busy: WhenBusy, connection: Connection
) -> tuple[bool, list[_Place]]:
    """Whether the run is in the queue now, and the queue as it was."""
    connection.execute(select(func.pg_advisory_xact_lock(lock_key("session", session))))
    queue = _queue(session, connection)
    process = str(this_process())
    if any(place.run_id == run_id for place in queue):
        mine = update(tickets).where(tickets.c.session == session, tickets.c.run_id == run_id)
        connection.execute(mine.values(token=token, process=process))
    elif queue and when_busy == "refuse":
        return False, queue
    else:
        connection.execute(insert(tickets).values(session=session, run_id=run_id, token=token, process=process))
    return True, queue


def _clear(tokens: Collection[str], connection: Connection) -> None:
    connection.execute(delete(tickets).where(tickets.c.token.in_(tokens)))


def _leave(token: str, connection: Connection) -> None:
    mine = (
        tickets.c.token == token,
        tickets.c.process == str(this_process()),
    )  # a forked child has its parent's tokens
    connection.execute(delete(tickets).where(*mine))
