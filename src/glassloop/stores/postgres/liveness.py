"""Who still drives what is in a PostgreSQL store, which many machines share."""

from __future__ import annotations

import asyncio
from functools import partial

from sqlalchemy import Connection, func, select

from glassloop.stores.owner import alive_here
from glassloop.stores.postgres.engine import Database
from glassloop.stores.postgres.schema import processes


class PostgresLiveness:
    """A process on this machine lives until it ends, one elsewhere until its lease has lapsed by the database's clock.

    Args:
        database: the database, in which each process that writes renews its lease.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    async def alive(self, owner: str) -> bool:
        """See `Liveness.alive`; never in doubt.

        Raises:
            StoreError: the server failed.
        """
        here = await asyncio.to_thread(alive_here, owner)
        return await self._database.read(partial(_leased, owner)) if here is None else here


def _leased(owner: str, connection: Connection) -> bool:
    query = select(processes.c.until > func.clock_timestamp()).where(processes.c.process == owner)
    return bool(connection.execute(query).scalar())
