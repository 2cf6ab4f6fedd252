"""Makes the judge, the adapter and the helpers of the scenarios importable for the tests of this folder."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from durable import Process, Start, Trace


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A store that outlives a process."""
    return f"sqlite:///{tmp_path}/runs.db"


@pytest.fixture
def trace(tmp_path: Path) -> Trace:
    """Where effects leave a line."""
    return Trace(tmp_path / "trace")


@pytest.fixture
def start(clean_environment: dict[str, str]) -> Iterator[Start]:
    """A function that starts a program of `durable` in another process, with additions to its environment."""
    started: list[Process] = []

    def start(program: str, *arguments: object, **environment: str) -> Process:
        started.append(Process({**clean_environment, **environment}, program, *arguments))
        return started[-1]

    yield start
    for process in started:
        process.end()
