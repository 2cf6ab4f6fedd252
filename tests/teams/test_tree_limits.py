"""One purse for a whole tree: over random trees, whatever runs side by side, and whatever the model makes of it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from glassloop import Agent, Limits, ModelSettings
from glassloop.core.errors import RunError
from glassloop.core.ids import root_of
from glassloop.core.messages import Part, Reply, Text
from glassloop.core.result import RunResult
from glassloop.core.usage import Usage
from glassloop.journal.projection import RunFilter
from glassloop.models.model import ModelRequest
from glassloop.models.scripted import ScriptedModel, call
from glassloop.runnable import Runnable
from glassloop.stores import Store, open_store
from trees import Plan, grown, plans, step_of

PRICE = (2.0, 8.0)
"""USD per million tokens, in and out."""

TREES = plans().map(lambda plan: plan.named())
UNBOUND = Limits(steps=None, total_tokens=None, cost_usd=None, repetition=None, output_tokens=600)


@dataclass
class Meter:
    """A model's side of the bill: what was answered, and what is being answered.

    Args:
        honest: whether replies stay within `max_tokens`.
        tokens: answered so far, in and out.
        cost: of them, in USD.
        calls: that have begun.
        in_flight: tokens and USD that the calls being answered may take.
        worst: the most tokens, and USD, that were answered or could be by calls under way, at the start of any call.
        late: tokens and USD that had been answered when the last call began.
    """

    honest: bool = True
    tokens: int = 0
    cost: float = 0.0
    calls: int = 0
    in_flight: dict[int, tuple[int, float]] = field(default_factory=dict[int, tuple[int, float]])
    worst: tuple[int, float] = (0, 0.0)
    late: tuple[int, float] = (0, 0.0)

    def agent(self, plan: Plan, tools: Sequence[Any]) -> Agent:
        """An agent that gives work away as planned, and whose own limits are no concern."""

        async def answer(request: ModelRequest) -> Reply:
            return await self.answer(plan, request)

        limits = replace(UNBOUND, on_limit=plan.on_limit)
        return Agent(ScriptedModel(answer), tools, name=plan.name, limits=limits, settings=ModelSettings(price=PRICE))

    async def answer(self, plan: Plan, request: ModelRequest) -> Reply:
        """Say what the plan says, with as many tokens as it likes."""
        said, most = read(request), request.settings.max_tokens or 0
        number, self.calls = self.calls, self.calls + 1
        self.late = self.tokens, self.cost
        self.in_flight[number] = said + most, cost_of(said, most)
        taken = [(self.tokens, self.cost), *self.in_flight.values()]
        whole = sum(tokens for tokens, _ in taken), sum(cost for _, cost in taken)
        self.worst = max(self.worst[0], whole[0]), max(self.worst[1], whole[1])
        for _ in range(plan.size % 7):
            await asyncio.sleep(0)
        parts = self.parts(plan, request)
        least = sum(map(size, parts))
        if self.honest and least > most:
            parts, least = (Text("ok"),), 1
        wanted = max(least, plan.size)
        output = min(wanted, most) if self.honest else wanted
        del self.in_flight[number]
        self.tokens += said + output
        self.cost += cost_of(said, output)
        return Reply(tuple(parts), usage=Usage(said, output, requests=1))

    def parts(self, plan: Plan, request: ModelRequest) -> Sequence[Part]:
        """Calls of those below, one step after the other, and then a word."""
        step = step_of(request)
        if step < len(plan.steps) and request.tools:
            return [call(part.name, task=f"do {part.name}") for part in plan.steps[step]]
        return [Text("ok")]


def read(request: ModelRequest) -> int:
    """Tokens of a request: four bytes each."""
    texts = [getattr(message, "content", None) or getattr(message, "text", "") for message in request.messages]
    return (len(request.instructions) + sum(map(len, texts))) // 4


def size(part: Part) -> int:
    """Tokens of a part of a reply."""
    return 1 + (len(getattr(part, "text", "")) + len(getattr(part, "name", "") + getattr(part, "arguments", ""))) // 3


def cost_of(read: int, written: int) -> float:
    """USD."""
    return (read * PRICE[0] + written * PRICE[1]) / 1e6


async def play(runs: Runnable, store: Store, limits: Limits) -> RunResult:
    """Run to rest, whatever the outcome."""
    try:
        return await runs.run("go", store=store, limits=limits)
    except RunError as error:
        if error.result is None:
            raise
        return error.result


async def recorded(store: Store) -> int:
    """Tokens of all runs of a store, as their journals have it."""
    return sum(row.tokens for row in await store.journal.runs(RunFilter(limit=1_000)))


async def ends(store: Store) -> bool:
    """Whether all runs have ended, and belong to one root."""
    rows = await store.journal.runs(RunFilter(limit=1_000))
    return all(row.finished for row in rows) and len({root_of(row.id) for row in rows}) == 1


@settings(max_examples=60, deadline=None)
@given(TREES, st.integers(30, 6_000))
def test_a_tree_never_spends_more_tokens_than_its_root_may(plan: Plan, most: int) -> None:
    async def check() -> None:
        meter, store = Meter(), open_store("memory:")
        limits = replace(UNBOUND, total_tokens=most, on_limit=plan.on_limit)
        result = await play(grown(plan, meter.agent), store, limits)
        assert meter.worst[0] <= most
        assert meter.tokens == result.spent.tokens == await recorded(store) <= most
        assert await ends(store)

    asyncio.run(check())


@settings(max_examples=40, deadline=None)
@given(TREES, st.integers(100, 20_000))
def test_a_tree_never_spends_more_money_than_its_root_may(plan: Plan, millionths: int) -> None:
    async def check() -> None:
        meter, store, most = Meter(), open_store("memory:"), millionths / 1e6
        limits = replace(UNBOUND, cost_usd=most, on_limit=plan.on_limit)
        result = await play(grown(plan, meter.agent), store, limits)
        assert meter.worst[1] <= most + 1e-9
        assert abs(meter.cost - (result.spent.cost_usd or 0.0)) < 1e-9
        assert await ends(store)

    asyncio.run(check())


@settings(max_examples=40, deadline=None)
@given(TREES, st.integers(1, 10))
def test_a_tree_never_asks_a_model_more_often_than_its_root_may(plan: Plan, steps: int) -> None:
    async def check() -> None:
        meter, store = Meter(), open_store("memory:")
        limits = replace(UNBOUND, steps=steps, on_limit=plan.on_limit)
        result = await play(grown(plan, meter.agent), store, limits)
        answers_once_more = plan.kind == "agent" and plan.on_limit == "answer"
        assert meter.calls == result.spent.steps <= steps + answers_once_more
        assert await ends(store)

    asyncio.run(check())


@settings(max_examples=60, deadline=None)
@given(TREES, st.integers(30, 3_000))
def test_a_model_that_takes_more_than_it_may_stops_the_tree(plan: Plan, most: int) -> None:
    """Its calls under way end, one a branch at most, and what they took is recorded; no other begins."""

    async def check() -> None:
        meter, store = Meter(honest=False), open_store("memory:")
        limits = replace(UNBOUND, total_tokens=most, on_limit=plan.on_limit, output_tokens=64)
        result = await play(grown(plan, meter.agent), store, limits)
        assert meter.late[0] < most, "a call began when everything was spent"
        assert meter.tokens == result.spent.tokens == await recorded(store)
        assert await ends(store)

    asyncio.run(check())
