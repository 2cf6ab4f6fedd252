"""An event loop in a thread of its own, so that the main thread can wait for keys, signals and full pipes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from types import TracebackType
from typing import Any, TypeVar

T = TypeVar("T")

THREAD = "glassloop-cli"
"""The name of the loop's thread."""

_CLOSE_S = 2.0


class Background:
    """Runs coroutines while the main thread does something else: `with Background() as background: ...`.

    Leaving the block cancels what still runs and closes the loop, and with it the connections that belong to it; after
    two seconds it is left to itself.
    """

    def __init__(self) -> None:
        self._ready: Future[asyncio.AbstractEventLoop] = Future()
        self._over: Callable[[], object] = lambda: None
        self._thread = threading.Thread(target=self._run, name=THREAD, daemon=True)

    def __enter__(self) -> Background:
        self._thread.start()
        self._ready.result()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._over()
        self._thread.join(_CLOSE_S)

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Begin to run a coroutine; cancelling the future cancels it."""
        return asyncio.run_coroutine_threadsafe(work, self._ready.result())

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine and wait for it; Ctrl-C cancels it."""
        future = self.start(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def _run(self) -> None:
        with asyncio.Runner() as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        loop, over = asyncio.get_running_loop(), asyncio.Event()
        self._over = lambda: loop.call_soon_threadsafe(over.set)
        self._ready.set_result(loop)
        await over.wait()
