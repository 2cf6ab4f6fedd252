"""The lock of a session in a SQLite file: a queue of tickets, whose first holds the session.

A ticket belongs to a run and names the process that drives it; the tickets of a process that is gone are void.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial

from glassloop.core.errors import Fenced, StoreError
from glassloop.core.ids import new_id
from glassloop.journal.feed import Feed
from glassloop.memory.session import SessionBusy, WhenBusy
from glassloop.stores.owner import Process, alive, this_process
from glassloop.stores.sqlite.database import Database, poll_after

_QUEUE = """
    SELECT ticket, run_id, token, process, beat_at FROM glassloop_session_locks WHERE session = ? ORDER BY ticket
"""
_BEAT_S = 5.0
_LAPSE_MS = 30_000  # of a process that cannot be looked at from here (another container): it must beat


class SessionLocks:
    """The locks of all sessions in a file.

    Args:
        database: the file.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._feed = Feed()
        self._places: dict[str, tuple[str, _Beat]] = {}

    @asynccontextmanager
    async def hold(self, session: str, run_id: str, when_busy: WhenBusy) -> AsyncGenerator[None]:
        """See `SessionStore.lock`."""
        token = new_id("lock")
        self._places[token] = session, _Beat(self._database, token)
        try:
            if not await self._database.write(partial(_enter, session, run_id, token, when_busy)):
                await self._turn(session, run_id, token)
            yield
        except BaseException:  # a cancelled `_enter` too may have been written
            self._abandon(token)
            raise
        if self._forget(token) is not None:
            await self._database.write(partial(_leave, token))
            self._feed.publish(session)

    def abandon_all(self) -> None:
        """Give up every lock and every place in a queue."""
        for token in list(self._places):
            self._abandon(token)

    def _abandon(self, token: str) -> None:
        """Give a place up without waiting, for this may be called where nothing can be awaited."""
        session = self._forget(token)
        if session is not None:
            with suppress(StoreError):  # closed meanwhile: the place lapses with the process
                self._database.post(partial(_leave, token), then=partial(self._feed.publish, session))

    def _forget(self, token: str) -> str | None:
        """The session of a place that is given up; None if it has been already."""
        session, beat = self._places.pop(token, (None, None))
        if beat is not None:
            beat.stop()
        return session

    async def _turn(self, session: str, run_id: str, token: str) -> None:
        """Wait until the place of `token` is the first of the queue."""
        polls = 0
        with self._feed.subscribe(session) as news:
            while True:
                tokens, first_is_gone = await self._database.read(partial(_look, session))
                if token not in tokens:
                    raise Fenced(f"Another driver of run {run_id} waits for session {session!r} in its place.")
                if tokens[0] == token:
                    return
                if first_is_gone:
                    await self._database.write(partial(_clear, session))
                else:
                    await news.wait(poll_after(polls))
                    polls += 1


class _Beat:
    """Shows every few seconds that the driver with this token lives."""

    def __init__(self, database: Database, token: str) -> None:
        self._database = database
        self._token = token
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(_BEAT_S, self._beat)

    def stop(self) -> None:
        self._timer.cancel()

    def _beat(self) -> None:
        with suppress(StoreError):
            self._database.post(partial(_update_beat, self._token))
            self._timer = self._loop.call_later(_BEAT_S, self._beat)


@dataclass(frozen=True, slots=True)
class _Place:
    ticket: int
    run_id: str
    token: str
    process: str
    beat_at: int

    def gone(self) -> bool:
        """Whether the process that drives the run is no more."""
        running = alive(Process.parse(self.process))
        return _now() - self.beat_at > _LAPSE_MS if running is None else not running


def _now() -> int:
    return time.time_ns() // 1_000_000


def _queue(session: str, cursor: sqlite3.Cursor) -> list[_Place]:
    return [_Place(*row) for row in cursor.execute(_QUEUE, (session,)).fetchall()]


def _look(session: str, cursor: sqlite3.Cursor) -> tuple[list[str], bool]:
    """The tokens in the queue, and whether the first one's process is gone."""
    places = _queue(session, cursor)
    return [place.token for place in places], bool(places) and places[0].gone()


def _clear(session: str, cursor: sqlite3.Cursor) -> list[_Place]:
    """Void the places of processes that are gone; the others."""
    living: list[_Place] = []
    for place in _queue(session, cursor):
        if place.gone():
            cursor.execute("DELETE FROM glassloop_session_locks WHERE ticket = ?", (place.ticket,))
        else:
            living.append(place)
    return living


def _enter(session: str, run_id: str, token: str, when_busy: WhenBusy, cursor: sqlite3.Cursor) -> bool:
    """Take a place in the queue, or the run's own where it has one; whether it is the first."""
    places = _queue(session, cursor)
    mine = next((place.ticket for place in places if place.run_id == run_id), None)
    if mine is None and places:
        places = _clear(session, cursor)
        if places and when_busy == "refuse":
            raise SessionBusy(session, places[0].run_id)
    cursor.execute(
        "INSERT OR REPLACE INTO glassloop_session_locks VALUES (?, ?, ?, ?, ?, ?)",
        (mine, session, run_id, token, str(this_process()), _now()),
    )
    return not places or places[0].run_id == run_id


def _update_beat(token: str, cursor: sqlite3.Cursor) -> None:
    cursor.execute("UPDATE glassloop_session_locks SET beat_at = ? WHERE token = ?", (_now(), token))


def _leave(token: str, cursor: sqlite3.Cursor) -> None:
    mine = (token, str(this_process()))  # a forked child remembers its parent's places, which are not its own
    cursor.execute("DELETE FROM glassloop_session_locks WHERE token = ? AND process = ?", mine)
