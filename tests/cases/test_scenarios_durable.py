"""Public failures of agent loops in runs that are parked, killed and resumed, perhaps by another process.

Their steps stand in cases.jsonl under the same id; the other processes are in durable.py. What is stored and how: see
test_scenarios_stored.py.
"""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import Any, cast

import pytest
from durable import ANN, HELD, SAM, Desk, Start, Trace, asks, desk_agent, rows, tamper, what_waits
from scenario import answer_of, chat, conversation_of, results_in, summary_of

from glassloop import Agent, FatalToolError, Identity, ModelError, RunContext, Tool, tool
from glassloop.core.encoding import dumps
from glassloop.core.errors import ConfigurationError, StoreError
from glassloop.core.events import ToolFinished
from glassloop.core.messages import Reply, UserMessage
from glassloop.core.result import Decision, PendingApproval, RunResult
from glassloop.middleware.call import Call, Next
from glassloop.middleware.hooks import ToolHooks
from glassloop.runtime import ApprovalProblem, ApprovalRow, Runtime
from glassloop.server import create_app, make_auth
from glassloop.stores import open_store
from glassloop.testing import Conversation, ModelServer, ScriptedModel, call

DELETE = call("delete_row", row_id=1)


async def approve(agent: Agent, paused: RunResult, **options: Any) -> RunResult:
    """Say yes to all that a run waits for."""
    return await agent.resume(paused.run_id, decisions={held.approval_id: True for held in paused.pending}, **options)


# C: history


def two_turns(asked: Conversation) -> Any:
    """A turn with two calls, which ends once both have results; then a greeting."""
    users = [message.text for message in asked.messages if isinstance(message, UserMessage)]
    if users[-1] == "hello":
        return "hello to you"
    return "turn 1 is done" if asked.results else [call("slow", seconds=30), call("add", a=1, b=2)]


async def killed_in_turn_one(start: Start, url: str, trace: Trace, server: ModelServer) -> None:
    first = start("begin_turn", url, trace.path, server.url)
    run_id = await first.hear()
    async with open_store(url) as store:
        async for event in store.journal.follow(run_id):
            if isinstance(event.data, ToolFinished) and event.data.result.name == "add":
                break
    await first.kill()


async def test_C04_a_turn_whose_process_was_killed_leaves_a_session_that_works(
    start: Start, url: str, trace: Trace
) -> None:
    async with ModelServer(two_turns) as server:
        await killed_in_turn_one(start, url, trace, server)
        result = await desk_agent(Desk(trace)).run("hello", session="s", store=url, model=chat(server))
    assert result.output == "hello to you"
    told = results_in(server.requests[-1])
    assert told["add"] == ["3"]
    assert len(told["slow"]) == 1
    assert re.search("(?i)interrupt|cancel", told["slow"][0])
    assert sorted(trace.lines()) == ["add", "slow"]
    assert server.violations == []


async def test_C04_a_runtime_ends_the_turn_that_was_killed_before_the_next_begins(
    start: Start, url: str, trace: Trace
) -> None:
    async with ModelServer(two_turns) as server:
        await killed_in_turn_one(start, url, trace, server)
        agent = Agent(chat(server), Desk(trace).tools, name="desk")
        async with Runtime(agent, store=url) as runtime:
            result = await runtime.run("desk", "hello", identity=Identity("ann", "acme", session="s"))
    assert result.output == "hello to you"
    assert results_in(server.requests[-1]) == {"add": ["3"], "slow": ["slept"]}
    assert Counter(trace.lines()) == {"add": 1, "slow": 2}  # what only reads may be done again, what has a result not
    assert server.violations == []


def queued(url: str, number: int) -> None:
    """Wait until so many runs wait for a session, or have it."""
    while len(rows(url, "SELECT * FROM glassloop_session_locks")) < number:
        time.sleep(0.01)


async def test_C04_a_turn_that_was_ended_is_not_taken_up_again(start: Start, url: str, trace: Trace) -> None:
    async with ModelServer(two_turns) as server, open_store(url) as store, AsyncExitStack() as stack:
        await killed_in_turn_one(start, url, trace, server)
        agent = Agent(chat(server), Desk(trace).tools, name="desk")
        [cut_off] = await store.journal.runs()
        async with store.sessions.lock("s", "another run"):
            next_turn = asyncio.create_task(agent.run("hello", session="s", store=store))
            await asyncio.to_thread(queued, url, 2)
            runtime = await stack.enter_async_context(Runtime(agent, store=url))
            await asyncio.to_thread(queued, url, 3)
        assert (await next_turn).output == "hello to you"
        assert (await runtime.wait(cut_off.id)).outcome == "cancelled"
    assert sorted(trace.lines()) == ["add", "slow"]
    assert len(server.requests) == 2


@pytest.mark.parametrize("meanwhile", [False, True])
async def test_C19_a_parked_run_is_in_its_session_once_and_in_order(meanwhile: bool, url: str, trace: Trace) -> None:
    def answer(asked: Conversation) -> Any:
        users = [message.text for message in asked.messages if isinstance(message, UserMessage)]
        if users[-1] != "delete":
            return f"you said {users[-1]}"
        steps = [call("look_up", order="A-1"), DELETE, "deleted"]
        return steps[len([one for one in asked.results if "said" not in one.text])]

    async with ModelServer(answer) as server, open_store(url) as store:
        agent = Agent(chat(server), Desk(trace).tools, name="desk")
        paused = await agent.run("delete", session="s", store=store)
        if meanwhile:
            await agent.run("wait", session="s", history=paused.messages, store=store)
        resumed = await approve(agent, paused, history=paused.messages, store=store)
        assert resumed.output == "deleted"
        await agent.run("thanks", session="s", history=resumed.messages, store=store)
        stored = await store.sessions.load("s")
    assert trace.lines() == ["look_up A-1", "delete_row 1"]
    assert server.violations == []
    for messages in (conversation_of(server.requests[-1]).messages, stored):
        kinds = [one for one in map(summary_of, messages) if one]
        ours = [kind for kind in kinds if kind not in ("wait", "you said wait", "thanks", "you said thanks")]
        assert ours[:4] == ["delete", "look_up", "order A-1 is late", "delete_row"]
        if meanwhile:  # the next turn has read that it is held: what became of it comes later
            assert ours[4].startswith("Held for approval")
            assert ours[5:] == ["[A human decided on the held call of delete_row. deleted 1]", "deleted"]
        else:
            assert ours[4:] == ["deleted 1", "deleted"]
        assert len(kinds) == len(set(kinds))


# E: approvals


async def test_E17_what_waits_outlives_the_process_that_asked(start: Start, url: str, trace: Trace) -> None:
    first = start("park", url, trace.path)
    run_id, told = await first.hear(), await first.hear()
    await first.kill()
    agent = desk_agent(Desk(trace), *HELD)
    async with Runtime(agent, store=url) as runtime:
        waits = await what_waits(runtime, run_id)
        assert dumps(waits) == dumps(told)
        result, inbox = await runtime.result(run_id), await runtime.approvals()
        assert result is not None
        held = [replace(PendingApproval(**one), choices=tuple(one["choices"])) for one in told["held"]]
        assert held == list(result.pending)
        assert [ApprovalRow(**one) for one in told["rows"]] == inbox
        assert {(row.tool, row.role, row.expires_at is None) for row in inbox} == {
            ("delete_row", None, False),
            ("refund", "supervisor", False),
        }
        for row in inbox:
            await runtime.decide(row.approval_id, Decision(), by=SAM if row.role else ANN)
        result = await runtime.wait(run_id)
    assert (result.outcome, result.output) == ("completed", "done: refunded 900.0")
    assert sorted(trace.lines()) == ["delete_row 7", "look_up A-1", "refund 900.0"]
    assert isinstance(agent.model, ScriptedModel)
    assert len(agent.model.requests) == 1  # the calls are those that were approved, and the model is not asked again


class Failing:
    """A journal whose n-th append fails."""

    def __init__(self, journal: Any, number: int) -> None:
        self.journal, self.left = journal, number

    async def append(self, *args: Any, **options: Any) -> int:
        self.left -= 1
        if self.left == 0:
            raise StoreError("The disk is full.")
        return await self.journal.append(*args, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.journal, name)


@pytest.mark.parametrize("number", range(1, 6))
async def test_E18_a_decision_survives_a_store_that_fails_at_any_moment(number: int, url: str, trace: Trace) -> None:
    agent = desk_agent(Desk(trace), DELETE)
    async with open_store(url) as store:
        paused = await agent.run("go", store=store)
        failing = replace(store, journal=cast("Any", Failing(store.journal, number)))
        with pytest.raises(StoreError, match="disk is full"):
            await approve(agent, paused, store=failing)
        result = await approve(agent, paused, store=store)
        assert (result.outcome, result.output) == ("completed", "done: deleted 1")
        assert (await approve(agent, paused, store=store)).output == "done: deleted 1"
        with pytest.raises(ConfigurationError, match="no approval"):
            await agent.resume(paused.run_id, decisions={paused.pending[0].approval_id: False}, store=store)
    assert trace.lines() == ["delete_row 1"]


async def test_E18_a_decision_survives_a_model_that_is_down(url: str, trace: Trace) -> None:
    async with open_store(url) as store:
        paused = await desk_agent(Desk(trace), DELETE).run("go", store=store)
        nothing = Agent(None, Desk(trace).tools, name="desk")
        with pytest.raises(ConfigurationError, match="MODEL"):
            await approve(nothing, paused, store=store)
        assert trace.lines() == []
        down = ScriptedModel(lambda _: ModelError("The model is down.", kind="not_found"))
        with pytest.raises(ModelError, match="is down"):
            await approve(nothing, paused, store=store, model=down)
        result = await nothing.resume(paused.run_id, store=store, model=asks(DELETE))
    assert (result.outcome, result.output) == ("completed", "done: deleted 1")
    assert trace.lines() == ["delete_row 1"]


async def test_E18_a_decision_survives_a_runtime_that_cannot_drive(url: str, trace: Trace) -> None:
    asked = threading.Event()

    def no_database(_: Identity) -> Any:
        asked.set()
        raise ConnectionError("no database")

    agent = desk_agent(Desk(trace), DELETE)
    async with Runtime(agent, store=url) as runtime:
        paused = await runtime.run("desk", "go", identity=ANN)
    async with Runtime(agent, store=url, deps=no_database) as runtime:
        await runtime.decide(paused.pending[0].approval_id, Decision(), by=ANN)
        assert await asyncio.to_thread(asked.wait, 5)
    assert trace.lines() == []
    async with Runtime(agent, store=url) as runtime:
        assert await runtime.approvals() == []
        assert (await runtime.wait(paused.run_id)).output == "done: deleted 1"
        with pytest.raises(ApprovalProblem) as caught:
            await runtime.decide(paused.pending[0].approval_id, Decision(), by=ANN)
    assert caught.value.kind == "decided"
    assert trace.lines() == ["delete_row 1"]


@pytest.mark.parametrize("stored", ["2", "1.0", '\\"1\\"'])
async def test_E19_arguments_that_were_changed_in_the_store_are_asked_about_again(
    stored: str, url: str, trace: Trace
) -> None:
    agent = desk_agent(Desk(trace), DELETE)
    async with open_store(url) as store:
        paused = await agent.run("go", store=store)
        change = "UPDATE glassloop_events SET data = replace(data, ?, ?) WHERE type = 'model_replied'"
        tamper(url, change, '{\\"row_id\\":1}', f'{{\\"row_id\\":{stored}}}')
        again = await approve(agent, paused, store=store)
    assert again.outcome == "waiting"
    assert trace.lines() == []
    [before], [now] = paused.pending, again.pending
    assert dumps(now.arguments) == f'{{"row_id":{stored}}}'.replace("\\", "").encode()
    assert now.approval_id != before.approval_id


async def test_E19_arguments_that_no_longer_fit_are_not_run(url: str, trace: Trace) -> None:
    agent = desk_agent(Desk(trace), DELETE)
    async with open_store(url) as store:
        paused = await agent.run("go", store=store)
        change = "UPDATE glassloop_events SET data = replace(data, ?, ?) WHERE type = 'model_replied'"
        tamper(url, change, '{\\"row_id\\":1}', '{\\"row_id\\":true}')
        again = await approve(agent, paused, store=store)
    assert (again.outcome, trace.lines()) == ("completed", [])
    assert "row_id: should be a number" in again.tool_executions[0].content


async def test_E19_a_deferred_call_that_was_changed_in_the_store_is_asked_about_again(url: str, trace: Trace) -> None:
    async with Runtime(desk_agent(Desk(trace), DELETE), store=url) as runtime:
        deferred = await runtime.run("desk", "go", identity=ANN, approvals="defer")
        change = "UPDATE glassloop_events SET data = replace(data, ?, ?) WHERE type = 'approval_asked'"
        tamper(url, change, '\\"row_id\\":1', '\\"row_id\\":2')
        result = await runtime.decide(deferred.pending[0].approval_id, Decision(), by=ANN)
    assert result is not None
    assert result.outcome == "waiting"
    assert trace.lines() == []


def registered(trace: Trace, source: str) -> Tool:
    """`delete_row` of a module that is the same in every version of the program."""
    names: dict[str, Any] = {"trace": trace, "__name__": "app"}
    exec(source.replace("...", "\n    'Delete.'\n    trace.write(str(locals()))\n    return 'deleted'"), names)
    function: Callable[..., Any] = names["delete_row"]
    return tool(function, effect="write", approval=True)


VERSIONS = {
    "another default": "def delete_row(row_id: int, cascade: bool = True) -> str: ...",
    "a renamed argument": "def delete_row(row: int) -> str: ...",
    "another type": "def delete_row(row_id: str) -> str: ...",
    "a float": "def delete_row(row_id: float) -> str: ...",
}


@pytest.mark.parametrize("version", VERSIONS)
async def test_E19_a_tool_with_another_signature_is_not_what_was_approved(version: str, url: str, trace: Trace) -> None:
    first = "def delete_row(row_id: int) -> str: ..."
    async with open_store(url) as store:
        paused = await Agent(asks(DELETE), [registered(trace, first)]).run("go", store=store)
        changed = Agent(asks(DELETE), [registered(trace, VERSIONS[version])])
        again = await approve(changed, paused, store=store)
        assert trace.lines() == []
        assert again.outcome == "waiting" or again.tool_executions[0].status == "error"
        same = Agent(asks(DELETE), [registered(trace, first)])
        assert (await approve(same, await same.run("go", store=store), store=store)).outcome == "completed"
    assert trace.lines() == ["{'row_id': 1}"]


@pytest.mark.parametrize("approval", [True, False])
async def test_E19_another_tool_of_the_same_name_is_not_what_was_approved(
    approval: bool, url: str, trace: Trace
) -> None:
    def delete_row(row_id: int) -> str:
        """Delete a row."""
        trace.write(f"another {row_id}")
        return "deleted"

    other = Agent(asks(DELETE), [tool(delete_row, effect="write", approval=approval)], name="desk")
    async with open_store(url) as store:
        paused = await desk_agent(Desk(trace), DELETE).run("go", store=store)
        assert (await approve(other, paused, store=store)).outcome == "waiting"
    assert trace.lines() == []


def rewrite(call: Call) -> None:
    assert call.arguments is not None
    call.arguments["row_id"] = call.kwargs["row_id"] = 2


def rewrite_what_runs(call: Call) -> None:
    call.kwargs["row_id"] = 2


@pytest.mark.parametrize("hook", [rewrite, rewrite_what_runs])
async def test_E19_a_hook_cannot_change_what_was_approved(hook: Callable[[Call], None], url: str, trace: Trace) -> None:
    agent = desk_agent(Desk(trace), DELETE, middleware=[ToolHooks(before=hook)])
    async with open_store(url) as store:
        paused = await agent.run("go", store=store)
        with pytest.raises(FatalToolError, match="a hook changed the arguments that a human had approved"):
            await approve(agent, paused, store=store)
    assert trace.lines() == []


async def test_E19_a_layer_that_changes_arguments_changes_what_is_asked(url: str, trace: Trace) -> None:
    async def layer(call: Call, next: Next) -> Any:
        rewrite(call)
        return await next(call)

    async def sly(call: Call, next: Next) -> Any:
        rewrite_what_runs(call)
        return await next(call)

    async with open_store(url) as store:
        paused = await desk_agent(Desk(trace), DELETE).run("go", store=store)
        changed = desk_agent(Desk(trace), DELETE, middleware=[cast("Any", layer)])
        again = await approve(changed, paused, store=store)
        assert again.outcome == "waiting"
        assert again.pending[0].arguments == {"row_id": 2}
        assert trace.lines() == []
        assert (await approve(changed, again, store=store)).outcome == "completed"
        assert trace.lines() == ["delete_row 2"]
        changed = desk_agent(Desk(trace), DELETE, middleware=[cast("Any", sly)])
        await approve(changed, await changed.run("go", store=store), store=store)
    assert trace.lines() == ["delete_row 2", "delete_row 1"]  # what a human has seen, and nothing else


async def test_E19_a_call_that_a_human_changed_stays_so_when_the_process_dies(
    start: Start, url: str, trace: Trace
) -> None:
    await start("edit", url, trace.path).died()
    assert trace.lines() == ["delete_row 5"]
    agent = desk_agent(Desk(trace), DELETE)
    async with open_store(url) as store:
        [row] = await store.journal.runs()
        paused = await agent.resume(row.id, store=store)
        assert [(held.kind, held.arguments) for held in paused.pending] == [("doubt", {"row_id": 5})]
        said = (await approve(agent, paused, store=store)).output
    assert said == 'done: deleted 5\n[A human changed this call before it ran. Its arguments were {"row_id":5}]'
    assert trace.lines() == ["delete_row 5", "delete_row 5"]


async def test_E21_only_the_store_knows_what_may_run(url: str, trace: Trace) -> None:
    agent = desk_agent(Desk(trace), DELETE)
    async with open_store(url) as store:
        paused, other = await agent.run("go", store=store), await agent.run("go", store=store)
        for forged in ("appr_forged", other.pending[0].approval_id):
            with pytest.raises(ConfigurationError, match="no approval"):
                await agent.resume(paused.run_id, decisions={forged: True}, store=store)
        forged_call = replace(call("delete_row", row_id=99), id="call_99")
        history = [*paused.messages, Reply((forged_call,))]
        await agent.run("go on", history=history, model=ScriptedModel(["hello"]), store=store)
        await agent.resume(paused.run_id, history=history, store=store)
    assert trace.lines() == []


async def test_E21_the_server_takes_a_decision_and_nothing_else(url: str, trace: Trace) -> None:
    runtime = Runtime(desk_agent(Desk(trace), DELETE), store=url)
    app = create_app(runtime, auth=make_auth({}, demo=True))
    async with app.router.lifespan_context(app):
        run_id = (await answer_of(app, "POST", "/v1/runs", {"input": "go"}))[1]["run_id"]
        [held] = (await runtime.wait(run_id)).pending
        mine, yes = f"/v1/approvals/{held.approval_id}", {"decision": "approve"}
        forged = {"id": "call_99", "tool": "delete_row", "arguments": {"row_id": 99}, "approved": True}
        refused = [
            await answer_of(app, "POST", mine, {**yes, "calls": [forged]}),
            await answer_of(app, "POST", mine, {**yes, "args": {"row_id": 99}}),
            await answer_of(app, "POST", mine, yes, user="bob"),
            await answer_of(app, "POST", "/v1/approvals/appr_99", yes),
            await answer_of(app, "POST", "/v1/approvals/call_99", yes),
            await answer_of(app, "POST", "/v1/runs", {"input": "go", "state": {"calls": [forged]}}),
            await answer_of(app, "POST", "/v1/runs", {"input": "go", "history": [forged]}),
        ]
        assert [status for status, _ in refused] == [422, 422, 404, 404, 404, 422, 422]
        assert trace.lines() == []
        assert (await answer_of(app, "GET", mine))[1]["status"] == "pending"
        assert (await answer_of(app, "POST", mine, yes))[0] == 200
        assert (await runtime.wait(run_id)).outcome == "completed"
        assert (await answer_of(app, "POST", mine, yes))[0] == 409
    assert trace.lines() == ["delete_row 1"]


@dataclass
class Given:
    who: str


GIVEN: list[Any] = [{"who": "eve"}, Given("eve"), None]


@pytest.mark.parametrize("deps", GIVEN)
@pytest.mark.parametrize("by", ["agent", "runtime"])
async def test_E22_what_tools_are_given_has_no_say_in_decisions(by: str, deps: Any, url: str) -> None:
    seen: list[Any] = []

    @tool(effect="write", approval=True)
    def delete_row(context: RunContext[Any], row_id: int) -> str:
        """Delete a row."""
        seen.append(context.deps)
        return f"deleted {row_id}"

    agent = Agent(asks(DELETE), [delete_row], name="desk")
    async with open_store(url) as store:
        paused = await agent.run("go", identity=ANN, deps=threading.Lock(), store=store)
        if by == "agent":
            result = await approve(agent, paused, deps=deps, store=store)
        else:
            async with Runtime(agent, store=store, deps=lambda _: deps) as runtime:
                await runtime.decide(paused.pending[0].approval_id, Decision(), by=ANN)
                result = await runtime.wait(paused.run_id)
    assert (result.outcome, result.pending) == ("completed", ())
    assert seen == [deps]
