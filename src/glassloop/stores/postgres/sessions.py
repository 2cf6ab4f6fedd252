"""Sessions in PostgreSQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial

from sqlalchemy import BigInteger, Connection, case, cast, func, select
from sqlalchemy.dialects.postgresql import insert

from glassloop.core.encoding import dumps
from glassloop.core.events import ToolFinished
from glassloop.core.messages import Message, ToolResult
from glassloop.memory.session import WhenBusy, check_limit
from glassloop.stores.codec import MESSAGE_VERSION
from glassloop.stores.messages import read_message
from glassloop.stores.postgres.engine import Database
from glassloop.stores.postgres.line import lock_key
from glassloop.stores.postgres.locks import SessionLocks
from glassloop.stores.postgres.schema import events as entries
from glassloop.stores.postgres.schema import messages as stored_messages
from glassloop.stores.postgres.schema import rows_of, session_runs
from glassloop.stores.result_rows import IN_EVENT, InEvent, event_with, message_in, results_in

_BIG = 2048  # bytes, as in a SQLite file: below, looking for the event costs more than the room

_its, _theirs = stored_messages.c, entries.c
_IN_ITS_EVENT = (
    select(_theirs.data)
    .where(_theirs.run_id == func.split_part(_its.run_id, ".", 1), _theirs.seq == cast(_its.message, BigInteger))
    .correlate(stored_messages)
    .scalar_subquery()
)
_LOAD = select(_its.position, _its.v, case((_its.v == IN_EVENT, _IN_ITS_EVENT), else_=_its.message))


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


def append_messages(
    session: str, run_id: str, messages: Sequence[Message], connection: Connection, holder: str | None = None
) -> None:
    """Append inside the transaction that is open; see `SessionStore.append`.

    Args:
        session: the session.
        run_id: the key of the turn, which begins with the run's id.
        messages: the turn.
        connection: of the transaction.
        holder: the run, where this database has its events; a big result is then left to the event that has it.
    """
    first = insert(session_runs).values(session=session, run_id=run_id).on_conflict_do_nothing()
    if not connection.execute(first).rowcount or not messages:
        return
    connection.execute(select(func.pg_advisory_xact_lock(lock_key("session", session))))  # positions as committed
    said = [(message, dumps(message)) for message in messages]
    is_big = any(isinstance(message, ToolResult) and len(data) > _BIG for message, data in said)
    results = _big_results(holder, connection) if holder is not None and is_big else {}
    values = [{"session": session, "run_id": run_id, **_stored(message, data, results)} for message, data in said]
    connection.execute(insert(stored_messages), values)


def _big_results(run_id: str, connection: Connection) -> dict[str, InEvent]:
    """The big results that a run's events have, by their calls."""
    big = (_theirs.type == ToolFinished.type, func.octet_length(_theirs.data) > _BIG)
    query = select(_theirs.seq, _theirs.data).where(_theirs.run_id == run_id, *big)
    return results_in((seq, data) for seq, data in rows_of(connection.execute(query)))


def _stored(message: Message, data: bytes, results: Mapping[str, InEvent]) -> dict[str, object]:
    """Version and content of a message's row."""
    seq = event_with(message, data, results)
    if seq is None:
        return {"v": MESSAGE_VERSION, "message": data.decode()}
    return {"v": IN_EVENT, "message": str(seq)}


def _load(session: str, limit: int | None, connection: Connection) -> list[Message]:
    newest_first = _LOAD.where(_its.session == session).order_by(_its.position.desc())
    messages: list[Message] = []
    query = newest_first.limit(limit)
    while limit is None or len(messages) < limit:
        rows = rows_of(connection.execute(query))
        readable = (_read(session, *row) for row in rows)
        messages += [message for message in readable if message is not None]
        if not rows or limit is None:
            break
        query = newest_first.where(_its.position < rows[-1][0]).limit(limit - len(messages))  # for those left out
    messages.reverse()
    return messages


def _read(session: str, position: int, version: int, stored: str | None) -> Message | None:
    """See `read_message`; of `IN_EVENT`, `stored` is the event's data, None where it is gone."""
    if version == IN_EVENT:
        version, stored = MESSAGE_VERSION, message_in(stored)
    return read_message(session, position, version, stored or "")
