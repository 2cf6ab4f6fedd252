"""One process that runs the program: started, watched and killed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from world import World

_PROGRAM = Path(__file__).with_name("program.py")


class Life:
    """A life of the program.

    Args:
        world: its world.
        number: of the life.
        wishes: its wishes, as `program.Wishes` reads them.
    """

    def __init__(self, world: World, number: int, **wishes: object) -> None:
        kept = {name: os.environ[name] for name in ("PATH", "TMPDIR", "LANG") if name in os.environ}
        asked = {name.upper(): str(wish) for name, wish in wishes.items()}
        self.words: list[str] = []
        self.number = number
        self._spoken = threading.Condition()
        self._errors = world.folder / f"errors-{number}.log"
        with self._errors.open("ab") as errors:
            self.process = subprocess.Popen(
                [sys.executable, str(_PROGRAM), str(world.folder)],
                env={**kept, **asked, "LIFE": str(number), "STORE": world.url, "PYTHONUTF8": "1"},
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def hear(self, word: str, timeout: float) -> bool:
        """Wait until the program has said `word`; False if it has ended without, or said nothing in time."""
        with self._spoken:
            self._spoken.wait_for(lambda: word in self.words or "" in self.words, timeout)
            return word in self.words

    def wait(self, timeout: float) -> bool:
        """Wait for its end; whether it has ended."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout)
        if self.process.returncode is not None:
            self._listener.join(5)
        return self.process.returncode is not None

    def send(self, number: signal.Signals) -> None:
        """Send a signal."""
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self.send(signal.SIGKILL)
        self.wait(30)

    @property
    def killed(self) -> bool:
        """Whether SIGKILL ended it."""
        return self.process.returncode == -signal.SIGKILL

    def complaints(self) -> str:
        """What it wrote to standard error."""
        return self._errors.read_text("utf-8", "replace")

    def _listen(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as stdout:
            for line in stdout:
                self._say(line.strip())
        self._say("")

    def _say(self, word: str) -> None:
        with self._spoken:
            self.words.append(word)
            self._spoken.notify_all()


def until(truth: Callable[[], object], timeout: float, what: str) -> None:
    """Wait until `truth()` holds.

    Raises:
        AssertionError: it does not within `timeout` seconds.
    """
    deadline = time.monotonic() + timeout
    while not truth():
        assert time.monotonic() < deadline, f"{what}: not within {timeout:g} s"
        time.sleep(0.02)
