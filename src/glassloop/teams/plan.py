"""A plan as typed output: steps that are calls of tools, checked against the tools before anything runs."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal

from pydantic import BaseModel, Field, model_validator

from glassloop.tools.arguments import ArgumentsError
from glassloop.tools.toolset import ToolIndex

Risk = Literal["low", "medium", "high"]
REVIEW = "review_plan"
"""The tool whose call is the review of a plan."""

FEWEST, MOST = 2, 8
_RISKS: tuple[Risk, ...] = ("low", "medium", "high")
_REFERENCE = re.compile(r"\$([0-9]{1,4})((?:\.[^.\s]+)*)")


class PlanStep(BaseModel):
    """One step of a plan: one call of a tool."""

    step: int = Field(ge=1, description="Number of the step, from 1.")
    action: str = Field(description="The tool's name.")
    arguments: dict[str, Any] = Field(default_factory=dict, description="The tool's arguments.")
    description: str = Field(description="What it is for, in one sentence.")
    risk: Risk = Field(description="low, medium or high.")
    depends_on: list[int] = Field(default_factory=list[int], description="Steps that must be done before.")


class Plan(BaseModel):
    """What is to be done, before anything is."""

    steps: list[PlanStep] = Field(max_length=MOST)


class ReviewedPlan(Plan):
    """A plan as a human reviews it, and may change it."""

    done: list[int] = Field(default_factory=list[int], description="Steps of an earlier plan that are done already.")


def plan_type(index: ToolIndex, taken: Collection[int] = (), done: Collection[int] = ()) -> type[Plan]:
    """The type of a plan that these tools can carry out; what is wrong with one is told in words.

    A plan has 2 to 8 steps, or none where no tool is needed or could help; one for the rest of an earlier plan may have
    one.

    Args:
        index: the tools.
        taken: numbers that steps of earlier plans have.
        done: those of them that are done, which may be depended on.
    """

    class Checked(Plan):
        @model_validator(mode="after")
        def _can_be_carried_out(self) -> Checked:
            fewest = 1 if taken or not self.steps else FEWEST
            return _checked(self, [*_count_problems(self, fewest), *_problems(self, index, taken, done)])

    return _named(Checked, Plan)


def reviewed_type(index: ToolIndex) -> type[ReviewedPlan]:
    """The type of a plan that a human may have changed: which may be shorter, and not empty.

    Args:
        index: the tools.
    """

    class Checked(ReviewedPlan):
        @model_validator(mode="after")
        def _can_be_carried_out(self) -> Checked:
            problems = _count_problems(self, 1) or ([] if self.steps else ["a plan without steps is none: deny it"])
            return _checked(self, [*problems, *_problems(self, index, self.done, self.done)])

    return _named(Checked, ReviewedPlan)


def resolved(value: Any, done: Mapping[int, Any]) -> Any:
    """A step's arguments with `$N.field` replaced by what step N came to.

    Raises:
        LookupError: the step is not done, or has no such field.
    """
    match value:
        case dict():
            return {name: resolved(item, done) for name, item in value.items()}  # pyright: ignore - JSON
        case list():
            return [resolved(item, done) for item in value]  # pyright: ignore - JSON
        case str() if found := _REFERENCE.fullmatch(value):
            return _found(done, int(found[1]), found[2].split(".")[1:])
        case _:
            return value


def refers(value: Any) -> bool:
    """Whether a value names what an earlier step comes to."""
    return bool(_referred(value))


def with_risks(plan: Plan, index: ToolIndex) -> Plan:
    """The plan with no step's risk below its tool's, whatever the model says."""
    return Plan(steps=[_with_risk(step, index) for step in plan.steps])


def _with_risk(step: PlanStep, index: ToolIndex) -> PlanStep:
    found = index.find(step.action)
    risks = (step.risk, found.risk) if found is not None else (step.risk,)
    return step.model_copy(update={"risk": max(risks, key=_RISKS.index)})


def _checked(plan: Any, problems: Sequence[str]) -> Any:
    if problems:
        raise ValueError("; ".join(problems))
    return plan


def _named(shape: Any, like: type[Plan]) -> Any:
    """The type under the name that its schema is to have, whatever its tools are."""
    shape.__name__ = shape.__qualname__ = "Plan"
    shape.__doc__ = like.__doc__
    return shape


def _found(done: Mapping[int, Any], number: int, path: Sequence[str]) -> Any:
    if number not in done:
        raise LookupError(f"Step {number} has come to nothing that could be used.")
    value: Any = done[number]
    for name in path:
        try:
            value = value[int(name) if type(value) is list else name]
        except (LookupError, TypeError, ValueError):
            raise LookupError(f"What step {number} came to has no {'.'.join(path)!r}.") from None
    return value


def _count_problems(plan: Plan, fewest: int) -> list[str]:
    count = len(plan.steps)
    if count == 0 or fewest <= count <= MOST:
        return []
    none = "; one that needs no tool has none" if fewest == FEWEST else ""
    return [f"a plan has {fewest} to {MOST} steps, this one {count}{none}"]


def _problems(plan: Plan, index: ToolIndex, taken: Collection[int], done: Collection[int]) -> list[str]:
    numbers = [step.step for step in plan.steps]
    problems: list[str] = []
    for step in plan.steps:
        where = f"step {step.step}"
        if numbers.count(step.step) > 1 or step.step in taken:
            problems.append(f"{where}: the number is taken")
        before = {number for number in numbers if number < step.step}.union(done)
        late = {*step.depends_on, *_referred(step.arguments)} - before
        problems += [f"{where} needs step {needed}, which does not come before it" for needed in sorted(late)]
        problems += [f"{where}: {problem}" for problem in _argument_problems(step, index)]
        if missing := {*_referred(step.arguments)} - {*step.depends_on} - {*done}:
            problems.append(f"{where} uses what step {min(missing)} comes to: name it in depends_on")
    return problems


def _argument_problems(step: PlanStep, index: ToolIndex) -> list[str]:
    found = index.find(step.action)
    if found is None:
        return [f"there is no tool {step.action!r}; there are: {', '.join(index.by_name)}"]
    later = {name for name, value in step.arguments.items() if refers(value)}
    try:
        found.validate(step.arguments)
    except ArgumentsError as error:
        wrong = (problem for problem in error.problems if re.split(r"[.\[]", problem.path)[0] not in later)
        return [f"{problem.path}: {problem.text}" if problem.path else problem.text for problem in wrong]
    return []


def _referred(value: Any) -> set[int]:
    """The steps that a value names."""
    match value:
        case dict():
            return {number for item in value.values() for number in _referred(item)}  # pyright: ignore - JSON
        case list():
            return {number for item in value for number in _referred(item)}  # pyright: ignore - JSON
        case str() if found := _REFERENCE.fullmatch(value):
            return {int(found[1])}
        case _:
            return set()
