"""A tree of runs that is cut off at any event goes on to the same end, and does nothing twice."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from glassloop import Agent, Limits, RunContext, tool
from glassloop.core.events import Event
from glassloop.core.result import RunResult
from glassloop.journal.journal import MemoryJournal
from glassloop.journal.projection import RunFilter
from glassloop.models.model import ModelRequest
from glassloop.models.scripted import ScriptedModel, call
from glassloop.stores import Store, open_store
from trees import Plan, grown, plans, step_of

UNBOUND = Limits(steps=None, total_tokens=None, repetition=None)


@dataclass
class Recording:
    """What a store was given, in the order of all runs together, and what the world saw after how many events.

    Args:
        appended: each event with its run.
        effects: with the key of each, and how many events there were before.
    """

    appended: list[tuple[str, Event]] = field(default_factory=list[tuple[str, Event]])
    effects: list[tuple[int, str, str]] = field(default_factory=list[tuple[int, str, str]])

    @property
    def done(self) -> Counter[str]:
        """How often each effect has happened."""
        return Counter(what for _, _, what in self.effects)


class RecordedJournal(MemoryJournal):
    """A journal in memory that remembers the order of everything."""

    def __init__(self, recording: Recording) -> None:
        super().__init__()
        self.recording = recording

    async def append(self, run_id: str, events: Sequence[Event], **options: Any) -> int:
        """See `Journal.append`."""
        last = await super().append(run_id, events, **options)
        self.recording.appended += [(run_id, event) for event in events]
        return last


def agent_in(recording: Recording) -> Any:
    """Makes the agents of a tree: each gives its work away beside a write of its own, in every step."""

    def agent(plan: Plan, tools: Sequence[Any]) -> Agent:
        def done(key: str) -> str | None:
            return next((f"did {what}" for _, known, what in recording.effects if known == key), None)

        @tool(effect="write", reconcile=done, repeatable=True)
        async def act(context: RunContext, what: str) -> str:
            recording.effects.append((len(recording.appended), context.idempotency_key, what))
            await asyncio.sleep(0)
            return f"did {what}"

        async def answer(request: ModelRequest) -> Any:
            for _ in range(plan.size % 5):
                await asyncio.sleep(0)
            step = step_of(request)
            below = plan.steps[step] if step < len(plan.steps) else ()
            if not below and step:
                return f"{plan.name} is done after {len(request.messages)} messages"
            calls = [call(part.name, task=f"do {part.name}") for part in below]
            return [call("act", what=f"{plan.name} {step}"), *calls]

        return Agent(ScriptedModel(answer), [act, *tools], name=plan.name, limits=UNBOUND)

    return agent


def recorded_store(recording: Recording) -> Store:
    """A store in memory that records."""
    return replace(open_store("memory:"), journal=RecordedJournal(recording), driving=set[tuple[int, str]]())


async def at(recording: Recording, events: int) -> tuple[Recording, Store]:
    """The world and its store as a crash after so many events has left them."""
    cut = Recording(effects=[effect for effect in recording.effects if effect[0] <= events])
    store = recorded_store(cut)
    for run_id, event in recording.appended[:events]:
        await store.journal.append(run_id, [event], after=None, epoch=None)
    return cut, store


async def outputs(store: Store) -> Counter[tuple[str, str]]:
    """Agent and end of every run."""
    return Counter((row.agent, row.status) for row in await store.journal.runs(RunFilter(limit=1_000)))


@settings(max_examples=25, deadline=None)
@given(plans().map(lambda plan: plan.named()), st.data())
def test_a_tree_cut_off_anywhere_comes_to_the_same(plan: Plan, data: st.DataObject) -> None:
    async def check() -> None:
        whole = Recording()
        store = recorded_store(whole)
        result: RunResult = await grown(plan, agent_in(whole)).run("go", store=store, limits=UNBOUND)
        assert result.outcome == "completed"
        cuts = st.lists(st.integers(1, len(whole.appended)), min_size=1, max_size=8, unique=True)
        for events in data.draw(cuts, label="events before the crash"):
            cut, crashed = await at(whole, events)
            again = await grown(plan, agent_in(cut)).resume(result.run_id, store=crashed)
            assert (again.outcome, again.output) == ("completed", result.output)
            assert cut.done == whole.done
            assert set(cut.done.values()) == {1}
            assert await outputs(crashed) == await outputs(store)
            assert again.spent.steps >= result.spent.steps

    asyncio.run(check())
