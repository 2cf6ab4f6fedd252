"""Fixtures of the store tests."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

Start = Callable[..., "subprocess.Popen[str]"]

_PREAMBLE = """
import asyncio, json, os, sys, time
from glassloop.core.events import CancelRequested, DriverClaimed, Event, RunFinished
from glassloop.core.messages import UserMessage
from glassloop.stores import open_configured

store = open_configured(sys.argv[1], "")

def event(run_id, data):
    return Event(run_id, 0, 1, 0, data)

def say(*words):
    print(*words, flush=True)

async def main():
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the store's file will be."""
    return tmp_path / "store.db"


@pytest.fixture
def url(path: Path) -> str:
    """The store's URL."""
    return f"sqlite:///{path}"


@pytest.fixture
def start(url: str, clean_environment: dict[str, str]) -> Iterator[Start]:
    """A function that runs the body of a coroutine in another process, with `store` open on the same file."""
    started: list[subprocess.Popen[str]] = []

    def start(body: str, *arguments: str) -> subprocess.Popen[str]:
        code = f"{_PREAMBLE}{body.strip(chr(10))}\n\nasyncio.run(main())\n"
        command = [sys.executable, "-W", "error", "-c", code, url, *arguments]
        pipe = subprocess.PIPE
        process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=clean_environment)
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()
