"""Several processes on one database, and processes that die: the same in a file and in PostgreSQL."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from children import end, hear, kill, pipe, run_script
from glassloop.stores import Store, open_store
from glassloop.testing.conformance.journal import finished, started

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, path: Path) -> str:
    return f"sqlite:///{path}" if request.param == "sqlite" else request.getfixturevalue("postgres_url")


@pytest.fixture
async def store(url: str) -> AsyncIterator[Store]:
    async with open_store(url) as store:
        yield store


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
