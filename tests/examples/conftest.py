"""The examples as a user starts them: a process of its own, in the repository's folder."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

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
