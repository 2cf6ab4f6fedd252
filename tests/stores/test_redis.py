"""Sessions and ledger in Redis pass the suites of all sessions and ledgers, and what is particular to Redis."""

from __future__ import annotations

import asyncio
import gc
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from children import end, hear, kill
from glassloop.core.errors import Fenced, StoreError
from glassloop.core.messages import UserMessage
from glassloop.journal.ledger import InDoubt, Ledger
from glassloop.memory.session import SessionBusy, SessionStore
from glassloop.stores import Store, open_store
from glassloop.stores.redis import ledger as redis_ledger
from glassloop.stores.redis import locks as redis_locks
from glassloop.stores.redis.ledger import RedisLedger
from glassloop.stores.redis.server import RedisServer
from glassloop.stores.redis.sessions import RedisSessions
from glassloop.testing.conformance.ledger import LedgerConformance, OpenLedger
from glassloop.testing.conformance.sessions import SessionsConformance
from servers import redis_client

Start = Callable[..., "subprocess.Popen[str]"]


class TestRedisSessions(SessionsConformance):
    @pytest.fixture
    def open_sessions(self, redis_url: str) -> Callable[[], SessionStore]:
        return lambda: RedisSessions(RedisServer(redis_url))


class TestRedisLedger(LedgerConformance):
    @pytest.fixture
    def open_ledger(self, redis_url: str) -> OpenLedger:
        def open_ledger(clock: Callable[[], float]) -> Ledger:
            return RedisLedger(RedisServer(redis_url), clock)

        return open_ledger


@pytest.fixture
async def store(redis_url: str) -> AsyncIterator[Store]:
    async with open_store("memory:", redis_url) as store:
        yield store


@pytest.fixture
def redis(redis_url: str) -> Iterator[Any]:
    """A client of our own, to look behind and to spoil."""
    with redis_client(redis_url) as client:
        yield client


@pytest.fixture
def url() -> str:
    """Where the journal of other processes is."""
    return "memory:"


@pytest.fixture
def clean_environment(clean_environment: dict[str, str], redis_url: str) -> dict[str, str]:
    return {**clean_environment, "SESSIONS": redis_url}


async def refused(store: Store, run_id: str, *, by: str) -> None:
    with pytest.raises(SessionBusy) as caught:
        async with store.sessions.lock("s", run_id, "refuse"):
            pass
    assert caught.value.holder == by


# Who holds a session

HOLD = """
    async with store.sessions.lock("s", sys.argv[2]):
        say("held")
        await asyncio.to_thread(sys.stdin.readline)
    await store.close()
"""


async def test_a_killed_process_is_no_reason_to_refuse(store: Store, start: Start) -> None:
    holder = start(HOLD, "run_1")
    await hear(holder)
    await kill(holder)
    async with store.sessions.lock("s", "run_2", "refuse"):
        pass


async def test_a_silent_machine_holds_a_session_until_its_lease_has_lapsed(store: Store, redis: Any) -> None:
    seconds, microseconds = redis.time()
    lapses = seconds * 1_000 + microseconds // 1_000 + 600
    redis.rpush("glassloop:{s}:queue", "run_1")
    redis.hset("glassloop:{s}:places", "run_1", f"{lapses} lock_x another-boot/1/1/1")
    await refused(store, "run_2", by="run_1")
    async with asyncio.timeout(10), store.sessions.lock("s", "run_2"):
        seconds, microseconds = redis.time()
        assert seconds * 1_000 + microseconds // 1_000 >= lapses


@pytest.fixture
def short_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis_locks, "_LEASE_MS", 500)
    monkeypatch.setattr(redis_locks, "_BEAT_S", 0.1)


@pytest.mark.usefixtures("short_lease")
async def test_a_lease_is_renewed_however_busy_its_holder_is(store: Store, redis_url: str) -> None:
    async with open_store("memory:", redis_url) as other, store.sessions.lock("s", "run_1"):
        time.sleep(1.0)  # noqa: ASYNC251 - a tool that blocks the event loop
        await refused(other, "run_2", by="run_1")
        await asyncio.sleep(0.2)


STALL = """
    from glassloop.core.errors import Fenced
    from glassloop.stores.redis import locks as redis_locks
    redis_locks._LEASE_MS, redis_locks._BEAT_S = 500, 0.1
    try:
        async with store.sessions.lock("s", "run_1"):
            say("held")
            await asyncio.sleep(60)
    except Fenced as error:
        say(error)
    say("cancelled", asyncio.current_task().cancelling())
    await store.close()
"""


async def test_a_stopped_process_loses_its_session_and_is_fenced_when_it_wakes(store: Store, start: Start) -> None:
    holder = start(STALL)
    await hear(holder)
    holder.send_signal(signal.SIGSTOP)
    async with asyncio.timeout(20), store.sessions.lock("s", "run_2"):
        holder.send_signal(signal.SIGCONT)
        assert re.match("Run run_1 has lost session 's': .* silent for 0.5 s", await hear(holder))
        assert await hear(holder) == "cancelled 0"
        await refused(store, "run_3", by="run_2")
    await end(holder)


@pytest.mark.usefixtures("short_lease")
async def test_a_run_that_is_taken_over_is_fenced(store: Store, redis_url: str) -> None:
    async with open_store("memory:", redis_url) as other, asyncio.timeout(10):
        with pytest.raises(Fenced, match="another driver took the run over"):
            async with store.sessions.lock("s", "run_1"), other.sessions.lock("s", "run_1"):
                await asyncio.Event().wait()
        async with store.sessions.lock("s", "run_2"):
            pass


async def test_a_time_out_inside_is_no_fence(store: Store) -> None:
    with pytest.raises(TimeoutError):
        async with store.sessions.lock("s", "run_1"), asyncio.timeout(0.01):
            await asyncio.Event().wait()


async def test_nobody_waits_for_a_store_that_was_closed(store: Store, redis_url: str) -> None:
    async with open_store("memory:", redis_url) as closed:
        held = closed.sessions.lock("s", "run_1")
        await held.__aenter__()
    async with store.sessions.lock("s", "run_2", "refuse"):
        await held.__aexit__(None, None, None)


async def test_those_who_wait_are_told_by_other_processes(
    store: Store, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_locks, "POLL_S", 60.0)
    monkeypatch.setattr(redis_ledger, "POLL_S", 60.0)

    async def wait() -> None:
        async with store.sessions.lock("s", "run_2"):
            await store.ledger.wait("k")

    async with open_store("memory:", redis_url) as other, asyncio.timeout(10):
        await other.ledger.claim("k", ("run_1", "call_1"), 60)
        async with other.sessions.lock("s", "run_1"):
            waiter = asyncio.create_task(wait())
            await asyncio.sleep(0.1)
        await asyncio.sleep(0.1)
        assert not waiter.done()
        await other.ledger.settle("k", ("run_1", "call_1"), b"")
        await waiter


async def test_nothing_of_a_lock_stays(store: Store, redis: Any) -> None:
    async with store.sessions.lock("s", "run_1"):
        assert 0 < redis.pttl("glassloop:{s}:queue") <= 15_000
        assert 0 < redis.pttl("glassloop:{s}:places") <= 15_000
        async with store.sessions.lock("s", "run_1"):
            assert redis.lrange("glassloop:{s}:queue", 0, -1) == [b"run_1"]
    assert redis.keys("*") == [b"glassloop:format"]


async def test_doubt_stays_and_successes_go_by_themselves(store: Store, redis: Any) -> None:
    for key in ("settled", "in doubt"):
        await store.ledger.claim(key, ("run_1", "call_1"), 0.0, 3.0)
    await store.ledger.settle("settled", ("run_1", "call_1"), b"1")
    assert 0 < redis.pttl("glassloop:ledger:settled") <= 3_000
    assert redis.pttl("glassloop:ledger:in doubt") == -1
    assert await store.ledger.claim("in doubt", ("run_2", "call_1"), 60) == InDoubt(("run_1", "call_1"))


# What is stored


async def test_messages_are_readable_and_the_big_ones_deflated(store: Store, redis: Any) -> None:
    await store.sessions.append("s", "run_1", [UserMessage("hello"), UserMessage("x" * 100_000)])
    small, big = redis.lrange("glassloop:{s}:messages", 0, -1)
    assert small == b'1 {"content":"hello","origin":"user","role":"user"}'
    assert len(big) < 2_000
    assert await store.sessions.load("s") == [UserMessage("hello"), UserMessage("x" * 100_000)]


@pytest.mark.parametrize("damage", [b"1 {", b"", b"1 x\x9cnonsense", b"{}", b'1 {"role": "nobody"}'])
async def test_a_damaged_message_is_left_out(
    store: Store, redis: Any, damage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    await store.sessions.append("s", "run_1", [UserMessage("1"), UserMessage("2"), UserMessage("3")])
    redis.lset("glassloop:{s}:messages", 1, damage)
    assert await store.sessions.load("s", 2) == [UserMessage("1"), UserMessage("3")]
    assert "Message 1 of session 's' is damaged and left out." in caplog.text


async def test_messages_of_a_newer_version_are_refused(store: Store, redis: Any) -> None:
    redis.rpush("glassloop:{s}:messages", b'2 {"content":"?","role":"user"}')
    with pytest.raises(StoreError, match="A newer Glassloop wrote to session 's'"):
        await store.sessions.load("s")


async def test_a_newer_format_is_refused(redis: Any, redis_url: str) -> None:
    redis.set("glassloop:format", 2)
    with pytest.raises(StoreError, match=r"A newer Glassloop wrote to Redis at .* \(format 2, this one knows 1\)"):
        async with open_store("memory:", redis_url):
            pass


# Life and death of our own process


def test_a_store_that_is_dropped_ends_its_thread(redis_url: str) -> None:
    def threads() -> set[threading.Thread]:
        return {thread for thread in threading.enumerate() if thread.name == "glassloop-redis"} - before

    async def use() -> None:
        store = open_store("memory:", redis_url)
        async with store.sessions.lock("s", "run_1"):
            assert len(threads()) == 1

    before: set[threading.Thread] = set()
    before = threads()
    asyncio.run(use())
    gc.collect()
    deadline = time.monotonic() + 10
    while threads() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not threads()


async def test_a_store_left_open_neither_warns_nor_keeps_the_process(start: Start) -> None:
    left = start("""
    lock = store.sessions.lock("s", "run_1")
    await lock.__aenter__()
    globals()["kept"] = lock
    """)
    assert await end(left) == ""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
async def test_a_child_that_was_forked_uses_connections_of_its_own(store: Store, start: Start) -> None:
    parent = start("""
    import warnings
    warnings.simplefilter("ignore")  # Python 3.12 warns of every fork beside a thread
    async with store.sessions.lock("s", "run_1"):
        child = os.fork()
        if child == 0:
            asyncio._set_running_loop(None)
            asyncio.run(store.sessions.append("s", "run_2", [UserMessage("child")]))
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        await store.sessions.append("s", "run_1", [UserMessage("parent")])
    await store.close()
    """)
    await end(parent)
    assert await store.sessions.load("s") == [UserMessage("child"), UserMessage("parent")]
