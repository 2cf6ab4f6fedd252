"""The journal seam, and the journal in memory.

A journal is an append-only list of events per run, with the blobs they name. It is the only truth: inboxes, lists,
traces and sessions are projections of it.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

from glassloop.core.errors import ConfigurationError, Conflict, Fenced
from glassloop.core.events import DriverClaimed, Event, RunFinished
from glassloop.core.ids import root_of
from glassloop.core.messages import Message
from glassloop.journal.feed import Feed
from glassloop.journal.projection import (
    OPEN_STATUSES,
    ApprovalFilter,
    ApprovalRow,
    RunFilter,
    RunRow,
    approvals_of,
    summarize,
)

Transaction = Callable[[Any], tuple[Any, Sequence[Event]]]


class Turn(NamedTuple):
    """What a run adds to its session when it finishes.

    Args:
        session: the session.
        key: names the addition, which is made once: the run's id, or that and the epoch where the run was continued.
        messages: what is added.
    """

    session: str
    key: str
    messages: Sequence[Message]


class Journal(Protocol):
    """Where events go. An implementation must pass `glassloop.testing.conformance.journal`."""

    async def append(
        self,
        run_id: str,
        events: Sequence[Event],
        *,
        after: int | None,
        epoch: int | None,
        blobs: Mapping[str, bytes] | None = None,
        turn: Turn | None = None,
    ) -> int:
        """Write `events` in one transaction, durably, numbered from the run's last `seq` + 1; return the new last.

        Args:
            after: the last `seq` the writer has seen; None for external events, which go wherever the end is.
            epoch: the driver's epoch; None for external events. A `DriverClaimed` raises the run's epoch to its own,
                and must raise it: of two drivers that claim the same epoch the second is fenced.
            blobs: contents by digest, each stored once.
            turn: joins the run's session in the same transaction, where both stand in one database; elsewhere the
                caller appends it to the session afterwards (which changes nothing where it has joined).

        Raises:
            Conflict: others have appended since `after`; read the tail and try again. Nothing was written.
            Fenced: the run has a higher epoch. Nothing was written.
            StoreError: the store failed; whether the events were written is told by reading.

        A cancelled append may or may not be written, but is never written in part.
        """
        ...

    async def read(self, run_id: str, after: int = 0) -> list[Event]:
        """The run's events with `seq > after`, in order; an unknown run has none."""
        ...

    def follow(self, run_id: str, after: int = 0) -> AsyncIterator[Event]:
        """The run's events with `seq > after`, then new ones as they are written, whoever writes them.

        Ends when the last event of the run is its `run_finished`, at once if that is so already. A run that is
        continued later is followed anew.
        """
        ...

    async def runs(self, filter: RunFilter | None = None) -> list[RunRow]:
        """Runs that match, newest first."""
        ...

    async def approvals(self, filter: ApprovalFilter | None = None) -> list[ApprovalRow]:
        """Approvals that match, newest first: by their ids, which sort by time."""
        ...

    async def transact(self, run_id: str, work: Transaction, *, after: int, epoch: int) -> tuple[Any, list[Event]]:
        """Do `work` and append the events that it returns, in one transaction.

        Args:
            run_id: the run.
            work: called with the database's connection, perhaps again if the transaction had to be repeated; returns
                a value and the events to append.
            after: as for `append`.
            epoch: as for `append`.

        Returns:
            the value and the events, numbered.

        Raises:
            ConfigurationError: the journal stands in no database.
                And what `append` and `work` raise; then nothing has happened.
        """
        ...

    async def blob(self, digest: str) -> bytes:
        """A stored content.

        Raises:
            KeyError: no such blob (or it was erased).
        """
        ...

    async def erase_blobs(self, run_id: str) -> int:
        """Erase the contents that this run alone has stored, and return how many; its events stay as they are."""
        ...

    async def close(self) -> None:
        """Release files and threads; idempotent."""
        ...


def check_writer(run_id: str, events: Iterable[Event], *, epoch: int | None, known: int) -> int:
    """The run's epoch after an append of `events` by a driver of `epoch`, where the run's epoch is `known`.

    Raises:
        Fenced: a newer driver has claimed the run, or claimed it first under the same epoch.
    """
    if epoch is not None and epoch < known:
        raise Fenced(f"Run {run_id} was taken over by a newer driver.")
    for event in events:
        if isinstance(event.data, DriverClaimed):
            if event.data.epoch <= known:
                raise Fenced(f"Run {run_id} was claimed by another driver first.")
            return event.data.epoch
    return max(known, epoch or 0)


def check_position(run_id: str, *, after: int | None, last: int) -> None:
    """Raise Conflict unless a writer that has seen `after` has seen everything, up to `last`."""
    if after is not None and after != last:
        raise Conflict(f"Run {run_id} has {last} events, not {after}: read the tail and append again.")


@dataclass(slots=True)
class _Log:
    events: list[Event] = field(default_factory=list[Event])
    epoch: int = 0
    blobs: set[str] = field(default_factory=set[str])

    @property
    def finished(self) -> bool:
        return bool(self.events) and isinstance(self.events[-1].data, RunFinished)


class MemoryJournal:
    """A journal that lives and dies with the process; usable from several threads and event loops.

    Args:
        max_finished: so many finished runs are kept, each with those below it; beyond, the one that finished first is
            forgotten with its blobs, so that a long-lived process does not grow. Runs that have not finished are always
            kept.
    """

    def __init__(self, max_finished: int = 256) -> None:
        self._max_finished = max_finished
        self._logs: dict[str, _Log] = {}
        self._finished: dict[str, None] = {}
        self._below: dict[str, list[str]] = {}
        self._blobs: dict[str, bytes] = {}
        self._holders: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._feed = Feed()

    async def append(
        self,
        run_id: str,
        events: Sequence[Event],
        *,
        after: int | None,
        epoch: int | None,
        blobs: Mapping[str, bytes] | None = None,
        turn: Turn | None = None,
    ) -> int:
        """See `Journal.append`."""
        with self._lock:
            log = self._logs.get(run_id) or _Log()
            raised = check_writer(run_id, events, epoch=epoch, known=log.epoch)
            check_position(run_id, after=after, last=len(log.events))
            if not events and not blobs:
                return len(log.events)
            if run_id not in self._logs and root_of(run_id) != run_id:
                self._below.setdefault(root_of(run_id), []).append(run_id)
            self._logs[run_id] = log
            log.epoch = raised
            if blobs:
                self._keep(log, blobs)
            for seq, event in enumerate(events, len(log.events) + 1):
                log.events.append(event if event.seq == seq else replace(event, seq=seq))
            self._retire(run_id, log)
            last = len(log.events)
        self._feed.publish(run_id, last)
        return last

    async def read(self, run_id: str, after: int = 0) -> list[Event]:
        """See `Journal.read`."""
        log = self._logs.get(run_id)
        return [] if log is None else log.events[after:]

    async def follow(self, run_id: str, after: int = 0) -> AsyncIterator[Event]:
        """See `Journal.follow`."""
        with self._feed.subscribe(run_id, after) as news:
            while True:
                log = self._logs.get(run_id)
                events = [] if log is None else log.events[news.seen :]
                for event in events:
                    news.seen = event.seq
                    yield event
                if log is not None and news.seen >= len(log.events) and log.finished:
                    return
                await news.wait()

    async def runs(self, filter: RunFilter | None = None) -> list[RunRow]:
        """See `Journal.runs`."""
        wanted = filter or RunFilter()
        is_open = wanted.finished is False or wanted.status in OPEN_STATUSES
        with self._lock:
            known = self._logs if wanted.below is None else self._below.get(root_of(wanted.below), ())
            logs = [self._logs[run_id].events for run_id in known if not (is_open and self._logs[run_id].finished)]
        rows = [row for row in map(summarize, logs) if row is not None and wanted.matches(row)]
        return sorted(rows, key=lambda row: row.id, reverse=True)[: wanted.limit]

    async def approvals(self, filter: ApprovalFilter | None = None) -> list[ApprovalRow]:
        """See `Journal.approvals`."""
        wanted = filter or ApprovalFilter()
        with self._lock:
            logs = [list(log.events) for log in self._logs.values()]
        rows = [row for row in approvals_of(logs) if wanted.matches(row)]
        return sorted(rows, key=lambda row: row.approval_id, reverse=True)[: wanted.limit]

    async def transact(self, run_id: str, work: Transaction, *, after: int, epoch: int) -> tuple[Any, list[Event]]:
        """See `Journal.transact`."""
        raise ConfigurationError(
            "A tool with transaction=True needs the journal in a database: give store='sqlite:///file.db'."
        )

    async def blob(self, digest: str) -> bytes:
        """See `Journal.blob`."""
        return self._blobs[digest]

    async def erase_blobs(self, run_id: str) -> int:
        """See `Journal.erase_blobs`."""
        with self._lock:
            log = self._logs.get(run_id)
            return 0 if log is None else self._let_go(log)

    async def close(self) -> None:
        """See `Journal.close`."""

    def _keep(self, log: _Log, blobs: Mapping[str, bytes]) -> None:
        self._blobs.update(blobs)
        self._holders.update(blobs.keys() - log.blobs)
        log.blobs.update(blobs)

    def _let_go(self, log: _Log) -> int:
        """Erase the blobs that no other run holds."""
        self._holders.subtract(log.blobs)
        alone = [digest for digest in log.blobs if not self._holders[digest]]
        for digest in alone:
            del self._blobs[digest], self._holders[digest]
        log.blobs.clear()
        return len(alone)

    def _retire(self, run_id: str, log: _Log) -> None:
        """Note whether the run has finished, and forget the run that finished first where there are too many.

        Those below another are kept as long as that one: it may still ask what they have come to.
        """
        self._finished.pop(run_id, None)
        if not log.finished or root_of(run_id) != run_id:
            return
        self._finished[run_id] = None
        if len(self._finished) > self._max_finished:
            oldest = next(iter(self._finished))
            del self._finished[oldest]
            for each in (oldest, *self._below.pop(oldest, ())):
                self._let_go(self._logs.pop(each))
