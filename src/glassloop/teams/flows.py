"""The flows: one after another, side by side, again until, and one of several."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel

from glassloop.core.errors import ConfigurationError
from glassloop.core.limits import Limits
from glassloop.core.result import RunResult
from glassloop.runnable import Runnable
from glassloop.teams.flow import FLOW_LIMITS, Flow, Node, Place, Stopped, Waits, settled, side_by_side, text_of

Function = Callable[[Any], Any]
"""Code between the runs: from the flow's state to a value. Sync or async; the same for the same state."""

OnFailure = Literal["stop", "skip"]


@dataclass(frozen=True)
class Step:
    """One part of a flow, with what it is told and what its output is called.

    Args:
        runs: an agent, or a function of the flow's state.
        prompt: what an agent is told: a text with `{name}` for what is known by that name, or a function of the state;
            default what the part before it has come to.
        into: the name of its output; default the agent's or function's name.
    """

    runs: Runnable | Function
    prompt: str | Callable[[Any], str] | None = None
    into: str | None = None

    @property
    def name(self) -> str:
        """What its output is called."""
        return self.into or (self.runs.name if isinstance(self.runs, Runnable) else self.runs.__name__)


Part = Runnable | Step | Function
"""What a flow is made of: an agent, another flow, a step, or a function of the state."""


def sequence(
    *parts: Part, name: str = "sequence", limits: Limits = FLOW_LIMITS, state: type[BaseModel] | None = None
) -> Flow:
    """One part after another: each is given what the one before it has come to, the first the input.

    Args:
        parts: agents, flows, steps, or functions of the state.
        name: of the flow.
        limits: of all parts together.
        state: names and types what the parts come to (see `Flow`).
    """
    nodes = [_node(part) for part in parts]

    async def node(place: Place, given: Any) -> Any:
        for number, each in enumerate(nodes):
            given = await each(place.at(number), given)
        return given

    return Flow(node, name=name, limits=limits, state=state, parts=_names(parts), below=_agents(parts))


def parallel(
    *parts: Part,
    name: str = "parallel",
    most: int | None = None,
    on_failure: OnFailure = "stop",
    limits: Limits = FLOW_LIMITS,
    state: type[BaseModel] | None = None,
) -> Flow:
    """Parts side by side, each given the same; comes to a mapping of their names to what they came to.

    Args:
        parts: as for `sequence`.
        name: of the flow.
        most: so many at once; None: all.
        on_failure: `stop` cancels the others when one does not complete; `skip` goes on without it, and says so.
        limits: of all parts together.
        state: as for `sequence`.

    Raises:
        ConfigurationError: two parts have one name.
    """
    nodes, names = [_node(part) for part in parts], _own_names(parts)

    async def node(place: Place, given: Any) -> Any:
        gate = asyncio.Semaphore(most or max(1, len(nodes)))

        async def one(number: int) -> Any:
            async with gate:
                try:
                    return await nodes[number](place.at(number), given)
                except Waits as waits:
                    return waits  # the others go on as far as they can
                except Stopped as stopped:
                    if on_failure == "stop":
                        raise
                    place.skipped.append(stopped.name)
                    return stopped

        ended = await side_by_side([one(number) for number in range(len(nodes))])
        if any(isinstance(each, Waits) for each in ended):
            raise Waits
        done = {name: each for name, each in zip(names, ended, strict=True) if not isinstance(each, Stopped)}
        if not done and ended:
            raise next(each for each in ended if isinstance(each, Stopped))
        return done

    return Flow(node, name=name, limits=limits, state=state, parts=_names(parts), below=_agents(parts))


def until(
    part: Part,
    done: Callable[[Any], bool],
    *,
    most: int = 5,
    name: str = "until",
    limits: Limits = FLOW_LIMITS,
    state: type[BaseModel] | None = None,
) -> Flow:
    """One part again and again, each time given what it came to, until the state is as wanted.

    Args:
        part: as for `sequence`; a sequence of several is one.
        done: told the state after each time, says whether it is enough.
        most: times; after so many the flow ends with the outcome `limited` and the limit `until`.
        name: of the flow.
        limits: of all times together.
        state: as for `sequence`.
    """
    each = _node(part)

    async def node(place: Place, given: Any) -> Any:
        for number in range(most):
            given = await each(place.at(number), given)
            if await settled(done(place.state)):
                return given
        text = f"It was not enough after {most} times."
        raise Stopped(name, RunResult(place.driving.run_id, "limited", text_of(given), message=text, limit="until"))

    return Flow(node, name=name, limits=limits, state=state, parts=_names([part]), below=_agents([part]))


def branch(
    choose: Callable[[Any], str | bool],
    *,
    name: str = "branch",
    limits: Limits = FLOW_LIMITS,
    state: type[BaseModel] | None = None,
    **cases: Part,
) -> Flow:
    """One of several parts, by the state.

    Args:
        choose: told the state, names the case; True and False are the cases `yes` and `no`.
        name: of the flow.
        limits: of the flow.
        state: as for `sequence`.
        cases: parts by name; `otherwise` stands for any name that is not there. Without it, a name that is not there
            fails the flow, except `no`: then there is nothing to do.
    """
    nodes = {case: _node(part) for case, part in cases.items()}

    async def node(place: Place, given: Any) -> Any:
        chosen = await settled(choose(place.state))
        case = str(chosen) if not isinstance(chosen, bool) else "yes" if chosen else "no"
        found = nodes.get(case) or nodes.get("otherwise")
        if found is not None:
            return await found(place.at(case), given)
        if case == "no":
            return given
        text = f"There is no case {case!r}; there are: {', '.join(nodes)}."
        raise Stopped(name, RunResult(place.driving.run_id, "failed", None, message=text))

    return Flow(
        node,
        name=name,
        limits=limits,
        state=state,
        parts=_names(list(cases.values())),
        below=_agents(list(cases.values())),
    )


def _node(part: Part) -> Node:
    match part:
        case Flow():
            return part.node
        case Step(runs=Flow() as flow, prompt=None, into=None):
            return flow.node
        case Step():
            return _step(part)
        case _ if isinstance(part, Runnable) or callable(part):
            return _step(Step(part))
        case _:
            raise ConfigurationError(
                f"A {type(part).__name__} is no part of a flow: give an agent, a flow or a function."
            )


def _step(step: Step) -> Node:
    runs = step.runs

    async def of_agent(place: Place, given: Any) -> Any:
        assert isinstance(runs, Runnable)
        value = await place.run(runs, _told(step, place, given), step.name)
        place.learn(step.name, value)
        return value

    async def of_function(place: Place, given: Any) -> Any:
        assert not isinstance(runs, Runnable)
        value = await settled(runs(place.state))
        place.learn(step.name, value)
        return value

    return of_agent if isinstance(runs, Runnable) else of_function


def _told(step: Step, place: Place, given: Any) -> str:
    match step.prompt:
        case None:
            return text_of(given)
        case str(prompt):
            try:
                return prompt.format_map({name: text_of(value) for name, value in place.known.items()})
            except KeyError as missing:
                known = ", ".join(place.known)
                text = f"The prompt of {step.name} names {missing}, which is not known then; known: {known}."
                raise ConfigurationError(text) from None
        case prompt:
            return prompt(place.state)


def _names(parts: Sequence[Part]) -> tuple[str, ...]:
    """Names of what the parts come to, those inside other flows too."""
    names: list[str] = []
    for part in parts:
        names += part.parts if isinstance(part, Flow) else [_name(part)]
    return tuple(dict.fromkeys(names))


def _agents(parts: Sequence[Part]) -> list[Runnable]:
    agents: list[Runnable] = []
    for part in parts:
        runs = part.runs if isinstance(part, Step) else part
        if isinstance(runs, Flow):
            agents += runs.below
        elif isinstance(runs, Runnable):
            agents.append(runs)
    return agents


def _own_names(parts: Sequence[Part]) -> list[str]:
    names = [_name(part) for part in parts]
    for name in names:
        if names.count(name) > 1:
            raise ConfigurationError(
                f"Two parts side by side are named {name!r}: name one otherwise, Step(..., into=...)."
            )
    return names


def _name(part: Part) -> str:
    match part:
        case Step() | Runnable():
            return part.name
        case _:
            return part.__name__
