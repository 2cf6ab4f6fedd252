"""The session seam, and sessions in memory.

A session is the ordered runs in the journal; a `SessionStore` is a projection of it that can be rebuilt: the messages
of each finished run, appended once per (session, run). Its lock belongs to a run: two runs at once in one session
never interleave.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Literal, Protocol

from glassloop.core.errors import ConfigurationError, Fenced
from glassloop.core.messages import Message
from glassloop.journal.feed import Signal

WhenBusy = Literal["queue", "refuse"]


class SessionBusy(ConfigurationError):
    """Another run holds the session, and the caller chose not to wait.

    Args:
        session: the session.
        holder: the run that holds it.
        approval_id: what that run waits for, where it waits for a human.
    """

    def __init__(self, session: str, holder: str, approval_id: str | None = None) -> None:
        rest = "try again when that has finished" if approval_id is None else f"decide on approval {approval_id} first"
        super().__init__(f"Session {session!r} is busy with run {holder}; {rest}.")
        self.session = session
        self.holder = holder
        self.approval_id = approval_id


class SessionStore(Protocol):
    """Where conversations of many runs are kept. It must pass `glassloop.testing.conformance.sessions`."""

    async def load(self, session: str, limit: int | None = None) -> list[Message]:
        """The session's messages, oldest first; the last `limit` of them (0: none, None: all).

        A stored message that can no longer be read is logged and left out; `limit` counts those that can.

        Raises:
            ValueError: `limit` is negative.
            StoreError: the store failed, or a newer version of Glassloop wrote the messages.
        """
        ...

    async def append(self, session: str, run_id: str, messages: Sequence[Message]) -> None:
        """Add a run's messages, all or nothing; a second append of the same run changes nothing."""
        ...

    def lock(self, session: str, run_id: str, when_busy: WhenBusy = "queue") -> AbstractAsyncContextManager[None]:
        """Hold the session for a run; first come, first served.

        The lock belongs to the run, not to the task or process: whoever locks for the same run again (it resumes a
        run that somebody else drove) takes its place over, and a process that is gone holds nothing.

        Raises:
            SessionBusy: another run holds it and `when_busy` is `refuse`.
            Fenced: while waiting, another driver of the same run took its place.
        """
        ...

    async def close(self) -> None:
        """Release files, connections and threads; idempotent."""
        ...


class _Place:
    """A driver's place in a session's queue; the first one holds the session."""

    __slots__ = ("fenced", "run_id", "turn")

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.turn = Signal()
        self.fenced = False


class MemorySessions:
    """Sessions that live and die with the process; usable from several threads and event loops."""

    def __init__(self) -> None:
        self._messages: dict[str, list[Message]] = {}
        self._runs: dict[str, set[str]] = {}
        self._queues: dict[str, list[_Place]] = {}
        self._lock = threading.Lock()

    async def load(self, session: str, limit: int | None = None) -> list[Message]:
        """See `SessionStore.load`."""
        check_limit(limit)
        messages = self._messages.get(session, [])
        return list(messages) if limit is None else messages[max(0, len(messages) - limit) :]

    async def append(self, session: str, run_id: str, messages: Sequence[Message]) -> None:
        """See `SessionStore.append`."""
        with self._lock:
            done = self._runs.setdefault(session, set())
            if run_id not in done:
                done.add(run_id)
                self._messages.setdefault(session, []).extend(messages)

    @asynccontextmanager
    async def lock(self, session: str, run_id: str, when_busy: WhenBusy = "queue") -> AsyncGenerator[None]:
        """See `SessionStore.lock`."""
        place = self._enter(session, run_id, when_busy)
        try:
            while not place.fenced and self._queues[session][0] is not place:
                await place.turn.wait()
            if place.fenced:
                raise Fenced(f"Another driver of run {run_id} waits for session {session!r} in its place.")
            yield
        finally:
            self._leave(session, place)

    async def close(self) -> None:
        """See `SessionStore.close`."""

    def _enter(self, session: str, run_id: str, when_busy: WhenBusy) -> _Place:
        place = _Place(run_id)
        with self._lock:
            queue = self._queues.setdefault(session, [])
            mine = next((index for index, other in enumerate(queue) if other.run_id == run_id), None)
            if mine is not None:
                before, queue[mine] = queue[mine], place
                before.fenced = True
                before.turn.set()
            elif when_busy == "refuse" and queue:
                raise SessionBusy(session, queue[0].run_id)
            else:
                queue.append(place)
        return place

    def _leave(self, session: str, place: _Place) -> None:
        with self._lock:
            queue = self._queues.get(session, [])
            if place not in queue:
                return
            queue.remove(place)
            if queue:
                queue[0].turn.set()
            else:
                del self._queues[session]


def check_limit(limit: int | None) -> None:
    """Raise ValueError unless `limit` is None, for all messages, or 0 and up."""
    if limit is not None and limit < 0:
        raise ValueError(f"limit={limit}: must be 0 or more, or None for all messages.")
