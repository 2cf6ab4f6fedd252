"""A daemon thread with an event loop of its own, for connections that many loops and threads use.

A connection belongs to the loop that opened it, and a store outlives loops: `asyncio.run` twice, a server and its
threads, a test. So the connections of a store live here, and their work is awaited from wherever it is asked for.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, Generic, Protocol, TypeVar

from glassloop.core.errors import StoreError

T = TypeVar("T")

_log = logging.getLogger("glassloop.stores")

_EXIT_S = 5.0


class Resource(Protocol):
    """What lives on the loop: connections."""

    async def close(self) -> None:
        """Close them; the loop ends."""
        ...


R = TypeVar("R", bound=Resource)


class LoopThread(Generic[R]):
    """One thread, its loop, and the resource that lives on it. All are made when the first call comes.

    Args:
        name: of the thread.
        what: the store, for messages.
        make: makes the resource, on the thread.
    """

    def __init__(self, name: str, what: str, make: Callable[[], R]) -> None:
        self._name = name
        self._what = what
        self._make = make
        self._begin()
        _known.add(self)

    def _begin(self) -> None:
        self._gate = threading.Lock()  # orders calls and the end
        self._life: _Life[R] | None = None
        self._stopped = False

    async def call(self, work: Callable[[R], Coroutine[Any, Any, T]]) -> T:
        """Await `work(resource)` on the thread and return what it returns, or raise what it raises.

        A caller that is cancelled gives up its answer, not the work.

        Raises:
            StoreError: the thread has been stopped.
        """
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()

        def deliver(task: asyncio.Task[T]) -> None:
            try:
                loop.call_soon_threadsafe(_settle, answer, task)
            except RuntimeError:
                _ = task.cancelled() or task.exception()  # the caller's loop is closed: nobody waits any more

        self._submit(work, deliver)
        return await answer

    def post(self, work: Callable[[R], Coroutine[Any, Any, object]]) -> None:
        """Let `work` be done without waiting for it; what it raises is logged. Raises like `call`."""

        def told(task: asyncio.Task[object]) -> None:
            if not task.cancelled() and (error := task.exception()) is not None:
                _log.warning("%s could not be written: %s", self._what, error)

        self._submit(work, told)

    def _submit(self, work: Callable[[R], Coroutine[Any, Any, T]], done: Callable[[asyncio.Task[T]], None]) -> None:
        with self._gate:
            if self._stopped:
                raise StoreError(f"{self._what} is closed.")
            if self._life is None:
                self._life = _Life(self._name, self._make)
            self._life.submit(work, done)

    def stop(self) -> Future[None]:
        """Let the loop end after the work that it has; the future is done when the resource is closed."""
        with self._gate:
            self._stopped = True
            if self._life is None:
                ended: Future[None] = Future()
                ended.set_result(None)
                return ended
            self._life.finish()
            return self._life.ended

    async def close(self) -> None:
        """`stop` and wait; idempotent."""
        await asyncio.shield(asyncio.wrap_future(self.stop()))

    def restart(self) -> None:
        """After a fork, in the child: the thread is gone, and its connections are the parent's."""
        stopped, life = self._stopped, self._life
        self._begin()
        self._stopped = stopped
        if life is not None:
            _inherited.append(life)

    def join(self, timeout: float) -> None:
        """Wait for the thread to end."""
        if self._life is not None:
            self._life.thread.join(timeout)


class _Life(Generic[R]):
    """The thread while it runs."""

    def __init__(self, name: str, make: Callable[[], R]) -> None:
        self.ended: Future[None] = Future()
        self._make = make
        self._resource: R | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._finishing = asyncio.Event()
        self._loop = asyncio.new_event_loop()  # here, so that nobody has to wait for the thread
        self.thread = threading.Thread(target=self._run, name=name, daemon=True)
        _running.add(self)
        self.thread.start()

    def submit(self, work: Callable[[R], Coroutine[Any, Any, T]], done: Callable[[asyncio.Task[T]], None]) -> None:
        self._loop.call_soon_threadsafe(self._take, work, done)

    def finish(self) -> None:
        if not self.ended.done():
            self._loop.call_soon_threadsafe(self._finishing.set)

    def _take(self, work: Callable[[R], Coroutine[Any, Any, T]], done: Callable[[asyncio.Task[T]], None]) -> None:
        task = asyncio.ensure_future(self._do(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(done)

    async def _do(self, work: Callable[[R], Coroutine[Any, Any, T]]) -> T:
        if self._resource is None:
            self._resource = self._make()
        return await work(self._resource)

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._loop.close()  # waits for no thread, and starts none: this may be the end of the interpreter
            _running.discard(self)
            self.ended.set_result(None)

    async def _serve(self) -> None:
        await self._finishing.wait()
        while self._tasks:
            await asyncio.wait(self._tasks)
        if self._resource is not None:
            try:
                await self._resource.close()
            except Exception as error:  # noqa: BLE001 - the thread ends whatever the server says to it
                _log.warning("A store could not be closed cleanly: %s", error)


def _settle(answer: asyncio.Future[T], task: asyncio.Task[T]) -> None:
    if task.cancelled():
        answer.cancel()
    elif (error := task.exception()) is not None:
        if not answer.done():
            answer.set_exception(error)
    elif not answer.done():
        answer.set_result(task.result())


_known: weakref.WeakSet[LoopThread[Any]] = weakref.WeakSet()
_running: set[_Life[Any]] = set()  # kept alive by their threads, until these end
_inherited: list[_Life[Any]] = []  # a child must neither use its parent's connections nor collect and so close them


def _after_fork_in_child() -> None:
    _inherited.extend(_running)
    _running.clear()
    for thread in list(_known):
        thread.restart()


def _at_exit() -> None:
    """Let what has been posted be written, and close the connections."""
    lives = list(_running)
    for life in lives:
        life.finish()
    deadline = time.monotonic() + _EXIT_S
    for life in lives:
        life.thread.join(max(0.0, deadline - time.monotonic()))


atexit.register(_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
