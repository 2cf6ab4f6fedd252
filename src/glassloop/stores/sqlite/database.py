"""One SQLite file: a thread that writes and, so that no reader waits for a writer, a thread that reads."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
import weakref
from collections.abc import Callable
from functools import cache, partial
from typing import Protocol, TypeVar

from glassloop.stores.sqlite.connection import connect
from glassloop.stores.sqlite.same_file import SameFile
from glassloop.stores.sqlite.worker import Job, Ticker, Worker
from glassloop.stores.sqlite.writer import GroupCommit, OneByOne

T = TypeVar("T")


class Connect(Protocol):
    """Opens a file whose tables are there and up to date; see `connect` of stores/sqlite/connection.py."""

    def __call__(self, path: str, *, query_only: bool = False) -> sqlite3.Connection:
        """Raises ConfigurationError or StoreError."""
        ...


class Database:
    """A SQLite file, shared by journal, sessions and ledger.

    Usable from several event loops and threads, and after a fork; other processes may write the same file. Dropped
    without `close`, it finishes what it was given and closes the file.

    Args:
        path: of the file, which is created when first used; a relative path is resolved then, once, off the event loop.
        watch: what the reading thread does now and then.
        opened: opens a connection; one for those who keep more tables in the file makes them too.
    """

    def __init__(self, path: str, watch: Ticker | None = None, *, opened: Connect = connect) -> None:
        resolved = cache(lambda: os.path.realpath(path))
        file = SameFile(path, resolved)

        def open_again(*, query_only: bool) -> sqlite3.Connection:
            file.check()
            connection = opened(resolved(), query_only=query_only)
            file.opened()
            return connection

        self._writer = Worker(
            "glassloop-writer",
            path,
            connect=partial(open_again, query_only=False),
            execute=GroupCommit(path, file, cache(lambda: _turn(resolved()))),
        )
        self._reader = Worker(
            "glassloop-reader",
            path,
            connect=partial(open_again, query_only=True),
            execute=OneByOne(path, file),
            ticker=watch,
        )
        weakref.finalize(self, _stop, self._writer, self._reader).atexit = False

    async def write(self, work: Callable[[sqlite3.Cursor], T]) -> T:
        """Do `work` in a transaction and return its result once that is on disk.

        Callers that come at the same time share a transaction; what `work` raises undoes its own part alone.
        `work` may be done twice, if the first transaction was undone.

        Raises:
            StoreError: the store failed or is closed.
            ConfigurationError: the file cannot be used.
        """
        return await self._writer.call(work)

    async def read(self, work: Callable[[sqlite3.Cursor], T]) -> T:
        """Do `work`, which only reads; raises like `write`."""
        return await self._reader.call(work)

    def post(self, work: Callable[[sqlite3.Cursor], object], then: Callable[[], None] | None = None) -> None:
        """Write without waiting, in order with other writes; `then` is called, on the thread, once it is on disk."""
        self._writer.submit(Job(work, then))

    async def close(self) -> None:
        """Finish what was begun and close the file; idempotent."""
        for worker in (self._reader, self._writer):
            await asyncio.shield(asyncio.wrap_future(worker.stop()))


_turns: weakref.WeakValueDictionary[str, threading.Lock] = weakref.WeakValueDictionary()


def _turn(path: str) -> threading.Lock:
    """Whose turn it is to write a file, among the writers of this process: they need not poll for it."""
    return _turns.setdefault(path, threading.Lock())


def poll_after(polls: int) -> float:
    """Seconds until the next look for what another process may have written, after so many looks in vain."""
    return 0.05 * 2 ** min(polls, 3)


def _stop(*workers: Worker) -> None:
    for worker in workers:
        worker.stop()
