"""The way from sync code into the loop: one long-lived thread, the only process-wide object."""

from __future__ import annotations

import asyncio
import contextvars
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class _Portal:
    def __init__(self) -> None:
        self.pid = os.getpid()
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, name="glassloop-portal", daemon=True)
        self.thread.start()


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
        done.exception(timeout=10)
        raise


def _copy(finished: asyncio.Task[T], done: Future[T]) -> None:
    try:
        done.set_result(finished.result())
    except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - handed on to the caller's thread
        done.set_exception(error)


def _open() -> _Portal:
    """The portal, made on first use and again after a fork (threads do not survive one)."""
    global _portal
    with _lock:
        if _portal is None or _portal.pid != os.getpid():
            _portal = _Portal()
        return _portal
