"""A PostgreSQL database, shared by journal, sessions, ledger and whatever else is kept there."""

from __future__ import annotations

import asyncio
import random
import weakref
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

from sqlalchemy import Connection, func, select
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import create_async_engine

from glassloop.journal.feed import Feed
from glassloop.stores.loop_thread import LoopThread
from glassloop.stores.postgres.address import Address
from glassloop.stores.postgres.errors import DATABASE_ERRORS, CutOff, explain, is_cut_off, may_repeat
from glassloop.stores.postgres.line import Line
from glassloop.stores.postgres.schema import STORE, Schema, check_server, is_current, migrate, rows_of
from glassloop.stores.postgres.wire import connect

T = TypeVar("T")

_CONNECTIONS = 10  # of the 100 that a server takes by default, for one process; one more listens
_FREE_S = 60.0
_REPEATS = 20


class Database:
    """A PostgreSQL database.

    Usable from several event loops and threads, and after a fork: its connections live on a thread of their own.
    Nothing is opened before the first call. Dropped without `close`, it finishes what it was given.

    Args:
        url: `postgresql://user:password@host:port/database`, with libpq's options after `?`.

    Raises:
        ConfigurationError: the URL is none.
    """

    def __init__(self, url: str) -> None:
        self.address = Address.parse(url)
        self.feed = Feed()
        """Who waits in this process for what may be written by others; see `topic_of` in line.py."""
        name = f"The store {self.address.url}"
        self._thread = LoopThread("glassloop-postgres", name, partial(_Server, self.address, self.feed))
        weakref.finalize(self, self._thread.stop).atexit = False

    async def write(
        self,
        work: Callable[[Connection], T],
        *,
        schema: Schema = STORE,
        topic: str | None = None,
        order: str | None = None,
        alone: bool = False,
    ) -> T:
        """Do `work` in a transaction and return its result once that is on disk.

        Args:
            work: called on the database's thread with a connection whose transaction is open. It must not block or
                wait for anything but that connection, and may be called again if the transaction was undone.
            schema: whose tables it needs; they are made, or brought up to date, before the first work.
            topic: who waits for news of it is woken afterwards, in every process that has the database open.
            order: work of one order is done one after the other, in the order of the calls.
            alone: the work is a single statement, which commits itself: one round trip instead of three.

        Raises:
            StoreError: the server failed, or the store is closed. Where the connection broke during a commit it is
                `CutOff`: whether that has happened is told by reading.
            ConfigurationError: the database cannot be used.
                And what `work` raises; then nothing has happened.
        """
        return await self._thread.call(lambda server: server.write(work, schema, topic, order, alone))

    async def read(self, work: Callable[[Connection], T], *, schema: Schema = STORE) -> T:
        """Do `work`, which only reads, each statement for itself; otherwise like `write`."""
        return await self._thread.call(lambda server: server.read(work, schema))

    def post(self, work: Callable[[Connection], object], *, topic: str | None = None, order: str | None = None) -> None:
        """`write` without waiting for it; a failure is logged."""
        self._thread.post(lambda server: server.write(work, STORE, topic, order, False))

    def tell(self, topic: str) -> None:
        """Wake those who wait for news of a topic."""
        self._thread.post(lambda server: server.tell(topic))

    async def listen(self) -> None:
        """Hear from now on what other processes tell."""
        await self._thread.call(lambda server: server.listen())

    async def close(self) -> None:
        """Finish what was begun and close all connections; idempotent."""
        await self._thread.close()


class _Server:
    """The connections to a database; lives on the thread's loop."""

    def __init__(self, address: Address, feed: Feed) -> None:
        dial = partial(connect, address)
        self._address = address
        self._feed = feed
        self._engine = create_async_engine(
            "postgresql+asyncpg://",
            async_creator=dial,
            pool_size=_CONNECTIONS,
            max_overflow=0,
            pool_timeout=_FREE_S,
            hide_parameters=True,  # what users say must not stand in a log of errors
        )
        self._reading = self._engine.execution_options(isolation_level="AUTOCOMMIT")
        self._line = Line(dial, str(address), feed)
        self._ready: set[str] = set()
        self._opening = asyncio.Lock()
        self._orders: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()

    async def write(
        self, work: Callable[[Connection], T], schema: Schema, topic: str | None, order: str | None, alone: bool
    ) -> T:
        if order is not None:
            async with self._orders.setdefault(order, asyncio.Lock()):
                return await self.write(work, schema, topic, None, alone)
        attempt = partial(self._statement if alone else self._transaction, work)
        result = await self._patiently(attempt, schema, writes=True)
        if topic is not None:
            await self.tell(topic)
        return result

    async def tell(self, topic: str) -> None:
        self._feed.publish(topic)
        self._line.tell(topic)

    async def read(self, work: Callable[[Connection], T], schema: Schema) -> T:
        return await self._patiently(partial(self._query, work), schema)

    async def listen(self) -> None:
        await self._patiently(self._line.open, STORE)

    async def close(self) -> None:
        await self._line.close()
        await self._engine.dispose()

    async def _patiently(self, attempt: Callable[[], Any], schema: Schema, *, writes: bool = False) -> Any:
        """Do it, again where the server has undone it or a kept connection turns out to be dead."""
        repeats = 0
        while True:
            try:
                await self._prepare(STORE)
                await self._prepare(schema)
                if writes:
                    await self._line.open()
                return await attempt()
            except DATABASE_ERRORS as error:
                if repeats == _REPEATS or not may_repeat(error) or (repeats > 1 and is_cut_off(error)):
                    raise explain(self._address, error) from error
            repeats += 1
            await asyncio.sleep(random.uniform(0, 0.01 * repeats))

    async def _transaction(self, work: Callable[[Connection], T]) -> T:
        async with self._engine.connect() as connection:
            result = await connection.run_sync(work)
            with self._committing():
                await connection.commit()
        return result

    async def _statement(self, work: Callable[[Connection], T]) -> T:
        with self._committing():
            return await self._query(work)

    @contextmanager
    def _committing(self) -> Generator[None]:
        try:
            yield
        except DBAPIError as error:
            if is_cut_off(error):
                message = f"{self._address} went away during a commit, which may or may not have happened."
                raise CutOff(message) from error
            raise

    async def _query(self, work: Callable[[Connection], T]) -> T:
        async with self._reading.connect() as connection:
            return await connection.run_sync(work)

    async def _prepare(self, schema: Schema) -> None:
        """See that the server can be used, and make the tables, at the first work."""
        if schema.name in self._ready:
            return
        async with self._opening:
            if schema.name in self._ready:
                return
            if not await self._query(partial(_look, schema)):
                await self._transaction(partial(migrate, schema))
            self._ready.add(schema.name)


def _look(schema: Schema, connection: Connection) -> bool:
    names = ("server_version_num", "server_encoding", "transaction_read_only")
    [(version, encoding, read_only)] = rows_of(connection.execute(select(*map(func.current_setting, names))))
    check_server(int(version), encoding, read_only=read_only == "on")
    return is_current(schema, connection)
