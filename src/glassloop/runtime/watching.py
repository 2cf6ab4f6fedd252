"""Following a run: its committed events, and what is only streamed while it is driven here."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any, cast

from glassloop.core.events import DriverRested, Event, ModelReplied, ModelRequested, RunFinished
from glassloop.journal.journal import Journal
from glassloop.journal.projection import summarize

_Told = tuple[Event | None, int]
"""An event, and which one a live one comes after; None ends the stream."""


class Hub:
    """Hands what is streamed of each run to those who watch it.

    Args:
        left: called with the run's id when its last watcher has gone.
    """

    def __init__(self, left: Callable[[str], None]) -> None:
        self._left = left
        self._queues: dict[str, list[asyncio.Queue[_Told]]] = {}
        self._recorded: dict[str, int] = {}
        self.watchers: Counter[str] = Counter()

    def tell(self, event: Event) -> None:
        """Take an event of a driver in this process; committed events come from the journal.

        The driver is ahead of the journal: a live event waits for the request or reply that it belongs to, which are
        committed in a moment. Others may stay to be written for longer, and hold nothing up.
        """
        queues = self._queues.get(event.run_id)
        if queues is None:
            return
        if isinstance(event.data, ModelRequested | ModelReplied):
            self._recorded[event.run_id] = event.seq
        if event.seq:
            return
        for queue in queues:
            queue.put_nowait((event, self._recorded.get(event.run_id, 0)))

    async def watch(self, journal: Journal, run_id: str, after: int) -> AsyncGenerator[Event]:
        """Committed events after `after`, in order, and live ones (seq 0) between them, until the run rests."""
        queue: asyncio.Queue[_Told] = asyncio.Queue()
        self._queues.setdefault(run_id, []).append(queue)
        self.watchers[run_id] += 1
        pump = asyncio.create_task(_pump(journal, run_id, after, queue), name=f"follow {run_id}")
        try:
            async with aclosing(_in_order(queue, after)) as events:
                async for event in events:
                    yield event
            await pump
        finally:
            pump.cancel()
            await asyncio.wait([pump])
            self._queues[run_id].remove(queue)
            if not self._queues[run_id]:
                del self._queues[run_id]
                self._recorded.pop(run_id, None)
            self.watchers[run_id] -= 1
            if not self.watchers[run_id]:
                del self.watchers[run_id]
                self._left(run_id)


async def _in_order(queue: asyncio.Queue[_Told], seen: int) -> AsyncGenerator[Event]:
    """The events of a queue up to its None, the live ones in their places; `seen` is the last that is known."""
    early = deque[tuple[Event, int]]()
    while True:
        event, place = await queue.get()
        if event is not None and event.seq == 0 and place > seen:
            early.append((event, place))
            continue
        if event is not None:
            seen = max(seen, event.seq)
            yield event
        while early and (event is None or early[0][1] <= seen):
            yield early.popleft()[0]
        if event is None:
            return


async def _pump(journal: Journal, run_id: str, after: int, queue: asyncio.Queue[_Told]) -> None:
    """Put what the journal commits into the queue; None at the end."""
    try:
        known = await journal.read(run_id)
        for event in known[after:]:
            queue.put_nowait((event, 0))
        row = summarize(known)
        if row is None or row.finished or row.status == "waiting":
            return
        async with aclosing(cast("AsyncGenerator[Event, Any]", journal.follow(run_id, len(known)))) as events:
            async for event in events:
                queue.put_nowait((event, 0))
                if isinstance(event.data, DriverRested | RunFinished):
                    return
    finally:
        queue.put_nowait((None, 0))
