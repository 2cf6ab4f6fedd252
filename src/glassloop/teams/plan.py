"""A plan as typed output: steps that are calls of tools, checked against the tools before anything runs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal

from pydantic import BaseModel, Field, model_validator

from glassloop.core.encoding import dumps
from glassloop.core.errors import ToolError
from glassloop.tools.toolset import ToolIndex

Risk = Literal["low", "medium", "high"]
FEWEST, MOST = 2, 8


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

    steps: list[PlanStep] = Field(min_length=1, max_length=MOST)


def plan_type(index: ToolIndex, done: Collection[int], *, again: bool = False) -> type[Plan]:
    """The type of a plan that these tools can carry out; what is wrong with one is told in words.

    Args:
        index: the tools.
        done: steps of earlier plans, which may be depended on.
        again: whether it is for the rest of a plan, which may be one step.
    """

    class Checked(Plan):
        @model_validator(mode="after")
        def _can_be_carried_out(self) -> Checked:
            problems = _problems(self, index, done, 1 if again else FEWEST)
            if problems:
                raise ValueError("; ".join(problems))
            return self

    Checked.__name__ = Checked.__qualname__ = "Plan"
    Checked.__doc__ = Plan.__doc__
    return Checked


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
        case str() if value.startswith("$") and value[1:].split(".")[0].isdigit():
            number, *path = value[1:].split(".")
            return _found(done, int(number), path)
        case _:
            return value


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


def _problems(plan: Plan, index: ToolIndex, done: Collection[int], fewest: int) -> list[str]:
    numbers = [step.step for step in plan.steps]
    problems: list[str] = []
    if not fewest <= len(numbers) <= MOST:
        problems.append(f"a plan has {fewest} to {MOST} steps, this one {len(numbers)}")
    for step in plan.steps:
        where = f"step {step.step}"
        if numbers.count(step.step) > 1 or step.step in done:
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
    if not refers(step.arguments):
        try:
            found.validate(dumps(step.arguments).decode())
        except ToolError as error:
            return [str(error)]
        return []
    stated = found.spec.parameters
    unknown = step.arguments.keys() - stated["properties"].keys()
    missing = set(stated.get("required", ())) - step.arguments.keys()
    return [f"{found.name} has no argument {name!r}" for name in sorted(unknown)] + [
        f"{found.name} needs the argument {name!r}" for name in sorted(missing)
    ]


def _referred(value: Any) -> set[int]:
    """The steps that a value names."""
    match value:
        case dict():
            return {number for item in value.values() for number in _referred(item)}  # pyright: ignore - JSON
        case list():
            return {number for item in value for number in _referred(item)}  # pyright: ignore - JSON
        case str() if value.startswith("$") and value[1:].split(".")[0].isdigit():
            return {int(value[1:].split(".")[0])}
        case _:
            return set()


def refers(value: Any) -> bool:
    """Whether a value names what an earlier step comes to."""
    return bool(_referred(value))


def is_risky(step: PlanStep, index: ToolIndex) -> bool:
    """Whether a step is of high risk, by its own word or its tool's."""
    found = index.find(step.action)
    return step.risk == "high" or (found is not None and found.risk == "high")
