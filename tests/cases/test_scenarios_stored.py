"""Public failures of agent loops in what is stored: old rows, half turns, damaged rows, times, two drivers at once.

Their steps stand in cases.jsonl under the same id; the other processes are in durable.py.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import socket
import sqlite3
import sys
import threading
import zlib
from collections.abc import AsyncIterator
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from durable import ANN, Desk, Process, Start, Trace, asks, desk_agent, five, rows, tamper
from judge.shape import mapping
from redis.exceptions import ResponseError
from scenario import add, chat, summary_of

from glassloop import Agent, Identity, Limits, RunContext, tool
from glassloop.core.errors import StoreError
from glassloop.core.events import EVENT_TYPES, Unknown
from glassloop.core.messages import Reply, Text, UserMessage
from glassloop.core.result import Decision
from glassloop.core.usage import Usage
from glassloop.journal.projection import RunFilter
from glassloop.journal.state import fold
from glassloop.models.model import ModelRequest
from glassloop.runtime import Runtime
from glassloop.stores import Store, open_store
from glassloop.testing import ModelServer, ScriptedModel, call
from servers import redis_client, redis_server

linux = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")

STORED = [json.loads(line) for line in Path(__file__).with_name("stored-1.jsonl").read_text().splitlines()]
"""Rows as version 1 writes them, some without the fields that have a default, some with fields that nobody knows."""


@pytest.fixture
async def store(url: str) -> AsyncIterator[Store]:
    async with open_store(url) as store:
        yield store


@pytest.fixture
async def old(store: Store, url: str) -> Store:
    """A store with the old rows."""
    for row in STORED:
        values = {name: _deflated(value) for name, value in row.items()}
        table, columns, marks = values.pop("table"), ", ".join(values), ", ".join("?" * len(values))
        tamper(url, f"INSERT INTO glassloop_{table} ({columns}) VALUES ({marks})", *values.values())
    return store


def _deflated(value: Any) -> Any:
    return zlib.compress(mapping(value)["deflated"].encode()) if mapping(value) else value


def old_rows(url: str) -> list[tuple[Any, ...]]:
    """The old rows, as they lie in the file now."""
    events = "SELECT * FROM glassloop_events WHERE (run_id = 'run_parked' AND seq <= 9) OR run_id = 'run_every'"
    messages = "SELECT * FROM glassloop_messages WHERE run_id = 'run_old'"
    return rows(url, events) + rows(url, messages)


# F: persistence


async def test_F04_what_an_older_version_stored_is_read_for_ever(old: Store) -> None:
    stored = {"run_parked": 9, "run_every": 21}
    assert {row["type"] for row in STORED if row["table"] == "events"} >= {
        "run_started",
        "model_replied",
        "run_finished",
    }
    for run_id, length in stored.items():
        events = await old.journal.read(run_id)
        assert [event.seq for event in events] == list(range(1, length + 1))
        assert [type(event.data) for event in events] == [EVENT_TYPES[event.type][0] for event in events]
    texts = [summary_of(message) for message in fold(await old.journal.read("run_parked")).conversation]
    assert texts == ["go", "look_up", "order A-1 is late", "delete_row"]
    every = fold(await old.journal.read("run_every"))
    assert [summary_of(message) for message in every.conversation[1:]] == [
        *("before", "yes", "look", "I will look.", "Do it.", "refund", '{"ok":true}')
    ]
    messages = await old.sessions.load("s")
    assert [summary_of(message) for message in messages] == ["hi", "hello", "", "add", "add", "3", "3"]
    assert {row.id: row.status for row in await old.journal.runs()} == {"run_parked": "waiting", "run_every": "failed"}


async def test_F04_what_an_older_version_began_goes_on(old: Store, url: str, trace: Trace) -> None:
    before = old_rows(url)
    agent = desk_agent(Desk(trace), call("look_up", order="A-1"), call("delete_row", row_id=7))
    decisions = {"appr_1": True}
    while (result := await agent.resume("run_parked", decisions=decisions, store=old)).outcome == "waiting":
        assert trace.lines() == []
        decisions = {held.approval_id: True for held in result.pending}
        assert len(await old.journal.read("run_parked")) < 50
    assert (result.outcome, result.output) == ("completed", "done: deleted 7")
    assert trace.lines() == ["delete_row 7"]
    assert old_rows(url) == before  # with all that this version does not know
    assert [summary_of(message) for message in await old.sessions.load("s")][-1] == "done: deleted 7"


async def test_F04_an_event_of_an_unknown_type_is_kept_and_does_no_harm(old: Store, url: str, trace: Trace) -> None:
    tamper(
        url,
        """UPDATE glassloop_events SET type = 'shiny', v = 3, data = '{"x":{"y":1}}' WHERE type = 'attempt_failed'""",
    )
    event = (await old.journal.read("run_every"))[4]
    assert event.data == Unknown("shiny", {"x": {"y": 1}})
    assert (event.as_dict()["type"], event.as_dict()["data"]) == ("shiny", {"x": {"y": 1}})
    assert fold(await old.journal.read("run_every")).finished is not None


@pytest.mark.parametrize("kind", ["tool_finished", "model_replied", "approval_asked"])
async def test_F04_a_run_of_a_newer_version_is_refused_and_not_lost(
    kind: str, old: Store, url: str, trace: Trace
) -> None:
    tamper(url, "UPDATE glassloop_events SET v = 2 WHERE run_id = 'run_parked' AND type = ?", kind)
    before = old_rows(url)
    agent = desk_agent(Desk(trace), call("look_up", order="A-1"), call("delete_row", row_id=7))
    with pytest.raises(StoreError, match=rf"A newer Glassloop wrote to run run_parked \(event \d, {kind}\): upgrade"):
        await agent.resume("run_parked", store=old)
    assert len(await old.journal.read("run_parked")) == 9
    assert old_rows(url) == before
    assert trace.lines() == []


async def test_F04_a_session_of_a_newer_version_is_refused_and_not_lost(old: Store, url: str, trace: Trace) -> None:
    tamper(url, "UPDATE glassloop_messages SET v = 2 WHERE position = 3")
    before = old_rows(url)
    with pytest.raises(StoreError, match="newer Glassloop wrote to session 's'"):
        await desk_agent(Desk(trace)).run("hello", session="s", store=old)
    assert old_rows(url) == before
    assert {row.id for row in await old.journal.runs()} == {"run_parked", "run_every"}


MODULE = """
from dataclasses import dataclass, field
from enum import Enum
from pydantic import BaseModel

class Color(Enum):
    RED = "red"

@dataclass
class Order:
    number: int
    color: Color = Color.RED
    lines: list = field(default_factory=lambda: ["a", 1.0, None])

class Model(BaseModel):
    order: Order

def order() -> Order: return Order(7)
def nested() -> dict: return {"model": Model(order=Order(8))}
def color() -> Color: return Color.RED
def big() -> list: return [Order(n) for n in range(2000)]
VALUES = {"order": order, "nested": nested, "color": color, "big": big}
"""


async def test_F05_a_value_outlives_its_class(start: Start, url: str, tmp_path: Path, trace: Trace) -> None:
    (tmp_path / "of_yesterday.py").write_text(MODULE)
    run_id = await start("keep", url, tmp_path).hear()
    assert "of_yesterday" not in sys.modules
    async with Runtime(desk_agent(Desk(trace)), store=url) as runtime:
        result = await runtime.result(run_id)
        messages = await runtime.store.sessions.load("s")
    assert result is not None
    values = {done.tool: done.value for done in result.tool_executions}
    plain = {"color": "red", "lines": ["a", 1.0, None]}
    assert values["order"] == {"number": 7, **plain}
    assert values["nested"] == {"model": {"order": {"number": 8, **plain}}}
    assert values["color"] == "red"
    assert values["big"] == [{"number": number, **plain} for number in range(2000)]
    assert '"number":7' in summary_of(messages[2])


WHOLE = ["go", "add,add", "3", "7", "done: 7"]


async def test_F06_a_turn_is_saved_whole_or_not_at_all_when_the_store_fails(
    store: Store, url: str, trace: Trace
) -> None:
    await five(store, trace.path)
    fail = "BEGIN SELECT RAISE(ABORT, 'the disk is gone'); END"
    when = "WHEN (SELECT count(*) FROM glassloop_messages WHERE run_id = NEW.run_id) = 2"
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as file:
        file.execute(f"CREATE TRIGGER fail BEFORE INSERT ON glassloop_messages {when} {fail}")
        with pytest.raises(StoreError, match="the disk is gone"):
            await five(store, trace.path)
        file.execute("DROP TRIGGER fail")
    assert await _session(store) == WHOLE
    [left] = await store.journal.runs(RunFilter(finished=False))
    assert (await desk_agent(Desk(trace)).resume(left.id, store=store)).outcome == "completed"
    assert (await _session(store))[5:9] == WHOLE[:4]
    await _next_turn_works(store)


@pytest.mark.parametrize("number", [1, 3, 5])
async def test_F06_a_turn_is_saved_whole_or_not_at_all_when_the_process_dies(
    number: int, start: Start, store: Store, url: str, trace: Trace
) -> None:
    await five(store, trace.path)
    await start("save", url, number).died()
    assert await _session(store) == WHOLE
    await _next_turn_works(store)
    assert await _session(store) == [*WHOLE, *WHOLE[:4], "hello", "hello to you"]  # the answer died with the process
    assert trace.lines() == ["add"] * 4


async def _session(store: Store) -> list[str]:
    return [summary_of(message) for message in await store.sessions.load("s")]


async def _next_turn_works(store: Store) -> None:
    async with ModelServer(script=["hello to you"]) as server:
        result = await Agent(chat(server), name="desk").run("hello", session="s", store=store)
    assert result.output == "hello to you"
    assert server.violations == []


def _moved(what: str) -> int:
    """Bytes that this process has read (`rchar`) or written (`wchar`) so far, on whatever."""
    lines = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(lines[what])


@linux
def without_what_is_not_basic(directory: Path) -> list[str]:
    """Options of a server that knows no modules, no administration, and of the data types only the oldest."""
    with redis_server(directory) as server, redis_client(server.database(0)) as client:

        def commands(*categories: str) -> set[str]:
            listed = (name.decode() for each in categories for name in client.execute_command("ACL", "CAT", each))
            return {name.partition("|")[0] for name in listed}  # of `client|kill`, all of `client`

        new = commands("stream", "geo", "hyperloglog", "bitmap")
        gone = new | commands("admin") | {"module", "config", "info", "keys", "flushall"}
    assert {"xadd", "geoadd", "pfadd", "debug"} <= gone
    return [word for name in sorted(gone) for word in ("--rename-command", name, "")]


async def test_F09_a_plain_redis_is_enough(tmp_path: Path) -> None:
    agent = Agent(ScriptedModel([call("add", a=1, b=2), "3", "again 3"]), [add])
    with redis_server(tmp_path, *without_what_is_not_basic(tmp_path)) as server:
        with redis_client(server.database(0)) as client, pytest.raises(ResponseError, match="unknown command"):
            client.execute_command("MODULE", "LIST")
        async with open_store("memory:", server.database(0)) as store:
            assert (await agent.run("1 + 2", session="s", store=store)).output == "3"
            assert (await agent.run("and now?", session="s", store=store)).output == "again 3"
            assert len(await store.sessions.load("s")) == 6
    with pytest.raises(StoreError, match=r"Redis at 127\.0\.0\.1:\d+ cannot be reached"):
        async with open_store("memory:", server.database(0)):
            pass


async def test_F10_a_turn_costs_what_it_adds_and_a_window_what_it_shows(store: Store) -> None:
    def dump(page: int) -> str:
        """Return 300 kB."""
        return random.Random(page).randbytes(150_000).hex()

    def answer(request: ModelRequest) -> Reply:
        last = request.messages[-1]
        part = call("dump", page=len(request.messages)) if isinstance(last, UserMessage) else Text("done")
        return Reply((part,), usage=Usage(10, 10, requests=1))

    agent, costs = Agent(ScriptedModel(answer), [dump]), list[int]()
    for _ in range(60):
        before = await asyncio.to_thread(_moved, "wchar")
        await agent.run("next", session="s", store=store, limits=Limits(total_tokens=None))
        costs.append(await asyncio.to_thread(_moved, "wchar") - before)
    assert sum(costs) < 60 * 1_000_000
    assert sorted(costs)[30] < 600_000  # now and then SQLite carries many turns from its log into the file
    assert sum(costs[30:]) < 1.5 * sum(costs[:30])
    before = await asyncio.to_thread(_moved, "rchar")
    assert len(await store.sessions.load("s", 4)) == 4
    assert await asyncio.to_thread(_moved, "rchar") - before < 1_000_000


async def test_F11_stored_instants_do_not_depend_on_the_machines_zone(start: Start, tmp_path: Path) -> None:
    zones = {"America/New_York": "-1", "Asia/Kolkata": "+5:30", "UTC": "0"}
    others = [start("book", f"sqlite:///{tmp_path}/{number}.db", TZ=zone) for number, zone in enumerate(zones)]
    told = [await other.hear() for other in others]
    assert len({one.pop("zone") for one in told}) == 3, "the zones must differ, or this shows nothing"
    assert told[0] == told[1] == told[2]
    one = told[0]
    assert one["on_time"]
    assert one["life"] == 60
    assert json.loads(one["arguments"])["at"] == "2026-03-08T02:30:00Z"  # what has no offset is in UTC
    assert one["given"] == ["2026-03-08T02:30:00+00:00", "2026-03-08T02:30:00+00:00", "2026-03-08T02:30:00+05:30"]
    assert one["values"] == 3 * [
        {
            "naive": "2026-03-08T12:00:00",
            "india": "2026-03-08T12:00:00+05:30",
            "utc": "2026-03-08T12:00:00Z",
            "day": "2026-03-08",
        }
    ]
    india = datetime.fromisoformat(one["values"][0]["india"])
    assert datetime.fromisoformat(one["values"][0]["utc"]) - india == timedelta(hours=5, minutes=30)


async def _two_recoverers(start: Start, url: str, trace: Trace, late: bool) -> tuple[str, list[Any]]:
    """Two processes go on with the run, at once, or the second in the middle of the first one's effect."""
    async with open_store(url) as store:
        [row] = await store.journal.runs()
    both: list[Process] = [start("recover", url, trace.path, row.id) for _ in range(2)]
    for one in both:
        assert await one.hear() == "ready"
    both[0].go()
    if late:
        await trace.reached(1)
    both[1].go()
    return row.id, [await one.hear() for one in both]


@pytest.mark.parametrize("late", [False, True])
async def test_F12_of_two_that_recover_a_run_one_goes_on(late: bool, start: Start, url: str, trace: Trace) -> None:
    await start("ask", url, trace.path).died()
    assert trace.lines() == []
    _, told = await _two_recoverers(start, url, trace, late)
    assert trace.lines() == ["send_note bob"]
    winner, loser = sorted(told)[::-1]
    assert winner == ["completed", []]
    assert loser[0] == "Fenced"
    assert re.search("taken|claimed by another", loser[1])


async def test_F12_what_had_begun_is_not_done_again_by_either(start: Start, url: str, trace: Trace) -> None:
    await start("send", url, trace.path).died()
    assert trace.lines() == ["send_note bob"]
    run_id, told = await _two_recoverers(start, url, trace, late=False)
    assert ["waiting", ["doubt"]] in told
    assert all(one == ["waiting", ["doubt"]] or one[0] == "Fenced" for one in told)
    async with Runtime(desk_agent(Desk(trace), call("send_note", to="bob")), store=url) as runtime:
        [row] = await runtime.approvals()
        await runtime.decide(row.approval_id, Decision("deny"), by=Identity("ann"))
        result = await runtime.wait(run_id)
    assert [done.status for done in result.tool_executions] == ["unknown"]
    assert trace.lines() == ["send_note bob"]


async def test_F12_one_process_drives_a_run_once_at_a_time(url: str, trace: Trace) -> None:
    agent = desk_agent(Desk(trace, patience=0.3), call("delete_row", row_id=1), call("send_note", to="bob"))
    async with open_store(url) as store:
        paused = await agent.run("go", store=store)
        yes = {paused.pending[0].approval_id: True}
        first = asyncio.create_task(agent.resume(paused.run_id, decisions=yes, store=store))
        await trace.reached(2)
        with pytest.raises(StoreError, match="is taken"):
            await agent.resume(paused.run_id, decisions=yes, store=store)
        assert (await first).output == "done: sent to bob"
        assert (await agent.resume(paused.run_id, decisions=yes, store=store)).output == "done: sent to bob"
    assert trace.lines() == ["delete_row 1", "send_note bob"]


class Broken(Exception):
    """An error that holds what no encoder knows."""

    def __init__(self) -> None:
        super().__init__("the lock is held")
        self.lock = threading.Lock()


async def test_F13_what_cannot_be_stored_does_not_hide_what_happened(url: str) -> None:
    @tool(effect="write", approval=True)
    def fails(context: RunContext[Any]) -> str:
        """Fail."""
        assert isinstance(context.deps, socket.socket)
        raise Broken

    def gives() -> Any:
        """Give what has no JSON form."""
        return {"lock": threading.Lock(), "n": 1}

    with closing(socket.socket()) as connection:
        agent = Agent(asks(call("gives"), call("fails")), [fails, gives], name="desk")
        async with Runtime(agent, store=url, deps=lambda _: connection) as runtime:
            paused = await runtime.run("desk", "go", identity=ANN)
            assert paused.outcome == "waiting"
            await runtime.decide(paused.pending[0].approval_id, Decision(), by=ANN)
            result = await runtime.wait(paused.run_id)
            events = await runtime.store.journal.read(paused.run_id)
    assert result.outcome == "completed"
    given, failed = result.tool_executions
    assert (given.status, failed.status) == ("ok", "error")
    assert '"n":1' in given.content
    assert "Broken" in failed.content
    assert any("the lock is held" in str(event.private) for event in events)
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as file:
        assert "socket" not in "\n".join(file.iterdump())


@pytest.mark.parametrize("position", range(1, 9))
async def test_F15_a_limit_counts_messages_that_can_be_read(position: int, store: Store, url: str) -> None:
    agent = Agent(ScriptedModel(2 * [call("add", a=1, b=2), "three"]), [add])
    for text in ("one", "two"):
        await agent.run(text, session="s", store=store)
    whole = await store.sessions.load("s")
    assert len(whole) == 8
    assert await store.sessions.load("s", 0) == []
    tamper(url, "UPDATE glassloop_messages SET message = '{broken' WHERE position = ?", position)
    left = [message for number, message in enumerate(whole, 1) if number != position]
    assert await store.sessions.load("s", None) == left
    assert await store.sessions.load("s") == left
    for limit in (0, 1, 2, 6, 7, 100):
        assert await store.sessions.load("s", limit) == left[max(0, 7 - limit) :]
    async with ModelServer(script=["hello to you"]) as server:
        assert (await Agent(chat(server), [add]).run("hello", session="s", store=store)).output == "hello to you"
    assert server.violations == []
    assert len(await store.sessions.load("s")) == 9
