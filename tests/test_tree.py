"""Runs that are driven together: who drives them, what ends with what, and what goes on again."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from glassloop import Agent, ConfigurationError, FatalToolError, LimitReached, Limits, RunContext, tool
from glassloop.core.errors import Fenced, StoreError
from glassloop.core.events import (
    ApprovalAsked,
    ApprovalDecided,
    CancelRequested,
    DriverClaimed,
    DriverRested,
    Event,
    RunFinished,
)
from glassloop.core.messages import UserMessage
from glassloop.journal.journal import MemoryJournal
from glassloop.journal.projection import RunFilter
from glassloop.journal.state import State
from glassloop.models.model import ModelRequest
from glassloop.models.scripted import ScriptedModel, call
from glassloop.runtime import Runtime
from glassloop.stores import Store, open_store
from glassloop.teams import Flow, agent_tool, delegate, parallel, sequence
from glassloop.teams.flow import Place


def is_new(request: ModelRequest) -> bool:
    return isinstance(request.messages[-1], UserMessage)


def said(request: ModelRequest) -> str:
    return str(getattr(request.messages[-1], "content", ""))


def caller(name: str, *tools: Any, **arguments: Any) -> Agent:
    """An agent that calls its first tool, and then says what came of it."""

    def answer(request: ModelRequest) -> Any:
        return call(getattr(tools[0], "name", ""), **arguments) if is_new(request) else said(request)

    return Agent(ScriptedModel(answer), tools, name=name)


def speaker(name: str) -> Agent:
    return Agent(ScriptedModel(lambda _: f"{name} is done"), name=name)


async def statuses(store: Store) -> dict[str, str]:
    """Of every agent's run, by name."""
    return {row.agent: row.status for row in await store.journal.runs(RunFilter(limit=100))}


async def until_waiting(agent: str, store: Store) -> None:
    """Return once the agent's run waits for a human."""
    for _ in range(5_000):
        if (await statuses(store)).get(agent) == "waiting":
            return
        await asyncio.sleep(0.001)
    raise AssertionError(f"{agent} does not wait")


# Two drivers


@pytest.fixture
async def two(tmp_path: Path) -> AsyncIterator[list[Store]]:
    """Two stores on one file, as two drivers have them."""
    stores = [open_store(f"sqlite:///{tmp_path / 'runs.db'}") for _ in range(2)]
    yield stores
    for store in stores:
        await store.close()


async def test_a_driver_whose_tree_is_taken_over_stops_and_what_it_had_begun_is_asked_about(two: list[Store]) -> None:
    began, go = asyncio.Event(), asyncio.Event()
    effects: list[str] = []

    @tool(effect="write")
    async def pay(bill: str) -> str:
        began.set()
        await go.wait()
        effects.append(bill)
        return f"paid {bill}"

    def tree() -> Agent:
        return caller(
            "top", agent_tool(caller("middle", agent_tool(caller("payer", pay, bill="b1")), task="y")), task="x"
        )

    first = asyncio.create_task(tree().run("go", store=two[0]))
    await began.wait()
    [root] = await two[0].journal.runs(RunFilter(roots=True))
    second = await tree().resume(root.id, store=two[1])
    assert second.outcome == "waiting"
    [doubt] = second.pending
    assert (doubt.tool, doubt.kind) == ("pay", "doubt")
    go.set()
    with pytest.raises(Fenced):
        await first
    assert await statuses(two[0]) == dict.fromkeys(("top", "middle", "payer"), "waiting")
    result = await tree().resume(root.id, decisions={doubt.approval_id: False}, store=two[1])
    assert result.outcome == "completed"
    assert "a human decided not to run it again" in (result.output or "")
    assert effects == ["b1"]


async def test_a_driver_whose_tree_is_taken_over_ends_none_of_its_runs(two: list[Store]) -> None:
    """One that stood still for long finds its time used up when it goes on: it must not close what is another's."""
    began = asyncio.Event()

    async def slow(request: ModelRequest) -> str:
        began.set()
        await asyncio.Event().wait()
        return ""

    def tree(model: ScriptedModel) -> Flow:
        return parallel(Agent(model, name="one"), caller("held", ask_first), name="both")

    @tool(approval=True)
    def ask_first() -> str:
        return "yes"

    first = asyncio.create_task(tree(ScriptedModel(slow)).run("go", store=two[0]))
    await began.wait()
    await until_waiting("held", two[0])
    [root] = await two[0].journal.runs(RunFilter(roots=True))
    claim = Event(root.id, 0, 0, 0, DriverClaimed(2, root.owner or ""))
    await two[1].journal.append(root.id, [claim], after=None, epoch=2)
    first.cancel()
    with pytest.raises(Fenced):
        await first
    assert await statuses(two[1]) == {"both": "running", "one": "running", "held": "waiting"}
    began.clear()
    other = asyncio.create_task(tree(ScriptedModel(slow)).resume(root.id, store=two[1]))
    await began.wait()
    other.cancel()
    with pytest.raises(asyncio.CancelledError):
        await other
    assert await statuses(two[1]) == dict.fromkeys(("both", "one", "held"), "cancelled")


# What ends with what


class Failing(MemoryJournal):
    """A journal that fails once, when a run of an agent is answered."""

    def __init__(self, agent: str) -> None:
        super().__init__()
        self.agent: str | None = agent

    async def append(self, run_id: str, events: Sequence[Event], **options: Any) -> int:
        """See `Journal.append`."""
        known = [*await self.read(run_id), *events]
        if getattr(known[0].data, "agent", "") == self.agent and isinstance(events[-1].data, RunFinished):
            self.agent = None
            raise StoreError("The disk is full.")
        return await super().append(run_id, events, **options)


async def test_a_store_that_fails_for_one_run_ends_none_beside_it() -> None:
    went_on, twice = asyncio.Event(), asyncio.Event()

    async def slow(_: ModelRequest) -> str:
        if not went_on.is_set():
            went_on.set()
            await asyncio.Event().wait()
        twice.set()
        return "b is done"

    store = replace(open_store("memory:"), journal=Failing("a"))
    flow = parallel(speaker("a"), Agent(ScriptedModel(slow), name="b"))
    with pytest.raises(StoreError, match="full"):
        await flow.run("go", store=store)
    [root] = await store.journal.runs(RunFilter(roots=True))
    assert (await statuses(store))["b"] == "running"
    assert (await flow.resume(root.id, store=store)).output == '{"a":"a is done","b":"b is done"}'
    assert twice.is_set()


@tool(approval=True)
def ask_first() -> str:
    """Needs a human."""
    return "yes"


async def test_a_root_that_is_cancelled_ends_what_waits_below_it() -> None:
    async with Runtime(caller("top", agent_tool(caller("held", ask_first)), task="x"), store="memory:") as runtime:
        result = await runtime.run("top", "go")
        [pending] = result.pending
        await runtime.cancel(result.run_id)
        assert (await runtime.wait(result.run_id)).outcome == "cancelled"
        assert await statuses(runtime.store) == {"top": "cancelled", "held": "cancelled"}
        assert await runtime.approvals() == []
        [row] = await runtime.approvals(status="withdrawn")
        assert row.approval_id == pending.approval_id


async def test_a_run_in_the_middle_that_ends_ends_what_waits_below_it() -> None:
    @tool
    async def stop(context: RunContext) -> str:
        await until_waiting("held", context.store)
        raise FatalToolError("enough")

    both = [call("held", task="x"), call("stop")]
    middle = Agent(ScriptedModel([both]), [agent_tool(caller("held", ask_first)), stop], name="middle")
    store = open_store("memory:")
    result = await caller("top", agent_tool(middle), task="x").run("go", store=store)
    assert result.outcome == "completed"
    assert "enough" in (result.output or "")
    assert await statuses(store) == {"top": "completed", "middle": "failed", "held": "cancelled"}
    assert result.pending == ()


async def test_an_end_below_stands_in_the_journal_before_the_end_of_the_root() -> None:
    """A crash between the two leaves a root that goes on, and no run that nobody looks after."""
    order: list[str] = []

    class Ordered(MemoryJournal):
        async def append(self, run_id: str, events: Sequence[Event], **options: Any) -> int:
            order.extend(run_id for event in events if isinstance(event.data, RunFinished))
            return await super().append(run_id, events, **options)

    store = replace(open_store("memory:"), journal=Ordered())
    flow = sequence(caller("top", agent_tool(caller("held", ask_first)), task="x"))
    result = await flow.run("go", store=store)
    cancel = Event(result.run_id, 0, 0, 0, CancelRequested())
    await store.journal.append(result.run_id, [cancel], after=None, epoch=None)
    assert (await flow.resume(result.run_id, store=store)).outcome == "cancelled"
    assert order == sorted(order, reverse=True)
    assert len(order) == 3


# What goes on again


async def test_a_limited_tree_goes_on_in_a_runtime() -> None:
    told: list[str] = []

    def part(name: str) -> Agent:
        return Agent(ScriptedModel(lambda _: told.append(name) or name), name=name)

    def nested(name: str) -> Flow:
        return sequence(part(f"{name}1"), part(f"{name}2"), name=name)

    flow = sequence(nested("a"), caller("agent", agent_tool(nested("b")), task="x"), part("c"), name="all")
    async with Runtime(flow, store="memory:") as runtime:
        result = await runtime.run("all", "x", limits=Limits(steps=4, on_limit="return"))
        assert (result.outcome, result.limit, told) == ("limited", "steps", ["a1", "a2", "b1"])
        await runtime.resume(result.run_id, limits=Limits(steps=20))
        result = await runtime.wait(result.run_id)
        assert (result.outcome, result.output) == ("completed", "c")
        assert told[:3] == ["a1", "a2", "b1"]
        assert told.count("a1") == told.count("b1") == 1


async def test_a_cancelled_tree_goes_on_with_what_was_ended_with_it() -> None:
    began = asyncio.Event()
    answers: list[Callable[[], Any]] = []

    async def slow(_: ModelRequest) -> str:
        began.set()
        return await answers.pop(0)() if answers else "b"

    answers.append(asyncio.Event().wait)
    flow = sequence(speaker("a"), Agent(ScriptedModel(slow), name="b"), speaker("c"))
    store = open_store("memory:")
    task = asyncio.create_task(flow.run("go", store=store))
    await began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await statuses(store) == {"sequence": "cancelled", "a": "completed", "b": "cancelled"}
    [root] = await store.journal.runs(RunFilter(roots=True))
    assert (await flow.resume(root.id, store=store)).output == "c is done"
    assert await statuses(store) == dict.fromkeys(("sequence", "a", "b", "c"), "completed")


class Hasty(MemoryJournal):
    """A journal to which a human's decision, or a cancellation, comes just before the run lets go."""

    def __init__(self, *, cancels: bool) -> None:
        super().__init__()
        self.cancels = cancels

    async def append(self, run_id: str, events: Sequence[Event], **options: Any) -> int:
        """See `Journal.append`."""
        if events and events[-1].data == DriverRested(waiting=True):
            asked = [e.data for e in [*await self.read(run_id), *events] if isinstance(e.data, ApprovalAsked)]
            known = {e.data.approval_id for e in await self.read(run_id) if isinstance(e.data, ApprovalDecided)}
            news = [ApprovalDecided(one.approval_id, "approve") for one in asked if one.approval_id not in known]
            if news:
                data = CancelRequested() if self.cancels else news[0]
                await super().append(run_id, [Event(run_id, 0, 0, 0, data)], after=None, epoch=None)
        return await super().append(run_id, events, **options)


@pytest.mark.parametrize(("cancels", "outcome"), [(False, "completed"), (True, "cancelled")])
async def test_what_comes_when_a_run_lets_go_is_not_left_for_later(cancels: bool, outcome: str) -> None:
    store = replace(open_store("memory:"), journal=Hasty(cancels=cancels))
    result = await caller("held", ask_first).run("go", store=store)
    assert result.outcome == outcome
    assert [event for event in await store.journal.read(result.run_id) if isinstance(event.data, DriverRested)] == []


# Runs below


async def test_a_tool_gives_tasks_to_several_agents_each_once() -> None:
    calls: list[str] = []

    def agent(name: str) -> Agent:
        def answer(request: ModelRequest) -> str:
            calls.append(name)
            return f"{name} is asked {getattr(request.messages[0], 'text', '')}"

        return Agent(ScriptedModel(answer), name=name)

    one, two = agent("one"), agent("two")

    @tool
    async def research(context: RunContext, topic: str) -> list[str]:
        """Ask both."""
        await delegate(context, one, topic)
        with pytest.raises(ConfigurationError, match="give two a key"):
            await delegate(context, two, topic)
        return [await delegate(context, who, topic, key=who.name) for who in (one, two, one)]

    result = await caller("top", research, topic="tea").run("go")
    assert result.tool_executions[0].value == ["one is asked tea", "two is asked tea", "one is asked tea"]
    assert calls == ["one", "one", "two"]


async def test_the_same_task_side_by_side_is_refused_in_words() -> None:
    errors: list[str] = []

    @tool
    async def both(context: RunContext) -> str:
        """Ask twice at once."""
        found = await asyncio.gather(*(delegate(context, slow, "x") for _ in range(2)), return_exceptions=True)
        errors.extend(str(each) for each in found if isinstance(each, ConfigurationError))
        return str(found[0])

    async def pause(_: ModelRequest) -> str:
        await asyncio.sleep(0)
        return "done"

    slow = Agent(ScriptedModel(pause), name="slow")
    assert (await caller("top", both).run("go")).output == "done"
    assert len(errors) == 1
    assert errors[0].startswith("slow does this already")


async def test_a_run_below_that_has_ended_is_not_held_in_memory() -> None:
    def in_memory() -> int:
        gc.collect()
        return sum(isinstance(each, State) and "." in each.run_id for each in gc.get_objects())

    before = in_memory()  # the traceback of a test that failed, for one, holds what that test had
    held: list[int] = []

    def answer(request: ModelRequest) -> Any:
        held.append(in_memory())
        return call("below", task=str(len(held))) if len(held) < 6 else "done"

    below = speaker("below")
    await Agent(ScriptedModel(answer), [agent_tool(below)], name="top", limits=Limits(repetition=None)).run("go")
    assert max(held) <= before


async def test_a_run_below_goes_on_with_its_root_alone() -> None:
    held, store = caller("held", ask_first), open_store("memory:")
    result = await caller("top", agent_tool(held), task="x").run("go", store=store)
    [pending] = result.pending
    with pytest.raises(ConfigurationError, match=f"is a part of run {result.run_id}: go on with that one"):
        await held.resume(pending.run_id, decisions={pending.approval_id: True}, store=store)
    with pytest.raises(ConfigurationError, match=f"cannot go on: it is part of {result.run_id}"):
        await Runtime(held, store=store).resume(pending.run_id)


async def test_a_limit_reached_below_says_whose_it_is() -> None:
    top = caller("top", agent_tool(caller("below", agent_tool(speaker("leaf")), task="y")), task="x")
    with pytest.raises(LimitReached) as reached:
        await top.run("go", limits=Limits(steps=2))
    assert reached.value.result is not None
    assert reached.value.result.spent.steps == 2


async def test_what_runs_below_came_to_before_a_crash_is_known_whole(two: list[Store]) -> None:
    """A value that is too long for the model stands apart from the events; it is read from there."""

    @tool
    def rows() -> list[str]:
        return ["a row of a long table"] * 5_000

    seen: list[Any] = []

    async def node(place: Place, given: str) -> str:
        result = await place.driving.run("reader", caller("reader", rows), given)
        seen.append(result.tool_executions[0].value)
        return await place.at("held").run(caller("held", ask_first), given, "held")

    flow = Flow(node, name="both")
    waits = await flow.run("go", store=two[0])
    decisions = {waits.pending[0].approval_id: True}
    assert (await flow.resume(waits.run_id, decisions=decisions, store=two[1])).outcome == "completed"
    assert seen == [rows.function(), rows.function()]
    async with Runtime(flow, store=two[1]) as runtime:
        told = await runtime.tree(waits.run_id)
    assert [each.tool_executions[0].value for each in told if each.agent == "reader"] == [rows.function()]
