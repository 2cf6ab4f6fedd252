"""Random trees of runs for tests: agents with agents as tools, and flows with parallel branches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import strategies as st

from glassloop import Agent
from glassloop.core.messages import Reply, UserMessage
from glassloop.models.model import ModelRequest
from glassloop.runnable import Runnable
from glassloop.teams import agent_tool, parallel, sequence


@dataclass(frozen=True)
class Plan:
    """What a run of a tree does.

    Args:
        kind: an agent, or a flow of its one step's parts: one after another, or side by side.
        steps: of an agent: whom it gives work to in each step.
        size: how much it says.
        on_limit: of its limits.
        name: names it; given by `named`.
    """

    kind: str
    steps: tuple[tuple[Plan, ...], ...] = ()
    size: int = 1
    on_limit: Any = "return"
    name: str = ""

    def named(self, name: str = "top") -> Plan:
        """The same with names for it and all below it."""
        steps = tuple(
            tuple(part.named(f"{name}-{step}{number}") for number, part in enumerate(parts))
            for step, parts in enumerate(self.steps)
        )
        return replace(self, name=name, steps=steps)

    def agents(self) -> Iterator[Plan]:
        """The agents among it and those below it."""
        if self.kind == "agent":
            yield self
        for part in (part for parts in self.steps for part in parts):
            yield from part.agents()


SIZES = st.integers(1, 700)
ENDS = st.sampled_from(["return", "raise", "answer"])
LEAVES = st.builds(Plan, st.just("agent"), size=SIZES, on_limit=ENDS)


def plans(levels: int = 3) -> st.SearchStrategy[Plan]:
    """Trees of so many levels at most; a flow's branches are on its level."""
    if levels == 1:
        return LEAVES
    below = plans(levels - 1)
    steps = st.lists(st.lists(below, min_size=1, max_size=3).map(tuple), min_size=1, max_size=2).map(tuple)
    agents = st.builds(Plan, st.just("agent"), steps, SIZES, ENDS)
    parts = st.lists(below, min_size=1, max_size=3).map(lambda parts: (tuple(parts),))
    flows = st.builds(Plan, st.sampled_from(["sequence", "parallel"]), parts, on_limit=ENDS)
    return st.one_of(agents, flows)


def grown(plan: Plan, agent: Callable[[Plan, Sequence[Any]], Agent]) -> Runnable:
    """What a named plan says; `agent` makes each agent from its plan and the tools that begin those below it."""
    below = [grown(part, agent) for parts in plan.steps for part in parts]
    match plan.kind:
        case "agent":
            return agent(plan, [agent_tool(one) for one in below])
        case "sequence":
            return sequence(*below, name=plan.name)
        case _:
            return parallel(*below, name=plan.name)


def step_of(request: ModelRequest) -> int:
    """How often the agent has spoken since it was given its task."""
    asked = max(n for n, m in enumerate(request.messages) if isinstance(m, UserMessage) and m.origin == "user")
    return sum(isinstance(message, Reply) for message in request.messages[asked:])
