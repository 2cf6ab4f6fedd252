"""The one writer of a run: folds what happens into the state, tells subscribers, and makes it durable."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from typing import Any

from glassloop.core.encoding import digest, loads
from glassloop.core.errors import Conflict, Fenced
from glassloop.core.events import (
    ApprovalDecided,
    CancelRequested,
    DriverClaimed,
    DriverRested,
    Event,
    EventData,
    JournalData,
    LiveData,
    ToolFinished,
)
from glassloop.core.messages import Message
from glassloop.journal.journal import Journal, Turn
from glassloop.journal.media import recall
from glassloop.journal.state import State, fold

SOON_SECONDS = 0.05

Subscriber = Callable[[Event], None]


def now_ms() -> int:
    """UTC, milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


class Clock:
    """UTC milliseconds on one clock that only goes forward, at the speed of time.

    A wall clock that is set while a run is driven would make its time longer or shorter than it was. It is looked at
    once; from then on the time that passes is added.
    """

    def __init__(self) -> None:
        self._began = time.time_ns() - time.monotonic_ns()

    def __call__(self) -> int:
        """Now."""
        return (self._began + time.monotonic_ns()) // 1_000_000


class Stopwatch:
    """The seconds that a driver may still take; they stand still while a human at hand is asked."""

    def __init__(self) -> None:
        self._clock: asyncio.Timeout | None = None
        self._asked = 0
        self._left = 0.0

    def limit(self, seconds: float | None) -> asyncio.Timeout:
        """Start it: an async context manager within which so many seconds may pass; None: any number."""
        self._clock = asyncio.timeout(seconds)
        return self._clock

    @contextmanager
    def standing(self) -> Generator[None]:
        """Within it no time passes; several humans may be asked side by side."""
        clock = self._clock
        if clock is None or clock.expired() or (clock.when() is None and not self._asked):
            yield
            return
        now = asyncio.get_running_loop().time
        if not self._asked:
            self._left = (clock.when() or 0.0) - now()
            clock.reschedule(None)
        self._asked += 1
        try:
            yield
        finally:
            self._asked -= 1
            if not self._asked:
                clock.reschedule(now() + self._left)


class Recorder:
    """Records one run.

    `record` takes effect at once (state, subscribers) and is durable after the next `commit`; several events share one
    append. `emit` is for what is only streamed.

    Args:
        journal: where the events go.
        state: the state that the journal has so far.
        epoch: the driver's epoch.
        history: the session's messages before the run, which the events name but do not hold.
        subscribers: called with each event as it happens; must be quick and must not raise.
    """

    def __init__(
        self,
        journal: Journal,
        state: State,
        *,
        epoch: int,
        history: Iterable[Message] = (),
        subscribers: Iterable[Subscriber] = (),
    ) -> None:
        self.journal = journal
        self.state = state
        self.epoch = epoch
        self.values: dict[str, Any] = {}
        self._history = tuple(history)
        self._subscribers = tuple(subscribers)
        self._pending: list[Event] = []
        self._blobs: dict[str, bytes] = {}
        self._kept: set[str] = set()
        self._failed = False
        self._aside: asyncio.Task[None] | None = None
        self._seq = self._next = state.seq
        self._writing = asyncio.Lock()
        self.now = Clock()
        self.stopwatch = Stopwatch()
        self.turn: Callable[[State], Turn | None] = lambda _: None
        self.apart = False  # the session stands in another database, and its turns are not the journal's to write

    def record(self, data: JournalData, private: Mapping[str, Any] | None = None) -> None:
        """Something happened; it is durable after the next `commit`."""
        step = self.state.step + 1 if data.type == "model_requested" else self.state.step
        self._next += 1
        event = Event(self.state.run_id, self._next, self.now(), step, data, private)
        self.state.apply(event)
        self._pending.append(event)
        if self._subscribers:
            self._tell(event)

    def emit(self, data: LiveData) -> None:
        """Something is going on, for those who watch."""
        if self._subscribers:
            self._tell(self._live(data))

    @property
    def watched(self) -> bool:
        """Whether anybody watches."""
        return bool(self._subscribers)

    def keep(self, content: bytes) -> str:
        """Store a content with the next commit, once, and return its digest."""
        key = digest(content)
        self._keep(key, content)
        return key

    def keep_all(self, contents: Mapping[str, bytes]) -> None:
        """Store contents by digest with the next commit."""
        for key, content in contents.items():
            self._keep(key, content)

    async def value(self, key: str) -> Any:
        """A whole tool result that an event names by digest."""
        return loads(await self.journal.blob(key))

    def commit_soon(self) -> asyncio.TimerHandle:
        """Make everything recorded so far durable in a moment, unless it is by then; cancel the handle to leave it.

        What is over sooner shares the next commit: a step of quick reads costs one.
        """
        return asyncio.get_running_loop().call_later(SOON_SECONDS, self._commit_aside)

    def _commit_aside(self) -> None:
        self._aside = asyncio.ensure_future(self.commit())
        # what failed is still to be written, and the next commit tells
        self._aside.add_done_callback(lambda done: done.cancelled() or done.exception())

    async def commit(self) -> None:
        """Make everything recorded so far durable.

        Raises:
            Fenced: a newer driver has taken the run over; nothing of this was written.
            StoreError: the store failed.
        """
        if not self._pending and not self._writing.locked():
            return
        async with self._writing:  # also for what another call is writing: it may fail
            if not self._pending:
                return
            events, self._pending = self._pending, []
            blobs, self._blobs = self._blobs, {}
            uncertain, self._failed = self._failed, True
            try:
                while events or blobs:
                    try:
                        self._seq = await self.journal.append(
                            self.state.run_id,
                            events,
                            after=self._seq,
                            epoch=self.epoch,
                            blobs=blobs or None,
                            turn=self._turn_to_write(),
                        )
                        break
                    except (Conflict, Fenced) as error:
                        if isinstance(error, Fenced) and not uncertain:
                            raise
                        uncertain = False  # the claim that fences it out may be its own, written when it seemed to fail
                    events = self._rebase(events, await self.journal.read(self.state.run_id))
                    await self._recall()
            except BaseException:
                self._put_back(events, blobs)
                raise
            self._failed = False

    def _put_back(self, events: list[Event], blobs: dict[str, bytes]) -> None:
        """Written or not, reading will tell: they stay to be written."""
        self._pending, self._blobs = [*events, *self._pending], {**blobs, **self._blobs}

    async def transact(self, work: Callable[[Any], tuple[Any, JournalData]]) -> Any:
        """Do `work` and record the event that it returns in one transaction of the journal's database.

        Args:
            work: called on the database's thread, perhaps again if the transaction had to be repeated.

        Raises:
            ConfigurationError: the journal stands in no database.
                And what `commit` and `work` raise; then nothing has happened.
        """
        await self.commit()

        def both(connection: Any) -> tuple[Any, list[Event]]:
            value, data = work(connection)
            return value, [Event(self.state.run_id, 0, self.now(), self.state.step, data)]

        async with self._writing:
            while True:
                try:
                    value, events = await self.journal.transact(
                        self.state.run_id, both, after=self._seq, epoch=self.epoch
                    )
                except Conflict:
                    await self._catch_up()
                else:
                    break
            if self._pending:  # recorded in the meantime: in the journal it stands behind this
                await self._catch_up()
                return value
            self._seq = self._next = events[-1].seq
        for event in events:
            self.state.apply(event)
            self._tell(event)
        return value

    @property
    def clean(self) -> bool:
        """Whether everything recorded is durable."""
        return not self._pending and not self._failed

    def _turn_to_write(self) -> Turn | None:
        return self.turn(self.state) if self.state.finished is not None and not self.apart else None

    async def _catch_up(self) -> None:
        self._rebase([], await self.journal.read(self.state.run_id))
        await self._recall()

    def _rebase(self, events: list[Event], written: list[Event]) -> list[Event]:
        """Others appended (a decision, a cancellation): take theirs first, then ours. Returns what is still to write.

        After a failure the tail may begin with our own. A run that was about to rest until then does not: with nobody
        at it, what has come would wait for the next that comes.
        """
        tail = written[self._seq :]
        ours = 0
        while ours < min(len(tail), len(events)) and _same(tail[ours], events[ours]):
            ours += 1
        for event in tail[ours:]:
            if isinstance(event.data, DriverClaimed) and event.data.epoch >= self.epoch:
                raise Fenced(f"Run {self.state.run_id} was taken over by {event.data.owner}.")
            self._tell(event)
        self._seq = len(written)
        left = events[ours:]
        known = {event.data.call_id for event in tail[ours:] if isinstance(event.data, ToolFinished)}
        if known:  # of a transaction that was cancelled too late
            left = [one for one in left if not (isinstance(one.data, ToolFinished) and one.data.call_id in known)]
        if any(isinstance(event.data, ApprovalDecided | CancelRequested) for event in tail[ours:]):
            left = [event for event in left if event.data != DriverRested(waiting=True)]
        self.state = fold([*written, *left, *self._pending], self._history)
        self._next = self.state.seq
        return left

    async def _recall(self) -> None:
        await recall(self.journal, [*self.state.conversation, *self.state.results.values()])

    def _keep(self, key: str, content: bytes) -> None:
        if key not in self._kept:
            self._kept.add(key)
            self._blobs[key] = content

    def _live(self, data: EventData) -> Event:
        return Event(self.state.run_id, 0, self.now(), self.state.step, data)

    def _tell(self, event: Event) -> None:
        for subscriber in self._subscribers:
            subscriber(event)


def _same(one: Event, other: Event) -> bool:
    return one.at == other.at and one.step == other.step and one.data == other.data
