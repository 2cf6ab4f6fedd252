"""Several processes on one database, and processes that die: the same in a file and in PostgreSQL."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import closing
from pathlib import Path

import pytest

from children import end, hear, kill, pipe, run_script
from glassloop.journal.ledger import InDoubt, InFlight, Yours
from glassloop.memory.session import SessionBusy
from glassloop.stores import Store, open_store
from glassloop.testing.conformance.journal import finished, started

Start = Callable[..., "subprocess.Popen[str]"]
Queued = Callable[[int], Awaitable[None]]


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, path: Path) -> str:
    return f"sqlite:///{path}" if request.param == "sqlite" else request.getfixturevalue("postgres_url")


@pytest.fixture
async def store(url: str) -> AsyncIterator[Store]:
    async with open_store(url) as store:
        yield store


@pytest.fixture
def queued(request: pytest.FixtureRequest, url: str, path: Path) -> Queued:
    """A function that waits until so many runs hold a session or wait for it."""
    query, server = "SELECT count(*) FROM glassloop_session_locks", None
    if not url.startswith("sqlite"):
        server = request.getfixturevalue("postgres_process")

    def count() -> int:
        if server is not None:
            return int(server.execute(query, url.rpartition("/")[2]))
        with closing(sqlite3.connect(path)) as connection:
            return connection.execute(query).fetchone()[0]

    async def queued(number: int) -> None:
        async with asyncio.timeout(20):
            while await asyncio.to_thread(count) != number:
                pass

    return queued


RACE = """
    run_id = sys.argv[2]
    async with store:
        say("ready")
        sys.stdin.readline()
        won = 0
        for position in range(1, 31):
            try:
                event_ = event(run_id, DriverClaimed(position + 1, f"process {os.getpid()}"))
                await store.journal.append(run_id, [event_], after=position, epoch=position + 1)
                won += 1
            except Exception as error:
                assert type(error).__name__ in ("Conflict", "Fenced"), error
                while len(await store.journal.read(run_id)) <= position:
                    await asyncio.sleep(0.001)
        say(won)
"""


async def test_of_two_processes_exactly_one_wins_each_position(store: Store, start: Start) -> None:
    await store.journal.append("run_1", [started("run_1")], after=0, epoch=1)
    racers = [start(RACE, "run_1") for _ in range(2)]
    for racer in racers:
        assert await hear(racer) == "ready"
    won = await asyncio.gather(*map(end, racers))
    assert sum(map(int, won)) == 30
    assert [event.seq for event in await store.journal.read("run_1")] == list(range(1, 32))


APPEND_FOR_EVER = """
    async with store:
        async def drive(run_id):
            last = 0
            while True:
                batch = [event(run_id, CancelRequested(str(n) * 1000)) for n in range(3)]
                blobs = {f"{run_id}{last}": b"x" * 9000}
                last = await store.journal.append(run_id, batch, after=last, epoch=1, blobs=blobs)
                say(run_id, last)
        await asyncio.gather(*(drive(f"run_{n}") for n in range(5)))
"""


@pytest.mark.parametrize("seconds", [0.02, 0.15, 0.4])
async def test_a_killed_process_leaves_whole_appends(store: Store, start: Start, seconds: float) -> None:
    process = start(APPEND_FOR_EVER)
    await hear(process)
    await asyncio.sleep(seconds)
    await kill(process)
    said = dict(line.split() for line in pipe(process.stdout).read().splitlines() if line.count(" ") == 1)
    for n in range(5):
        events = await store.journal.read(f"run_{n}")
        assert len(events) % 3 == 0
        assert len(events) >= int(said.get(f"run_{n}", 0))
        assert [event.seq for event in events] == list(range(1, len(events) + 1))
        if events:
            assert await store.journal.blob(f"run_{n}{len(events) - 3}") == b"x" * 9_000
            assert await store.journal.append(f"run_{n}", [finished(f"run_{n}")], after=len(events), epoch=1)


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


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
async def test_a_store_works_on_both_sides_of_a_fork(url: str, clean_environment: dict[str, str]) -> None:
    said = await asyncio.to_thread(
        run_script,
        url,
        """
import json, warnings
warnings.simplefilter("ignore")  # Python 3.12 warns of every fork beside a thread
from glassloop.core.events import CancelRequested, Event
store = open_store(url)
async def write(run_id, last):
    for _ in range(20):
        last = await store.journal.append(run_id, [Event(run_id, 0, 1, 0, CancelRequested())], after=last, epoch=1)
    return last
async def child(name):
    await write(name, 0)
    await store.close()
async def busy():
    try:
        async with store.sessions.lock("s", "run_2", "refuse"):
            return False
    except Exception as error:
        return type(error).__name__
async def main():
    await write("parent", 0)
    names, children = ["child0", "child1", "child2"], []
    async with store.sessions.lock("s", "run_1"):
        for name in names:
            children.append(os.fork())
            if children[-1] == 0:
                asyncio.run(child(name))
                gc.collect()
                os._exit(0)
        await write("parent", 20)
        assert [os.waitpid(child, 0)[1] for child in children] == [0, 0, 0]
        print(json.dumps([len(await store.journal.read(name)) for name in ["parent", *names]]))
        print(await busy())
asyncio.run(main())
""",
        clean_environment,
    )
    lengths, busy = said.splitlines()
    assert json.loads(lengths) == [40, 20, 20, 20]
    assert busy == "SessionBusy"
