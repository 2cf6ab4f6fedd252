"""Agents through their public face: runs, results, streams, sessions, approvals, cancellation."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from glassloop import (
    Agent,
    ConfigurationError,
    FatalToolError,
    Identity,
    LimitReached,
    Limits,
    ModelError,
    RunContext,
    RunResult,
    ToolDefinitionError,
    ToolError,
    tool,
)
from glassloop.core.events import Event
from glassloop.core.messages import Reply, Text, ToolResult, UserMessage
from glassloop.core.result import Decision, PendingApproval
from glassloop.memory.session import SessionBusy
from glassloop.middleware.error import Errors
from glassloop.middleware.reasons import Reasons
from glassloop.models.scripted import SchemaModel, ScriptedModel, call
from glassloop.stores import open_store
from glassloop.tools.toolset import DynamicToolset


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def result_of(error: BaseException) -> RunResult:
    """What a cancelled run carries."""
    result: RunResult | None = getattr(error, "result", None)
    assert result is not None
    return result


async def test_a_run_calls_tools_and_answers() -> None:
    with ScriptedModel([call("add", a=2, b=3), "5"]) as model:
        result = await Agent(model, [add], instructions="Be brief.").run("2+3?")
    assert (result.outcome, result.output, result.steps) == ("completed", "5", 2)
    assert [(e.step, e.tool, e.arguments, e.value) for e in result.tool_executions] == [(1, "add", {"a": 2, "b": 3}, 5)]
    assert model.requests[1].instructions == "Be brief."
    assert all(request.tools for request in model.requests)


async def test_calls_of_one_step_run_side_by_side_and_their_results_keep_the_order() -> None:
    started: list[str] = []
    both = asyncio.Event()

    async def wait(name: str) -> str:
        started.append(name)
        if len(started) == 2:
            both.set()
        await both.wait()
        await asyncio.sleep(0.02 if name == "first" else 0)
        return name

    with ScriptedModel([[call("wait", name="first"), call("wait", name="second")], "done"]) as model:
        result = await Agent(model, [wait]).run("go")
    contents = [m.content for m in result.messages if isinstance(m, ToolResult)]
    assert contents == ["first", "second"]
    assert [e.value for e in result.tool_executions] == ["first", "second"]


async def test_a_sequential_tool_is_a_barrier() -> None:
    log: list[str] = []

    async def read(name: str) -> str:
        log.append(f"+{name}")
        await asyncio.sleep(0.01)
        log.append(f"-{name}")
        return name

    @tool(sequential=True)
    async def alone() -> str:
        log.append("+alone")
        await asyncio.sleep(0.01)
        log.append("-alone")
        return "alone"

    calls = [call("read", name="a"), call("read", name="b"), call("alone"), call("read", name="c")]
    with ScriptedModel([calls, "done"]) as model:
        await Agent(model, [read, alone]).run("go")
    assert sorted(log[:4]) == ["+a", "+b", "-a", "-b"]
    assert log[4:] == ["+alone", "-alone", "+c", "-c"]


async def test_a_failing_call_does_not_hurt_its_siblings() -> None:
    def boom() -> str:
        raise RuntimeError("connect postgres://svc:S3CRET@10.0.0.5/x failed")

    with ScriptedModel([[call("boom"), call("add", a=1, b=1)], "done"]) as model:
        result = await Agent(model, [boom, add]).run("go")
    failed, fine = result.tool_executions
    assert (failed.status, fine.value) == ("error", 2)
    assert "RuntimeError" in failed.content
    assert "S3CRET" not in str(result)


async def test_the_operator_finds_the_whole_error_by_its_reference() -> None:
    def boom() -> str:
        raise RuntimeError("the disk is on fire")

    store = open_store("memory:")
    with ScriptedModel([call("boom"), "done"]) as model:
        result = await Agent(model, [boom]).run("go", store=store)
    events = await store.journal.read(result.run_id)
    private = next(e.private for e in events if e.private)
    assert private["reference"] in result.tool_executions[0].content
    assert "the disk is on fire" in private["traceback"]
    assert "the disk is on fire" not in str([event.as_dict() for event in events])


async def test_a_tool_error_reaches_the_model_as_written() -> None:
    def lookup(city: str) -> str:
        raise ToolError(f"{city} is not covered; try Oslo.")

    with ScriptedModel([call("lookup", city="Bern"), "sorry"]) as model:
        result = await Agent(model, [lookup]).run("go")
    assert result.tool_executions[0].content == "Bern is not covered; try Oslo."


async def test_a_handler_may_rewrite_errors_or_stop_the_run() -> None:
    def boom() -> str:
        raise KeyError("x")

    def rewrite(error: Exception, _: object) -> str | None:
        return "The index is being rebuilt." if isinstance(error, KeyError) else None

    with ScriptedModel([call("boom"), "ok"]) as model:
        result = await Agent(model, [boom], middleware=[Errors(rewrite)]).run("go")
    assert result.tool_executions[0].content == "The index is being rebuilt."

    def stop(error: Exception, _: object) -> str | None:
        raise FatalToolError("no index") from error

    with ScriptedModel([call("boom")]) as model, pytest.raises(FatalToolError, match="no index"):
        await Agent(model, [boom], middleware=[Errors(stop)]).run("go")


async def test_a_fatal_tool_error_stops_the_run_and_keeps_what_was_done() -> None:
    def fatal() -> str:
        raise FatalToolError("the account is frozen")

    model = ScriptedModel([call("add", a=1, b=2), call("fatal")])
    with pytest.raises(FatalToolError, match="frozen") as caught:
        await Agent(model, [add, fatal]).run("go")
    result = caught.value.result
    assert result is not None
    assert result.outcome == "failed"
    assert [e.tool for e in result.tool_executions] == ["add", "fatal"]


async def test_the_context_comes_from_the_caller_and_never_from_the_model() -> None:
    seen: list[Any] = []

    @dataclass
    class Deps:
        name: str

    def whoami(context: RunContext[Deps], note: str = "") -> str:
        seen.append((context.user, context.tenant, context.session, context.deps.name, context.step))
        return "ok"

    identity = Identity("ann", "acme", ("staff",), "s1")
    with ScriptedModel([call("whoami", note="x"), "done"]) as model:
        await Agent(model, [whoami]).run("go", identity=identity, deps=Deps("db"))
    assert seen == [("ann", "acme", "s1", "db", 1)]
    assert list(model.requests[0].tools[0].parameters["properties"]) == ["note"]

    with ScriptedModel([call("whoami", context={"user": "root"}), "done"]) as forger:
        result = await Agent(forger, [whoami]).run("go", identity=identity, deps=Deps("db"))
    assert result.tool_executions[0].status == "error"
    assert len(seen) == 1


async def test_sync_tools_see_context_variables_and_do_not_run_on_the_loop() -> None:
    who: contextvars.ContextVar[str] = contextvars.ContextVar("who")
    who.set("ann")
    seen: list[tuple[str, bool]] = []

    def look() -> str:
        seen.append((who.get(), threading.current_thread() is threading.main_thread()))
        return "ok"

    with ScriptedModel([call("look"), "done"]) as model:
        await Agent(model, [look]).run("go")
    assert seen == [("ann", False)]


async def test_tools_depend_on_who_asks_and_others_are_refused() -> None:
    def secret() -> str:
        """For staff."""
        return "secret"

    def tools_of(context: RunContext[Any]) -> list[Any]:
        return [add, secret] if context.tenant == "acme" else [add]

    agent = Agent(None, [DynamicToolset(tools_of)])
    with ScriptedModel([call("secret"), "no"]) as model:
        result = await agent.run("go", model=model, identity=Identity(tenant="other"))
    assert [spec.name for spec in model.requests[0].tools] == ["add"]
    assert result.tool_executions[0].status == "error"
    assert "secret" not in result.tool_executions[0].content.replace("'secret'", "")
    with ScriptedModel([call("secret"), "yes"]) as model:
        result = await agent.run("go", model=model, identity=Identity(tenant="acme"))
    assert result.tool_executions[0].value == "secret"


async def test_stated_reasons_are_recorded_and_never_reach_the_function() -> None:
    with ScriptedModel([call("add", a=1, b=2, reason="to know", confidence=0.9), "3"]) as model:
        result = await Agent(model, [add], middleware=[Reasons()]).run("go")
    done = result.tool_executions[0]
    assert (done.value, done.reason, done.confidence) == (3, "to know", 0.9)
    assert done.arguments == {"a": 1, "b": 2}
    assert {"reason", "confidence"} <= set(model.requests[0].tools[0].parameters["properties"])


async def test_progress_reaches_those_who_watch() -> None:
    def steps(n: int) -> Iterator[str]:
        for number in range(n):
            yield f"part {number}"

    model = ScriptedModel([call("steps", n=2), "done"])
    async with Agent(model, [steps]).stream("go") as stream:
        events = [event async for event in stream]
    progress = [event.as_dict()["data"]["value"] for event in events if event.type == "tool_progress"]
    assert progress == ["part 0", "part 1"]


async def test_a_stream_ends_with_run_finished_and_its_result() -> None:
    model = ScriptedModel([call("add", a=2, b=3), "It is 5."])
    types: list[str] = []
    texts: list[str] = []
    async with Agent(model, [add]).stream("2+3?") as stream:
        async for event in stream:
            types.append(event.type)
            if event.type == "text_delta":
                texts.append(event.as_dict()["data"]["text"])
    assert "".join(texts) == "It is 5."
    assert types[-1] == "run_finished"
    assert types.count("tool_started") == types.count("tool_finished") == 1
    assert stream.result.output == "It is 5."


async def test_a_stream_raises_what_the_run_would_raise() -> None:
    model = ScriptedModel([ModelError("401: wrong key", kind="auth", status=401)])
    events: list[Event] = []

    async def read() -> None:
        async for event in Agent(model).stream("hi"):
            events.append(event)  # noqa: PERF401 - what came before the error counts

    with pytest.raises(ModelError, match="wrong key"):
        await read()
    assert events[-1].type == "run_finished"


async def test_leaving_a_stream_early_cancels_the_run() -> None:
    cancelled = asyncio.Event()

    async def forever() -> str:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return "never"

    store = open_store("memory:")
    model = ScriptedModel([call("forever")])
    async with Agent(model, [forever]).stream("go", store=store) as stream:
        async for event in stream:
            if event.type == "tool_started":
                break
    assert cancelled.is_set()
    (row,) = await store.journal.runs()
    assert row.status == "cancelled"


async def test_a_cancelled_run_carries_its_result_and_the_session_goes_on() -> None:
    began, added = asyncio.Event(), asyncio.Event()

    async def forever() -> str:
        began.set()
        await asyncio.sleep(60)
        return "never"

    async def add(a: int, b: int) -> int:
        added.set()
        return a + b

    store = open_store("memory:")
    agent = Agent(None, [forever, add])
    model = ScriptedModel([[call("add", a=1, b=2), call("forever")]])
    running = asyncio.create_task(agent.run("go", session="s", store=store, model=model))
    await asyncio.gather(began.wait(), added.wait())
    running.cancel()
    with pytest.raises(asyncio.CancelledError) as caught:
        await running
    result = result_of(caught.value)
    assert result.outcome == "cancelled"
    assert [e.status for e in result.tool_executions] == ["ok", "cancelled"]
    with ScriptedModel(["hello"]) as model:
        again = await agent.run("hi", session="s", store=store, model=model)
    assert again.output == "hello"
    assert [m.role for m in model.requests[0].messages] == ["user", "assistant", "tool", "tool", "user"]


async def test_a_write_in_flight_is_waited_for_when_the_run_is_cancelled() -> None:
    written: list[str] = []
    began = asyncio.Event()

    @tool(effect="write")
    async def save(text: str) -> str:
        began.set()
        await asyncio.sleep(0.1)
        written.append(text)
        return "saved"

    running = asyncio.create_task(Agent(ScriptedModel([call("save", text="x")]), [save]).run("go"))
    await began.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError) as caught:
        await running
    assert written == ["x"]
    assert result_of(caught.value).tool_executions[0].value == "saved"


async def test_the_seconds_limit_cancels_the_call_in_flight() -> None:
    async def forever() -> str:
        await asyncio.sleep(60)
        return "never"

    began = time.monotonic()
    with pytest.raises(LimitReached) as caught:
        await Agent(ScriptedModel([call("forever")]), [forever], limits=Limits(seconds=0.1)).run("go")
    assert caught.value.limit == "seconds"
    assert time.monotonic() - began < 5
    assert caught.value.result is not None
    assert caught.value.result.tool_executions[0].status == "cancelled"


async def test_a_limited_run_goes_on_with_new_limits() -> None:
    store = open_store("memory:")
    model = ScriptedModel([call("add", a=1, b=1), call("add", a=2, b=2), "4"])
    agent = Agent(model, [add], limits=Limits(steps=1))
    with pytest.raises(LimitReached) as caught:
        await agent.run("go", store=store)
    assert caught.value.result is not None
    assert len(caught.value.result.tool_executions) == 1
    result = await agent.resume(caught.value.result.run_id, limits=Limits(steps=5), store=store)
    assert (result.outcome, result.output, result.steps) == ("completed", "4", 3)


async def test_on_limit_return_and_answer() -> None:
    model = ScriptedModel([call("add", a=1, b=1)])
    result = await Agent(model, [add], limits=Limits(steps=1, on_limit="return")).run("go")
    assert (result.outcome, result.limit, result.output) == ("limited", "steps", None)
    with ScriptedModel([call("add", a=1, b=1), "So far: 2."]) as model:
        result = await Agent(model, [add], limits=Limits(steps=1, on_limit="answer")).run("go")
    assert (result.outcome, result.output) == ("limited", "So far: 2.")
    assert model.requests[-1].tools == ()


def high(name: str = "x") -> str:
    """Dangerous."""
    return f"did {name}"


risky = tool(high, name="risky", effect="write", risk="high")


async def test_high_risk_parks_the_run_until_a_human_decides() -> None:
    store = open_store("memory:")
    agent = Agent(ScriptedModel([call("risky", name="a"), "done"]), [risky])
    result = await agent.run("go", store=store)
    assert result.outcome == "waiting"
    (held,) = result.pending
    assert (held.tool, held.arguments, held.risk) == ("risky", {"name": "a"}, "high")
    result = await agent.resume(result.run_id, decisions={held.approval_id: True}, store=store)
    assert (result.outcome, result.tool_executions[0].value) == ("completed", "did a")


@pytest.mark.parametrize(
    ("decision", "status", "said"),
    [
        (True, "ok", "did a"),
        (False, "denied", "Denied"),
        (None, "denied", "Denied"),
        (Decision("deny", reason="not on Fridays"), "denied", "not on Fridays"),
        (Decision("edit", arguments={"name": "b"}), "ok", "did b"),
        (Decision("edit", arguments={"nome": "b"}), "error", "nome"),
    ],
)
async def test_an_approver_decides_at_once(decision: Decision | bool | None, status: str, said: str) -> None:
    async def approve(held: PendingApproval) -> Decision | bool | None:
        return decision

    with ScriptedModel([call("risky", name="a"), "done"]) as model:
        result = await Agent(model, [risky]).run("go", approve=approve)
    done = result.tool_executions[0]
    assert done.status == status
    assert said in done.content


async def test_several_approvals_of_one_step_are_decided_one_by_one() -> None:
    store = open_store("memory:")
    agent = Agent(
        ScriptedModel([[call("risky", name="a"), call("risky", name="b"), call("add", a=1, b=1)], "done"]), [risky, add]
    )
    result = await agent.run("go", store=store)
    first, second = result.pending
    result = await agent.resume(result.run_id, decisions={first.approval_id: True}, store=store)
    assert [held.approval_id for held in result.pending] == [second.approval_id]
    result = await agent.resume(result.run_id, decisions={second.approval_id: False}, store=store)
    assert [e.status for e in result.tool_executions] == ["ok", "denied", "ok"]
    with pytest.raises(ConfigurationError, match="no approval 'appr_x'"):
        await agent.resume(result.run_id, decisions={"appr_x": True}, store=store)


async def test_approval_may_depend_on_the_arguments() -> None:
    def big(arguments: dict[str, Any]) -> bool:
        return arguments["amount"] > 500

    @tool(effect="write", approval=big)
    def pay(amount: int) -> str:
        return f"paid {amount}"

    agent = Agent(ScriptedModel([[call("pay", amount=10), call("pay", amount=900)], "done"]), [pay])
    result = await agent.run("go", store=open_store("memory:"))
    assert [held.arguments for held in result.pending] == [{"amount": 900}]


async def test_the_same_write_in_a_session_runs_once() -> None:
    made: list[str] = []

    @tool(effect="write")
    def create_ticket(title: str) -> str:
        made.append(title)
        return f"T-{len(made)}"

    store = open_store("memory:")
    agent = Agent(None, [create_ticket])
    for session in ("a", "a", "b"):
        with ScriptedModel([call("create_ticket", title="broken"), "done"]) as model:
            result = await agent.run("go", session=session, store=store, model=model)
        assert result.tool_executions[0].value == ("T-2" if session == "b" else "T-1")
    assert made == ["broken", "broken"]


async def test_concurrent_identical_writes_share_one_effect() -> None:
    made: list[str] = []

    @tool(effect="write")
    async def create(title: str) -> str:
        await asyncio.sleep(0.02)
        made.append(title)
        return f"T-{len(made)}"

    with ScriptedModel([[call("create", title="x")] * 5, "done"]) as model:
        result = await Agent(model, [create]).run("go")
    assert made == ["x"]
    assert [e.value for e in result.tool_executions] == ["T-1"] * 5
    assert [e.replayed for e in result.tool_executions].count(False) == 1


async def test_a_failed_write_may_be_tried_again() -> None:
    tries: list[int] = []

    @tool(effect="write")
    def flaky() -> str:
        tries.append(1)
        if len(tries) == 1:
            raise ConnectionError("reset")
        return "ok"

    with ScriptedModel([call("flaky"), call("flaky"), "done"]) as model:
        result = await Agent(model, [flaky]).run("go")
    assert [e.status for e in result.tool_executions] == ["error", "ok"]
    assert "may have taken effect" in result.tool_executions[0].content


async def test_runs_of_a_session_follow_each_other() -> None:
    store = open_store("memory:")
    agent = Agent()
    with ScriptedModel(["Hello Ann."]) as model:
        await agent.run("I am Ann.", session="s", store=store, model=model)
    with ScriptedModel(["You are Ann."]) as model:
        await agent.run("Who am I?", session="s", store=store, model=model)
    told = [m.text for m in model.requests[0].messages if isinstance(m, UserMessage | Reply)]
    assert told == ["I am Ann.", "Hello Ann.", "Who am I?"]


async def test_two_runs_at_once_in_a_session_queue_or_are_refused() -> None:
    store = open_store("memory:")
    agent = Agent()
    began, gate = asyncio.Event(), asyncio.Event()

    async def slow(_: object) -> str:
        began.set()
        await gate.wait()
        return "first"

    first = asyncio.create_task(agent.run("1", session="s", store=store, model=ScriptedModel(slow)))
    await began.wait()
    with pytest.raises(SessionBusy):
        await agent.run("x", session="s", store=store, model=ScriptedModel(["x"]), when_busy="refuse")
    second = asyncio.create_task(agent.run("2", session="s", store=store, model=ScriptedModel(["second"])))
    gate.set()
    results = await asyncio.gather(first, second)
    assert [m.text for m in results[1].messages if isinstance(m, UserMessage | Reply)] == ["1", "first", "2", "second"]


async def test_history_given_by_hand_comes_first() -> None:
    history = [UserMessage("2+3?"), Reply((Text("5"),))]
    with ScriptedModel(["10"]) as model:
        result = await Agent(model).run("and doubled?", history=history)
    assert [m.role for m in model.requests[0].messages] == ["user", "assistant", "user"]
    assert [m.role for m in result.messages] == ["user", "assistant", "user", "assistant"]


def test_run_sync_works_without_a_loop_and_says_so_within_one() -> None:
    model = ScriptedModel(["one", "two"])
    agent = Agent(model)
    assert [agent.run_sync("hi").output, agent.run_sync("hi").output] == ["one", "two"]

    async def inside() -> None:
        agent.run_sync("hi")

    with pytest.raises(RuntimeError, match=r"await agent\.run"):
        asyncio.run(inside())


async def test_two_tools_of_one_name_are_refused_and_the_same_twice_is_harmless() -> None:
    def other(a: int) -> int:
        return a

    with pytest.raises(ToolDefinitionError, match="add"):
        Agent(None, [add, tool(other, name="add")])
    with ScriptedModel([call("add", a=1, b=1), "2"]) as model:
        result = await Agent(model, [add, add]).run("go")
    assert result.output == "2"


async def test_the_schema_model_calls_every_tool_once() -> None:
    result = await Agent(SchemaModel(), [add, high]).run("go")
    assert sorted(e.tool for e in result.tool_executions) == ["add", "high"]
    assert result.outcome == "completed"


async def test_a_run_survives_its_process_in_a_sqlite_store(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'runs.db'}"
    agent = Agent(ScriptedModel([call("risky", name="a"), "done"]), [risky])
    async with open_store(url) as store:
        result = await agent.run("go", store=store, session="s", user="ann")
    assert result.outcome == "waiting"
    held = result.pending[0]
    async with open_store(url) as store:
        again = Agent(ScriptedModel(["done"]), [risky])
        result = await again.resume(result.run_id, decisions={held.approval_id: True}, store=store)
        assert (result.outcome, result.tool_executions[0].value) == ("completed", "did a")
        told = [m.text for m in await store.sessions.load("s") if isinstance(m, UserMessage | Reply)]
        assert told == ["go", "", "done"]


async def test_resume_says_what_is_wrong() -> None:
    store = open_store("memory:")
    agent = Agent(ScriptedModel(["hi"]), name="one")
    with pytest.raises(ConfigurationError, match="no run 'run_x'"):
        await agent.resume("run_x", store=store)
    result = await agent.run("hi", store=store)
    with pytest.raises(ConfigurationError, match="belongs to the agent 'one'"):
        await Agent(ScriptedModel([]), name="two").resume(result.run_id, store=store)
    assert (await agent.resume(result.run_id, store=store)).output == "hi"
