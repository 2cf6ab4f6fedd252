"""What the store writes and reads, in bytes."""

from __future__ import annotations

import random
import sys
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

import pytest

from glassloop.core.encoding import digest
from glassloop.core.events import ModelRequested, ToolFinished
from glassloop.core.ids import new_id
from glassloop.core.messages import Message, Reply, ToolCall, ToolResult, UserMessage
from glassloop.stores import Store, open_store
from glassloop.testing.conformance.journal import event, finished, replied, started

linux = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")

WORDS = [
    "order",
    "refund",
    "city",
    "amount",
    "customer",
    "shipped",
    "hours",
    "policy",
    "ticket",
    "supervisor",
    "weather",
    "北京",
    "上海",
]


def prose(seed: int, size: int) -> str:
    """Text of about the redundancy of a tool's result, at least `size` bytes."""
    chance = random.Random(seed)
    return " ".join(f"{chance.choice(WORDS)}-{chance.randrange(100_000)}" for _ in range(size // 8))[:size]


def moved(what: str) -> int:
    """Bytes that this process has read (`rchar`) or written (`wchar`) so far, on whatever."""
    lines = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(lines[what])


@pytest.fixture
async def store(url: str) -> AsyncIterator[Store]:
    async with open_store(url) as store:
        yield store


async def drive(store: Store, run_id: str, rounds: int, size: int) -> None:
    """A run as a loop records it: two commits a step."""
    contents = [prose(n, 2_000).encode() for n in range(3)]
    blobs = {digest(content): content for content in contents}
    instructions, tools, settings = blobs
    last = await store.journal.append(run_id, [started(run_id)], after=0, epoch=1)
    for n in range(rounds):
        asked = ModelRequested("openai:gpt-5", instructions, tools, settings, ((0, n),), "d" * 32, 8_192)
        events = [event(run_id, asked), replied(run_id)]
        last = await store.journal.append(run_id, events, after=last, epoch=1, blobs=None if n else blobs)
        result = ToolFinished(new_id("call"), ToolResult("call_1", "get_weather", prose(n, size)), 1.2, "{}")
        last = await store.journal.append(run_id, [event(run_id, result)], after=last, epoch=1)
    await store.journal.append(run_id, [finished(run_id)], after=last, epoch=1)


@pytest.mark.parametrize(("runs", "most"), [(1, 320_000), (10, 2_400_000)])
async def test_a_run_is_compact_and_size_is_linear(store: Store, path: Path, runs: int, most: int) -> None:
    for n in range(runs):
        await drive(store, f"run_{n}", 50, 4_096)
    await store.close()
    assert path.stat().st_size < most  # noqa: ASYNC240 - the store is closed


async def test_the_log_beside_the_file_stays_small(store: Store, path: Path) -> None:
    for n in range(5):
        await store.journal.append(
            f"run_{n}", [], after=0, epoch=1, blobs={f"{n}": random.Random(n).randbytes(3_000_000)}
        )
        await drive(store, f"small_{n}", 20, 500)
    assert path.with_name("store.db-wal").stat().st_size < 4_000_000


async def test_the_log_of_small_steps_stays_smaller_than_what_it_is_copied_to(store: Store, path: Path) -> None:
    for n in range(5):
        await drive(store, f"run_{n}", 50, 1_000)
    assert path.with_name("store.db-wal").stat().st_size < 1_200_000


@linux
async def test_a_step_writes_only_the_pages_that_it_changes(store: Store) -> None:
    await drive(store, "run_1", 1, 100)
    last = await store.journal.append("run_2", [started("run_2")], after=0, epoch=1)
    before = moved("wchar")
    for _ in range(100):
        last = await store.journal.append("run_2", [replied("run_2")], after=last, epoch=1)
    pages = (moved("wchar") - before) / 4_120 / 100
    assert pages < 4  # its row in the list of runs, its event, its place; the index of open runs stays as it is


def messages_of(turn: int) -> list[Message]:
    call = ToolCall(f"call_{turn}", "search", "{}")
    return [UserMessage(f"turn {turn}"), Reply((call,)), ToolResult(call.id, "search", prose(turn, 300_000))]


async def talk(store: Store, turns: Iterable[int]) -> None:
    """Turns of a session whose tool returns 300 kB, in the journal and in the session."""
    for turn in turns:
        messages, run_id = messages_of(turn), f"run_{turn}"
        results = [event("", ToolFinished("c", m, 1.0)) for m in messages if isinstance(m, ToolResult)]
        await store.journal.append(run_id, [started(run_id), *results], after=0, epoch=1)
        await store.sessions.append("s", run_id, messages)


@linux
async def test_a_turn_costs_what_it_adds_and_a_window_reads_what_it_shows(store: Store) -> None:
    await talk(store, range(30))
    before = moved("wchar")
    await talk(store, range(30, 40))
    assert moved("wchar") - before < 10 * 1_000_000
    assert await store.sessions.load("s", 1) != []
    before = moved("rchar")
    assert await store.sessions.load("s", 6) == [*messages_of(38), *messages_of(39)]
    assert moved("rchar") - before < 2_000_000
