"""Sessions over HTTP, wherever they are kept."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from glassloop import Agent
from glassloop.models.model import ModelRequest
from glassloop.runtime import Runtime
from glassloop.stores import open_store
from glassloop.testing import ScriptedModel
from servers import redis_server


@pytest.fixture(params=["", "redis_url", "postgres_url"])
def sessions(request: pytest.FixtureRequest) -> str:
    """Where the sessions are; empty: with the journal, in a file."""
    return request.getfixturevalue(request.param) if request.param else ""


async def test_a_busy_session_is_a_409_that_names_the_run(serve: Callable[..., Any], store: str, sessions: str) -> None:
    asked, go = asyncio.Event(), asyncio.Event()

    async def answer(request: ModelRequest) -> str:
        asked.set()
        await go.wait()
        return "hello"

    async with open_store(store, sessions) as opened:
        site = await serve(Runtime(Agent(ScriptedModel(answer)), store=opened))
        going = await site.alice.run("hi", session="s1")
        await asked.wait()
        refused = await site.alice.post("/v1/runs", {"input": "me too", "session": "s1", "when_busy": "refuse"})
        assert (refused.status, refused.problem["code"]) == (409, "session_busy")
        assert refused.problem["run_id"] == going
        waiting = await site.alice.run("and me", session="s1")
        other = await site.bob.post("/v1/runs", {"input": "me too", "session": "s1", "when_busy": "refuse"})
        assert other.status == 202
        go.set()
        for run_id in (going, waiting):
            assert (await site.alice.rested(run_id))["status"] == "completed"
        told = (await site.alice.get("/v1/sessions/s1")).json
        assert [message["text"] for message in told["messages"]] == ["hi", "hello", "and me", "hello"]


async def test_a_server_whose_sessions_are_away_is_not_ready(
    serve: Callable[..., Any], store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("glassloop.stores.redis.server._PATIENCE_S", 0.2)
    with redis_server(tmp_path) as redis:
        async with open_store(store, redis.database(0)) as opened:
            site = await serve(Runtime(Agent(ScriptedModel(["hello"])), store=opened))
            assert (await site.nobody.get("/readyz")).status == 200
            redis.stop()
            answer = await site.nobody.get("/readyz")
            assert (answer.status, answer.problem["code"]) == (503, "store")
            assert (await site.alice.get("/v1/sessions/s1")).status == 503
