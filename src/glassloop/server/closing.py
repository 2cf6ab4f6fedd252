"""The server's end: told early, so that streams do not hold it up, and runs are left to be resumed."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager


class Closing:
    """Whether the server is about to end, and who wants to know."""

    def __init__(self) -> None:
        self.begun = False
        self._waiting: set[asyncio.Event] = set()
        self._kept: set[asyncio.Task[None]] = set()

    def begin(self) -> None:
        """From now on requests are refused and streams end; call it on the event loop."""
        self.begun = True
        for event in self._waiting:
            event.set()

    @contextmanager
    def wakes(self, event: asyncio.Event) -> Generator[None]:
        """Let the beginning of the end set `event` while the block runs."""
        self._waiting.add(event)
        try:
            yield
        finally:
            self._waiting.discard(event)

    def keep(self, task: asyncio.Task[None]) -> None:
        """Leave `task` alone until the runtime has stopped.

        A run must not see its last watcher go, and be cancelled for it, only because the server ends.
        """
        self._kept.add(task)

    async def finish(self) -> None:
        """Cancel what was kept."""
        for task in self._kept:
            task.cancel()
        await asyncio.gather(*self._kept, return_exceptions=True)
        self._kept.clear()
