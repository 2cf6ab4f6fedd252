"""Several processes and machines on one PostgreSQL database, processes that die, and the life of our own."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import replace

import pytest

from children import end, hear, kill, run_script
from glassloop.core.errors import Conflict, Fenced, StoreError
from glassloop.core.messages import UserMessage
from glassloop.journal.ledger import InDoubt, InFlight, Yours
from glassloop.memory.session import SessionBusy
from glassloop.stores import Store, open_store
from glassloop.stores.owner import this_process
from glassloop.testing.conformance.journal import cancelled, claimed, collect, replied, started
from servers import PostgresProcess

Start = Callable[..., "subprocess.Popen[str]"]
Execute = Callable[[str], str]

ELSEWHERE = replace(this_process(), boot="another machine")


@pytest.fixture
def url(postgres_url: str) -> str:
    return postgres_url


@pytest.fixture
def execute(postgres_process: PostgresProcess, url: str) -> Execute:
    """A function that executes a statement behind the store's back."""
    return lambda statement: postgres_process.execute(statement, url.rpartition("/")[2])


@pytest.fixture
async def store(url: str) -> AsyncIterator[Store]:
    async with open_store(url) as store:
        yield store


async def until(execute: Execute, query: str, answer: str) -> None:
    """Wait until a query has an answer."""
    async with asyncio.timeout(20):
        while await asyncio.to_thread(execute, query) != answer:
            pass


# The journal


async def test_of_many_writers_whose_connections_are_open_one_wins(store: Store, url: str) -> None:
    async with open_store(url) as other:
        both = [store, other] * 5
        others = [one.journal.append(f"other_{n}", [started("")], after=0, epoch=1) for n, one in enumerate(both)]
        await asyncio.gather(*others)
        await store.journal.append("run_1", [started("run_1"), claimed("run_1", 1)], after=0, epoch=1)
        for last in range(2, 12):
            claims = [
                one.journal.append("run_1", [claimed("run_1", last, f"{n}")], after=last, epoch=last)
                for n, one in enumerate(both)
            ]
            outcomes = await asyncio.gather(*claims, return_exceptions=True)
            assert outcomes.count(last + 1) == 1
            assert sum(isinstance(outcome, Conflict | Fenced) for outcome in outcomes) == 9


async def test_runs_begun_at_once_under_one_id_are_one(store: Store, url: str) -> None:
    async with open_store(url) as other:
        beginnings = [each.journal.append("run_1", [started("run_1")], after=0, epoch=1) for each in [store, other] * 5]
        outcomes = await asyncio.gather(*beginnings, return_exceptions=True)
    assert outcomes.count(1) == 1
    assert len(await store.journal.read("run_1")) == 1


async def test_a_driver_that_goes_on_is_fenced_by_one_that_came_between(store: Store, url: str) -> None:
    last = await store.journal.append("run_1", [started("run_1"), claimed("run_1", 1)], after=0, epoch=1)
    last = await store.journal.append("run_1", [replied("run_1")], after=last, epoch=1)
    async with open_store(url) as other:
        await other.journal.append("run_1", [claimed("run_1", 2)], after=last, epoch=2)
    with pytest.raises(Fenced):
        await store.journal.append("run_1", [replied("run_1")], after=last, epoch=1, blobs={"d": b"x"})
    assert [event.type for event in await store.journal.read("run_1", 3)] == ["driver_claimed"]
    with pytest.raises(KeyError):
        await store.journal.blob("d")


async def test_a_line_in_lists_is_the_same_whoever_writes(store: Store, url: str) -> None:
    last = await store.journal.append("run_1", [started("run_1"), claimed("run_1", 1)], after=0, epoch=1)
    async with open_store(url) as other:
        for writer in (store, store, other, store):
            last = await writer.journal.append("run_1", [replied("run_1")], after=last, epoch=1)
        await other.journal.append("run_1", [cancelled("run_1")], after=None, epoch=None)
        last = await store.journal.append("run_1", [replied("run_1")], after=last + 1, epoch=1)
        assert [(row.status, row.tokens) for row in await other.journal.runs()] == [("cancelling", 600)]


async def test_a_follower_sees_what_another_process_writes(
    store: Store, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("glassloop.stores.postgres.journal._POLL_S", 600.0)
    await store.journal.append("run_1", [started("run_1")], after=0, epoch=1)
    follower = asyncio.create_task(collect(store.journal.follow("run_1")))
    other = start("""
    async with store:
        for data in (CancelRequested("ann"), RunFinished("cancelled")):
            await store.journal.append("run_1", [event("run_1", data)], after=None, epoch=None)
            await asyncio.sleep(0.3)
    """)
    async with asyncio.timeout(30):
        assert await follower == [(1, "run_started"), (2, "cancel_requested"), (3, "run_finished")]
    await end(other)


async def test_a_follower_sees_what_nobody_told_of(store: Store, execute: Execute) -> None:
    await store.journal.append("run_1", [started("run_1")], after=0, epoch=1)
    follower = asyncio.create_task(collect(store.journal.follow("run_1")))
    await asyncio.sleep(0.1)
    execute("""
        INSERT INTO glassloop_events VALUES ('run_1', 2, 'run_finished', 1, 1, 1, 1, '{"outcome": "completed"}', NULL)
    """)
    async with asyncio.timeout(20):
        assert await follower == [(1, "run_started"), (2, "run_finished")]


async def test_contents_erased_and_stored_at_once_are_never_lost(store: Store, url: str) -> None:
    async def keep(n: int) -> None:
        await store.journal.append(f"run_{n}", [started(f"run_{n}")], after=0, epoch=1, blobs={"shared": b"s"})

    async with open_store(url) as other:
        await keep(0)
        for n in range(1, 15):
            await asyncio.gather(keep(n), other.journal.erase_blobs(f"run_{n - 1}"))
            assert await store.journal.blob("shared") == b"s"


# Sessions and ledger


def elsewhere(execute: Execute, seconds: int) -> None:
    """A process on another machine, which was heard of so that its lease lasts for so many seconds from now."""
    execute(f"""
        INSERT INTO glassloop_processes VALUES ('{ELSEWHERE}', now() + interval '{seconds} seconds')
        ON CONFLICT (process) DO UPDATE SET until = excluded.until
    """)


async def test_a_session_held_on_another_machine_is_free_once_its_lease_lapses(store: Store, execute: Execute) -> None:
    elsewhere(execute, 60)
    execute(
        f"INSERT INTO glassloop_session_locks (session, run_id, token, process) VALUES ('s', 'r', 't', '{ELSEWHERE}')"
    )
    with pytest.raises(SessionBusy):
        async with store.sessions.lock("s", "run_2", "refuse"):
            pass

    async def wait() -> None:
        async with store.sessions.lock("s", "run_3"):
            pass

    waiter = asyncio.create_task(wait())
    await until(execute, "SELECT count(*) FROM glassloop_session_locks", "2")
    await asyncio.sleep(0.2)
    assert not waiter.done()
    elsewhere(execute, -1)
    async with asyncio.timeout(10):
        await waiter
        async with store.sessions.lock("s", "run_2", "refuse"):
            pass


async def test_a_process_on_another_machine_lives_as_long_as_its_lease(store: Store, execute: Execute) -> None:
    await store.journal.append("run_1", [started("run_1")], after=0, epoch=1)
    assert await store.liveness.alive(str(this_process())) is True
    assert await store.is_gone(str(ELSEWHERE))
    elsewhere(execute, 60)
    assert await store.liveness.alive(str(ELSEWHERE)) is True
    elsewhere(execute, -1)
    assert await store.is_gone(str(ELSEWHERE))


async def test_a_process_killed_on_this_machine_is_gone_at_once(store: Store, start: Start, execute: Execute) -> None:
    holder = start("""
    async with store.sessions.lock("s", "run_1"):
        say("held")
        sys.stdin.readline()
    """)
    await hear(holder)
    owner = execute("SELECT process FROM glassloop_session_locks")
    assert await store.liveness.alive(owner) is True
    await kill(holder)
    assert execute(f"SELECT until > now() FROM glassloop_processes WHERE process = '{owner}'") == "t"
    assert await store.is_gone(owner)


async def test_whoever_writes_renews_its_lease(store: Store, execute: Execute, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("glassloop.stores.postgres.line._BEAT_S", 0.1)
    left = "SELECT round(extract(epoch FROM until - clock_timestamp())) BETWEEN 10 AND 15 FROM glassloop_processes"
    assert execute(left) == ""
    await store.sessions.append("s", "run_1", [])
    assert execute(left) == "t"
    execute("UPDATE glassloop_processes SET until = now()")
    await until(execute, left, "t")


async def test_a_claim_on_another_machine_is_in_doubt_after_its_own_lease(store: Store, execute: Execute) -> None:
    assert await store.ledger.claim("k", ("run_1", "call_1"), 60) == Yours()
    execute(f"UPDATE glassloop_ledger SET process = '{ELSEWHERE}'")
    elsewhere(execute, -1)  # nothing is heard of the process, but its tool may still be at work
    assert await store.ledger.claim("k", ("run_2", "call_1"), 60) == InFlight(("run_1", "call_1"))
    execute("UPDATE glassloop_ledger SET until = extract(epoch FROM now()) * 1000")
    assert await store.ledger.claim("k", ("run_2", "call_1"), 60) == InDoubt(("run_1", "call_1"))


# Life and death of our own process


def test_a_store_left_open_neither_warns_nor_keeps_the_process(
    url: str, clean_environment: dict[str, str], execute: Execute
) -> None:
    run_script(
        url,
        """
async def main():
    store = open_store(url)
    await store.sessions.append("s", "run_1", [])
    lock = store.sessions.lock("s", "run_1")
    await lock.__aenter__()
    store.sessions._locks.abandon_all()
    globals()["kept"] = store, lock
asyncio.run(main())
""",
        clean_environment,
    )
    assert execute("SELECT count(*) FROM glassloop_session_locks") == "0"


def test_a_store_that_is_dropped_ends_its_thread(url: str, clean_environment: dict[str, str]) -> None:
    said = run_script(
        url,
        """
async def main():
    store = open_store(url)
    async with store.sessions.lock("s", "run_1"):
        await store.sessions.load("s")
    print([thread.name for thread in threading.enumerate() if "glassloop" in thread.name])
asyncio.run(main())
gc.collect()
deadline = time.monotonic() + 10
while threading.active_count() > 1 and time.monotonic() < deadline:
    time.sleep(0.01)
print(threading.active_count())
""",
        clean_environment,
    )
    assert said.splitlines() == ["['glassloop-postgres']", "1"]


def test_a_store_outlives_its_event_loop(url: str, clean_environment: dict[str, str]) -> None:
    said = run_script(
        url,
        """
store = open_store(url)
async def go(n):
    await store.sessions.append("s", f"run_{n}", [])
    await store.journal.read("run_1")
    return n
print([asyncio.run(go(n)) for n in range(3)])
asyncio.run(store.close())
""",
        clean_environment,
    )
    assert said == "[0, 1, 2]\n"


async def test_a_place_given_up_while_the_store_closes_is_free(url: str) -> None:
    first = open_store(url)
    lock = first.sessions.lock("s", "run_1")
    await lock.__aenter__()
    await first.close()
    with suppress(StoreError):
        await lock.__aexit__(None, None, None)
    async with open_store(url) as second, asyncio.timeout(10), second.sessions.lock("s", "run_2", "refuse"):
        await second.sessions.append("s", "run_2", [UserMessage("hello")])
