"""Sessions in PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial

from sqlalchemy import Connection, func, select
from sqlalchemy.dialects.postgresql import insert

from glassloop.core.encoding import dumps
from glassloop.core.messages import Message
from glassloop.memory.session import WhenBusy, check_limit
from glassloop.stores.codec import MESSAGE_VERSION
from glassloop.stores.messages import read_message
from glassloop.stores.postgres_engine import Database
from glassloop.stores.postgres_line import lock_key
from glassloop.stores.postgres_locks import SessionLocks
from glassloop.stores.postgres_schema import messages as stored_messages
from glassloop.stores.postgres_schema import rows_of, session_runs


class PostgresSessions:
    """Sessions in PostgreSQL.

    Args:
        database: the database.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._locks = SessionLocks(database)

    async def load(self, session: str, limit: int | None = None) -> list[Message]:
        """See `SessionStore.load`."""
        check_limit(limit)
        return await self._database.read(partial(_load, session, limit))

    async def append(self, session: str, run_id: str, messages: Sequence[Message]) -> None:
        """See `SessionStore.append`."""
        await self._database.write(partial(append_messages, session, run_id, tuple(messages)))

    def lock(self, session: str, run_id: str, when_busy: WhenBusy = "queue") -> AbstractAsyncContextManager[None]:
        """See `SessionStore.lock`."""
        return self._locks.hold(session, run_id, when_busy)

    async def close(self) -> None:
        """See `SessionStore.close`."""
        self._locks.abandon_all()
        await self._database.close()


def append_messages(session: str, run_id: str, messages: Sequence[Message], connection: Connection) -> None:
    """Append inside the transaction that is open; see `SessionStore.append`."""
    first = insert(session_runs).values(session=session, run_id=run_id).on_conflict_do_nothing()
    if not connection.execute(first).rowcount or not messages:
        return
    connection.execute(select(func.pg_advisory_xact_lock(lock_key("session", session))))  # positions as committed
    values = [
        {"session": session, "run_id": run_id, "v": MESSAGE_VERSION, "message": dumps(message).decode()}
        for message in messages
    ]
    connection.execute(insert(stored_messages), values)


def _load(session: str, limit: int | None, connection: Connection) -> list[Message]:
    its = stored_messages.c
    newest_first = select(its.position, its.v, its.message).where(its.session == session).order_by(its.position.desc())
    messages: list[Message] = []
    query = newest_first.limit(limit)
    while limit is None or len(messages) < limit:
        rows = rows_of(connection.execute(query))
        readable = (read_message(session, *row) for row in rows)
        messages += [message for message in readable if message is not None]
        if not rows or limit is None:
            break
        query = newest_first.where(its.position < rows[-1][0]).limit(limit - len(messages))  # for those left out
    messages.reverse()
    return messages
