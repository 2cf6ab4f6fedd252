"""A plan that waits for its review, as a person reads it."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from pydantic import ValidationError

from glassloop.cli.output import use_colour
from glassloop.cli.printable import printable
from glassloop.core.rendering import render_json, render_name, visible
from glassloop.core.result import PendingApproval
from glassloop.teams.plan import REVIEW, ReviewedPlan

_HEAD = ("STEP", "ACTION", "RISK", "AFTER", "WHAT FOR")
_COLOURS = {"low": "32", "medium": "33", "high": "1;31"}


def plan_of(pending: PendingApproval) -> ReviewedPlan | None:
    """The plan that a human is asked about; None where it is another call."""
    try:
        return ReviewedPlan.model_validate(pending.arguments["plan"]) if pending.tool == REVIEW else None
    except (KeyError, ValidationError):  # somebody else's tool of that name
        return None


def show_plan(plan: ReviewedPlan) -> None:
    """Print a plan on standard error: a line for each step and one for each of its arguments, whole."""
    colour = use_colour(no_color=False, out=sys.stderr)
    with suppress(OSError):  # nobody reads it
        sys.stderr.write("".join(f"{line}\n" for line in plan_lines(plan, colour=colour)))
        sys.stderr.flush()


def plan_lines(plan: ReviewedPlan, *, colour: bool) -> Iterator[str]:
    """The lines of a plan; steps of high risk begin with `!`.

    Args:
        plan: the plan.
        colour: whether to colour the risks (ECMA-48, 8.3.117).
    """
    rows = [_HEAD, *(_cells(step.model_dump()) for step in plan.steps)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD) - 1)]
    yield _line(rows[0], widths, "")
    for step, row in zip(plan.steps, rows[1:], strict=True):
        yield _line(row, widths, _COLOURS[step.risk] if colour else "")
        for name, value in step.arguments.items():
            yield f"{' ' * (widths[0] + 4)}{render_name(name)}: {render_json(value)}"
    risky = sum(step.risk == "high" for step in plan.steps)
    if risky:
        yield f"{risky} {'step is' if risky == 1 else 'steps are'} of high risk (!)."
    if plan.done:
        yield f"Done already: {', '.join(map(str, plan.done))}."


def _cells(step: Mapping[str, Any]) -> tuple[str, ...]:
    after = ", ".join(map(str, step["depends_on"])) or "-"
    texts = (step["step"], step["action"], step["risk"], after, step["description"])
    return tuple(printable(visible(" ".join(str(text).split()))) for text in texts)


def _line(row: tuple[str, ...], widths: list[int], colour: str) -> str:
    step, action, risk, after = (cell.ljust(width) for cell, width in zip(row, widths, strict=False))
    mark = "!" if row[2] == "high" else " "
    risk = f"\x1b[{colour}m{risk}\x1b[0m" if colour else risk
    return f"{mark} {step.strip().rjust(widths[0])}  {action}  {risk}  {after}  {row[-1]}".rstrip()
