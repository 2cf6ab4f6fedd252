"""Flows: order, state, failures, and going on after a crash without doing anything twice."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, Field

from glassloop import Agent, ConfigurationError, LimitReached, Limits, ModelError, tool
from glassloop.core.messages import UserMessage
from glassloop.core.result import Decision
from glassloop.models.model import ModelRequest
from glassloop.models.scripted import ScriptedModel, call
from glassloop.runtime import Runtime
from glassloop.stores import open_store
from glassloop.teams import Flow, Step, branch, parallel, sequence, until


def told(request: ModelRequest) -> str:
    """What the agent was told."""
    message = next(message for message in request.messages if isinstance(message, UserMessage))
    return message.text


def agent(name: str, answer: Any = None, tools: Any = (), **more: Any) -> Agent:
    """An agent that answers `name(what it was told)`, or as given."""
    return Agent(ScriptedModel(answer or (lambda request: f"{name}({told(request)})")), tools, name=name, **more)


async def test_a_sequence_gives_each_part_what_the_one_before_came_to() -> None:
    flow = sequence(agent("a"), agent("b"), agent("c"))
    result = await flow.run("x")
    assert (result.outcome, result.output, result.steps) == ("completed", "c(b(a(x)))", 0)
    assert result.spent.steps == 3


async def test_a_prompt_names_what_is_known_and_a_function_stands_between() -> None:
    flow = sequence(
        Step(agent("notes"), into="facts"),
        count,
        Step(agent("text"), prompt="Write about {input} from {facts}, {count} characters."),
    )
    assert (await flow.run("tea")).output == "text(Write about tea from notes(tea), 10 characters.)"


def count(state: dict[str, str]) -> int:
    """Code between two runs."""
    return len(state["facts"])


async def test_parts_side_by_side_come_to_a_mapping() -> None:
    flow = sequence(parallel(agent("a"), agent("b"), most=1), Step(agent("c"), prompt="{a} and {b}"))
    assert (await flow.run("x")).output == "c(a(x) and b(x))"
    assert (await parallel(agent("a"), agent("b")).run("x")).output == '{"a":"a(x)","b":"b(x)"}'


def failing(_: object) -> str:
    raise ModelError("The model's server is away.", kind="payment")


async def test_a_part_that_fails_stops_the_flow_or_is_left_out() -> None:
    broken = agent("broken", failing)
    with pytest.raises(ModelError, match=r"broken did not complete: failed\. The model's server is away"):
        await sequence(agent("a"), broken, agent("b")).run("x")
    with pytest.raises(ModelError):
        await parallel(agent("a"), broken).run("x")
    result = await parallel(agent("a"), broken, on_failure="skip").run("x")
    assert (result.output, result.message) == ('{"a":"a(x)"}', "Went on without broken.")
    with pytest.raises(ModelError):
        await parallel(broken, on_failure="skip").run("x")


def louder(request: ModelRequest) -> str:
    return told(request) + "!"


async def test_again_until_the_state_is_as_wanted_with_a_bound() -> None:
    longer = agent("longer", louder)
    assert (await until(longer, lambda state: len(state["longer"]) > 3).run("x")).output == "x!!!"
    with pytest.raises(LimitReached, match="not enough after 2 times") as reached:
        await until(longer, lambda state: False, most=2).run("x")
    assert reached.value.limit == "until"
    assert reached.value.result is not None
    assert reached.value.result.output == "x!!"


async def test_one_of_several_by_the_state() -> None:
    flow = branch(lambda state: state["input"], red=agent("a"), blue=agent("b"))
    assert (await flow.run("blue")).output == "b(blue)"
    with pytest.raises(ModelError, match=r"There is no case .green.; there are: red, blue"):
        await flow.run("green")
    flow = branch(lambda state: state["input"] == "go", yes=sequence(agent("a"), agent("b")))
    assert [(await flow.run(text)).output for text in ("go", "stay")] == ["b(a(go))", "stay"]


class Trip(BaseModel):
    """What a trip comes to."""

    route: str = ""
    days: int = Field(0, ge=1, le=30)


async def test_a_type_names_and_checks_what_the_parts_come_to() -> None:
    ask = Step(agent("asker", told), into="days")
    seen: list[Any] = []
    flow = sequence(ask, branch(lambda trip: seen.append(trip) or trip.days > 3, yes=agent("route")), state=Trip)
    assert (await flow.run("4")).output == "route(4)"
    assert seen == [Trip.model_construct(route="", days=4)]
    with pytest.raises(ModelError, match=r"days is not what Trip.days must be: .*less than or equal to 30"):
        await flow.run("40")
    with pytest.raises(ConfigurationError, match="Trip has no field 'asker'"):
        sequence(agent("asker"), state=Trip)
    with pytest.raises(ConfigurationError, match="Two parts side by side are named 'a'"):
        parallel(agent("a"), agent("a"))


@tool(effect="write", risk="high")
def book(name: str) -> str:
    """Book something."""
    return f"booked {name}"


def booker(name: str) -> Agent:
    """An agent that books, and says what came of it."""

    def answer(request: ModelRequest) -> Any:
        last = request.messages[-1]
        return call("book", name=name) if isinstance(last, UserMessage) else getattr(last, "content", "")

    return agent(name, answer, [book])


def trip_flow(calls: list[str]) -> Flow:
    def counted(request: ModelRequest) -> str:
        calls.append(told(request))
        return "route"

    return sequence(agent("route", counted), parallel(booker("hotel"), booker("train")), agent("writer"), name="trip")


async def test_a_flow_waits_where_a_part_waits_and_goes_on_from_there() -> None:
    calls: list[str] = []
    flow, store = trip_flow(calls), open_store("memory:")
    result = await flow.run("x", store=store)
    assert result.outcome == "waiting"
    assert sorted(held.arguments["name"] for held in result.pending) == ["hotel", "train"]
    first, second = (held.approval_id for held in result.pending)
    result = await flow.resume(result.run_id, decisions={first: True}, store=store)
    assert (result.outcome, [held.approval_id for held in result.pending]) == ("waiting", [second])
    result = await trip_flow(calls).resume(result.run_id, decisions={second: True}, store=store)
    assert (result.outcome, result.output) == ("completed", 'writer({"hotel":"booked hotel","train":"booked train"})')
    assert calls == ["x"]


async def test_a_runtime_drives_a_flow_and_takes_decisions_anywhere_in_it(tmp_path: Any) -> None:
    calls: list[str] = []
    url = f"sqlite:///{tmp_path / 'runs.db'}"
    async with Runtime(trip_flow(calls), store=url) as runtime:
        result = await runtime.run("trip", "x")
        assert result.outcome == "waiting"
        assert [row.id for row in await runtime.runs()][-1] == result.run_id
    async with Runtime(trip_flow(calls), store=url) as runtime:
        for row in await runtime.approvals():
            await runtime.decide(row.approval_id, Decision(), by=row_owner())
        result = await runtime.wait(result.run_id)
    assert result.outcome == "completed"
    assert calls == ["x"]


def row_owner() -> Any:
    from glassloop import Identity

    return Identity()


async def test_cancelling_a_flow_that_waits_ends_all_of_it() -> None:
    async with Runtime(trip_flow([]), store="memory:") as runtime:
        result = await runtime.run("trip", "x")
        await runtime.cancel(result.run_id)
        assert (await runtime.wait(result.run_id)).outcome == "cancelled"
        assert {row.status for row in await runtime.runs()} == {"cancelled", "completed"}


async def test_a_limited_flow_goes_on_with_new_limits_and_keeps_what_is_done() -> None:
    calls: list[str] = []
    store = open_store("memory:")

    def flow() -> Flow:
        def counted(request: ModelRequest) -> str:
            calls.append(told(request))
            return "a"

        return sequence(agent("a", counted), agent("b"), agent("c"))

    with pytest.raises(LimitReached) as reached:
        await flow().run("x", store=store, limits=Limits(steps=2))
    assert reached.value.limit == "steps"
    assert reached.value.result is not None
    result = await flow().resume(reached.value.result.run_id, store=store, limits=Limits(steps=5))
    assert (result.outcome, result.output, calls) == ("completed", "c(b(a))", ["x"])
