"""One file, many callers: shared commits, loops, threads, full disks, the end."""

from __future__ import annotations

import asyncio
import re
import sqlite3
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from glassloop.core.errors import GlassloopError, StoreError
from glassloop.core.events import Event, ToolFinished
from glassloop.core.messages import ToolResult, UserMessage
from glassloop.journal.feed import Feed
from glassloop.stores import Store, open_store
from glassloop.stores.sqlite.database import Database
from glassloop.stores.sqlite.journal import SqliteJournal
from glassloop.testing.conformance.journal import cancelled, event, replied, started


@pytest.fixture
async def database(path: Path) -> AsyncIterator[Database]:
    database = Database(str(path))
    yield database
    await database.close()


@pytest.fixture
def journal(database: Database) -> SqliteJournal:
    return SqliteJournal(database, Feed())


@pytest.fixture
def outsider(path: Path, database: Database) -> Iterator[sqlite3.Connection]:
    """A connection that is not the store's."""
    with closing(sqlite3.connect(path)) as connection:
        yield connection


def big(run_id: str, characters: int) -> Event:
    text = "".join(chr(0x4E00 + n * 7919 % 20_000) for n in range(characters))
    return event(run_id, ToolFinished("c", ToolResult("c", "t", text), 1.0))


# Group commit


async def test_those_who_come_together_share_a_commit(
    journal: SqliteJournal, outsider: sqlite3.Connection, path: Path
) -> None:
    await journal.append("warm", [started("warm")], after=0, epoch=1)
    ids = [f"run_{n}" for n in range(100)]

    def frames() -> int:
        """Pages in the write-ahead log so far."""
        return path.with_name("store.db-wal").stat().st_size // 4_120

    before = frames()
    await asyncio.gather(*(journal.append(run_id, [started(run_id)], after=0, epoch=1) for run_id in ids))
    assert frames() - before < 100
    assert outsider.execute("SELECT count(*) FROM glassloop_events").fetchone() == (101,)


async def test_what_is_acknowledged_is_on_disk(journal: SqliteJournal, outsider: sqlite3.Connection) -> None:
    for last in range(5):
        await journal.append("run_1", [cancelled("run_1")], after=last, epoch=1)
        assert outsider.execute("SELECT seq FROM glassloop_runs").fetchone() == (last + 1,)
    [row] = await asyncio.gather(database_pragma(journal, "synchronous"))
    assert row == (2,)


async def database_pragma(journal: SqliteJournal, name: str) -> object:
    database = journal._database  # pyright: ignore[reportPrivateUsage]  # durability has no public face
    return await database.write(lambda cursor: cursor.execute(f"PRAGMA {name}").fetchone())


async def test_what_a_job_raises_undoes_its_own_part_alone(database: Database) -> None:
    def work(digest: str, fails: bool, cursor: sqlite3.Cursor) -> str:
        cursor.execute("INSERT INTO glassloop_blobs VALUES (?, x'00')", (digest,))
        if fails:
            raise ZeroDivisionError(digest)
        return digest

    await database.read(lambda cursor: None)
    jobs = [database.write(lambda cursor, n=n: work(f"{n}", n % 3 == 1, cursor)) for n in range(9)]
    outcomes = await asyncio.gather(*jobs, return_exceptions=True)
    assert [outcome if isinstance(outcome, str) else "failed" for outcome in outcomes] == [
        *("0", "failed", "2", "3", "failed", "5", "6", "failed", "8"),
    ]
    kept = await database.read(lambda cursor: cursor.execute("SELECT digest FROM glassloop_blobs").fetchall())
    assert sorted(kept) == [("0",), ("2",), ("3",), ("5",), ("6",), ("8",)]


async def test_a_broken_statement_is_one_sentence_and_hurts_nobody(database: Database) -> None:
    outcomes = await asyncio.gather(
        database.write(lambda cursor: cursor.execute("SELECT 1").fetchone()),
        database.write(lambda cursor: cursor.execute("INSERT INTO nonsense VALUES (1)")),
        database.write(lambda cursor: cursor.execute("SELECT 2").fetchone()),
        return_exceptions=True,
    )
    assert outcomes[::2] == [(1,), (2,)]
    assert isinstance(outcomes[1], StoreError)
    assert str(outcomes[1]).endswith("store.db failed: no such table: nonsense.")


async def test_reading_cannot_write(database: Database) -> None:
    with pytest.raises(GlassloopError):
        await database.read(lambda cursor: cursor.execute("DELETE FROM glassloop_runs"))


async def test_a_reader_does_not_wait_for_a_writer(database: Database) -> None:
    busy, go_on = threading.Event(), threading.Event()

    def dawdle(cursor: sqlite3.Cursor) -> None:
        busy.set()
        go_on.wait(10)

    writing = asyncio.create_task(database.write(dawdle))
    await asyncio.to_thread(busy.wait, 10)
    async with asyncio.timeout(5):
        assert await database.read(lambda cursor: cursor.execute("SELECT 1").fetchone()) == (1,)
    assert not writing.done()
    go_on.set()
    await writing


# A full disk


async def limit_pages(database: Database, pages: int) -> None:
    """Let the file hold no more than so many pages beyond what it has."""

    def limit(cursor: sqlite3.Cursor) -> None:
        [used] = cursor.execute("PRAGMA page_count").fetchone()
        cursor.execute(f"PRAGMA max_page_count = {used + pages}").fetchone()

    await database.write(limit)


async def test_a_full_disk_loses_nothing_and_ends(database: Database, journal: SqliteJournal) -> None:
    last = await journal.append("run_1", [started("run_1")], after=0, epoch=1)
    await limit_pages(database, 8)
    with pytest.raises(StoreError, match="The disk is full") as caught:
        await journal.append("run_1", [replied("run_1"), big("run_1", 100_000)], after=last, epoch=1)
    assert "intact" in str(caught.value)
    assert [e.seq for e in await journal.read("run_1")] == [1]
    await limit_pages(database, 1_000_000)
    assert await journal.append("run_1", [replied("run_1"), big("run_1", 100_000)], after=last, epoch=1) == 3


async def test_on_a_full_disk_what_fits_is_written(database: Database, journal: SqliteJournal) -> None:
    await journal.append("run_0", [started("run_0")], after=0, epoch=1)
    await limit_pages(database, 12)
    appends = [
        journal.append(f"run_{n}", [big(f"run_{n}", 100_000) if n == 3 else cancelled("")], after=0, epoch=1)
        for n in range(1, 6)
    ]
    outcomes = await asyncio.gather(*appends, return_exceptions=True)
    assert isinstance(outcomes.pop(2), StoreError)
    assert outcomes == [1, 1, 1, 1]
    assert [len(await journal.read(f"run_{n}")) for n in range(1, 6)] == [1, 1, 0, 1, 1]


# Loops and threads


def test_one_store_serves_many_loops_and_threads(url: str) -> None:
    store = open_store(url)
    failures: list[BaseException] = []

    async def drive(name: str) -> None:
        async with store.sessions.lock("shared", name):
            last = await store.journal.append(name, [started(name)], after=0, epoch=1)
            for _ in range(20):
                last = await store.journal.append(name, [replied(name)], after=last, epoch=1)
            await store.sessions.append("shared", name, [UserMessage(name)])

    def thread(name: str) -> None:
        try:
            asyncio.run(drive(name))
        except BaseException as error:  # noqa: BLE001 - a failure in a thread must fail the test
            failures.append(error)

    threads = [threading.Thread(target=thread, args=(f"run_{n}",)) for n in range(6)]
    for one in threads:
        one.start()
    for one in threads:
        one.join(60)
    assert failures == []

    async def check() -> None:
        assert [len(await store.journal.read(f"run_{n}")) for n in range(6)] == [21] * 6
        assert len(await store.sessions.load("shared")) == 6
        await store.close()

    asyncio.run(check())


def test_a_follower_on_another_loop_hears_the_news(url: str) -> None:
    store = open_store(url)
    heard: list[int] = []
    listening = threading.Event()

    async def follow() -> None:
        async for item in store.journal.follow("run_1"):
            heard.append(item.seq)
            listening.set()
            if item.seq == 3:
                return

    async def write() -> None:
        await store.journal.append("run_1", [started("run_1")], after=0, epoch=1)
        thread = threading.Thread(target=asyncio.run, args=(follow(),))
        thread.start()
        assert await asyncio.to_thread(listening.wait, 10)
        await store.journal.append("run_1", [replied("run_1"), replied("run_1")], after=1, epoch=1)
        await asyncio.to_thread(thread.join, 10)
        await store.close()

    asyncio.run(write())
    assert heard == [1, 2, 3]


def test_a_loop_that_ended_early_does_not_hurt_the_store(url: str) -> None:
    store = open_store(url)
    abandoned = asyncio.new_event_loop()
    task = abandoned.create_task(store.journal.append("run_1", [started("run_1")], after=0, epoch=1))
    abandoned.run_until_complete(asyncio.sleep(0))
    task.cancel()
    abandoned.run_until_complete(asyncio.gather(task, return_exceptions=True))
    abandoned.close()

    async def go_on() -> list[Event]:
        async with store:
            await store.journal.append("run_2", [started("run_2")], after=0, epoch=1)
            return await store.journal.read("run_1")

    assert [item.seq for item in asyncio.run(go_on())] == [1]  # the caller left, the append was queued


# The end


async def test_closing_finishes_what_was_begun(url: str) -> None:
    store = open_store(url)
    appends = [
        asyncio.create_task(store.journal.append(f"run_{n}", [started(f"run_{n}")], after=0, epoch=1))
        for n in range(30)
    ]
    await asyncio.sleep(0)
    await asyncio.gather(store.close(), store.close())
    assert await asyncio.gather(*appends) == [1] * 30


async def test_closing_frees_the_sessions_that_are_held(url: str) -> None:
    store = open_store(url)
    held = store.sessions.lock("s", "run_1")
    await held.__aenter__()
    await store.close()
    async with open_store(url) as second, second.sessions.lock("s", "run_2", "refuse"):
        pass
    await held.__aexit__(None, None, None)


async def test_closing_leaves_one_file(store: Store, path: Path) -> None:
    await store.journal.append("run_1", [started("run_1")], after=0, epoch=1)
    await store.journal.read("run_1")
    await store.close()
    assert [file.name for file in path.parent.iterdir()] == ["store.db"]


async def test_a_closed_store_that_was_never_used_makes_no_file(path: Path, url: str) -> None:
    await open_store(url).close()
    assert not path.exists()  # noqa: ASYNC240 - nothing else is going on


@pytest.fixture
def store(url: str) -> Store:
    return open_store(url)


# A file that is taken away


@pytest.fixture
def always_looking(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("glassloop.stores.sqlite.same_file._LOOK_S", 0.0)


async def refused(store: Store, path: Path) -> None:
    """Neither reading nor writing pretends to be of use."""
    told = f"{re.escape(str(path))} was deleted or replaced while it was open"
    with pytest.raises(StoreError, match=told):
        await store.journal.append("run_1", [replied("run_1")], after=1, epoch=1)
    with pytest.raises(StoreError, match=told):
        await store.journal.read("run_1")
    with pytest.raises(StoreError, match=told):
        await store.sessions.load("s")


@pytest.mark.usefixtures("always_looking")
async def test_a_file_that_was_moved_away_is_told_and_used_again_once_it_is_back(store: Store, path: Path) -> None:
    await store.journal.append("run_1", [started("run_1")], after=0, epoch=1)
    path.rename(path.with_name("away.db"))  # noqa: ASYNC240 - a moment
    await refused(store, path)
    path.with_name("away.db").rename(path)
    last = len(await store.journal.read("run_1"))
    assert await store.journal.append("run_1", [replied("run_1")], after=last, epoch=1) == last + 1


@pytest.mark.usefixtures("always_looking")
async def test_a_file_that_was_replaced_is_told_and_left_alone(store: Store, path: Path, tmp_path: Path) -> None:
    await store.journal.append("run_1", [started("run_1")], after=0, epoch=1)
    async with open_store(f"sqlite:///{tmp_path}/backup.db") as backup:
        await backup.journal.append("run_0", [started("run_0")], after=0, epoch=1)
    content = (tmp_path / "backup.db").read_bytes()
    (tmp_path / "backup.db").replace(path)
    await refused(store, path)
    await store.close()
    assert path.read_bytes() == content  # noqa: ASYNC240 - a moment
