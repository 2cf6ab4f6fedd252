"""A flag that any thread may set and wait for: what `threading.Event` does, at a tenth of its price until one waits."""

from __future__ import annotations

import threading

_lock = threading.Lock()


class Cancellation:
    """Whether a tool call has been cancelled or has taken too long. Each has one, and hardly any is waited for."""

    __slots__ = ("_event", "_is_set")

    def __init__(self) -> None:
        self._is_set = False
        self._event: threading.Event | None = None

    def is_set(self) -> bool:
        """Whether it has happened."""
        return self._is_set

    def set(self) -> None:
        """It has happened: all who wait go on."""
        with _lock:
            self._is_set = True
            if self._event is not None:
                self._event.set()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it happens, `timeout` seconds at most; returns whether it has. Only for code in a thread."""
        with _lock:
            if self._is_set:
                return True
            self._event = self._event or threading.Event()
        return self._event.wait(timeout)
