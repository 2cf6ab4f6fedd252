"""Following a run: its committed events, and what is only streamed while it is driven here."""

from __future__ import annotations

import asyncio
import weakref
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any, cast

from glassloop.core.events import DriverRested, Event, ModelReplied, ModelRequested, RunFinished
from glassloop.core.ids import root_of
from glassloop.journal.journal import Journal
from glassloop.journal.projection import RunFilter, summarize

Told = tuple[Event | None, int]
"""An event, and which one a live one comes after; None ends the stream."""

_BELOW = -1
"""Instead of a place: the event is of a run below, and comes when it comes."""


class Hub:
    """Hands what is streamed of each run to those who watch it.

    Args:
        left: called with the run's id when its last watcher has gone.
    """

    def __init__(self, left: Callable[[str], None]) -> None:
        self._left = left
        self._queues: dict[str, list[asyncio.Queue[Told]]] = {}
        self._whole: set[asyncio.Queue[Told]] = set()
        self._recorded: dict[str, int] = {}

    def watched(self, run_id: str) -> bool:
        """Whether anybody watches a run."""
        return run_id in self._queues

    def tell(self, event: Event) -> None:
        """Take an event of a driver in this process; committed events come from the journal.

        The driver is ahead of the journal: a live event waits for the request or reply that it belongs to, which are
        committed in a moment. Others may stay to be written for longer, and hold nothing up.
        """
        self.tell_above(event)
        if isinstance(event.data, ModelRequested | ModelReplied):
            self._recorded[event.run_id] = event.seq
        if event.seq == 0:
            for queue in self._queues.get(event.run_id, ()):
                queue.put_nowait((event, self._recorded.get(event.run_id, 0)))

    def tell_above(self, event: Event) -> None:
        """Hand an event of a run below another to those who watch the whole tree."""
        root = root_of(event.run_id)
        if root == event.run_id:
            return
        for queue in self._queues.get(root, ()):
            if queue in self._whole:
                queue.put_nowait((event, _BELOW))

    def rested(self, run_id: str) -> None:
        """A run is not driven here any more."""
        self._recorded.pop(run_id, None)

    def watch(self, journal: Journal, run_id: str, after: int, *, whole: bool = False) -> AsyncGenerator[Event]:
        """Committed events after `after`, in order, and live ones (seq 0) between them, until the run rests.

        Live events, and with `whole` all events of the runs below, count from this call on, whenever the first is asked
        for.
        """
        return _watch(_Place(self, run_id, whole), journal, after)

    def enter(self, run_id: str, queue: asyncio.Queue[Told], whole: bool) -> None:
        """Somebody watches."""
        self._queues.setdefault(run_id, []).append(queue)
        if whole:
            self._whole.add(queue)

    def leave(self, run_id: str, queue: asyncio.Queue[Told]) -> None:
        """Somebody watches no more."""
        queues = self._queues[run_id]
        queues.remove(queue)
        self._whole.discard(queue)
        if not queues:
            del self._queues[run_id]
            self._left(run_id)


class _Place:
    """The place of one who watches: given up in the end, or with a generator that is dropped before it began."""

    def __init__(self, hub: Hub, run_id: str, whole: bool) -> None:
        self.run_id = run_id
        self.queue: asyncio.Queue[Told] = asyncio.Queue()
        hub.enter(run_id, self.queue, whole)
        self.leave = weakref.finalize(self, hub.leave, run_id, self.queue)
        self.leave.atexit = False


async def _watch(place: _Place, journal: Journal, after: int) -> AsyncGenerator[Event]:
    pump = asyncio.create_task(_pump(journal, place.run_id, after, place.queue), name=f"follow {place.run_id}")
    try:
        async with aclosing(_in_order(place.queue, after)) as events:
            async for event in events:
                yield event
        await pump
    finally:
        pump.cancel()
        await asyncio.wait([pump])
        place.leave()


async def _in_order(queue: asyncio.Queue[Told], seen: int) -> AsyncGenerator[Event]:
    """The events of a queue up to its None, the live ones in their places; `seen` is the last that is known."""
    early = deque[tuple[Event, int]]()
    while True:
        event, place = await queue.get()
        if event is not None and event.seq == 0 and place > seen:
            early.append((event, place))
            continue
        if event is not None:
            seen = seen if place == _BELOW else max(seen, event.seq)
            yield event
        while early and (event is None or early[0][1] <= seen):
            yield early.popleft()[0]
        if event is None:
            return


async def _pump(journal: Journal, run_id: str, after: int, queue: asyncio.Queue[Told]) -> None:
    """Put what the journal commits into the queue; None at the end."""
    try:
        known, rests = await _so_far(journal, run_id)
        for event in known[after:]:
            queue.put_nowait((event, 0))
        if rests:
            return
        async with aclosing(cast("AsyncGenerator[Event, Any]", journal.follow(run_id, len(known)))) as events:
            async for event in events:
                queue.put_nowait((event, 0))
                if isinstance(event.data, DriverRested | RunFinished):
                    return
    finally:
        queue.put_nowait((None, 0))


async def _so_far(journal: Journal, run_id: str) -> tuple[list[Event], bool]:
    """The events of a run, and whether it rests.

    One that waits for a run below goes on, without an event of its own, from the moment a human has decided there.
    """
    known = await journal.read(run_id)
    while True:
        row = summarize(known)
        if row is None or row.finished:
            return known, True
        if row.status != "waiting" or await journal.runs(RunFilter(below=run_id, status="running", limit=1)):
            return known, False
        latest = await journal.read(run_id)
        if len(latest) == len(known):
            return known, True
        known = latest  # it went on and rested again, meanwhile
