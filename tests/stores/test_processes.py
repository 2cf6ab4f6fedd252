"""Several processes on one file, and processes that die."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from pathlib import Path

import pytest

from children import end, hear, kill, pipe
from glassloop.core.errors import Conflict
from glassloop.core.events import ModelReplied
from glassloop.core.messages import UserMessage
from glassloop.journal.ledger import InDoubt, InFlight, Yours
from glassloop.memory.session import SessionBusy
from glassloop.stores import Store, open_store
from glassloop.testing.conformance.journal import cancelled, claimed, collect, finished, replied, started

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
async def store(url: str) -> AsyncIterator[Store]:
    async with open_store(url) as store:
        yield store


# The journal

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


DECIDE = """
    async with store:
        for n in range(20):
            decision = event(sys.argv[2], CancelRequested(f"{n}"))
            await store.journal.append(sys.argv[2], [decision], after=None, epoch=None)
"""


async def test_external_events_of_another_process_interleave_with_a_driver(store: Store, start: Start) -> None:
    last = await store.journal.append("run_1", [started("run_1"), claimed("run_1", 1)], after=0, epoch=1)
    other = start(DECIDE, "run_1")
    written = 0
    while other.poll() is None or written < 20:
        try:
            last = await store.journal.append("run_1", [replied("run_1")], after=last, epoch=1)
            written += 1
        except Conflict:
            last = (await store.journal.read("run_1"))[-1].seq
        await asyncio.sleep(0.001)
    events = await store.journal.read("run_1")
    assert [event.seq for event in events] == list(range(1, last + 1))
    assert sum(isinstance(event.data, ModelReplied) for event in events) == written
    assert sum(event.type == "cancel_requested" for event in events) == 20
    await end(other)


async def test_a_follower_sees_what_another_process_writes(store: Store, start: Start) -> None:
    await store.journal.append("run_1", [started("run_1")], after=0, epoch=1)
    follower = asyncio.create_task(collect(store.journal.follow("run_1")))
    bystander = asyncio.create_task(collect(store.journal.follow("run_2")))
    other = start("""
    async with store:
        for data in (CancelRequested("ann"), RunFinished("cancelled")):
            await store.journal.append("run_1", [event("run_1", data)], after=None, epoch=None)
            await asyncio.sleep(0.3)
    """)
    async with asyncio.timeout(20):
        assert await follower == [(1, "run_started"), (2, "cancel_requested"), (3, "run_finished")]
    assert not bystander.done()
    bystander.cancel()
    await asyncio.wait([bystander])
    await end(other)


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


HOLD_FILE = """
    await store.journal.read("")
    import sqlite3
    connection = sqlite3.connect(sys.argv[1].removeprefix("sqlite:///"), isolation_level=None)
    connection.execute("BEGIN EXCLUSIVE")
    say("locked")
    sys.stdin.readline()
    time.sleep(float(sys.argv[2]))
    connection.execute("COMMIT")
    connection.close()
    await store.close()
"""


async def test_a_held_lock_delays_writers_and_not_readers(store: Store, start: Start) -> None:
    await store.journal.append("run_1", [started("run_1")], after=0, epoch=1)
    holder = start(HOLD_FILE, "2.5")
    await hear(holder)
    begun = time.monotonic()
    writer = asyncio.create_task(store.journal.append("run_1", [replied("run_1")], after=1, epoch=1))
    ending = asyncio.create_task(end(holder))
    assert len(await store.journal.read("run_1")) == 1
    assert time.monotonic() - begun < 1.0
    assert await writer == 2
    assert time.monotonic() - begun > 2.0
    await ending


async def test_opening_a_file_that_is_locked_waits(store: Store, url: str, start: Start) -> None:
    holder = start(HOLD_FILE, "1.5")
    await hear(holder)
    ending = asyncio.create_task(end(holder))
    async with open_store(url) as second:
        assert await second.journal.append("run_1", [started("run_1")], after=0, epoch=1) == 1
    await ending


async def test_many_processes_may_create_the_file_at_once(url: str, start: Start) -> None:
    others = [
        start("""
    sys.stdin.readline()
    async with store:
        await store.journal.append(f"run_{sys.argv[2]}", [event("", CancelRequested("ann"))], after=0, epoch=1)
    """, str(n))
        for n in range(6)
    ]  # fmt: skip
    await asyncio.gather(*map(end, others))
    async with open_store(url) as store:
        assert [len(await store.journal.read(f"run_{n}")) for n in range(6)] == [1] * 6


# Sessions and ledger


def wait_for_tickets(path: Path, number: int) -> None:
    """Wait until so many runs hold a session or wait for it."""
    with closing(sqlite3.connect(path)) as connection:
        while connection.execute("SELECT count(*) FROM glassloop_session_locks").fetchone() != (number,):
            time.sleep(0.01)


HOLD_SESSION = """
    async with store.sessions.lock("s", sys.argv[2]):
        say("held")
        sys.stdin.readline()
    await store.close()
"""


async def test_a_killed_process_frees_its_session(store: Store, start: Start) -> None:
    holder = start(HOLD_SESSION, "run_1")
    await hear(holder)
    with pytest.raises(SessionBusy, match="run_1"):
        async with store.sessions.lock("s", "run_2", "refuse"):
            pass

    async def wait() -> None:
        async with store.sessions.lock("s", "run_3"):
            pass

    waiter = asyncio.create_task(wait())
    await asyncio.sleep(0.2)
    assert not waiter.done()
    await kill(holder)
    async with asyncio.timeout(10):
        await waiter
        async with store.sessions.lock("s", "run_2", "refuse"):
            pass


async def test_processes_take_turns(store: Store, path: Path, start: Start) -> None:
    order: list[str] = []

    async def run(run_id: str) -> None:
        async with store.sessions.lock("s", run_id):
            order.append(run_id)

    holder = start(HOLD_SESSION, "run_1")
    await hear(holder)
    second = start(HOLD_SESSION, "run_2")
    await asyncio.to_thread(wait_for_tickets, path, 2)
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


async def test_a_turn_cut_off_by_a_kill_is_whole_or_absent(store: Store, start: Start) -> None:
    writer = start("""
    n = 0
    while True:
        await store.sessions.append("s", f"run_{n}", [UserMessage("x" * 5000)] * 5)
        n += 1
        say(n)
    """)
    await hear(writer)
    await asyncio.sleep(0.2)
    await kill(writer)
    messages = await store.sessions.load("s")
    assert messages
    assert len(messages) % 5 == 0
    await store.sessions.append("s", "the next", [UserMessage("hello")])
    assert await store.sessions.load("s", 1) == [UserMessage("hello")]


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
    async with asyncio.timeout(5):
        await waiter
    assert await store.ledger.claim("k", ("run_2", "call_1"), 60) == InDoubt(("run_1", "call_1"))
    assert await store.ledger.claim("k", ("run_1", "call_1"), 60) == Yours(again=True)


# Life and death of our own process


def run_script(url: str, body: str, environment: dict[str, str]) -> str:
    code = (
        f"import asyncio, gc, os, sys, threading, time\nfrom glassloop.stores import open_store\nurl = {url!r}\n{body}"
    )
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_a_store_left_open_neither_warns_nor_keeps_the_process(
    url: str, path: Path, clean_environment: dict[str, str]
) -> None:
    run_script(
        url,
        """
async def main():
    store = open_store(url)
    await store.sessions.append("s", "run_1", [])
    await store.journal.read("run_1")
    globals()["kept"] = store
asyncio.run(main())
""",
        clean_environment,
    )
    assert [file.name for file in path.parent.iterdir() if file.name.startswith("store")] == ["store.db"]


def test_a_store_that_is_dropped_ends_its_threads(url: str, clean_environment: dict[str, str]) -> None:
    assert run_script(
        url,
        """
async def main():
    store = open_store(url)
    async with store.sessions.lock("s", "run_1"):
        await store.sessions.load("s")
    print(sorted(thread.name for thread in threading.enumerate() if "glassloop" in thread.name))
asyncio.run(main())
gc.collect()
deadline = time.monotonic() + 10
while threading.active_count() > 1 and time.monotonic() < deadline:
    time.sleep(0.01)
print(threading.active_count(), os.path.exists(url.removeprefix("sqlite:///") + "-wal"))
""",
        clean_environment,
    ).splitlines() == ["['glassloop-reader', 'glassloop-writer']", "1 False"]


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


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
async def test_a_child_forked_in_the_middle_of_a_write_is_told(url: str, clean_environment: dict[str, str]) -> None:
    said = await asyncio.to_thread(
        run_script,
        url,
        """
import warnings
warnings.simplefilter("ignore")
from glassloop.stores import worker
worker._FORK_S = 0.1
from glassloop.stores.database import Database
database = Database(url.removeprefix("sqlite:///"))
busy = threading.Event()
def dawdle(cursor):
    busy.set()
    time.sleep(1)
    return "written"
async def use(database):
    try:
        return await database.write(lambda cursor: cursor.execute("SELECT 'used'").fetchone()[0])
    except Exception as error:
        return error
async def main():
    writing = asyncio.create_task(database.write(dawdle))
    await asyncio.to_thread(busy.wait)
    child = os.fork()
    if child == 0:
        print(asyncio.run(use(database)), flush=True)
        print(asyncio.run(use(Database(url.removeprefix("sqlite:///")))), flush=True)
        os._exit(0)
    print(await writing)
    print(await use(database))
    assert os.waitpid(child, 0)[1] == 0
asyncio.run(main())
""",
        clean_environment,
    )
    told = [line for line in said.splitlines() if "was busy when this process was forked" in line]
    assert len(told) == 2
    assert {"written", "used"} <= set(said.splitlines())


async def test_messages_of_another_process_are_seen(store: Store, start: Start) -> None:
    other = start("""
    await store.sessions.append("s", "run_1", [UserMessage("from afar")])
    await store.close()
    """)
    await end(other)
    assert await store.sessions.load("s") == [UserMessage("from afar")]
    assert await store.journal.append("run_1", [cancelled("run_1")], after=None, epoch=None) == 1
