"""The runtime: runs that survive, decisions that count once, and what happens to writes."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from glassloop import Agent, FatalToolError, Identity, Limits, ModelError, RunContext, ToolError, tool
from glassloop.core.events import (
    DriverClaimed,
    EffectStarted,
    Event,
    ModelReplied,
    ModelRequested,
    RunFinished,
    RunStarted,
)
from glassloop.core.messages import Reply, ToolCall, ToolResult, UserMessage
from glassloop.core.result import Decision
from glassloop.journal.projection import RunFilter
from glassloop.middleware.approval import Approval
from glassloop.models.model import ModelRequest
from glassloop.models.scripted import ScriptedModel, call
from glassloop.runtime import ApprovalProblem, Runtime
from glassloop.stores import Store, open_store

ANN = Identity("ann", "acme")
BOB = Identity("bob", "acme")
SAM = Identity("sam", "acme", ("supervisor",))


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    async with open_store(f"sqlite:///{tmp_path / 'runs.db'}") as opened:
        yield opened


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


def desk(*calls: Any, tools: Any = (ticket,), **more: Any) -> Agent:
    return Agent(asks(*calls), list(tools), name="desk", **more)


async def test_a_parked_run_goes_on_when_its_owner_decides(store: Store) -> None:
    async with Runtime(desk(call("ticket", title="a")), store=store) as runtime:
        result = await runtime.run("desk", "go", identity=ANN)
        assert result.outcome == "waiting"
        [row] = await runtime.approvals(identity=ANN)
        assert (row.tool, row.arguments, row.mode, row.kind) == ("ticket", '{"title":"a"}', "park", "call")
        assert await runtime.decide(row.approval_id, Decision(), by=ANN) is None
        result = await runtime.wait(result.run_id)
    assert (result.outcome, result.output) == ("completed", "done: ticket a")


async def test_a_decision_survives_the_process_that_took_it(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'runs.db'}"
    async with open_store(url) as first, Runtime(desk(call("ticket", title="a")), store=first) as runtime:
        waiting = await runtime.run("desk", "go", identity=ANN)
    async with open_store(url) as second, Runtime(desk(call("ticket", title="a")), store=second) as runtime:
        [row] = await runtime.approvals(identity=ANN)
        await runtime.decide(row.approval_id, Decision("deny", reason="not on Fridays"), by=ANN)
        result = await runtime.wait(waiting.run_id)
    assert result.outcome == "completed"
    assert "not on Fridays" in (result.output or "")


@pytest.mark.parametrize("approvals", ["park", "defer"])
async def test_who_may_decide_and_how_often(store: Store, approvals: Any) -> None:
    def role(arguments: dict[str, Any]) -> bool | str:
        return "supervisor" if arguments["amount"] > 500 else True

    @tool(effect="write", approval=role)
    def refund(amount: int) -> str:
        """Refund."""
        return f"refunded {amount}"

    agent = desk(call("refund", amount=900), tools=[refund])
    async with Runtime(agent, store=store) as runtime:
        result = await runtime.run("desk", "go", identity=ANN, approvals=approvals)
        [held] = result.pending
        kinds: list[str] = []
        for who in (BOB, Identity("ann", "other"), ANN, SAM, SAM):
            try:
                await runtime.decide(held.approval_id, Decision(), by=who)
                kinds.append("ok")
            except ApprovalProblem as problem:
                kinds.append(problem.kind)
        assert kinds == ["not_found", "not_found", "forbidden", "ok", "decided"]
        with pytest.raises(ApprovalProblem, match="no such"):
            await runtime.decide("appr_unknown", Decision(), by=ANN)


async def test_a_deferred_call_runs_later_by_itself_and_once(store: Store) -> None:
    done: list[str] = []

    @tool(effect="write", risk="high")
    def pay(to: str) -> str:
        """Pay."""
        done.append(to)
        return f"paid {to}"

    agent = desk(call("pay", to="eve"), tools=[pay])
    identity = Identity("ann", "acme", session="s")
    async with Runtime(agent, store=store) as runtime:
        result = await runtime.run("desk", "go", identity=identity, approvals="defer")
        assert result.outcome == "completed"
        assert "Held for approval" in (result.output or "")
        [held] = result.pending
        assert held.expires_at is not None
        assert 14 * 60_000 < held.expires_at - time.time() * 1000 <= 15 * 60_000
        assert done == []
        decisions = [runtime.decide(held.approval_id, Decision(), by=ANN) for _ in range(5)]
        answers = await asyncio.gather(*decisions, return_exceptions=True)
        assert done == ["eve"]
        [ran] = [answer for answer in answers if not isinstance(answer, BaseException)]
        assert ran is not None
        assert (ran.outcome, ran.output) == ("completed", "paid eve")
        assert {answer.kind for answer in answers if isinstance(answer, ApprovalProblem)} == {"decided"}
        told = await store.sessions.load("s")
        assert isinstance(told[-1], UserMessage)
        assert "paid eve" in told[-1].text
        assert (await runtime.approvals(identity=ANN)) == []


async def test_a_deferred_call_is_refused_after_its_time(store: Store) -> None:
    layer = Approval(mode="defer", expires=0.01)
    async with Runtime(desk(call("ticket", title="a"), middleware=[layer]), store=store) as runtime:
        result = await runtime.run("desk", "go", identity=ANN)
        await asyncio.sleep(0.02)
        with pytest.raises(ApprovalProblem) as caught:
            await runtime.decide(result.pending[0].approval_id, Decision(), by=ANN)
    assert caught.value.kind == "expired"


async def test_edited_arguments_are_validated_again(store: Store) -> None:
    async with Runtime(desk(call("ticket", title="a")), store=store) as runtime:
        result = await runtime.run("desk", "go", identity=ANN)
        [held] = result.pending
        with pytest.raises(ApprovalProblem, match="titel") as caught:
            await runtime.decide(held.approval_id, Decision("edit", arguments={"titel": "b"}), by=ANN)
        assert caught.value.kind == "invalid"
        await runtime.decide(held.approval_id, Decision("edit", arguments={"title": "b"}), by=ANN)
        said = (await runtime.wait(result.run_id)).output
    assert said == 'done: ticket b\n[A human changed this call before it ran. Its arguments were {"title":"b"}]'


async def test_tools_that_ask_can_be_named_in_the_environment(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def add(a: int) -> int:
        """Add."""
        return a

    monkeypatch.setenv("APPROVE_TOOLS", "other, add")
    async with Runtime(desk(call("add", a=1), tools=[add]), store=store) as runtime:
        assert (await runtime.run("desk", "go", identity=ANN)).outcome == "waiting"


async def test_a_thousand_parked_runs_are_rows_and_nothing_else(store: Store) -> None:
    agent = desk(call("ticket", title="a"))
    async with Runtime(agent, store=store) as runtime:
        ids = await asyncio.gather(*(runtime.start("desk", "go", identity=ANN) for _ in range(200)))
        await asyncio.gather(*(runtime.wait(run_id) for run_id in ids))
        assert len(asyncio.all_tasks()) <= 3
        assert not [thread for thread in threading.enumerate() if thread.name.startswith("drive")]
        rows = await runtime.runs(RunFilter(status="waiting", limit=1000))
        assert len(rows) == 200
        assert {row.owner for row in rows} == {None}
        for row in await runtime.approvals(identity=ANN):
            await runtime.decide(row.approval_id, Decision(), by=ANN)
        outcomes = [(await runtime.wait(run_id)).outcome for run_id in ids]
    assert outcomes == ["completed"] * 200


def crashed(run_id: str, tool_name: str, arguments: str, *, begun: bool) -> list[Event]:
    """What a process that was killed in the middle of a call leaves."""
    made = ToolCall("call_1", tool_name, arguments)
    data: list[Any] = [
        RunStarted("desk", "f", ANN, UserMessage("go"), Limits()),
        DriverClaimed(1, "boot/1/999999/1", 0),
        ModelRequested("m", "i", "t", "s", ((0, 1),), "d", offered=1),
        ModelReplied(Reply((made,)), 1.0),
    ]
    if begun:
        data.append(EffectStarted("call_1", "key"))
    return [Event(run_id, 0, 1_000 + number, 1, item) for number, item in enumerate(data)]


def effects_of(**settings: Any) -> tuple[list[str], Any]:
    done: list[str] = []

    def act(what: str) -> str:
        """Act."""
        done.append(what)
        return f"did {what}"

    return done, tool(act, effect="write", **settings)


async def resumed(store: Store, agent: Agent, *, begun: bool = True) -> tuple[Runtime, str]:
    await store.journal.append("run_1", crashed("run_1", "act", '{"what": "x"}', begun=begun), after=0, epoch=1)
    return Runtime(agent, store=store), "run_1"


async def test_a_run_whose_process_died_goes_on_at_the_next_start(store: Store) -> None:
    done, act = effects_of()
    runtime, run_id = await resumed(store, desk(call("act", what="x"), tools=[act]), begun=False)
    async with runtime:
        result = await runtime.wait(run_id)
    assert (result.outcome, done) == ("completed", ["x"])


async def test_a_call_in_doubt_is_held_and_runs_again_only_on_a_humans_word(store: Store) -> None:
    done, act = effects_of()
    runtime, run_id = await resumed(store, desk(call("act", what="x"), tools=[act]))
    async with runtime:
        result = await runtime.wait(run_id)
        assert (result.outcome, done) == ("waiting", [])
        [row] = await runtime.approvals(identity=ANN)
        assert row.kind == "doubt"
        assert "may have happened" in row.summary
        await runtime.decide(row.approval_id, Decision(), by=ANN)
        result = await runtime.wait(run_id)
    assert (result.outcome, result.output, done) == ("completed", "done: did x", ["x"])


async def test_a_call_in_doubt_may_be_left_alone(store: Store) -> None:
    done, act = effects_of()
    runtime, run_id = await resumed(store, desk(call("act", what="x"), tools=[act]))
    async with runtime:
        await runtime.wait(run_id)
        [row] = await runtime.approvals(identity=ANN)
        await runtime.decide(row.approval_id, Decision("deny"), by=ANN)
        result = await runtime.wait(run_id)
    assert (result.tool_executions[0].status, done) == ("unknown", [])
    assert "Outcome unknown" in (result.output or "")


async def test_an_idempotent_call_in_doubt_runs_again_under_its_key(store: Store) -> None:
    done, act = effects_of(idempotent=True)
    runtime, run_id = await resumed(store, desk(call("act", what="x"), tools=[act]))
    async with runtime:
        result = await runtime.wait(run_id)
    assert (result.outcome, done) == ("completed", ["x"])


@pytest.mark.parametrize(("found", "expected"), [("it is there", []), (None, ["x"])])
async def test_a_call_in_doubt_is_reconciled(store: Store, found: str | None, expected: list[str]) -> None:
    keys: list[str] = []

    def reconcile(key: str) -> str | None:
        keys.append(key)
        return found

    done, act = effects_of(reconcile=reconcile)
    runtime, run_id = await resumed(store, desk(call("act", what="x"), tools=[act]))
    async with runtime:
        result = await runtime.wait(run_id)
    assert done == expected
    assert keys == [RunContext(None, run_id).for_call(1, "call_1", None).idempotency_key]
    assert result.tool_executions[0].value == (found or "did x")


async def test_a_transaction_commits_effect_and_result_together(store: Store, tmp_path: Path) -> None:
    @tool(effect="write", transaction=True)
    def insert(context: RunContext, name: str) -> dict[str, Any]:
        """Insert."""
        context.transaction.execute("CREATE TABLE IF NOT EXISTS things (name TEXT UNIQUE)")
        context.transaction.execute("INSERT INTO things VALUES (?)", (name,))
        if name == "bad":
            raise ToolError("bad is not allowed")
        return {"name": name}

    agent = Agent(None, [insert], name="desk")

    async def run(*names: str) -> list[str]:
        model = asks(*(call("insert", name=name) for name in names))
        result = await agent.run("go", store=store, model=model)
        return [execution.status for execution in result.tool_executions]

    assert await run("a", "bad", "b") == ["ok", "error", "ok"]
    assert await run("a") == ["error"]  # breaks the constraint: an error of the tool, not of the store
    with closing(sqlite3.connect(tmp_path / "runs.db")) as connection:
        rows = connection.execute("SELECT name FROM things ORDER BY name").fetchall()
    assert rows == [("a",), ("b",)]
    types = [event.type for event in await store.journal.read((await store.journal.runs())[1].id)]
    assert "effect_started" not in types


async def test_a_transaction_needs_a_database() -> None:
    @tool(effect="write", transaction=True)
    def insert(context: RunContext) -> str:
        """Insert."""
        return "ok"

    result = await Agent(asks(call("insert")), [insert]).run("go", store=open_store("memory:"))
    assert result.tool_executions[0].status == "error"


@pytest.mark.parametrize("failing", [False, True])
async def test_writes_are_undone_in_reverse_when_the_run_fails(store: Store, failing: bool) -> None:
    log: list[str] = []

    def undo(arguments: dict[str, Any], result: Any) -> None:
        log.append(f"undo {arguments['name']} {result}")
        if failing and arguments["name"] == "a":
            raise ConnectionError("gone")

    @tool(effect="write", undo=undo, sequential=True)
    def make(name: str) -> str:
        """Make."""
        log.append(f"make {name}")
        return f"made {name}"

    def fatal() -> str:
        """Fail."""
        raise FatalToolError("no way")

    model = ScriptedModel([[call("make", name="a"), call("make", name="b")], call("fatal")])
    agent = Agent(model, [make, fatal], name="desk")
    async with Runtime(agent, store=store) as runtime:
        result = await runtime.run("desk", "go", identity=ANN)
    assert log == ["make a", "make b", "undo b made b", "undo a made a"]
    if failing:
        assert result.outcome == "partly_rolled_back"
        assert 'make(name="a")' in (result.message or "")
    else:
        assert result.outcome == "failed"


async def test_an_undo_is_given_the_context_if_it_asks_for_it(store: Store) -> None:
    undone: list[tuple[Any, str | None, bool, str]] = []

    async def undo(context: RunContext[str], arguments: dict[str, Any], result: Any) -> None:
        undone.append((context.deps, context.user, context.idempotency_key != "", f"{arguments['name']} {result}"))

    @tool(effect="write", undo=undo)
    def make(name: str) -> str:
        """Make."""
        return f"made {name}"

    def fatal() -> str:
        """Fail."""
        raise FatalToolError("no way")

    agent = Agent(ScriptedModel([call("make", name="a"), call("fatal")]), [make, fatal], name="desk")
    async with Runtime(agent, store=store, deps=lambda who: f"deps of {who.user}") as runtime:
        result = await runtime.run("desk", "go", identity=ANN)
    assert result.outcome == "failed"
    assert undone == [("deps of ann", "ann", True, "a made a")]


async def test_nothing_is_undone_when_the_run_completes(store: Store) -> None:
    undone: list[Any] = []

    def undo(arguments: Any, result: Any) -> None:
        undone.append(arguments)

    _, act = effects_of(undo=undo)
    async with Runtime(desk(call("act", what="x"), tools=[act]), store=store) as runtime:
        assert (await runtime.run("desk", "go", identity=ANN)).outcome == "completed"
    assert undone == []


async def test_cancelling_reaches_the_tool_and_is_recorded(store: Store) -> None:
    began = asyncio.Event()

    async def forever() -> str:
        """Wait."""
        began.set()
        await asyncio.sleep(60)
        return "never"

    async with Runtime(desk(call("forever"), tools=[forever]), store=store) as runtime:
        run_id = await runtime.start("desk", "go", identity=ANN)
        await began.wait()
        assert await runtime.cancel(run_id, by=ANN, reason="changed my mind")
        result = await runtime.wait(run_id)
        assert result.outcome == "cancelled"
        assert not await runtime.cancel(run_id)


async def test_a_run_that_waits_for_its_session_can_be_cancelled(store: Store) -> None:
    """HKUDS/Vibe-Trading#638, alfredang/AI-LMS-TMS#92: what is queued has no driver that could see the cancellation."""
    gate = asyncio.Event()

    async def work() -> str:
        """Work."""
        await gate.wait()
        return "worked"

    who = Identity("ann", session="talk")
    async with Runtime(desk(call("work"), tools=[work]), store=store) as runtime:
        first = await runtime.start("desk", "one", identity=who)
        second = await runtime.start("desk", "two", identity=who)
        await asyncio.sleep(0.05)  # it has come to its place behind the first
        assert await runtime.cancel(second, by=ANN)
        result = await asyncio.wait_for(runtime.wait(second), 5)
        assert (result.outcome, result.steps) == ("cancelled", 0)
        gate.set()
        assert (await runtime.wait(first)).output == "done: worked"
        third = await runtime.run("desk", "three", identity=who)
        assert third.outcome == "completed"
    said = [message.text for message in await store.sessions.load("talk") if isinstance(message, UserMessage)]
    assert sorted(said) == ["one", "three", "two"]


async def test_a_run_that_is_cancelled_before_it_began_ends_at_once() -> None:
    """HKUDS/Vibe-Trading#638: the model is called although the cancellation had been accepted."""
    async with Runtime(desk(call("ticket", title="a")), store="memory:") as runtime:
        run_id = await runtime.start("desk", "go", identity=ANN)
        assert await runtime.cancel(run_id, by=ANN)
        result = await asyncio.wait_for(runtime.wait(run_id), 1)
        assert (result.outcome, result.steps) == ("cancelled", 0)


async def test_a_parked_run_can_be_cancelled(store: Store) -> None:
    async with Runtime(desk(call("ticket", title="a")), store=store) as runtime:
        waiting = await runtime.run("desk", "go", identity=ANN)
        assert await runtime.cancel(waiting.run_id)
        assert (await runtime.wait(waiting.run_id)).outcome == "cancelled"


async def test_stopping_the_runtime_leaves_runs_resumable(tmp_path: Path) -> None:
    began = asyncio.Event()
    gate = asyncio.Event()

    async def work() -> str:
        """Work."""
        began.set()
        await gate.wait()
        return "worked"

    url = f"sqlite:///{tmp_path / 'runs.db'}"
    agent = desk(call("work"), tools=[work])
    async with open_store(url) as first:
        async with Runtime(agent, store=first) as runtime:
            runtime.stop_seconds = 0.05
            run_id = await runtime.start("desk", "go", identity=ANN)
            await began.wait()
        [row] = await first.journal.runs()
        assert (row.status, row.owner) == ("running", None)
    gate.set()
    async with open_store(url) as second, Runtime(agent, store=second) as runtime:
        result = await runtime.wait(run_id)
    assert result.outcome == "completed"


async def test_watching_gives_committed_events_once_and_live_ones_between(store: Store) -> None:
    async with Runtime(desk(call("ticket", title="a")), store=store) as runtime:
        run_id = await runtime.start("desk", "go", identity=ANN)
        seen = [event async for event in runtime.watch(run_id)]
        committed = [event.seq for event in seen if event.seq]
        assert committed == list(range(1, len(committed) + 1))
        assert "tool_started" in {event.type for event in seen if not event.seq}
        assert seen[-1].type == "driver_rested"
        [row] = await runtime.approvals()
        await runtime.decide(row.approval_id, Decision(), by=ANN)
        rest = [event async for event in runtime.watch(run_id, after=committed[-1])]
        assert next(event.seq for event in rest if event.seq) == committed[-1] + 1
        assert rest[-1].type == "run_finished"


async def test_the_time_that_an_attached_run_is_left_counts_from_the_last_watcher(store: Store) -> None:
    loop = asyncio.get_running_loop()
    due: list[tuple[Any, tuple[Any, ...]]] = []
    gate = asyncio.Event()

    async def slow(_: ModelRequest) -> str:
        await gate.wait()
        return "done"

    async with Runtime(Agent(ScriptedModel(slow), name="desk"), store=store) as runtime:
        runtime.leave_seconds = 12_345.0
        call_later = loop.call_later
        with pytest.MonkeyPatch.context() as patch:

            def later(delay: float, work: Any, *arguments: Any) -> Any:
                if delay == 12_345.0:
                    due.append((work, arguments))
                return call_later(delay, work, *arguments)

            patch.setattr(loop, "call_later", later)
            run_id = await runtime.start("desk", "go", identity=ANN, attached=True)
            events = runtime.watch(run_id)
            await anext(events)
            await events.aclose()
            first, last = due
            first[0](*first[1])  # the time since the start has passed, the time since the watcher left has not
            gate.set()
            assert (await runtime.wait(run_id)).outcome == "completed"
            last[0](*last[1])


async def test_an_attached_run_does_not_outlive_its_watchers(store: Store) -> None:
    async def forever() -> str:
        """Wait."""
        await asyncio.sleep(60)
        return "never"

    async with Runtime(desk(call("forever"), tools=[forever]), store=store) as runtime:
        runtime.leave_seconds = 0.05
        run_id = await runtime.start("desk", "go", identity=ANN, attached=True)
        watching = runtime.watch(run_id)
        async for event in watching:
            if event.type == "tool_started":
                break
        await watching.aclose()
        followed = [event async for event in store.journal.follow(run_id)]
    assert isinstance(followed[-1].data, RunFinished)
    assert followed[-1].data.outcome == "cancelled"


async def test_a_failed_run_can_be_resumed_and_a_completed_one_not(store: Store) -> None:
    lines: list[Any] = [ModelError("down", kind="invalid_request", status=400), "fine"]
    agent = Agent(ScriptedModel(lines), name="desk")
    async with Runtime(agent, store=store) as runtime:
        result = await runtime.run("desk", "go", identity=ANN)
        assert result.outcome == "failed"
        await runtime.resume(result.run_id)
        assert (await runtime.wait(result.run_id)).output == "fine"


DRIVER = """
import asyncio, sys, time
from glassloop import Agent, tool
from glassloop.core.messages import ToolResult
from glassloop.models.scripted import ScriptedModel, call
from glassloop.stores import open_store

made = open(sys.argv[2], "a", buffering=1)

@tool(effect="write")
def create_work_order(order: str) -> str:
    "Create."
    time.sleep(0.05)
    made.write(order + "\\n")
    return f"W-{time.time_ns()}"

def answer(request):
    results = [m for m in request.messages if isinstance(m, ToolResult)]
    return results[-1].content if results else call("create_work_order", order="A-1")

async def main():
    agent = Agent(ScriptedModel(answer), [create_work_order])
    async with open_store(sys.argv[1]) as store:
        async def one(n):
            from glassloop import Identity
            session = "s" if sys.argv[3] == "one" else f"s{n}-{sys.argv[4]}"
            return (await agent.run("go", store=store, identity=Identity("ann", session=session))).output
        print("\\n".join(await asyncio.gather(*(one(n) for n in range(25)))))

asyncio.run(main())
"""


@pytest.mark.parametrize(("sessions", "effects"), [("one", 1), ("many", 50)])
def test_identical_writes_of_two_processes_are_one_effect_per_session(
    tmp_path: Path, sessions: str, effects: int
) -> None:
    program, made = tmp_path / "driver.py", tmp_path / "made.txt"
    program.write_text(DRIVER)
    url = f"sqlite:///{tmp_path / 'runs.db'}"
    command = [sys.executable, str(program), url, str(made), sessions]
    processes = [subprocess.Popen([*command, str(n)], stdout=subprocess.PIPE, text=True) for n in range(2)]
    said = [line for process in processes for line in process.communicate(timeout=60)[0].split()]
    assert len(said) == 50
    assert len(made.read_text().split()) == effects
    assert len(set(said)) == effects
