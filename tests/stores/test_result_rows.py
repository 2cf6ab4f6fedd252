"""Big results of tools: run and session of one database have them once, and the session reads them from the run."""

from __future__ import annotations

import logging
import random
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from glassloop.core.events import ToolFinished
from glassloop.core.messages import Message, Reply, Text, ToolResult, UserMessage
from glassloop.journal.journal import Turn
from glassloop.stores import Store, open_store
from glassloop.testing.conformance.journal import event, finished, started

Execute = Callable[[str], str]


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, path: Path) -> str:
    return f"sqlite:///{path}" if request.param == "sqlite" else request.getfixturevalue("postgres_url")


@pytest.fixture
async def store(url: str) -> AsyncIterator[Store]:
    async with open_store(url) as store:
        yield store


@pytest.fixture
def execute(request: pytest.FixtureRequest, url: str, path: Path) -> Execute:
    """A function that executes a statement behind the store's back, and returns the one value that it gives."""
    if not url.startswith("sqlite"):
        server = request.getfixturevalue("postgres_process")
        return lambda statement: server.execute(statement, url.rpartition("/")[2])

    def execute(statement: str) -> str:
        with closing(sqlite3.connect(path)) as connection, connection:
            return "".join(str(value) for row in connection.execute(statement) for value in row)

    return execute


def text(seed: int, size: int = 8_000) -> str:
    """Letters that hardly deflate."""
    return random.Random(seed).randbytes(size // 2).hex()


def turn(key: str, results: int) -> Turn:
    """A turn with so many big results, and one that is small."""
    found = [ToolResult(f"call_{n}", "search", text(n) if n < results else "0") for n in range(results + 1)]
    messages: list[Message] = [UserMessage("Find it."), *found, Reply((Text("Found."),))]
    return Turn("s", key, messages)


async def run(store: Store, run_id: str, turn: Turn) -> None:
    """A run that ends with a turn; its last result is recorded with its end."""
    results = [m for m in turn.messages if isinstance(m, ToolResult)]
    events = [event(run_id, ToolFinished(result.call_id, result, 1.0)) for result in results]
    last = await store.journal.append(run_id, [started(run_id), *events[:1]], after=0, epoch=1)
    await store.journal.append(run_id, [*events[1:], finished(run_id)], after=last, epoch=1, turn=turn)


@pytest.mark.parametrize("key", ["run_1", "run_1.2"])  # a run's turn, and that of one that was continued
async def test_a_result_stands_once_though_run_and_session_have_it(store: Store, execute: Execute, key: str) -> None:
    await run(store, "run_0", turn("run_0", 1)._replace(session="another"))
    said = turn(key, 50)
    await run(store, "run_1", said)
    assert await store.sessions.load("s") == said.messages
    assert await store.sessions.load("s", 3) == said.messages[-3:]
    assert int(execute("SELECT sum(length(message)) FROM glassloop_messages")) < 2_000


async def test_a_session_has_its_own_of_a_result_that_is_another_than_the_run_s(store: Store) -> None:
    said = turn("run_1", 1)
    question, result, *rest = said.messages
    assert isinstance(result, ToolResult)
    events = [started("run_1"), event("run_1", ToolFinished("call_0", result, 1.0)), finished("run_1")]
    other = [question, replace(result, content=text(7)), *rest]
    await store.journal.append("run_1", events, after=0, epoch=1, turn=said._replace(messages=other))
    assert await store.sessions.load("s") == other


@pytest.mark.parametrize(
    "lost",
    [
        "DELETE FROM glassloop_events",
        "UPDATE glassloop_events SET data = '{broken'",
        "UPDATE glassloop_events SET data = '{}'",
    ],
)
async def test_a_result_whose_event_is_lost_is_reported_and_left_out(
    store: Store, execute: Execute, caplog: pytest.LogCaptureFixture, lost: str
) -> None:
    said = turn("run_1", 1)
    await run(store, "run_1", said)
    assert await store.sessions.load("s") == said.messages
    execute(f"{lost} WHERE type = 'tool_finished'")
    with caplog.at_level(logging.WARNING, "glassloop.stores"):
        assert await store.sessions.load("s", 3) == [said.messages[0], *said.messages[2:]]
    assert "Message 2 of session 's' is damaged and left out" in caplog.text
