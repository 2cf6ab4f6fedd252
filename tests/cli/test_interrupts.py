"""Ctrl-C while a line is edited at a terminal: always heard, whatever was typed before it and wherever it falls."""

from __future__ import annotations

import os
import pty
import random
import select
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator

import pytest

READER = """
import linecache, os, signal, sys, threading
from glassloop.cli.keyboard import Lines

draft, place = sys.argv[1:]
lines = Lines()
main = threading.main_thread().ident
heard = 0


def interrupt(*_):
    os.kill(os.getpid(), signal.SIGINT)


def is_at_input(frame):
    return "input(" in linecache.getline(frame.f_code.co_filename, frame.f_lineno)


def interrupt_input():
    # once for each call of it, while it is on its way to the terminal
    while True:
        before = heard
        while not is_at_input(sys._current_frames()[main]):
            pass
        interrupt()
        while heard == before:
            pass


def in_handler(number):
    # a trace that interrupts the handler of signals at its line of this number
    def traced(frame, event, argument):
        nonlocal number
        if event == "line":
            number -= 1
            if number == 0:
                interrupt()
        return traced if frame.f_code.co_filename.endswith("signals.py") else None
    return traced


def read(depth):
    # each level catches what interrupts the one below while that says that it was interrupted
    global heard
    while True:
        try:
            if depth:
                read(depth - 1)
            sys.settrace(in_handler(heard % 6 + 1) if place == "handler" else None)
            print("\\ngot", lines.read("> ", draft=draft))
        except KeyboardInterrupt:
            sys.settrace(None)
            heard += 1
            print("\\nheard")


if place == "input":
    sys.setswitchinterval(1e-6)
    threading.Thread(target=interrupt_input, daemon=True).start()
read(5)
"""


class Reader:
    """A process that reads lines at a terminal and says what it got, and each interrupt that it heard.

    Args:
        environment: its variables.
        place: where it interrupts itself, too: `input`, or the `handler` of signals.
        draft: what stands on the line already.
        shell: begin with a shell that controls jobs, in which it is `"$PYTHON" -c "$READER" DRAFT PLACE`.
    """

    def __init__(self, environment: dict[str, str], place: str = "", *, draft: str = "", shell: bool = False) -> None:
        self.terminal, side = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-c", READER, draft, place] if not shell else ["bash", "--norc", "-i"],
            env={**environment, "TERM": "dumb", "PS1": "ready$ ", "READER": READER, "PYTHON": sys.executable},
            stdin=side,
            stdout=side,
            stderr=side,
            start_new_session=True,
            preexec_fn=_take_terminal,
        )
        os.close(side)
        self.seen = b""

    def type(self, keys: bytes) -> None:
        os.write(self.terminal, keys)

    def shows(self, text: bytes, seconds: float = 20.0) -> bool:
        """Whether `text` comes onto the screen in time; each piece is seen once."""
        end = time.monotonic() + seconds
        while text not in self.seen:
            ready, _, _ = select.select([self.terminal], [], [], max(0.0, end - time.monotonic()))
            if not ready:
                return False
            self.seen += os.read(self.terminal, 65536)
        self.seen = self.seen.partition(text)[2]
        return True

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.terminal)


def test_a_line_is_edited_further_after_a_stop(start: Start) -> None:
    shell = start(shell=True)
    assert shell.shows(b"ready$ ")
    shell.type(b'"$PYTHON" -c "$READER" abc \'\'\r')
    assert shell.shows(b"> abc")
    shell.type(b"d")
    assert shell.shows(b"d")
    shell.type(b"\x1a")
    assert shell.shows(b"Stopped")
    assert shell.shows(b"ready$ ")
    shell.type(b"fg\r")
    assert shell.shows(b"> abcd")
    shell.type(b"\x01X\r")  # to the beginning of the line
    assert shell.shows(b"got Xabcd\r\n")


def _take_terminal() -> None:
    os.close(os.open(os.ttyname(0), os.O_RDWR))  # the first terminal that a session opens is its own


Start = Callable[..., Reader]


@pytest.fixture
def start(clean_environment: dict[str, str]) -> Iterator[Start]:
    readers: list[Reader] = []

    def begin(place: str = "", *, draft: str = "", shell: bool = False) -> Reader:
        readers.append(Reader(clean_environment, place, draft=draft, shell=shell))
        return readers[-1]

    yield begin
    for reader in readers:
        reader.close()


def test_one_that_throws_away_what_was_typed_is_heard(start: Start) -> None:
    chance, reader = random.Random(7), start()
    for _ in range(60):  # unguarded, every third or so hangs
        assert reader.shows(b"> ")
        reader.type(b"x" * 1000)
        _spin(chance.uniform(0, 0.01))
        reader.type(b"\x03")
        assert reader.shows(b"heard")
    assert reader.shows(b"> ")
    reader.type(b"hello\r")
    assert reader.shows(b"got hello\r\n")  # and nothing of what was typed before


def test_one_that_falls_into_the_beginning_of_a_draft_is_heard(start: Start) -> None:
    reader = start("input", draft='{"order_id": "A-1"}')  # readline's hook is the next to look for signals
    for _ in range(50):
        assert reader.shows(b"heard")


def test_one_that_falls_into_the_hearing_of_another_is_heard(start: Start) -> None:
    reader = start("handler")
    for _ in range(30):
        assert reader.shows(b"> ")
        reader.type(b"\x03")
        assert reader.shows(b"heard")


def test_a_terminal_is_left_as_it_was_found(start: Start) -> None:
    reader = start()
    before = termios.tcgetattr(reader.terminal)
    assert reader.shows(b"> ")
    reader.type(b"hello\r")
    assert reader.shows(b"got hello")
    assert reader.shows(b"> ")
    reader.type(b"\x04")
    reader.process.wait(timeout=20)
    assert termios.tcgetattr(reader.terminal) == before


def _spin(seconds: float) -> None:
    """Wait more exactly than `time.sleep` can."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass
