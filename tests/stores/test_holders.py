"""Who holds a session or a claim, among processes: the same in a file, in PostgreSQL and in Redis."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import closing
from pathlib import Path

import pytest

from children import end, hear, kill
from glassloop.journal.ledger import InDoubt, InFlight, Yours
from glassloop.memory.session import SessionBusy
from glassloop.stores import Store, open_store
from servers import redis_client

Start = Callable[..., "subprocess.Popen[str]"]
Queued = Callable[[int], Awaitable[None]]


@pytest.fixture(params=["sqlite", "postgresql", "redis"])
def places(request: pytest.FixtureRequest, path: Path) -> tuple[str, str]:
    """Where the journal is, and where sessions and ledger are (empty: there too)."""
    match request.param:
        case "redis":
            return "memory:", request.getfixturevalue("redis_url")
        case "postgresql":
            return request.getfixturevalue("postgres_url"), ""
        case _:
            return f"sqlite:///{path}", ""


@pytest.fixture
def url(places: tuple[str, str]) -> str:
    return places[0]


@pytest.fixture
def clean_environment(clean_environment: dict[str, str], places: tuple[str, str]) -> dict[str, str]:
    return {**clean_environment, "SESSIONS": places[1]}


@pytest.fixture
async def store(places: tuple[str, str]) -> AsyncIterator[Store]:
    async with open_store(*places) as store:
        yield store


@pytest.fixture
def queued(request: pytest.FixtureRequest, places: tuple[str, str], path: Path) -> Queued:
    """A function that waits until so many runs hold the session or wait for it."""
    query, (url, redis) = "SELECT count(*) FROM glassloop_session_locks", places
    server = request.getfixturevalue("postgres_process") if url.startswith("postgresql") else None

    def count() -> int:
        if redis:
            with redis_client(redis) as client:
                return client.llen("glassloop:{s}:queue")
        if server is not None:
            return int(server.execute(query, url.rpartition("/")[2]))
        with closing(sqlite3.connect(path)) as connection:
            return connection.execute(query).fetchone()[0]

    async def queued(number: int) -> None:
        async with asyncio.timeout(20):
            while await asyncio.to_thread(count) != number:
                pass

    return queued


HOLD_SESSION = """
    async with store.sessions.lock("s", sys.argv[2]):
        say("held")
        sys.stdin.readline()
    await store.close()
"""


async def test_a_killed_process_frees_its_session(store: Store, start: Start, queued: Queued) -> None:
    holder = start(HOLD_SESSION, "run_1")
    await hear(holder)
    with pytest.raises(SessionBusy, match="run_1"):
        async with store.sessions.lock("s", "run_2", "refuse"):
            pass

    async def wait() -> None:
        async with store.sessions.lock("s", "run_3"):
            pass

    waiter = asyncio.create_task(wait())
    await queued(2)
    assert not waiter.done()
    await kill(holder)
    async with asyncio.timeout(10):
        await waiter
        async with store.sessions.lock("s", "run_2", "refuse"):
            pass


async def test_processes_take_turns(store: Store, start: Start, queued: Queued) -> None:
    order: list[str] = []

    async def run(run_id: str) -> None:
        async with store.sessions.lock("s", run_id):
            order.append(run_id)

    holder = start(HOLD_SESSION, "run_1")
    await hear(holder)
    second = start(HOLD_SESSION, "run_2")
    await queued(2)
    third = asyncio.create_task(run("run_3"))
    await end(holder)
    assert await hear(second) == "held"
    await asyncio.sleep(0.5)
    assert order == []
    await end(second)
    async with asyncio.timeout(10):
        await third
    assert order == ["run_3"]


async def test_a_resumed_run_takes_its_session_from_another_process(store: Store, start: Start) -> None:
    holder = start(HOLD_SESSION, "run_1")
    await hear(holder)
    async with asyncio.timeout(10), store.sessions.lock("s", "run_1"):
        await end(holder)  # what the older driver gives up is no longer its own
        with pytest.raises(SessionBusy):
            async with store.sessions.lock("s", "run_2", "refuse"):
                pass


CLAIM = """
    say(type(await store.ledger.claim("k", ("run_1", "call_1"), 3600.0)).__name__)
    sys.stdin.readline()
    await store.close()
"""


async def test_the_claim_of_a_killed_process_is_in_doubt_at_once(store: Store, start: Start) -> None:
    holder = start(CLAIM)
    assert await hear(holder) == "Yours"
    assert await store.ledger.claim("k", ("run_2", "call_1"), 60) == InFlight(("run_1", "call_1"))
    waiter = asyncio.create_task(store.ledger.wait("k"))
    await asyncio.sleep(0.1)
    assert not waiter.done()
    await kill(holder)
    async with asyncio.timeout(10):
        await waiter
    assert await store.ledger.claim("k", ("run_2", "call_1"), 60) == InDoubt(("run_1", "call_1"))
    assert await store.ledger.claim("k", ("run_1", "call_1"), 60) == Yours(again=True)
