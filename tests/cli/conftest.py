"""The command line as a user starts it: a process of its own, in a folder of its own."""

from __future__ import annotations

import codecs
import io
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from glassloop.cli.main import main
from glassloop.testing import ModelServer

AGENT = '''
"""An agent for tests."""

import asyncio
import time

from glassloop import Agent, FatalToolError, tool


def get_weather(city: str) -> str:
    """Look up the weather.

    Args:
        city: where
    """
    return f"{city}: 21 degrees, [bold]sunny[/bold]"


@tool(approval=True, effect="write")
def delete_row(row_id: int) -> str:
    """Delete a row."""
    with open("deleted.txt", "a") as file:
        file.write(f"{row_id}\\n")
    return f"deleted {row_id}"


async def wait() -> str:
    """Wait for something."""
    open("waiting.txt", "w").close()
    await asyncio.sleep(60)
    return "done"


async def ignore() -> str:
    """Ignore cancellations."""
    open("waiting.txt", "w").close()
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            pass


async def block() -> str:
    """Block a thread."""
    open("waiting.txt", "w").close()
    await asyncio.to_thread(time.sleep, 60)
    return "done"


def broken() -> str:
    """Fail."""
    raise RuntimeError("secret detail")


def stop() -> str:
    """Stop the run."""
    raise FatalToolError("The desk is closed.")


agent = Agent(tools=[get_weather, delete_row, wait, ignore, block, broken, stop], name="tester")
'''


@dataclass
class Ended:
    """A process that has ended: its exit code and what it printed."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output as JSON."""
        return json.loads(self.out)


class Inside:
    """Runs command lines in this process, where only words are looked at: much faster.

    Args:
        folder: working directory.
        capture: what is printed.
        patch: sets variables.
    """

    def __init__(self, folder: Path, capture: pytest.CaptureFixture[str], patch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.capture = capture
        self.patch = patch

    def __call__(self, *arguments: str, **variables: str) -> Ended:
        """Run one to its end; what it prints never holds a traceback."""
        ended = self.freely(*arguments, **variables)
        assert "Traceback" not in ended.out + ended.err
        return ended

    def freely(self, *arguments: str, **variables: str) -> Ended:
        """Run one to its end, tracebacks and all."""
        self.capture.readouterr()
        with self.patch.context() as patch:
            for name, value in variables.items():
                patch.setenv(name, value)
            code = main(arguments)
        out, err = self.capture.readouterr()
        return Ended(code, out, err)

    def write(self, name: str, text: str) -> None:
        """Write a file into the folder."""
        (self.folder / name).write_text(text, "utf-8")

    def runs(self) -> list[dict[str, Any]]:
        """The recorded runs, newest first."""
        return self("runs", "list", "--json").json


class Terminal:
    """A process at a terminal: what a person types, and what they wait to see."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.seen = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def type(self, text: str) -> None:
        """Press keys; `\x03` is Ctrl-C, `\x04` Ctrl-D."""
        assert self.process.stdin is not None
        self.process.stdin.write(text.encode())
        self.process.stdin.flush()

    def expect(self, text: str, seconds: float = 20.0) -> str:
        """Wait until `text` is on the screen; return what came up to it. Each piece is seen once."""
        assert self.process.stdout is not None
        end = time.monotonic() + seconds
        while text not in self.seen:
            ready, _, _ = select.select([self.process.stdout], [], [], max(0.0, end - time.monotonic()))
            data = os.read(self.process.stdout.fileno(), 65536) if ready else b""
            assert data, f"{text!r} did not come; the screen shows {self.seen!r}"
            self.seen += self._decoder.decode(data).replace("\r\n", "\n")
        before, found, self.seen = self.seen.partition(text)
        return before + found

    def code(self) -> int:
        """Wait for the end and return the exit code."""
        return self.process.wait(timeout=20)


class Cli:
    """Starts `glassloop` in a folder.

    Args:
        folder: working directory; an agent stands in `agent.py`.
        environment: variables of every process.
    """

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.folder = folder
        self.environment = environment
        self.processes: list[subprocess.Popen[Any]] = []

    def start(self, *arguments: str, **variables: str) -> subprocess.Popen[str]:
        """Start it and go on."""
        process = subprocess.Popen(
            ["glassloop", *arguments],
            cwd=self.folder,
            env={**self.environment, **variables},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )
        self.processes.append(process)
        return process

    def __call__(self, *arguments: str, input: str = "", **variables: str) -> Ended:
        """Run it to its end; what it prints never holds a traceback."""
        return self.finish(self.start(*arguments, **variables), input)

    def finish(self, process: subprocess.Popen[str], input: str | None = None) -> Ended:
        """Wait for the end of a started one."""
        out, err = process.communicate(input, timeout=30)
        assert "Traceback" not in out + err
        return Ended(process.returncode, out, err)

    def terminal(self, *arguments: str, **variables: str) -> Terminal:
        """Start it at a terminal of its own."""
        code = "import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))"
        process = subprocess.Popen(
            [sys.executable, "-c", code, "glassloop", *arguments],
            cwd=self.folder,
            env={**self.environment, "TERM": "dumb", **variables},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        self.processes.append(process)
        return Terminal(process)

    def write(self, name: str, text: str) -> Path:
        """Write a file into the folder."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
        return path


@pytest.fixture(autouse=True)
def own_imports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Forget what a test imported from its folder."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if str(tmp_path) in (getattr(sys.modules[name], "__file__", None) or ""):
            del sys.modules[name]


@pytest.fixture
def cli(tmp_path: Path, clean_environment: dict[str, str]) -> Iterator[Cli]:
    """`glassloop`, in an empty folder with one agent in `agent.py`."""
    folder = tmp_path / "work"
    folder.mkdir()
    made = Cli(folder, clean_environment)
    made.write("agent.py", AGENT)
    yield made
    for process in made.processes:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                stream.close()


@pytest.fixture
def inside(cli: Cli, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Inside:
    """`glassloop` without a process of its own, in the same folder."""
    monkeypatch.chdir(cli.folder)
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    return Inside(cli.folder, capsys, monkeypatch)


@pytest.fixture
def at() -> Callable[[ModelServer], dict[str, str]]:
    """The variables that send a model to a server of ours: `cli("run", ..., **at(server))`."""
    return lambda server: {"MODEL": "openai:test", "MODEL_ENDPOINT": server.url, "MODEL_API_KEY": "k"}
