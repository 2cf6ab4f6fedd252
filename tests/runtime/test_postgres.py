"""The runtime on PostgreSQL: runs that several processes and machines share, and tools in its transactions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError

from glassloop import Agent, Identity, RunContext, ToolError, tool
from glassloop.core.errors import Fenced
from glassloop.core.events import DriverClaimed, Event, ModelReplied, RunStarted
from glassloop.core.ids import new_id
from glassloop.core.limits import Limits
from glassloop.core.messages import Reply, ToolResult, UserMessage
from glassloop.core.result import Decision
from glassloop.models.model import ModelRequest
from glassloop.models.scripted import ScriptedModel, call
from glassloop.runtime import Runtime
from glassloop.stores import Store, open_store
from glassloop.stores.owner import this_process
from servers import PostgresProcess

ANN = Identity("ann", "acme", session="s")
ELSEWHERE = str(replace(this_process(), boot="another machine"))


@pytest.fixture
async def store(postgres_url: str) -> AsyncIterator[Store]:
    async with open_store(postgres_url) as opened:
        yield opened


@pytest.fixture
def execute(postgres_process: PostgresProcess, postgres_url: str) -> Callable[[str], str]:
    """A function that executes a statement behind the store's back."""
    return lambda statement: postgres_process.execute(statement, postgres_url.rpartition("/")[2])


def asks(*calls: Any) -> ScriptedModel:
    """A model that makes these calls, then says what came of the last: a function of the conversation."""

    def answer(request: ModelRequest) -> Any:
        results = [message for message in request.messages if isinstance(message, ToolResult)]
        return list(calls) if not results else f"done: {results[-1].content}"

    return ScriptedModel(answer)


@tool(effect="write", risk="high")
def ticket(title: str) -> str:
    """Create a ticket."""
    return f"ticket {title}"


def desk() -> Agent:
    return Agent(asks(call("ticket", title="a")), [ticket], name="desk")


async def test_a_parked_run_goes_on_in_another_store_when_somebody_decides(postgres_url: str) -> None:
    async with open_store(postgres_url) as first, Runtime(desk(), store=first) as runtime:
        waiting = await runtime.run("desk", "go", identity=ANN)
        assert waiting.outcome == "waiting"
    async with Runtime(desk(), store=postgres_url) as runtime:
        [row] = await runtime.approvals(identity=ANN)
        await runtime.decide(row.approval_id, Decision(), by=ANN)
        result = await runtime.wait(waiting.run_id)
        assert (result.outcome, result.output) == ("completed", "done: ticket a")
        assert [row.id for row in await runtime.runs()] == [waiting.run_id]
        assert (await runtime.store.sessions.load("s", 1))[0] == await last_reply(runtime.store, waiting.run_id)


async def last_reply(store: Store, run_id: str) -> Reply:
    replies = [event.data.reply for event in await store.journal.read(run_id) if isinstance(event.data, ModelReplied)]
    return replies[-1]


async def test_a_run_is_driven_once_though_two_runtimes_look_for_it(store: Store, postgres_url: str) -> None:
    ran: list[str] = []

    @tool(effect="write")
    async def act(context: RunContext) -> str:
        """Act."""
        ran.append(context.run_id)
        await asyncio.sleep(0.3)
        return "acted"

    def agent() -> Agent:
        return Agent(asks(call("act")), [act], name="desk")

    async with Runtime(agent(), store=store) as one, Runtime(agent(), store=postgres_url) as other:
        runs = [await each.start("desk", "go") for each in (one, other) * 3]
        for run_id in runs:
            assert (await other.wait(run_id)).output == "done: acted"
    assert sorted(ran) == sorted(runs)


async def begun_elsewhere(store: Store) -> str:
    """A run that a process on another machine has begun."""
    run_id = new_id("run")
    begun = RunStarted("desk", "of another machine", Identity(), UserMessage("go"), Limits())
    events = [Event(run_id, 0, 1, 0, data) for data in (begun, DriverClaimed(1, ELSEWHERE, 0))]
    await store.journal.append(run_id, events, after=0, epoch=1)
    return run_id


async def test_a_run_of_another_machine_is_left_alone_until_its_lease_lapses(
    store: Store, execute: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("glassloop.runtime.runtime.LOOK_SECONDS", 0.1)
    run_id = await begun_elsewhere(store)
    execute(f"INSERT INTO glassloop_processes VALUES ('{ELSEWHERE}', now() + interval '60 seconds')")
    with pytest.raises(Fenced, match="is taken"):
        await desk().resume(run_id, store=store)
    async with Runtime(desk(), store=store) as runtime:
        await asyncio.sleep(0.5)
        assert len(await store.journal.read(run_id)) == 2
        execute("UPDATE glassloop_processes SET until = now() WHERE process LIKE 'another%'")
        async with asyncio.timeout(20):
            assert (await runtime.wait(run_id)).outcome == "waiting"


# Tools in the store's transactions


@tool(effect="write", transaction=True)
def insert(context: RunContext, name: str) -> dict[str, Any]:
    """Insert."""
    connection = context.transaction
    match name:
        case "caught":
            try:
                with connection.begin_nested():
                    connection.execute(text("INSERT INTO things VALUES ('a')"))
            except IntegrityError:
                connection.execute(text("INSERT INTO things VALUES ('instead')"))
        case "swallowed":
            try:
                connection.execute(text("INSERT INTO things VALUES ('a')"))
            except IntegrityError:
                return {"name": "looks well"}
        case "commits":
            connection.execute(text("INSERT INTO things VALUES ('never')"))
            connection.commit()
        case "ends":
            connection.execute(text("INSERT INTO things VALUES ('never')"))
            connection.execute(text("  /* at last */ commit"))
        case _:
            connection.execute(text("INSERT INTO things VALUES (:name)"), {"name": name})
    if name == "bad":
        raise ToolError("bad is not allowed")
    return {"name": name}


@pytest.fixture
def things(execute: Callable[[str], str]) -> Callable[[], str]:
    """A function that tells what stands in the tool's table."""
    execute("CREATE TABLE things (name text UNIQUE)")
    return lambda: execute("SELECT string_agg(name, ' ' ORDER BY name) FROM things")


async def run(store: Store, *names: str, **options: Any) -> list[str]:
    model = ScriptedModel([[call("insert", name=name) for name in names], "done"])
    result = await Agent(None, [insert], name="desk").run("go", store=store, model=model, **options)
    return [execution.status for execution in result.tool_executions]


async def test_a_transaction_commits_effect_and_result_together(store: Store, things: Callable[[], str]) -> None:
    assert await run(store, "a", "bad", "b") == ["ok", "error", "ok"]
    assert things() == "a b"
    assert await run(store, "a") == ["error"]  # breaks the constraint: an error of the tool, not of the store
    assert await run(store, "caught") == ["ok"]
    assert await run(store, "swallowed", "c") == ["error", "ok"]
    assert things() == "a b c instead"
    [*_, first] = await store.journal.runs()
    assert "effect_started" not in [event.type for event in await store.journal.read(first.id)]


@pytest.mark.parametrize("error", [ConnectionResetError("no line"), TimeoutError(), KeyError("k")])
async def test_what_a_tool_raises_is_the_tool_s_and_not_the_store_s(store: Store, error: Exception) -> None:
    @tool(effect="write", transaction=True)
    def fail(context: RunContext) -> str:
        """Fail."""
        raise error

    result = await Agent(asks(call("fail")), [fail], name="desk").run("go", store=store)
    assert [execution.status for execution in result.tool_executions] == ["error"]
    events = await store.journal.read(result.run_id)
    assert type(error).__name__ in str([event.private for event in events])


@pytest.mark.parametrize("name", ["commits", "ends"])
async def test_a_tool_may_not_end_the_transaction(store: Store, things: Callable[[], str], name: str) -> None:
    assert await run(store, name) == ["error"]
    assert things() == ""
    assert await run(store, "a") == ["ok"]


async def test_the_ledger_settles_in_the_same_transaction(
    store: Store, things: Callable[[], str], execute: Callable[[str], str]
) -> None:
    assert await run(store, "a", session="s") == ["ok"]
    assert await run(store, "a", session="s") == ["ok"]  # remembered, and not done again
    assert things() == "a"
    assert execute("SELECT count(*), count(result) FROM glassloop_ledger") == "1|1"
    assert await run(store, "bad", session="s") == ["error"]
    assert execute("SELECT count(*), count(result) FROM glassloop_ledger") == "1|1"


async def test_a_driver_that_was_fenced_leaves_no_effect(store: Store, things: Callable[[], str]) -> None:
    await store.journal.append("run_1", [Event("run_1", 0, 1, 0, DriverClaimed(2, "newer"))], after=0, epoch=2)

    def work(writing: Any) -> tuple[str, list[Event]]:
        writing.transaction.execute(text("INSERT INTO things VALUES ('late')"))
        return "done", [Event("run_1", 0, 1, 0, DriverClaimed(1, "older"))]

    with pytest.raises(Fenced):
        await store.journal.transact("run_1", work, after=1, epoch=1)
    assert things() == ""
