"""The command line as a user starts it: a process of its own, in a folder of its own."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

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


def broken() -> str:
    """Fail."""
    raise RuntimeError("secret detail")


def stop() -> str:
    """Stop the run."""
    raise FatalToolError("The desk is closed.")


agent = Agent(tools=[get_weather, delete_row, wait, broken, stop], name="tester")
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


class Cli:
    """Starts `glassloop` in a folder.

    Args:
        folder: working directory; an agent stands in `agent.py`.
        environment: variables of every process.
    """

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.folder = folder
        self.environment = environment
        self.processes: list[subprocess.Popen[str]] = []

    def start(self, *arguments: str, stdin: int = subprocess.PIPE, **variables: str) -> subprocess.Popen[str]:
        """Start it and go on."""
        process = subprocess.Popen(
            ["glassloop", *arguments],
            cwd=self.folder,
            env={**self.environment, **variables},
            stdin=stdin,
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

    def write(self, name: str, text: str) -> Path:
        """Write a file into the folder."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
        return path


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
def at() -> Callable[[Any], dict[str, str]]:
    """The variables that send a model to a server of ours: `cli("run", ..., **at(server))`."""

    def variables(server: Any) -> dict[str, str]:
        return {"MODEL": "openai:test", "MODEL_ENDPOINT": server.url, "MODEL_API_KEY": "k"}

    return variables
