"""News for those who wait inside this process: a topic moved on, look again. Safe from any thread or event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress


class Signal:
    """An event that any thread may set, for one waiter on one event loop."""

    __slots__ = ("_event", "_loop", "seen")

    def __init__(self, seen: int = 0) -> None:
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()
        self.seen = seen
        """How far the waiter has come; news up to here do not wake it."""

    def set(self) -> None:
        """Wake the waiter, now or at its next `wait`."""
        with suppress(RuntimeError):  # its loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(self._event.set)

    async def wait(self, timeout: float | None = None) -> None:
        """Return once set, or `timeout` seconds later; the next wait starts afresh."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._event.wait()
        self._event.clear()


class Feed:
    """Who waits for news of which topic (a run, a session, a ledger key)."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._signals: dict[str, list[Signal]] = {}

    @contextmanager
    def subscribe(self, topic: str, seen: int = 0) -> Generator[Signal]:
        """A signal that is set whenever `topic` gets further than `signal.seen`."""
        signal = Signal(seen)
        with self._lock:
            self._signals.setdefault(topic, []).append(signal)
        try:
            yield signal
        finally:
            with self._lock:
                signals = self._signals[topic]
                signals.remove(signal)
                if not signals:
                    del self._signals[topic]

    def publish(self, topic: str, position: int | None = None) -> None:
        """Tell the subscribers of `topic` that it moved on, to `position` where there is one."""
        if not self._signals:
            return
        with self._lock:
            signals = [s for s in self._signals.get(topic, ()) if position is None or position > s.seen]
        for signal in signals:
            signal.set()

    def topics(self) -> list[str]:
        """The topics that anybody waits for."""
        with self._lock:
            return list(self._signals)
