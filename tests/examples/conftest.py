"""The examples as a user starts them: a process of its own, in the repository's folder."""

from __future__ import annotations

import codecs
import json
import os
import pty
import queue
import select
import subprocess
import sys
import termios
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from http.client import HTTPResponse
from pathlib import Path
from typing import Any

import pytest

from glassloop.cli.target import Target, load_target
from glassloop.core.result import RunResult


@dataclass
class Ended:
    """A process that has ended: its exit code and what it printed."""

    code: int
    out: str
    err: str

    @property
    def answer(self) -> str:
        """The last line on standard output."""
        return self.out.rstrip().rsplit("\n", 1)[-1]

    def traced(self, kind: str) -> list[str]:
        """The trace lines of a kind, with the step first: `1 get_weather(city="x")`."""
        lines = [line for line in self.out.splitlines() if line[8:].startswith(f"{kind} ")]
        return [f"{line[:8].removeprefix('step').strip()} {line[20:]}" for line in lines]


Example = Callable[..., Ended]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Where the journal and an example's own tables stand."""
    return tmp_path / "runs.db"


@pytest.fixture
def example(root: Path, clean_environment: dict[str, str], tmp_path: Path) -> Example:
    """Run Python with some words; variables of the environment are keyword arguments."""

    def run(*words: str, given: str = "", **variables: str) -> Ended:
        store = f"sqlite:///{tmp_path}/runs.db"
        environment = {**clean_environment, "STORE": store, **variables}
        done = subprocess.run(
            [sys.executable, *words],
            cwd=root,
            env=environment,
            input=given,
            capture_output=True,
            encoding="utf-8",
            timeout=60,
        )
        return Ended(done.returncode, done.stdout, done.stderr)

    return run


@cache
def target(path: Path) -> Target:
    """An example, imported once."""
    return load_target(str(path))


@pytest.fixture
def load(root: Path) -> Callable[[str], Target]:
    """Import an example by its path under `examples`."""
    return lambda name: target(root / "examples" / name)


@pytest.fixture
def answer(load: Callable[[str], Target]) -> Callable[[str, str], RunResult]:
    """Ask an example's agent, with its stand-in model, without the detour through a process of its own."""

    def run(name: str, question: str) -> RunResult:
        example = load(name)
        with example.stand_in.serve() as chosen:
            return example.agent.run_sync(question, model=chosen.model, store="memory:")

    return run


_AT_TERMINAL = "import os, sys; os.login_tty(0); os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
"""Makes the terminal the process's own, so that Ctrl-C is a signal, and becomes the program."""


class Terminal:
    """A program at a terminal of its own: what a person types, and what they wait to see."""

    def __init__(self, words: tuple[str, ...], folder: Path, environment: dict[str, str]) -> None:
        self._ours, theirs = pty.openpty()
        termios.tcsetwinsize(theirs, (50, 1000))  # so wide that no line that is edited is scrolled
        command = [sys.executable, "-c", _AT_TERMINAL, *words]
        self.process = subprocess.Popen(
            command, cwd=folder, env=environment, stdin=theirs, stdout=theirs, stderr=theirs
        )
        os.close(theirs)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._left = ""

    def expect(self, text: str, seconds: float = 30.0) -> str:
        """Wait until `text` is on the screen and return what came up to it; each piece is seen once."""
        end = time.monotonic() + seconds
        while text not in self._left:
            piece = self._read(max(0.0, end - time.monotonic()))
            assert piece, f"{text!r} did not come; the screen shows {self._left!r}"
            self._left += piece
        before, found, self._left = self._left.partition(text)
        return before + found

    def type(self, text: str) -> None:
        """Press keys; `\x04` is Ctrl-D, `\x03` Ctrl-C."""
        os.write(self._ours, text.encode())

    def rest(self) -> str:
        """Wait for the end and return what came until then."""
        while piece := self._read(30.0):
            self._left += piece
        self.process.wait(30)
        return self._left

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        self.process.wait(30)

    def hang_up(self) -> None:
        """Close the terminal's window."""
        if self._ours >= 0:
            os.close(self._ours)
        self._ours = -1

    def _read(self, seconds: float) -> str:
        if not select.select([self._ours], [], [], seconds)[0]:
            return ""
        try:
            return self._decoder.decode(os.read(self._ours, 65536)).replace("\r\n", "\n")
        except OSError:  # Linux tells by EIO that the last writer has gone
            return ""


@pytest.fixture
def terminal(root: Path, clean_environment: dict[str, str], tmp_path: Path) -> Iterator[Callable[..., Terminal]]:
    """Start Python with some words at a terminal; variables of the environment are keyword arguments."""
    started: list[Terminal] = []

    def start(*words: str, **variables: str) -> Terminal:
        own = {"STORE": f"sqlite:///{tmp_path}/runs.db", "TERM": "dumb", "LOGNAME": "ann", **variables}
        started.append(Terminal(words, root, {**clean_environment, **own}))
        return started[-1]

    yield start
    for one in started:
        one.kill()
        one.hang_up()


class Served:
    """An example behind `glassloop serve`, and a client of it."""

    def __init__(self, words: tuple[str, ...], folder: Path, environment: dict[str, str]) -> None:
        command = [sys.executable, "-m", "glassloop", "serve", *words, "--port", "0"]
        self.process = subprocess.Popen(
            command, cwd=folder, env=environment, stderr=subprocess.PIPE, text=True, encoding="utf-8"
        )
        self.said: list[str] = []
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=self._listen, daemon=True).start()
        self.url = self._ready().partition(" at ")[2].split()[0]

    def _listen(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self._lines.put(line)
        self._lines.put("")

    def _ready(self) -> str:
        while line := self._lines.get(timeout=30):
            self.said.append(line)
            if line.startswith("Serving "):
                return line
        raise AssertionError(f"the server did not start: {self.said}")

    def get(self, path: str, key: str = "demo-alice") -> Any:
        """GET, and the JSON of the answer."""
        request = urllib.request.Request(self.url + path, headers={"Authorization": f"Bearer {key}"})
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=30) as answer:
            return json.load(answer)

    def open(self, path: str, body: object = None, key: str | None = "demo-alice") -> HTTPResponse:
        """POST JSON, or nothing; the answer, to be read as it comes.

        Raises:
            urllib.error.HTTPError: its status is an error.
        """
        data = b"" if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"} if body is not None else {}
        if key is not None:
            headers["Authorization"] = f"Bearer {key}"
        request = urllib.request.Request(self.url + path, data, headers, method="POST")
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        return opener.open(request, timeout=30)

    def post(self, path: str, body: object = None, key: str | None = "demo-alice") -> tuple[int, Any]:
        """POST, and the status and the JSON of the answer."""
        try:
            with self.open(path, body, key) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as refusal:
            with refusal:
                return refusal.code, json.load(refusal)

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        self.process.wait(30)


@pytest.fixture
def served(root: Path, clean_environment: dict[str, str], tmp_path: Path) -> Iterator[Callable[..., Served]]:
    """Start `glassloop serve` with some words; variables of the environment are keyword arguments."""
    started: list[Served] = []

    def start(*words: str, **variables: str) -> Served:
        environment = {**clean_environment, "STORE": f"sqlite:///{tmp_path}/runs.db", **variables}
        started.append(Served(words, root, environment))
        return started[-1]

    yield start
    for one in started:
        one.kill()
        if one.process.stderr is not None:
            one.process.stderr.close()
