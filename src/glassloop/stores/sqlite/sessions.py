"""Sessions in a SQLite file."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, closing
from functools import partial

from glassloop.core.encoding import dumps
from glassloop.core.ids import root_of
from glassloop.core.messages import Message
from glassloop.memory.session import WhenBusy, check_limit
from glassloop.stores.codec import MESSAGE_VERSION, pack, storable
from glassloop.stores.result_rows import IN_EVENT, InEvent, event_with, message_in, results_in
from glassloop.stores.sqlite.database import Database
from glassloop.stores.sqlite.locks import SessionLocks

_LOAD = "SELECT position, v, message, run_id FROM glassloop_messages WHERE session = ? ORDER BY position DESC"
_BIG = "SELECT seq, data FROM glassloop_events WHERE run_id = ? AND type = 'tool_finished' AND typeof(data) = 'blob'"
_EVENT = "SELECT data FROM glassloop_events WHERE run_id = ? AND seq = ?"


class SqliteSessions:
    """Sessions in a SQLite file.

    Args:
        database: the file.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._locks = SessionLocks(database)

    async def load(self, session: str, limit: int | None = None) -> list[Message]:
        """See `SessionStore.load`."""
        check_limit(limit)
        return await self._database.read(partial(_load, storable(session), limit))

    async def append(self, session: str, run_id: str, messages: Sequence[Message]) -> None:
        """See `SessionStore.append`."""
        await self._database.write(partial(append_messages, storable(session), run_id, tuple(messages)))

    def lock(self, session: str, run_id: str, when_busy: WhenBusy = "queue") -> AbstractAsyncContextManager[None]:
        """See `SessionStore.lock`."""
        return self._locks.hold(storable(session), run_id, when_busy)

    async def close(self) -> None:
        """See `SessionStore.close`."""
        self._locks.abandon_all()
        await self._database.close()


def append_messages(
    session: str,
    run_id: str,
    messages: Sequence[Message],
    cursor: sqlite3.Cursor,
    results: Mapping[str, InEvent] | None = None,
) -> None:
    """Append inside the transaction that is open; see `SessionStore.append`.

    Args:
        session: the session.
        run_id: the key of the turn, which begins with the run's id.
        messages: the turn.
        cursor: of the transaction.
        results: by their calls, those that the events of the run have in this file.
    """
    cursor.execute("INSERT OR IGNORE INTO glassloop_session_runs VALUES (?, ?)", (session, run_id))
    if cursor.rowcount:
        cursor.executemany(
            "INSERT INTO glassloop_messages (session, run_id, v, message) VALUES (?, ?, ?, ?)",
            [(session, run_id, *_stored(message, results or {})) for message in messages],
        )


def big_results(run_id: str, cursor: sqlite3.Cursor) -> dict[str, InEvent]:
    """The results that a run's events have, by their calls: those that `pack` deflates, and deflating twice is dear."""
    return results_in(cursor.execute(_BIG, (run_id,)).fetchall())


def _stored(message: Message, results: Mapping[str, InEvent]) -> tuple[int, str | bytes | int]:
    """Version and content of a message's row."""
    data = dumps(message)
    seq = event_with(message, data, results)
    return (MESSAGE_VERSION, pack(data)) if seq is None else (IN_EVENT, seq)


def _of_event(run_id: str, seq: int, cursor: sqlite3.Cursor) -> str:
    """See `message_in`."""
    found = cursor.execute(_EVENT, (root_of(run_id), seq)).fetchone()
    return message_in(found[0] if found else None)


def _load(session: str, limit: int | None, cursor: sqlite3.Cursor) -> list[Message]:
    from glassloop.stores.messages import read_message

    messages: list[Message] = []
    with closing(
        cursor.connection.execute(_LOAD, (session,))
    ) as rows:  # newest first: a window reads no more than it shows
        while limit is None or len(messages) < limit:
            row = rows.fetchone()
            if row is None:
                break
            position, version, stored, run_id = row
            if version == IN_EVENT and isinstance(stored, int):
                version, stored = MESSAGE_VERSION, _of_event(run_id, stored, cursor)
            message = read_message(session, position, version, stored)
            if message is not None:
                messages.append(message)
    messages.reverse()
    return messages
