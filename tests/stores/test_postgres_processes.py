"""Several processes and machines on one PostgreSQL database, processes that die, and the life of our own."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import replace

import pytest

from children import end, hear, kill, pipe
from glassloop.core.errors import Conflict, Fenced, StoreError
from glassloop.core.messages import UserMessage
from glassloop.journal.ledger import InDoubt, InFlight, Yours
from glassloop.memory.session import SessionBusy
from glassloop.stores import Store, open_store
from glassloop.stores.owner import this_process
from glassloop.testing.conformance.journal import cancelled, claimed, collect, finished, replied, started
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

RACE = """
    run_id = sys.argv[2]
    async with store:
        say("ready")
        sys.stdin.readline()
        won = 0
        for position in range(1, 21):
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
    assert sum(map(int, won)) == 20
    assert [event.seq for event in await store.journal.read("run_1")] == list(range(1, 22))


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
    monkeypatch.setattr("glassloop.stores.postgres_journal._POLL_S", 600.0)
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


async def test_a_killed_process_leaves_whole_appends(store: Store, start: Start) -> None:
    process = start(APPEND_FOR_EVER)
    await hear(process)
    await asyncio.sleep(0.3)
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


async def test_contents_erased_and_stored_at_once_are_never_lost(store: Store, url: str) -> None:
    async def keep(n: int) -> None:
        await store.journal.append(f"run_{n}", [started(f"run_{n}")], after=0, epoch=1, blobs={"shared": b"s"})

    async with open_store(url) as other:
        await keep(0)
        for n in range(1, 15):
            await asyncio.gather(keep(n), other.journal.erase_blobs(f"run_{n - 1}"))
            assert await store.journal.blob("shared") == b"s"


# Sessions and ledger

HOLD_SESSION = """
    async with store.sessions.lock("s", sys.argv[2]):
        say("held")
        sys.stdin.readline()
    await store.close()
"""


async def test_a_killed_process_frees_its_session(store: Store, start: Start, execute: Execute) -> None:
    holder = start(HOLD_SESSION, "run_1")
    await hear(holder)
    with pytest.raises(SessionBusy, match="run_1"):
        async with store.sessions.lock("s", "run_2", "refuse"):
            pass

    async def wait() -> None:
        async with store.sessions.lock("s", "run_3"):
            pass

    waiter = asyncio.create_task(wait())
    await until(execute, "SELECT count(*) FROM glassloop_session_locks", "2")
    assert not waiter.done()
    await kill(holder)
    async with asyncio.timeout(10):
        await waiter
        async with store.sessions.lock("s", "run_2", "refuse"):
            pass


async def test_processes_take_turns(store: Store, execute: Execute, start: Start) -> None:
    order: list[str] = []

    async def run(run_id: str) -> None:
        async with store.sessions.lock("s", run_id):
            order.append(run_id)

    holder = start(HOLD_SESSION, "run_1")
    await hear(holder)
    second = start(HOLD_SESSION, "run_2")
    await until(execute, "SELECT count(*) FROM glassloop_session_locks", "2")
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
    holder = start(HOLD_SESSION, "run_1")
    await hear(holder)
    owner = execute("SELECT process FROM glassloop_session_locks")
    assert await store.liveness.alive(owner) is True
    await kill(holder)
    assert execute(f"SELECT until > now() FROM glassloop_processes WHERE process = '{owner}'") == "t"
    assert await store.is_gone(owner)


async def test_whoever_writes_renews_its_lease(store: Store, execute: Execute, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("glassloop.stores.postgres_line._BEAT_S", 0.1)
    left = "SELECT round(extract(epoch FROM until - clock_timestamp())) BETWEEN 10 AND 15 FROM glassloop_processes"
    assert execute(left) == ""
    await store.sessions.append("s", "run_1", [])
    assert execute(left) == "t"
    execute("UPDATE glassloop_processes SET until = now()")
    await until(execute, left, "t")


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


async def test_a_claim_on_another_machine_is_in_doubt_after_its_own_lease(store: Store, execute: Execute) -> None:
    assert await store.ledger.claim("k", ("run_1", "call_1"), 60) == Yours()
    execute(f"UPDATE glassloop_ledger SET process = '{ELSEWHERE}'")
    elsewhere(execute, -1)  # nothing is heard of the process, but its tool may still be at work
    assert await store.ledger.claim("k", ("run_2", "call_1"), 60) == InFlight(("run_1", "call_1"))
    execute("UPDATE glassloop_ledger SET until = extract(epoch FROM now()) * 1000")
    assert await store.ledger.claim("k", ("run_2", "call_1"), 60) == InDoubt(("run_1", "call_1"))


# Life and death of our own process


def run_script(url: str, body: str, environment: dict[str, str]) -> str:
    code = f"import asyncio, gc, os, threading, time\nfrom glassloop.stores import open_store\nurl = {url!r}\n{body}"
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


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


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_store_works_on_both_sides_of_a_fork(url: str, clean_environment: dict[str, str]) -> None:
    said = run_script(
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
    names, children = ["child0", "child1"], []
    async with store.sessions.lock("s", "run_1"):
        for name in names:
            children.append(os.fork())
            if children[-1] == 0:
                asyncio.run(child(name))
                gc.collect()
                os._exit(0)
        await write("parent", 20)
        assert [os.waitpid(child, 0)[1] for child in children] == [0, 0]
        print(json.dumps([len(await store.journal.read(name)) for name in ["parent", *names]]))
        print(await busy())
asyncio.run(main())
""",
        clean_environment,
    )
    lengths, busy = said.splitlines()
    assert json.loads(lengths) == [40, 20, 20]
    assert busy == "SessionBusy"


async def test_a_place_given_up_while_the_store_closes_is_free(url: str) -> None:
    first = open_store(url)
    lock = first.sessions.lock("s", "run_1")
    await lock.__aenter__()
    await first.close()
    with suppress(StoreError):
        await lock.__aexit__(None, None, None)
    async with open_store(url) as second, asyncio.timeout(10), second.sessions.lock("s", "run_2", "refuse"):
        await second.sessions.append("s", "run_2", [UserMessage("hello")])
