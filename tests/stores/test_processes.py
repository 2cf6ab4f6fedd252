"""Several processes on one file, and processes that die."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from children import end, hear, kill, run_script
from glassloop.core.errors import Conflict
from glassloop.core.events import ModelReplied
from glassloop.core.messages import UserMessage
from glassloop.stores import Store, open_store
from glassloop.testing.conformance.journal import cancelled, claimed, collect, replied, started

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
async def store(url: str) -> AsyncIterator[Store]:
    async with open_store(url) as store:
        yield store


# The journal

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
    writer = asyncio.create_task(store.journal.append("run_1", [replied("run_1")], after=1, epoch=1))
    ending = asyncio.create_task(end(holder))
    assert len(await store.journal.read("run_1")) == 1
    assert not writer.done()
    assert await writer == 2
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


# Life and death of our own process


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


def test_stores_that_are_dropped_end_their_threads_and_take_the_log_away(
    url: str, clean_environment: dict[str, str]
) -> None:
    assert run_script(
        url,
        """
async def main():
    stores = [open_store(url) for _ in range(10)]
    for store in stores:
        async with store.sessions.lock("s", "run_1"):
            await store.sessions.load("s")
    threads.append(sum(thread.name in ("glassloop-reader", "glassloop-writer") for thread in threading.enumerate()))
threads, logs = [], []
for _ in range(30):  # the twenty end at about the same time, and no two may take each other for one that goes on
    asyncio.run(main())
    gc.collect()
    deadline = time.monotonic() + 10
    while threading.active_count() > 1 and time.monotonic() < deadline:
        time.sleep(0.01)
    threads.append(threading.active_count())
    logs.append(os.path.exists(url.removeprefix("sqlite:///") + "-wal"))
print(threads == 30 * [20, 1], sum(logs))
""",
        clean_environment,
    ).splitlines() == ["True 0"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
async def test_a_child_forked_in_the_middle_of_a_write_is_told(url: str, clean_environment: dict[str, str]) -> None:
    said = await asyncio.to_thread(
        run_script,
        url,
        """
import warnings
warnings.simplefilter("ignore")
from glassloop.stores.sqlite import worker
worker._FORK_S = 0.1
from glassloop.stores.sqlite.database import Database
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
