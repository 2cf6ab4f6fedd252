"""The session seam, and sessions in memory.

A session is the ordered runs in the journal; a `SessionStore` is a projection of it that can be rebuilt: the messages
of each finished run, appended once per (session, run). Its lock belongs to a run: two runs at once in one session
never interleave.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Literal, Protocol

from glassloop.core.errors import ConfigurationError
from glassloop.core.messages import Message

WhenBusy = Literal["queue", "refuse"]


class SessionBusy(ConfigurationError):
    """Another run holds the session, and the caller chose not to wait."""


class SessionStore(Protocol):
    """Where conversations of many runs are kept. An implementation must pass `tests/memory/conformance.py`."""

    async def load(self, session: str, limit: int | None = None) -> list[Message]:
        """The session's messages, oldest first; the last `limit` of them (0: none, None: all)."""
        ...

    async def append(self, session: str, run_id: str, messages: Sequence[Message]) -> None:
        """Add a run's messages, all or nothing; a second append of the same run changes nothing."""
        ...

    def lock(self, session: str, run_id: str, when_busy: WhenBusy = "queue") -> AbstractAsyncContextManager[None]:
        """Hold the session for a run; first come, first served.

        Raises:
            SessionBusy: another run holds it and `when_busy` is `refuse`.
        """
        ...


class MemorySessions:
    """Sessions that live and die with the process."""

    def __init__(self) -> None:
        self._messages: dict[str, list[Message]] = {}
        self._runs: dict[str, set[str]] = {}
        self._locks: dict[str, asyncio.Lock] = {}

    async def load(self, session: str, limit: int | None = None) -> list[Message]:
        """See `SessionStore.load`."""
        messages = self._messages.get(session, [])
        return messages[max(0, len(messages) - limit) :] if limit is not None else list(messages)

    async def append(self, session: str, run_id: str, messages: Sequence[Message]) -> None:
        """See `SessionStore.append`."""
        done = self._runs.setdefault(session, set())
        if run_id not in done:
            done.add(run_id)
            self._messages.setdefault(session, []).extend(messages)

    @asynccontextmanager
    async def lock(self, session: str, run_id: str, when_busy: WhenBusy = "queue") -> AsyncGenerator[None]:
        """See `SessionStore.lock`."""
        lock = self._locks.setdefault(session, asyncio.Lock())
        if when_busy == "refuse" and lock.locked():
            raise SessionBusy(f"Session {session!r} is busy with another run; try again when that has finished.")
        async with lock:
            yield
