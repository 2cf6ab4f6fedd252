"""The ledger in a SQLite file."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from functools import partial

from glassloop.journal.feed import Feed
from glassloop.journal.ledger import DAY, Claim, InFlight, Owner, Yours, judged
from glassloop.stores.owner import Process, alive, this_process
from glassloop.stores.sqlite.database import Database, poll_after

_FIND = "SELECT run_id, call_id, process, until, result FROM glassloop_ledger WHERE key = ?"
_PUT = """
    INSERT INTO glassloop_ledger (key, run_id, call_id, process, until, ttl) VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT (key) DO UPDATE SET run_id = excluded.run_id, call_id = excluded.call_id, process = excluded.process,
    until = excluded.until, ttl = excluded.ttl, result = NULL
"""
_SETTLE = """
    INSERT INTO glassloop_ledger (key, run_id, call_id, process, until, ttl, result) VALUES (?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (key) DO UPDATE SET until = ttl + ?, result = excluded.result
    WHERE run_id = excluded.run_id AND call_id = excluded.call_id
"""
_SWEEP_MS = 600_000


class SqliteLedger:
    """A ledger in a SQLite file; a claim also lapses as soon as the process that made it is gone.

    Args:
        database: the file.
        clock: UTC seconds, the same for all processes that use the file.
    """

    def __init__(self, database: Database, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._clock = clock
        self._feed = Feed()
        self._swept = 0

    async def claim(self, key: str, owner: Owner, lease: float, ttl: float = DAY) -> Claim:
        """See `Ledger.claim`."""
        return await self._database.write(partial(self._claim, key, owner, int(lease * 1000), int(ttl * 1000)))

    async def settle(self, key: str, owner: Owner, result: bytes) -> bool:
        """See `Ledger.settle`."""
        settled = await self._database.write(partial(settle_claim, key, owner, result, self._now()))
        self._feed.publish(key)
        return settled

    async def release(self, key: str, owner: Owner | None = None) -> None:
        """See `Ledger.release`."""
        await self._database.write(partial(_release, key, owner))
        self._feed.publish(key)

    async def wait(self, key: str) -> None:
        """See `Ledger.wait`."""
        polls = 0
        with self._feed.subscribe(key) as news:
            while await self._database.read(partial(self._in_flight, key)):
                await news.wait(poll_after(polls))
                polls += 1

    async def close(self) -> None:
        """See `Ledger.close`."""
        await self._database.close()

    def _now(self) -> int:
        return int(self._clock() * 1000)

    def _claim(self, key: str, owner: Owner, lease: int, ttl: int, cursor: sqlite3.Cursor) -> Claim:
        now = self._now()
        self._sweep(now, cursor)
        found = cursor.execute(_FIND, (key,)).fetchone()
        claim: Claim = Yours() if found is None else _judge(found, owner, now)
        if isinstance(claim, Yours):
            cursor.execute(_PUT, (key, *owner, str(this_process()), now + lease, ttl))
        return claim

    def _in_flight(self, key: str, cursor: sqlite3.Cursor) -> bool:
        found = cursor.execute(_FIND, (key,)).fetchone()
        return found is not None and isinstance(_judge(found, None, self._now()), InFlight)

    def _sweep(self, now: int, cursor: sqlite3.Cursor) -> None:
        """Drop what is no longer remembered, now and then. Doubt stays."""
        if now - self._swept > _SWEEP_MS:
            self._swept = now
            cursor.execute("DELETE FROM glassloop_ledger WHERE result IS NOT NULL AND until <= ?", (now,))


def settle_claim(key: str, owner: Owner, result: bytes, now: int, cursor: sqlite3.Cursor) -> bool:
    """Settle inside the transaction that is open; see `Ledger.settle`. `now` is UTC milliseconds."""
    day = int(DAY * 1000)
    cursor.execute(_SETTLE, (key, *owner, str(this_process()), now + day, day, result, now))
    return cursor.rowcount == 1


def _judge(found: tuple[str, str, str, int, bytes | None], asker: Owner | None, now: int) -> Claim:
    run_id, call_id, process, until, result = found
    lasts = now < until and (result is not None or alive(Process.parse(process)) is not False)
    return judged((run_id, call_id), result, asker, lasts=lasts)


def _release(key: str, owner: Owner | None, cursor: sqlite3.Cursor) -> None:
    if owner is None:
        cursor.execute("DELETE FROM glassloop_ledger WHERE key = ? AND result IS NULL", (key,))
    else:
        cursor.execute(
            "DELETE FROM glassloop_ledger WHERE key = ? AND result IS NULL AND run_id = ? AND call_id = ?",
            (key, *owner),
        )
