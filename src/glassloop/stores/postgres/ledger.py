"""The ledger in PostgreSQL."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from sqlalchemy import BigInteger, ColumnElement, Connection, cast, delete, func, literal, select, update
from sqlalchemy.dialects.postgresql import insert

from glassloop.journal.ledger import DAY, Claim, InDoubt, InFlight, Owner, Yours, judged
from glassloop.stores.owner import is_gone_here, this_process
from glassloop.stores.postgres.engine import Database
from glassloop.stores.postgres.errors import Repeat
from glassloop.stores.postgres.line import topic_of
from glassloop.stores.postgres.schema import ledger, rows_of

_POLL_S = 0.5  # a process that has ended tells nobody
_SWEEP_S = 600.0

Clock = Callable[[], float]


class PostgresLedger:
    """A ledger in PostgreSQL. A claim also lapses as soon as the process that made it has ended on this host; of one on
    another host only the claim's own lease tells, for it may still be at work though nothing is heard of it.

    Args:
        database: the database.
        clock: UTC seconds, the same for all processes; default the database's own.
    """

    def __init__(self, database: Database, clock: Clock | None = None) -> None:
        self._database = database
        self._clock = clock
        self._swept = time.monotonic()

    async def claim(self, key: str, owner: Owner, lease: float, ttl: float = DAY) -> Claim:
        """See `Ledger.claim`."""
        self._sweep()
        wanted = partial(self._claim, key, owner, int(lease * 1000), int(ttl * 1000))
        claim, process = await self._database.write(wanted)
        if isinstance(claim, InFlight) and await asyncio.to_thread(is_gone_here, process):
            return InDoubt(claim.owner)
        return claim

    async def settle(self, key: str, owner: Owner, result: bytes) -> bool:
        """See `Ledger.settle`."""
        return await self._database.write(partial(settle_claim, key, owner, result, self._clock), topic=_topic(key))

    async def release(self, key: str, owner: Owner | None = None) -> None:
        """See `Ledger.release`."""
        await self._database.write(partial(_release, key, owner), topic=_topic(key))

    async def wait(self, key: str) -> None:
        """See `Ledger.wait`."""
        await self._database.listen()
        with self._database.feed.subscribe(_topic(key)) as news:
            while True:
                entry = await self._database.read(partial(_find, key, self._clock))
                if entry is None or not isinstance(entry.judge(None), InFlight):
                    return
                if await asyncio.to_thread(is_gone_here, entry.process):
                    return
                await news.wait(_POLL_S)

    async def close(self) -> None:
        """See `Ledger.close`."""
        await self._database.close()

    def _claim(self, key: str, owner: Owner, lease: int, ttl: int, connection: Connection) -> tuple[Claim, str]:
        """The claim, and the process that holds it where it is another's."""
        now = _now(self._clock)
        mine = {
            "run_id": owner[0],
            "call_id": owner[1],
            "process": str(this_process()),
            "until": now + lease,
            "ttl": ttl,
        }
        put = insert(ledger).values(key=key, **mine).on_conflict_do_nothing()
        if connection.execute(put).rowcount:
            return Yours(), ""
        entry = _find(key, self._clock, connection, lock=True)
        if entry is None:
            raise Repeat("The claim was released at this moment.")
        claim = entry.judge(owner)
        if isinstance(claim, Yours):
            connection.execute(update(ledger).where(ledger.c.key == key).values(**mine, result=None))
        return claim, entry.process

    def _sweep(self) -> None:
        """Drop what is no longer remembered, now and then. Doubt stays."""
        if time.monotonic() - self._swept > _SWEEP_S:
            self._swept = time.monotonic()
            forgotten = delete(ledger).where(ledger.c.result.is_not(None), ledger.c.until <= _now(self._clock))
            self._database.post(lambda connection: connection.execute(forgotten))


class _Entry(NamedTuple):
    run_id: str
    call_id: str
    process: str
    result: bytes | None
    lasts: bool

    def judge(self, asker: Owner | None) -> Claim:
        """What it means for who asks."""
        return judged((self.run_id, self.call_id), self.result, asker, lasts=self.lasts)


def settle_claim(key: str, owner: Owner, result: bytes, clock: Clock | None, connection: Connection) -> bool:
    """Settle inside the transaction that is open; see `Ledger.settle`."""
    day, now = int(DAY * 1000), _now(clock)
    put = insert(ledger).values(
        key=key,
        run_id=owner[0],
        call_id=owner[1],
        process=str(this_process()),
        until=now + day,
        ttl=day,
        result=result,
    )
    settle = put.on_conflict_do_update(
        index_elements=[ledger.c.key],
        set_={"until": ledger.c.ttl + now, "result": put.excluded.result},
        where=(ledger.c.run_id == put.excluded.run_id) & (ledger.c.call_id == put.excluded.call_id),
    )
    return connection.execute(settle).rowcount == 1


def _topic(key: str) -> str:
    return topic_of("claim", key)


def _now(clock: Clock | None) -> ColumnElement[Any]:
    """UTC milliseconds."""
    if clock is not None:
        return literal(int(clock() * 1000), BigInteger)
    return cast(func.extract("epoch", func.clock_timestamp()) * 1000, BigInteger)


def _find(key: str, clock: Clock | None, connection: Connection, *, lock: bool = False) -> _Entry | None:
    its = ledger.c
    query = select(its.run_id, its.call_id, its.process, its.result, its.until > _now(clock)).where(its.key == key)
    found = rows_of(connection.execute(query.with_for_update() if lock else query))
    return _Entry(*found[0]) if found else None


def _release(key: str, owner: Owner | None, connection: Connection) -> None:
    its = ledger.c
    mine = [] if owner is None else [its.run_id == owner[0], its.call_id == owner[1]]
    connection.execute(delete(ledger).where(its.key == key, its.result.is_(None), *mine))
