"""Following a run: its committed events, and what is only streamed while it is driven here."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any, cast

from glassloop.core.events import DriverRested, Event, RunFinished
from glassloop.journal.journal import Journal
from glassloop.journal.projection import summarize


class Hub:
    """Hands what is streamed of each run to those who watch it.

    Args:
        left: called with the run's id when its last watcher has gone.
    """

    def __init__(self, left: Callable[[str], None]) -> None:
        self._left = left
        self._queues: dict[str, list[asyncio.Queue[Event | None]]] = {}
        self.watchers: Counter[str] = Counter()

    def tell(self, event: Event) -> None:
        """Take an event of a driver in this process; committed events come from the journal."""
        if event.seq == 0:
            for queue in self._queues.get(event.run_id, ()):
                queue.put_nowait(event)

    async def watch(self, journal: Journal, run_id: str, after: int) -> AsyncGenerator[Event]:
        """Committed events after `after`, in order, and live ones (seq 0) between them, until the run rests."""
        queue: asyncio.Queue[Event | None] = asyncio.Queue()
        self._queues.setdefault(run_id, []).append(queue)
        self.watchers[run_id] += 1
        pump = asyncio.create_task(_pump(journal, run_id, after, queue), name=f"follow {run_id}")
        try:
            while (event := await queue.get()) is not None:
                yield event
            await pump
        finally:
            pump.cancel()
            await asyncio.wait([pump])
            self._queues[run_id].remove(queue)
            if not self._queues[run_id]:
                del self._queues[run_id]
            self.watchers[run_id] -= 1
            if not self.watchers[run_id]:
                del self.watchers[run_id]
                self._left(run_id)


async def _pump(journal: Journal, run_id: str, after: int, queue: asyncio.Queue[Event | None]) -> None:
    """Put what the journal commits into the queue; None at the end."""
    try:
        known = await journal.read(run_id)
        for event in known[after:]:
            queue.put_nowait(event)
        row = summarize(known)
        if row is None or row.finished or row.status == "waiting":
            return
        async with aclosing(cast("AsyncGenerator[Event, Any]", journal.follow(run_id, len(known)))) as events:
            async for event in events:
                queue.put_nowait(event)
                if isinstance(event.data, DriverRested | RunFinished):
                    return
    finally:
        queue.put_nowait(None)
