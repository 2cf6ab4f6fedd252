"""The ledger seam: what idempotency stands on, across runs and processes.

A key stands for one effect (session + tool + canonical arguments). Whoever is about to cause it claims the key first,
settles it with the result once the effect is known to have happened, or releases it when it is known not to have.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from glassloop.journal.feed import Feed

DAY = 24 * 3600.0
"""Seconds that a success is remembered, unless the claim says otherwise."""

Owner: TypeAlias = tuple[str, str]
"""Who claims: (run id, call id). A resumed run claims under the same name and so re-enters its own claim."""


@dataclass(frozen=True, slots=True)
class Yours:
    """Cause the effect, then settle or release. `again`: this owner has claimed before and may have begun."""

    again: bool = False


@dataclass(frozen=True, slots=True)
class InFlight:
    """`owner` is at it; `wait` and claim again."""

    owner: Owner


@dataclass(frozen=True, slots=True)
class InDoubt:
    """`owner` began, and is gone or late without an answer: it may have happened."""

    owner: Owner


@dataclass(frozen=True, slots=True)
class Done:
    """It has happened, done by `owner`, with this result."""

    owner: Owner
    result: bytes


Claim: TypeAlias = Yours | InFlight | InDoubt | Done


def judged(holder: Owner, result: bytes | None, asker: Owner | None, *, lasts: bool) -> Claim:
    """What an entry means to who asks; `lasts`: its time has not run out, nor has its process ended before a result."""
    if result is not None:
        return Done(holder, result) if lasts else Yours()
    if holder == asker:
        return Yours(again=True)
    return InFlight(holder) if lasts else InDoubt(holder)


class Ledger(Protocol):
    """Which effects have happened. An implementation must pass `glassloop.testing.conformance.ledger`."""

    async def claim(self, key: str, owner: Owner, lease: float, ttl: float = DAY) -> Claim:
        """Ask to cause the effect named by `key`.

        Args:
            key: names the effect.
            owner: who asks; claiming again under the same name renews the lease.
            lease: seconds after which others no longer believe that an unanswered claim is being worked on; longer
                than the tool's time-out.
            ttl: seconds that a success is remembered, from when it is settled. Doubt is never forgotten.

        Raises:
            StoreError: the store failed; nothing was claimed.
        """
        ...

    async def settle(self, key: str, owner: Owner, result: bytes) -> bool:
        """Remember that the effect has happened; False if the key is meanwhile another owner's and nothing changed."""
        ...

    async def release(self, key: str, owner: Owner | None = None) -> None:
        """Forget an unsettled claim: the effect has certainly not happened, or somebody has decided the doubt.

        Args:
            key: names the effect.
            owner: release only this owner's claim; None releases whoever's it is.
        """
        ...

    async def wait(self, key: str) -> None:
        """Return once `key` is no longer in flight: settled, released, lapsed, or never claimed. Then claim again."""
        ...

    async def close(self) -> None:
        """Release files, connections and threads; idempotent."""
        ...


@dataclass(slots=True)
class _Entry:
    owner: Owner
    until: float
    ttl: float
    result: bytes | None = None


class MemoryLedger:
    """A ledger that lives and dies with the process.

    Args:
        clock: seconds; only differences count.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._entries: dict[str, _Entry] = {}
        self._lock = threading.Lock()
        self._feed = Feed()
        self._swept = clock()

    async def claim(self, key: str, owner: Owner, lease: float, ttl: float = DAY) -> Claim:
        """See `Ledger.claim`."""
        now = self._clock()
        with self._lock:
            self._sweep(now)
            found = self._entries.get(key)
            claim = Yours() if found is None else judged(found.owner, found.result, owner, lasts=now < found.until)
            if isinstance(claim, Yours):
                self._entries[key] = _Entry(owner, now + lease, ttl)
            return claim

    async def settle(self, key: str, owner: Owner, result: bytes) -> bool:
        """See `Ledger.settle`."""
        with self._lock:
            entry = self._entries.get(key) or _Entry(owner, 0.0, DAY)
            if entry.owner != owner:
                return False
            self._entries[key] = _Entry(owner, self._clock() + entry.ttl, entry.ttl, result)
        self._feed.publish(key)
        return True

    async def release(self, key: str, owner: Owner | None = None) -> None:
        """See `Ledger.release`."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is not None and entry.result is None and owner in (None, entry.owner):
                del self._entries[key]
        self._feed.publish(key)

    async def wait(self, key: str) -> None:
        """See `Ledger.wait`."""
        with self._feed.subscribe(key) as news:
            while (left := self._in_flight(key)) > 0:
                await news.wait(min(left, 1.0))

    async def close(self) -> None:
        """See `Ledger.close`."""

    def _in_flight(self, key: str) -> float:
        """Seconds that the claim on `key` is still believed to be worked on."""
        with self._lock:
            entry = self._entries.get(key)
            return 0.0 if entry is None or entry.result is not None else entry.until - self._clock()

    def _sweep(self, now: float) -> None:
        """Drop what is no longer remembered, now and then, so that a long life does not fill the memory."""
        if now - self._swept < 60.0:
            return
        self._swept = now
        gone = [key for key, entry in self._entries.items() if entry.result is not None and now >= entry.until]
        for key in gone:
            del self._entries[key]
