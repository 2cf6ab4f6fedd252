"""The journal seam, and the journal in memory.

A journal is an append-only list of events per run, with the blobs they name. It is the only truth: inboxes, lists,
traces and sessions are projections of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from glassloop.core.errors import Conflict, Fenced
from glassloop.core.events import Event, RunFinished
from glassloop.journal.projection import RunFilter, RunRow, summarize


class Journal(Protocol):
    """Where events go. An implementation must pass `tests/journal/conformance.py`."""

    async def append(
        self,
        run_id: str,
        events: Sequence[Event],
        *,
        after: int | None,
        epoch: int | None,
        blobs: Mapping[str, bytes] | None = None,
    ) -> int:
        """Write `events` in one transaction, durably, numbered from the run's last `seq` + 1; return the new last.

        Args:
            after: the last `seq` the writer has seen; None for external events, which go wherever the end is.
            epoch: the driver's epoch; None for external events. The first `DriverClaimed` of an append raises the
                run's epoch to its own.
            blobs: contents by digest, each stored once.

        Raises:
            Conflict: others have appended since `after`; read the tail and try again. Nothing was written.
            Fenced: the run has a higher epoch. Nothing was written.
            StoreError: the store failed; whether the events were written is told by reading.
        """
        ...

    async def read(self, run_id: str, after: int = 0) -> list[Event]:
        """The run's events with `seq > after`, in order; an unknown run has none."""
        ...

    def follow(self, run_id: str, after: int = 0) -> AsyncIterator[Event]:
        """The run's events from `after` on, then new ones as they are written, until it has finished."""
        ...

    async def runs(self, filter: RunFilter | None = None) -> list[RunRow]:
        """Runs that match, newest first."""
        ...

    async def blob(self, digest: str) -> bytes:
        """A stored content.

        Raises:
            KeyError: no such blob (or it was erased).
        """
        ...

    async def close(self) -> None:
        """Release files and threads; idempotent."""
        ...


class MemoryJournal:
    """A journal that lives and dies with the process."""

    def __init__(self) -> None:
        self._events: dict[str, list[Event]] = {}
        self._epochs: dict[str, int] = {}
        self._blobs: dict[str, bytes] = {}
        self._followers: dict[str, set[asyncio.Event]] = {}

    async def append(
        self,
        run_id: str,
        events: Sequence[Event],
        *,
        after: int | None,
        epoch: int | None,
        blobs: Mapping[str, bytes] | None = None,
    ) -> int:
        """See `Journal.append`."""
        log = self._events.setdefault(run_id, [])
        if epoch is not None:
            if epoch < self._epochs.get(run_id, 0):
                raise Fenced(f"Run {run_id} was taken over by a newer driver.")
            self._epochs[run_id] = epoch
        if after is not None and after != len(log):
            raise Conflict(f"Run {run_id} has {len(log)} events, not {after}.")
        if blobs:
            self._blobs.update(blobs)
        for event in events:
            log.append(replace(event, seq=len(log) + 1))
        for waiter in self._followers.get(run_id, ()):
            waiter.set()
        return len(log)

    async def read(self, run_id: str, after: int = 0) -> list[Event]:
        """See `Journal.read`."""
        return self._events.get(run_id, [])[after:]

    async def follow(self, run_id: str, after: int = 0) -> AsyncIterator[Event]:
        """See `Journal.follow`."""
        news = asyncio.Event()
        self._followers.setdefault(run_id, set()).add(news)
        try:
            while True:
                news.clear()
                for event in self._events.get(run_id, [])[after:]:
                    after = event.seq
                    yield event
                    if isinstance(event.data, RunFinished):
                        return
                await news.wait()
        finally:
            self._followers[run_id].discard(news)

    async def runs(self, filter: RunFilter | None = None) -> list[RunRow]:
        """See `Journal.runs`."""
        wanted = filter or RunFilter()
        rows = [row for row in map(summarize, self._events.values()) if row is not None and wanted.matches(row)]
        return sorted(rows, key=lambda row: row.id, reverse=True)[: wanted.limit]

    async def blob(self, digest: str) -> bytes:
        """See `Journal.blob`."""
        return self._blobs[digest]

    async def close(self) -> None:
        """See `Journal.close`."""
