"""What the runs of a round do: a function of the seed alone, so that every life of the program knows it."""

from __future__ import annotations

import random
import zlib
from dataclasses import dataclass, replace
from typing import Literal

Kind = Literal["naive", "held", "asks", "keyed", "same_database", "reconciled", "undone", "read", "below", "handed"]

KINDS: dict[str, Kind] = {
    "note": "naive",
    "stamp": "naive",
    "order": "held",
    "sign": "asks",
    "charge": "keyed",
    "book": "same_database",
    "ship": "reconciled",
    "reserve": "undone",
    "look": "read",
    "collapse": "read",
    "clerk": "below",
    "helper": "below",
    "hand_to_closer": "handed",
}
"""Every tool, and what is promised of it.

naive: nobody can tell whether a call that was cut off has happened. held: the same, and a human is asked first. asks:
the same, and it asks a human itself before it acts. keyed: the service honours the key. same_database: effect and
journal commit together. reconciled: it can be asked, though it does not always know. undone: naive, and taken back when
its run fails. below: another agent's run, begun once. handed: the conversation goes on with another agent.
"""

ONCE_AT_MOST = ("naive", "held", "asks", "reconciled", "undone")
"""Kinds whose effect may come again only when a human has said so."""

_WEIGHTS = {"note": 4, "stamp": 2, "order": 2, "sign": 2, "charge": 3, "book": 4, "ship": 3, "look": 2}
_BELOW = ("clerk", "helper")
"""Who does what is given away, by how deep: the desk gives to the clerk, and the clerk to the helper."""

PARTS = 4
"""Of a flow: one after another, but the second and the third side by side."""


@dataclass(frozen=True)
class PlannedCall:
    """One tool call; `id` is its one argument and tells it from all others of the round.

    For a run below it is the name of that run.
    """

    tool: str
    id: str


Steps = tuple[tuple[PlannedCall, ...], ...]


@dataclass(frozen=True)
class PlannedRun:
    """One run.

    Args:
        name: the text it is given, by which the model knows the plan; below another run it begins with that one's.
        user: on whose behalf.
        session: its session, if any; runs of one session wait for each other.
        steps: the calls of each step; of a flow none.
        approvals: how held calls are held.
        collapses: whether the last step stops the run with a fatal error, so that its writes are undone.
        agent: whose run it is.
    """

    name: str
    user: str
    session: str | None
    steps: Steps
    approvals: Literal["park", "defer"] = "park"
    collapses: bool = False
    agent: str = "desk"

    @property
    def is_root(self) -> bool:
        """Whether somebody has started it, and not another run."""
        return "/" not in self.name


def plan_of(seed: int, runs: int) -> dict[str, PlannedRun]:
    """The runs of a round, by name; those below others come before them.

    Of six, one runs alone, one collapses, two give work to agents below them, one is a flow, and in one the
    conversation is handed on.
    """
    chance = random.Random(f"plan {seed}")
    plan: dict[str, PlannedRun] = {}
    for number in range(runs):
        name = f"r{number:02}"
        group = number // 2 if number % 4 < 2 else None
        session = None if group is None else f"s{group}"
        run = PlannedRun(name, f"u{group}", session, (), "defer" if number % 6 == 3 else "park")
        match number % 6:
            case 1 | 3:
                run = _with_tasks(run, chance, plan)
            case 2:
                run = _flow(run, chance, plan)
            case 4:
                run = _handed(run, chance)
            case kind:
                run = _alone(run, chance, collapses=kind == 5)
        plan[name] = run
        if session is not None and number % 4 == 1:
            _twin(plan, f"r{number - 1:02}", name)
    return plan


def _twin(plan: dict[str, PlannedRun], before: str, name: str) -> None:
    """Let a run begin with the same write that the one before it in the session ends with."""
    first = PlannedCall("note", f"twin-{plan[name].session}")
    last = plan.get(f"{before}/{PARTS - 1}", plan[before])
    plan[last.name] = replace(last, steps=(*last.steps, (first,)))
    run = plan[name]
    plan[name] = replace(run, steps=((first, first, *run.steps[0]), *run.steps[1:]))


def _alone(run: PlannedRun, chance: random.Random, *, collapses: bool) -> PlannedRun:
    return replace(run, steps=_steps(run.name, chance, (2, 4), undone=collapses), collapses=collapses)


def _handed(run: PlannedRun, chance: random.Random) -> PlannedRun:
    """The second step hands the conversation on, beside other calls."""
    first, second, *rest = _steps(run.name, chance, (2, 3))
    hand = PlannedCall("hand_to_closer", f"{run.name}.hand")
    return replace(run, steps=(first, (*second, hand), *rest, *_steps(f"{run.name}.after", chance, (1, 1))))


def _flow(run: PlannedRun, chance: random.Random, plan: dict[str, PlannedRun]) -> PlannedRun:
    for number in range(PARTS):
        agent = _BELOW[number % 2]
        part = replace(run, name=f"{run.name}/{number}", agent=agent)
        if agent == "clerk":
            plan[part.name] = _with_tasks(part, chance, plan, depth=1, most=1)
        else:
            plan[part.name] = replace(part, steps=_steps(part.name, chance, (1, 2)))
    return replace(run, agent="office")


def _with_tasks(
    run: PlannedRun, chance: random.Random, plan: dict[str, PlannedRun], *, depth: int = 0, most: int = 2
) -> PlannedRun:
    """A run that gives work away beside its own calls, to several at a time."""
    steps: list[tuple[PlannedCall, ...]] = []
    for number, own in enumerate(_steps(run.name, chance, (1, 2))):
        given: list[PlannedCall] = []
        for task in range(chance.randint(1, most) if number == 0 else chance.randint(0, 1)):
            below = replace(run, name=f"{run.name}/{number}.{task}", agent=_BELOW[depth])
            if depth == 0 and chance.random() < 0.6:
                below = _with_tasks(below, chance, plan, depth=1, most=1)
            else:
                collapses = chance.random() < 0.2
                below = replace(below, steps=_steps(below.name, chance, (1, 2), undone=collapses), collapses=collapses)
            plan[below.name] = below
            given.append(PlannedCall(below.agent, below.name))
        mixed = [*own, *given]
        chance.shuffle(mixed)
        steps.append(tuple(mixed))
    return replace(run, steps=tuple(steps))


def _steps(name: str, chance: random.Random, several: tuple[int, int], *, undone: bool = False) -> Steps:
    tools, weights = list(_WEIGHTS), list(_WEIGHTS.values())
    if undone:
        tools, weights = ["reserve", "look"], [4, 1]
    steps: list[tuple[PlannedCall, ...]] = []
    for step in range(chance.randint(*several)):
        chosen = chance.choices(tools, weights, k=chance.choice((1, 1, 2, 3, 4)))
        steps.append(tuple(PlannedCall(tool, f"{name}.{step}.{n}.{tool}") for n, tool in enumerate(chosen)))
    if undone:
        steps.append((PlannedCall("collapse", f"{name}.end.collapse"),))
    return tuple(steps)


def share(text: str) -> float:
    """A number from 0 to 1 that is always the same for a text."""
    return zlib.crc32(text.encode()) / 0xFFFFFFFF


def approves(id: str, kind: str) -> bool:
    """Whether the operator says yes to a held call, or to one that may have happened ("run again"), or answers one."""
    return share(f"{kind} {id}") < (0.5 if kind == "doubt" else 0.75)


def is_murky(id: str) -> bool:
    """Whether nobody can tell, even when asked, if this shipment happened."""
    return share(f"murky {id}") < 0.3
