"""Threads of our own for sync tools: daemons, so that a hung tool never holds up an exit or anybody else's tool."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from contextvars import ContextVar, copy_context
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from glassloop.core.doorbell import doorbell

T = TypeVar("T")

MOST_THREADS = 64
IDLE_SECONDS = 30.0
_MOST_LOST = 4 * MOST_THREADS
_MOST_DEPTH = 8


_depth: ContextVar[int] = ContextVar("glassloop_thread_depth", default=0)
"""How many jobs that wait for each other the code at hand is inside of."""


def _go_deeper() -> None:
    _depth.set(_depth.get() + 1)


class _Job:
    __slots__ = ("abandoned", "bell", "context", "ended", "failure", "future", "lost", "result", "running", "work")

    def __init__(self, work: Callable[[], Any]) -> None:
        self.work = work
        self.context = copy_context()
        self.context.run(_go_deeper)
        self.bell = doorbell()
        self.future: asyncio.Future[None] | None = None
        self.running = False
        self.ended = False
        self.abandoned = False
        self.lost = False
        self.result: Any = None
        self.failure: BaseException | None = None

    def outcome(self) -> Any:
        """What the function returned or raised."""
        failure, self.failure = self.failure, None
        if failure is None:
            return self.result
        try:
            raise failure
        finally:
            del failure  # its traceback holds this frame


class Threads:
    """A pool that serves any number of event loops: each job carries the loop that waits for it.

    A thread whose caller was cancelled is lost: nobody waits for it, its late result is dropped, another may take its
    place, and it ends when its function does. Idle threads end by themselves.

    Args:
        most: threads at work at once, the lost ones not counted; further jobs wait for their turn.
        idle_seconds: how long a thread waits for its next job.
    """

    def __init__(self, most: int = MOST_THREADS, idle_seconds: float = IDLE_SECONDS) -> None:
        self._most = most
        self._idle_seconds = idle_seconds
        self._jobs: SimpleQueue[_Job] = SimpleQueue()
        self._lock = threading.Lock()
        self._alive = 0  # threads, the lost ones not counted
        self._free = 0  # threads that wait, with no job meant for them
        self._backlog = 0  # jobs that no thread is meant for yet
        self._lost = 0

    async def run(self, function: Callable[[], T]) -> T:
        """Call `function` in a thread, with a copy of the caller's context variables.

        Raises:
            asyncio.CancelledError: the caller was cancelled; a job that has not begun never will.
        """
        job = _Job(function)
        self._submit(job)
        try:
            await asyncio.sleep(0)  # most jobs are over within one turn of a busy loop, which then need not be woken up
            with self._lock:
                if not job.ended:
                    job.future = asyncio.get_running_loop().create_future()
            if job.future is not None:
                await job.future
            return job.outcome()
        except asyncio.CancelledError:
            self._abandon(job)
            raise

    def _submit(self, job: _Job) -> None:
        with self._lock:
            hire = False
            if self._free:
                self._free -= 1
            elif self._alive < self._most:
                self._alive += 1
                hire = True
            else:
                self._backlog += 1
        if hire:
            self._hire()
        self._jobs.put(job)

    def _hire(self) -> None:
        try:
            threading.Thread(target=self._serve, name="glassloop-tool", daemon=True).start()
        except RuntimeError:  # the system gives no more threads
            with self._lock:
                self._alive -= 1
            raise

    def _abandon(self, job: _Job) -> None:
        with self._lock:
            job.abandoned = True
            if not job.running or self._lost >= _MOST_LOST:
                return
            job.lost = True
            self._lost += 1
            hire = self._backlog > 0
            if hire:
                self._backlog -= 1
            else:
                self._alive -= 1
        if not hire:
            return
        try:
            self._hire()
        except RuntimeError:
            with self._lock:
                self._backlog += 1

    def _serve(self) -> None:
        while True:
            try:
                job = self._jobs.get(timeout=self._idle_seconds)
            except Empty:
                if self._may_leave():
                    return
                continue
            begun = self._begin(job)
            if begun:
                _work(job)
            if self._end(job):
                return
            if job.future is not None:
                job.bell.ring(partial(_settle, job.future))  # last, so that the loop finds this thread out of its way
            del job  # a waiting thread must not keep the last result alive

    def _begin(self, job: _Job) -> bool:
        with self._lock:
            job.running = not job.abandoned
            return job.running

    def _end(self, job: _Job) -> bool:
        """Note that this thread has done its job; True if it is lost and must end."""
        with self._lock:
            if job.lost:
                self._lost -= 1
                return True
            job.running = False
            job.ended = True
            if self._backlog:
                self._backlog -= 1
            else:
                self._free += 1
            return False

    def _may_leave(self) -> bool:
        """Not while a job is meant for this thread: every job put is either backlog or has a thread that waits."""
        with self._lock:
            if not self._free:
                return False
            self._free -= 1
            self._alive -= 1
            return True


def _work(job: _Job) -> None:
    try:
        job.result = job.context.run(job.work)
    except StopIteration as error:  # no coroutine can raise it
        job.failure = RuntimeError("the function raised StopIteration")
        job.failure.__cause__ = error
    except BaseException as error:  # noqa: BLE001 - it belongs to whoever waits
        job.failure = error


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


_pools = [Threads()]
_growing = threading.Lock()


def _pool() -> Threads:
    """The threads for jobs of this depth: a job of a job must never wait for a thread that waits for it."""
    depth = min(_depth.get(), _MOST_DEPTH)
    if depth >= len(_pools):
        with _growing:
            _pools.extend(Threads() for _ in range(depth + 1 - len(_pools)))
    return _pools[depth]


def _start_afresh() -> None:
    global _pools, _growing
    _pools, _growing = [Threads()], threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_afresh)  # threads do not survive a fork


async def run_in_thread(function: Callable[[], T]) -> T:
    """Call `function` in a daemon thread and wait for it; the loop is never blocked.

    The threads are shared by the whole process: jobs of all event loops, up to 64 at once, and as many again for those
    that a job begins and waits for (a tool that runs an agent). They hold nothing of a loop, and a forked child starts
    with none.

    Raises:
        asyncio.CancelledError: the caller was cancelled; the thread is left to itself and a late result is dropped.
        RuntimeError: the system gives no more threads.
    """
    return await _pool().run(function)
