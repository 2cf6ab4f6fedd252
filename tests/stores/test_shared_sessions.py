"""Two processes talk in one session at once: their turns do not interleave, and none is lost."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from children import end, hear
from glassloop.core.messages import Reply, UserMessage
from glassloop.stores import open_store

TURNS = 50  # of two messages each

TALK = f"""
import asyncio, sys
from glassloop import Agent
from glassloop.stores import open_store
from glassloop.testing import ScriptedModel

async def main(name, url, sessions):
    agent = Agent(ScriptedModel([f"answer {{name}} {{n}}" for n in range({TURNS})]))
    async with open_store(url, sessions) as store:
        print("ready", flush=True)
        sys.stdin.readline()
        for n in range({TURNS}):
            result = await agent.run(f"question {{name}} {{n}}", session="s", store=store)
            assert result.output == f"answer {{name}} {{n}}"

asyncio.run(main(*sys.argv[1:]))
"""

Talk = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def talk(clean_environment: dict[str, str]) -> Iterator[Talk]:
    """A function that starts a process that talks in the session."""
    started: list[subprocess.Popen[str]] = []

    def start(name: str, url: str, sessions: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-W", "error", "-c", TALK, name, url, sessions]
        pipe = subprocess.PIPE
        started.append(
            subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=clean_environment)
        )
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture(params=["sqlite", "postgresql", "redis"])
def places(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    """Where the journal is, and where the sessions are (empty: there too)."""
    match request.param:
        case "redis":
            return f"sqlite:///{tmp_path}/store.db", request.getfixturevalue("redis_url")
        case "postgresql":
            return request.getfixturevalue("postgres_url"), ""
        case _:
            return f"sqlite:///{tmp_path}/store.db", ""


async def test_two_processes_in_one_session(places: tuple[str, str], talk: Talk) -> None:
    talkers = [talk(name, *places) for name in ("ann", "bob")]
    for talker in talkers:
        assert await hear(talker) == "ready"
    await asyncio.gather(*map(end, talkers))
    async with open_store(*places) as store:
        messages = await store.sessions.load("s")
    said: dict[str, list[int]] = {"ann": [], "bob": []}
    for question, answer in zip(messages[::2], messages[1::2], strict=True):
        assert isinstance(question, UserMessage)
        assert isinstance(answer, Reply)
        found = re.fullmatch(r"question (\w+) (\d+)", question.text)
        assert found is not None
        assert answer.text == f"answer {found[1]} {found[2]}"
        said[found[1]].append(int(found[2]))
    assert said == {name: list(range(TURNS)) for name in said}
