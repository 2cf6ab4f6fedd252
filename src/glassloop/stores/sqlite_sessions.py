"""Sessions in a SQLite file."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, closing
from functools import partial

from glassloop.core.encoding import dumps
from glassloop.core.messages import Message
from glassloop.memory.session import WhenBusy, check_limit
from glassloop.stores.codec import MESSAGE_VERSION, pack, read_message, storable
from glassloop.stores.database import Database
from glassloop.stores.sqlite_locks import SessionLocks

_LOAD = "SELECT position, v, message FROM glassloop_messages WHERE session = ? ORDER BY position DESC"


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


def append_messages(session: str, run_id: str, messages: Sequence[Message], cursor: sqlite3.Cursor) -> None:
    """Append inside the transaction that is open; see `SessionStore.append`."""
    cursor.execute("INSERT OR IGNORE INTO glassloop_session_runs VALUES (?, ?)", (session, run_id))
    if cursor.rowcount:
        cursor.executemany(
            "INSERT INTO glassloop_messages (session, run_id, v, message) VALUES (?, ?, ?, ?)",
            [(session, run_id, MESSAGE_VERSION, pack(dumps(message))) for message in messages],
        )


def _load(session: str, limit: int | None, cursor: sqlite3.Cursor) -> list[Message]:
    messages: list[Message] = []
    with closing(
        cursor.connection.execute(_LOAD, (session,))
    ) as rows:  # newest first: a window reads no more than it shows
        while limit is None or len(messages) < limit:
            row = rows.fetchone()
            if row is None:
                break
            message = read_message(session, *row)
            if message is not None:
                messages.append(message)
    messages.reverse()
    return messages
