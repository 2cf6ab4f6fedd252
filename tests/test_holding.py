"""Sessions that stand in another place than the journal are made whole again from it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from glassloop import Agent
from glassloop.core.errors import StoreError
from glassloop.core.messages import Message, Reply, UserMessage
from glassloop.models.model import ModelRequest
from glassloop.stores import Store, open_store
from glassloop.testing import ScriptedModel
from servers import RedisProcess, redis_server


@pytest.fixture
def redis(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RedisProcess]:
    """A Redis server of our own, which keeps what it has when it is stopped."""
    monkeypatch.setattr("glassloop.stores.redis.server._PATIENCE_S", 0.2)
    with redis_server(tmp_path, "--appendonly", "yes", "--appendfsync", "always") as server:
        yield server


def texts(messages: list[Message]) -> list[str]:
    return [message.text for message in messages if isinstance(message, UserMessage | Reply)]


async def turn(store: Store, question: str) -> list[str]:
    """Ask, and have the question answered in capitals; what the model was shown."""
    shown: list[ModelRequest] = []

    def answer(request: ModelRequest) -> str:
        shown.append(request)
        return question.upper()

    await Agent(ScriptedModel(answer)).run(question, session="s", store=store)
    return texts(list(shown[0].messages))


async def test_a_turn_that_did_not_reach_its_session_joins_it_with_the_next_run(
    redis: RedisProcess, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def stop(request: ModelRequest) -> str:
        redis.stop()
        return "TWO"

    async with open_store(f"sqlite:///{tmp_path}/store.db", redis.database(0)) as store:
        await turn(store, "one")
        with pytest.raises(StoreError, match="cannot be reached"):
            await Agent(ScriptedModel(stop)).run("two", session="s", store=store)
        async with asyncio.timeout(10):
            while "Trying again" not in caplog.text:  # noqa: ASYNC110 - to free the session; a log has no event
                await asyncio.sleep(0.01)
        redis.start()
        async with asyncio.timeout(10):
            assert await turn(store, "three") == ["one", "ONE", "two", "TWO", "three"]
        assert texts(await store.sessions.load("s")) == ["one", "ONE", "two", "TWO", "three", "THREE"]


async def test_a_session_that_is_lost_is_rebuilt(redis: RedisProcess, tmp_path: Path) -> None:
    async with open_store(f"sqlite:///{tmp_path}/store.db", redis.database(0)) as store:
        for question in ("one", "two", "three", "four", "five"):
            await turn(store, question)
    async with open_store(f"sqlite:///{tmp_path}/store.db", redis.database(1)) as store:
        assert (await turn(store, "six"))[:4] == ["one", "ONE", "two", "TWO"]
        assert len(await store.sessions.load("s")) == 12


async def test_sessions_are_kept_in_one_place_alone(redis: RedisProcess, tmp_path: Path) -> None:
    async with open_store(f"sqlite:///{tmp_path}/store.db", redis.database(0)) as store:
        await turn(store, "one")
        assert texts(await store.sessions.load("s")) == ["one", "ONE"]
    async with open_store(f"sqlite:///{tmp_path}/store.db") as store:
        assert await store.sessions.load("s") == []
        assert len(await store.journal.runs()) == 1
