"""Sessions in another place than the journal: chosen by a URL or by the environment, and looked at when opened."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from glassloop import Agent, tool
from glassloop.core.errors import StoreError
from glassloop.core.messages import UserMessage
from glassloop.runtime import Runtime
from glassloop.stores import open_store
from glassloop.testing import ScriptedModel, call
from servers import redis_client

AWAY = "redis://ann:secret@127.0.0.1:1/0"
"""Nobody listens there."""


@pytest.fixture
def redis(redis_url: str) -> Iterator[Any]:
    """A client of our own, to look behind."""
    with redis_client(redis_url) as client:
        yield client


@pytest.fixture
def url(tmp_path: Path) -> str:
    """Where the journal is."""
    return f"sqlite:///{tmp_path}/store.db"


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("glassloop.stores.redis.server._PATIENCE_S", 0.2)


def orders() -> tuple[Agent, list[int]]:
    """An agent that orders the same thing in every run, and what was ordered."""
    done: list[int] = []

    @tool(effect="write", idempotent=True)
    def order(number: int) -> str:
        """Order something."""
        done.append(number)
        return f"ordered {number}"

    model = ScriptedModel(
        lambda request: call("order", number=7) if request.messages[-1].role == "user" else "Ordered."
    )
    return Agent(model, [order]), done


@pytest.mark.parametrize(("journal", "kept"), [("memory:", 1), (None, 0)])
async def test_the_ledger_stays_with_a_journal_on_disk(
    redis: Any, redis_url: str, url: str, journal: str | None, kept: int
) -> None:
    agent, done = orders()
    async with open_store(journal or url, redis_url) as store:
        for _ in range(2):
            await agent.run("order it", session="s", store=store)
    assert done == [7]
    assert len(redis.keys("glassloop:ledger:*")) == kept


async def test_the_ledger_in_redis_outlives_a_journal_in_memory(redis_url: str) -> None:
    agent, done = orders()
    for _ in range(2):
        async with open_store("memory:", redis_url) as store:
            await agent.run("order it", session="s", store=store)
            assert (await store.sessions.load("s"))[0] == UserMessage("order it")
    assert done == [7]


async def test_sessions_in_another_file(url: str, tmp_path: Path) -> None:
    elsewhere = f"sqlite:///{tmp_path}/sessions.db"
    async with open_store(url, elsewhere) as store:
        await Agent(ScriptedModel(["hello"])).run("hi", session="s", store=store)
        assert (store.sessions_url, len(await store.journal.runs())) == (elsewhere, 1)
    async with open_store(elsewhere) as store:
        assert (len(await store.sessions.load("s")), len(await store.journal.runs())) == (2, 0)


@pytest.mark.parametrize("sessions", [None, "", "same"])
def test_sessions_are_with_the_journal_unless_said_otherwise(url: str, sessions: str | None) -> None:
    store = open_store(url, url if sessions == "same" else sessions)
    assert (store.sessions_url, store.places) == (None, url)


async def test_an_agent_keeps_sessions_where_the_environment_says(
    redis: Any, redis_url: str, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SESSIONS", redis_url)
    monkeypatch.setenv("STORE", url)
    agent = Agent(ScriptedModel(lambda request: f"{len(request.messages)} messages"))
    await agent.run("one", session="s")
    assert (await agent.run("two", session="s")).output == "3 messages"
    assert redis.llen("glassloop:{s}:messages") == 4
    monkeypatch.delenv("SESSIONS")
    assert (await agent.run("three", session="s")).output == "1 messages"
    async with open_store(url) as store:
        assert len(await store.journal.runs()) == 3


async def test_a_runtime_keeps_sessions_where_the_environment_says(
    redis: Any, redis_url: str, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SESSIONS", redis_url)
    runtime = Runtime(Agent(ScriptedModel(["hello"])), store=url)
    assert runtime.store.sessions_url == redis_url
    async with runtime:
        assert runtime.store.journal is not None
    monkeypatch.setenv("SESSIONS", AWAY)
    with pytest.raises(StoreError, match=r"Redis at 127\.0\.0\.1:1 cannot be reached") as caught:
        async with Runtime(Agent(ScriptedModel([])), store=url):
            pass
    assert "secret" not in str(caught.value)


async def test_a_store_that_was_given_stays_as_it_is(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SESSIONS", AWAY)
    async with open_store(url) as store, Runtime(Agent(ScriptedModel([])), store=store) as runtime:
        assert runtime.store.sessions_url is None
        await Agent(ScriptedModel(["hello"])).run("hi", session="s", store=store)
