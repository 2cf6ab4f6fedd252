"""What the runs of a round do: a function of the seed alone, so that every life of the program knows it."""

from __future__ import annotations

import random
import zlib
from dataclasses import dataclass
from typing import Literal

Kind = Literal["naive", "held", "keyed", "same_database", "reconciled", "undone", "read"]

KINDS: dict[str, Kind] = {
    "note": "naive",
    "stamp": "naive",
    "order": "held",
    "charge": "keyed",
    "book": "same_database",
    "ship": "reconciled",
    "reserve": "undone",
    "look": "read",
    "collapse": "read",
}
"""Every tool, and what is promised of it.

naive: nobody can tell whether a call that was cut off has happened. held: the same, and a human is asked first. keyed:
the service honours the key. same_database: effect and journal commit together. reconciled: it can be asked, though it
does not always know. undone: naive, and taken back when its run fails.
"""

ONCE_AT_MOST = ("naive", "held", "reconciled", "undone")
"""Kinds whose effect may come again only when a human has said so."""

_WEIGHTS = {"note": 4, "stamp": 2, "order": 2, "charge": 3, "book": 4, "ship": 3, "look": 2}


@dataclass(frozen=True)
class PlannedCall:
    """One tool call; `id` is its one argument and tells it from all others of the round."""

    tool: str
    id: str


@dataclass(frozen=True)
class PlannedRun:
    """One run.

    Args:
        name: the user's text, by which the model knows the plan.
        user: on whose behalf.
        session: its session, if any; runs of one session wait for each other.
        steps: the calls of each step.
        approvals: how held calls are held.
        collapses: whether the last step stops the run with a fatal error, so that its writes are undone.
    """

    name: str
    user: str
    session: str | None
    steps: tuple[tuple[PlannedCall, ...], ...]
    approvals: Literal["park", "defer"] = "park"
    collapses: bool = False


def plan_of(seed: int, runs: int) -> dict[str, PlannedRun]:
    """The runs of a round, by name."""
    chance = random.Random(f"plan {seed}")
    plan: dict[str, PlannedRun] = {}
    for number in range(runs):
        name = f"r{number:02}"
        group = number // 2 if number % 4 < 2 else None
        session = None if group is None else f"s{group}"
        kind = "collapses" if number % 6 == 5 else "defers" if number % 6 == 3 else "parks"
        steps = _steps(name, chance, undone=kind == "collapses")
        if session is not None and number % 4 == 1:  # the same write as the run before it in the session
            first = PlannedCall("note", f"twin-{session}")
            steps = ((first, first, *steps[0]), *steps[1:])
            before = plan[f"r{number - 1:02}"]
            plan[before.name] = PlannedRun(
                before.name, before.user, session, (*before.steps, (first,)), before.approvals
            )
        approvals = "defer" if kind == "defers" else "park"
        plan[name] = PlannedRun(name, f"u{group}", session, steps, approvals, kind == "collapses")
    return plan


def _steps(name: str, chance: random.Random, *, undone: bool) -> tuple[tuple[PlannedCall, ...], ...]:
    tools, weights = list(_WEIGHTS), list(_WEIGHTS.values())
    if undone:
        tools, weights = ["reserve", "look"], [4, 1]
    steps: list[tuple[PlannedCall, ...]] = []
    for step in range(chance.randint(2, 4)):
        chosen = chance.choices(tools, weights, k=chance.choice((1, 1, 2, 3, 4)))
        steps.append(tuple(PlannedCall(tool, f"{name}.{step}.{n}.{tool}") for n, tool in enumerate(chosen)))
    if undone:
        steps.append((PlannedCall("collapse", f"{name}.end.collapse"),))
    return tuple(steps)


def share(text: str) -> float:
    """A number from 0 to 1 that is always the same for a text."""
    return zlib.crc32(text.encode()) / 0xFFFFFFFF


def approves(id: str, kind: str) -> bool:
    """What the operator says to a held call, or to one that may have happened ("run again")."""
    return share(f"{kind} {id}") < (0.75 if kind == "call" else 0.5)


def is_murky(id: str) -> bool:
    """Whether nobody can tell, even when asked, if this shipment happened."""
    return share(f"murky {id}") < 0.3
