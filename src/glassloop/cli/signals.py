"""Signals as exceptions in the main thread, none of them lost."""

from __future__ import annotations

import select
import signal
import socket
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import NoReturn

_PATIENCE_S = 0.05


class Terminated(KeyboardInterrupt):
    """SIGTERM or SIGHUP: the program is to end, not only the run."""


@contextmanager
def ended_by_signals() -> Generator[None]:
    """SIGTERM and SIGHUP raise `Terminated` while the block runs; a signal that is ignored stays so."""
    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    mine = [number for number in numbers if signal.getsignal(number) is signal.SIG_DFL]
    for number in mine:
        signal.signal(number, _raise)
    try:
        yield
    finally:
        for number in mine:
            signal.signal(number, signal.SIG_DFL)


def insist_on_interrupts() -> None:
    """From now on a signal is sent again until its exception has been raised; at most once a process.

    While a line is typed, readline looks for signals only when its wait is interrupted: of one that comes just before
    it waits, Python would hear after the line only, and would then throw the line away.
    """
    global _insisting
    able = hasattr(signal, "pthread_kill")
    if able and _insisting is None and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        _insisting = _Insisting()
        signal.signal(signal.SIGINT, _raise)


class Insistent:
    """A handler whose signal is sent again, too, until it has been called.

    Args:
        act: what it does.
    """

    def __init__(self, act: Callable[[int], None]) -> None:
        self._act = act

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal."""
        if _insisting is not None:
            _insisting.heard()
        self._act(number)


class _Insisting:
    """The numbers of signals that came and were not heard lie in a socket (`signal.set_wakeup_fd`)."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a second signal may come while the first one is being heard
        self._main = threading.get_ident()
        self._unheard, self._came = socket.socketpair()
        self._unheard.setblocking(False)
        self._came.setblocking(False)
        signal.set_wakeup_fd(self._came.fileno(), warn_on_full_buffer=False)
        threading.Thread(target=self._repeat, name="glassloop-signals", daemon=True).start()

    def heard(self) -> None:
        """All that came is being dealt with."""
        with self._lock, suppress(BlockingIOError):  # nothing is left, whoever has read it
            while True:
                self._unheard.recv(64)

    def _repeat(self) -> None:
        while True:
            select.select([self._unheard], [], [])
            time.sleep(_PATIENCE_S)
            with self._lock:
                if select.select([self._unheard], [], [], 0)[0]:
                    self._again(self._unheard.recv(1, socket.MSG_PEEK)[0])

    def _again(self, number: int) -> None:
        handler = signal.getsignal(number)
        if handler is _raise or isinstance(handler, Insistent):
            signal.pthread_kill(self._main, number)
        else:
            self._unheard.recv(1)  # somebody else's signal


_insisting: _Insisting | None = None


def _raise(number: int, frame: FrameType | None) -> NoReturn:
    if _insisting is not None:
        _insisting.heard()
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    raise Terminated(signal.Signals(number).name)
