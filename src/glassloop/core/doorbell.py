"""How a thread wakes an event loop: what `call_soon_threadsafe` does, at less than half its price where that is dear.

asyncio wakes itself up through a pair of sockets. Linux has a counter for the purpose (eventfd(2)): one call rings, one
answers.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol
from weakref import WeakKeyDictionary

Callback = Callable[[], object]


class Doorbell(Protocol):
    """Of one event loop."""

    def ring(self, callback: Callback) -> None:
        """Have the loop call `callback`, which must not raise. From any thread; nothing happens if it is closed."""
        ...


def doorbell() -> Doorbell:
    """The bell of the running event loop."""
    loop = asyncio.get_running_loop()
    return _bells.get(loop) or _install(loop)


class _Counter:
    """By eventfd. It knows nothing of its loop, so that it does not keep it alive, and ends with it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._due: deque[Callback] = deque()
        self._file = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        loop.add_reader(self._file, self._answer)

    def ring(self, callback: Callback) -> None:
        """See `Doorbell`."""
        self._due.append(callback)
        os.eventfd_write(self._file, 1)

    def _answer(self) -> None:
        with suppress(BlockingIOError):
            os.eventfd_read(self._file)
        while self._due:
            self._due.popleft()()

    def __del__(self) -> None:
        if hasattr(self, "_file"):
            os.close(self._file)


class _Sockets:
    """By asyncio itself."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def ring(self, callback: Callback) -> None:
        """See `Doorbell`."""
        with suppress(RuntimeError):  # closed
            self._loop.call_soon_threadsafe(callback)


_bells: WeakKeyDictionary[asyncio.AbstractEventLoop, _Counter] = WeakKeyDictionary()
_lock = threading.Lock()


def _install(loop: asyncio.AbstractEventLoop) -> Doorbell:
    if sys.platform != "linux" or not hasattr(os, "eventfd"):
        return _Sockets(loop)
    try:
        bell = _Counter(loop)
    except (NotImplementedError, OSError):  # a loop that watches no files, or no more files
        return _Sockets(loop)
    with _lock:
        _bells[loop] = bell
    return bell
