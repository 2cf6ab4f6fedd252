"""A daemon thread that owns one SQLite connection, and answers calls on the event loops that they came from."""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Protocol

from glassloop.core.doorbell import Doorbell, doorbell
from glassloop.core.errors import StoreError

Work = Callable[[sqlite3.Cursor], Any]
"""What is done on the thread. It may be done again if a transaction had to be repeated."""

_log = logging.getLogger("glassloop.stores")

_BATCH = 256
_EXIT_S = 5.0
_FORK_S = 10.0
_SETBACK_S = 10.0


class Job:
    """One call: its work, who waits for the answer (nobody, for a posted one), and the answer."""

    __slots__ = ("bell", "error", "future", "result", "then", "work")

    def __init__(self, work: Work, then: Callable[[], None] | None = None) -> None:
        self.work = work
        self.then = then
        self.bell: Doorbell | None = None
        self.future: asyncio.Future[Any] | None = None
        self.result: Any = None
        self.error: Exception | None = None


class Ticker(Protocol):
    """Something to be done now and then, while there is a need."""

    interval: float
    """Seconds."""

    def needed(self) -> bool:
        """Whether there is a need at this moment."""
        ...

    def tick(self, connection: sqlite3.Connection) -> None:
        """Do it."""
        ...


class Worker:
    """One thread with one connection. Both are made when the first call comes.

    Args:
        name: of the thread.
        path: of the file, for messages.
        connect: opens the connection; its errors go to those who called.
        execute: does the work of many jobs, filling in `result` or `error` of each.
        ticker: what else the thread does, now and then.
    """

    def __init__(
        self,
        name: str,
        path: str,
        *,
        connect: Callable[[], sqlite3.Connection],
        execute: Callable[[sqlite3.Connection, Sequence[Job]], None],
        ticker: Ticker | None = None,
    ) -> None:
        self._name = name
        self.path = path
        self._connect = connect
        self._execute = execute
        self._ticker = ticker
        self._begin()
        _known.add(self)

    def _begin(self) -> None:
        self._gate = threading.Lock()  # orders calls and the end
        self._busy = threading.Lock()  # held while the connection is in use
        self._queue: SimpleQueue[Job | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._connection: sqlite3.Connection | None = None
        self._stopped = False
        self._next_tick = 0.0
        self._ended: Future[None] = Future()

    def submit(self, job: Job) -> None:
        """Queue a job; jobs are done in the order in which they were queued.

        Raises:
            StoreError: the worker has been stopped.
        """
        with self._gate:
            if self._stopped:
                raise StoreError(f"The store {self.path} is closed.")
            if self._thread is None:
                self._thread = self._start()
            self._queue.put(job)

    async def call(self, work: Work) -> Any:
        """Do `work` on the thread and return what it returns, or raise what it raises.

        A caller that is cancelled gives up its answer, not the work.
        """
        job = Job(work)
        job.bell = doorbell()
        job.future = asyncio.get_running_loop().create_future()
        self.submit(job)
        return await job.future

    def stop(self) -> Future[None]:
        """Let the thread end after the jobs that it has; the future is done when its connection is closed."""
        with self._gate:
            if not self._stopped:
                self._stopped = True
                if self._thread is None:
                    self._ended.set_result(None)
                else:
                    self._queue.put(None)
        return self._ended

    def _start(self) -> threading.Thread:
        if self.path in _unusable:
            raise StoreError(
                f"The store {self.path} was busy when this process was forked, and cannot be used in it: "
                'fork before using it, or start processes with "spawn".'
            )
        thread = threading.Thread(target=self._serve, name=self._name, daemon=True)
        _running.add(self)
        thread.start()
        return thread

    def _serve(self) -> None:
        open_ = True
        while open_:
            jobs, open_ = self._take()
            if jobs:
                self._answer(jobs)
            self._tick()
            del jobs  # a sleeping thread must not keep answers, or whoever the work belonged to, alive
        self.disconnect()
        _running.discard(self)
        self._ended.set_result(None)

    def _take(self) -> tuple[list[Job], bool]:
        """Wait for jobs; those that are there, and whether more may come."""
        try:
            job = self._queue.get(timeout=self._until_tick())
        except Empty:
            return [], True
        jobs: list[Job] = []
        while job is not None:
            jobs.append(job)
            if len(jobs) == _BATCH or self._queue.empty():
                return jobs, True
            job = self._queue.get()
        return jobs, False

    def _answer(self, jobs: Sequence[Job]) -> None:
        try:
            with self._busy:
                self._execute(self._connected(), jobs)
        except Exception as error:  # noqa: BLE001 - whatever happened, everybody who waits must hear of it
            for job in jobs:
                job.error = error
            self.disconnect()
        _deliver(jobs)

    def _connected(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = self._connect()
        return self._connection

    def _until_tick(self) -> float | None:
        if self._ticker is None or not self._ticker.needed():
            return None
        return max(0.0, self._next_tick - time.monotonic())

    def _tick(self) -> None:
        if self._ticker is None or self._until_tick() != 0.0:
            return
        self._next_tick = time.monotonic() + self._ticker.interval
        try:
            with self._busy:
                self._ticker.tick(self._connected())
        except Exception as error:  # noqa: BLE001 - the thread must live on
            _log.warning("The store %s cannot be watched at the moment: %s", self.path, error)
            self._next_tick += _SETBACK_S

    def disconnect(self) -> None:
        """Close the connection; the next job opens another one."""
        with self._busy:
            self._drop_connection()

    def _drop_connection(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with _closing:
                connection.close()

    def pause(self, deadline: float) -> bool:
        """Before a fork: close the connection and let nobody open another until `resume`."""
        if not self._busy.acquire(timeout=max(0.0, deadline - time.monotonic())):
            return False
        self._drop_connection()
        return True

    def resume(self) -> None:
        """After a fork, in the parent."""
        self._busy.release()

    def restart(self) -> None:
        """After a fork, in the child: the thread is gone, and its jobs are the parent's."""
        stopped = self._stopped
        self._begin()
        if stopped:
            self.stop()

    def join(self, timeout: float) -> None:
        """Wait for the thread to end."""
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout)


def _deliver(jobs: Sequence[Job]) -> None:
    """Wake each loop once for all of its jobs."""
    by_loop: dict[Doorbell, list[Job]] = {}
    for job in jobs:
        if job.bell is not None:
            by_loop.setdefault(job.bell, []).append(job)
        elif job.error is not None:
            _log.warning("A store could not be written: %s", job.error)
        elif job.then is not None:
            job.then()
    for bell, answered in by_loop.items():
        bell.ring(partial(_settle, answered))


def _settle(jobs: Sequence[Job]) -> None:
    for job in jobs:
        future = job.future
        if future is None or future.done():
            continue
        if job.error is None:
            future.set_result(job.result)
        else:
            future.set_exception(job.error)


_closing = threading.Lock()
"""Connections are closed one at a time: SQLite's last one takes the log away, and of two that close a file at once
each may still see the other. A child of a fork gets a new one."""

_known: weakref.WeakSet[Worker] = weakref.WeakSet()
_running: set[Worker] = set()  # kept alive by their threads, until these end

# Around a fork. SQLite's connections must never be carried into a child (sqlite.org/howtocorrupt.html, section 2.6).

_forking = threading.Lock()
_paused: list[tuple[Worker, bool]] = []
_unusable: set[str] = set()  # files that an inherited connection has open: SQLite would take its locks for ours


def _before_fork() -> None:
    _forking.acquire()
    deadline = time.monotonic() + _FORK_S
    _paused.extend([(worker, worker.pause(deadline)) for worker in list(_running)])


def _after_fork_in_parent() -> None:
    for worker, clean in _paused:
        if clean:
            worker.resume()
    _paused.clear()
    _forking.release()


def _after_fork_in_child() -> None:
    global _closing
    _closing = threading.Lock()
    _unusable.update(worker.path for worker, clean in _paused if not clean)
    for worker in list(_known):
        worker.restart()
    _paused.clear()
    _running.clear()
    _forking.release()


def _at_exit() -> None:
    """Let what has been posted be written, and close the files."""
    workers = list(_running)
    for worker in workers:
        worker.stop()
    deadline = time.monotonic() + _EXIT_S
    for worker in workers:
        worker.join(max(0.0, deadline - time.monotonic()))


atexit.register(_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
