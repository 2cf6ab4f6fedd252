"""The way from sync code into the loop: one long-lived thread, the only process-wide object."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import contextvars
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")

_EXIT_S = 5.0
_CANCELLED_S = 15.0
"""Longest wait for a run that Ctrl-C has cancelled: a write gets 5 s to come to its end, and 5 s more to stop."""


class _Portal:
    def __init__(self) -> None:
        self.pid = os.getpid()
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self._serve, name="glassloop-portal", daemon=True)
        self.thread.start()

    def _serve(self) -> None:
        while True:
            try:
                self.loop.run_forever()
                break
            except (KeyboardInterrupt, SystemExit):
                continue  # raised by a tool; asyncio ends the loop with it. Its caller hears of it, the others go on
        if not asyncio.all_tasks(self.loop):  # a run that is still going stops with its process, and can be resumed
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
            self.loop.close()

    def close(self) -> None:
        """Close what was kept open between calls, e.g. connections to a model's server."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(_EXIT_S)


_lock = threading.Lock()
_portal: _Portal | None = None


def run_in_portal(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on the portal's loop and wait for it; Ctrl-C cancels it.

    The caller's context variables are seen inside. The loop outlives the call, so connections stay open between calls.

    Raises:
        RuntimeError: called from async code, which would block its own loop.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        pass
    else:
        work.close()
        raise RuntimeError("run_sync() was called inside a running event loop: use `await agent.run(...)` there.")
    loop = _open().loop
    done: Future[T] = Future()
    task: list[asyncio.Task[T]] = []
    context = contextvars.copy_context()

    def start() -> None:
        task.append(loop.create_task(work, context=context))
        task[0].add_done_callback(lambda finished: _copy(finished, done))

    loop.call_soon_threadsafe(start)
    try:
        return done.result()
    except KeyboardInterrupt:
        loop.call_soon_threadsafe(lambda: [one.cancel() for one in task])
        with contextlib.suppress(TimeoutError):
            done.exception(_CANCELLED_S)
        raise


def _copy(finished: asyncio.Task[T], done: Future[T]) -> None:
    try:
        done.set_result(finished.result())
    except BaseException as error:  # noqa: BLE001 - handed on to the caller's thread
        done.set_exception(error)


def _open() -> _Portal:
    """The portal, made on first use and again after a fork (threads do not survive one)."""
    global _portal
    with _lock:
        if _portal is None or _portal.pid != os.getpid():
            _portal = _Portal()
        return _portal


@atexit.register
def _at_exit() -> None:
    global _portal
    with _lock:
        mine, _portal = _portal, None
    if mine is not None and mine.pid == os.getpid():
        mine.close()
