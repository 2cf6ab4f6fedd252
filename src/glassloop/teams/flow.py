"""Flows: runs of agents in an order that is code, itself runnable like an agent.

A flow has no loop and no model of its own. Each of its parts is a run with an id that follows from its place, so going
on with a flow after a crash is running its code again: what a run has come to stands in the journal and is not done
twice. The code between the parts must therefore give the same for the same state.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import BaseModel, ValidationError, create_model

from glassloop.core.encoding import digest, dumps
from glassloop.core.errors import ConfigurationError
from glassloop.core.limits import Limits
from glassloop.core.result import RunResult
from glassloop.journal.moves import Finish
from glassloop.options import RunOptions
from glassloop.run import Driven
from glassloop.runnable import Runnable
from glassloop.tree import Driving

FLOW_LIMITS = Limits(steps=100)
"""A flow spends for all of its parts."""


class Stopped(Exception):
    """A part did not complete; the flow ends as it did, unless something around it goes on without.

    Args:
        name: the part.
        result: what it came to.
        why: for whoever started the flow; by default what the part's own message says.
    """

    def __init__(self, name: str, result: RunResult, why: str = "") -> None:
        super().__init__(why or f"{name} did not complete: {result.outcome}. {result.message or ''}".strip())
        self.name = name
        self.result = result


class Waits(Exception):
    """A part waits for a human, and so does the flow."""


@dataclass
class Place:
    """Where in a flow its code is.

    Args:
        driving: the run of the flow.
        known: what the parts have come to, by name; shared by the whole flow.
        path: names this place among all of the flow, and so the runs that begin here.
        shape: the type of what is known, if the flow has one.
    """

    driving: Driving
    known: dict[str, Any]
    path: str = ""
    shape: type[BaseModel] | None = None
    skipped: list[str] = field(default_factory=list[str])

    def at(self, step: object) -> Place:
        """A place inside this one."""
        return replace(self, path=f"{self.path}/{step}")

    @property
    def state(self) -> Any:
        """What is known, for the code of users: the flow's type, or a mapping of names."""
        if self.shape is None:
            return dict(self.known)
        return self.shape.model_validate(
            {name: self.known[name] for name in self.known.keys() & self.shape.model_fields}
        )

    def learn(self, name: str, value: Any) -> None:
        """A part has come to something.

        Raises:
            Mismatch: it is not what the flow's type says.
        """
        if self.shape is not None:
            value = _fitting(self.shape, name, value)
        self.known[name] = value

    async def run(self, runs: Runnable, text: str, name: str) -> Any:
        """Run a part here, or take what it came to before.

        Returns:
            its typed output where it has one, else its text.

        Raises:
            Stopped: it did not complete.
            Waits: it waits for a human.
        """
        result = await self.driving.run(self.path, runs, text)
        if result.outcome == "waiting":
            raise Waits
        if result.outcome != "completed":
            raise Stopped(name, result)
        return result.output if result.value is None else result.value


Node = Callable[[Place, Any], Awaitable[Any]]
"""One part of a flow: from a place, and what the part before has come to, to what this one comes to."""


class Mismatch(Exception):
    """What a part came to is not what the flow's type says."""


class Flow(Runnable):
    """Parts in an order that is code; see `sequence`, `parallel`, `until` and `branch`.

    Args:
        node: what it does.
        name: names it in journals and lists.
        limits: of all of its parts together.
        state: a pydantic model whose fields name and type what the parts come to; all must have defaults.
        parts: names of what its parts come to.
        below: the agents in it.

    Raises:
        ConfigurationError: the type has no field for one of the parts, or a field without a default.
    """

    def __init__(
        self,
        node: Node,
        *,
        name: str,
        limits: Limits = FLOW_LIMITS,
        state: type[BaseModel] | None = None,
        parts: tuple[str, ...] = (),
        below: Sequence[Runnable] = (),
    ) -> None:
        super().__init__(name, limits)
        _check_state(state, parts)
        self.node = node
        self.state = state
        self.parts = parts
        self._below = tuple(below)

    @property
    def below(self) -> Sequence[Runnable]:
        """See `Runnable`."""
        return self._below

    def fingerprint_for(self, options: RunOptions) -> str:
        """See `Runnable`."""
        return digest(dumps([self.name, self.parts]))

    async def drive(self, driving: Driving, /) -> None:
        """See `Runnable`."""
        driven = Driven(recorder=driving.recorder, letting_go=driving.letting_go, close_below=driving.close_below)

        async with driven.guarded():
            await _follow(self, driving, driven)


async def _follow(flow: Flow, driving: Driving, driven: Driven) -> None:
    if driven.recorder.state.finished is not None:
        return await driven.recorder.commit()
    cancel = driven.recorder.state.cancel
    if cancel is not None:
        await driven.finish(Finish("cancelled", message=cancel.reason or "The run was cancelled."))
        return None
    given = driving.started.input.text if driving.started.input is not None else ""
    place = Place(driving, {"input": given}, shape=flow.state)
    try:
        value = await flow.node(place, given)
    except Waits:
        if not await driven.rest():
            await _follow(flow, driving, driven)
    except Stopped as stopped:
        result = stopped.result
        await driven.finish(Finish(result.outcome, result.output, str(stopped), result.limit, result.error_kind))
    except Mismatch as wrong:
        await driven.finish(Finish("failed", message=str(wrong), error_kind="output"))
    else:
        message = f"Went on without {', '.join(place.skipped)}." if place.skipped else None
        await driven.finish(Finish("completed", text_of(value), message))


def text_of(value: Any) -> str:
    """What a part has come to, as the next one reads it: text as it is, anything else as JSON."""
    return value if isinstance(value, str) else dumps(value).decode()


async def settled(value: Any) -> Any:
    """What a function of users gives, sync or async."""
    return await value if inspect.isawaitable(value) else value


async def side_by_side(work: Sequence[Any]) -> list[Any]:
    """All of them, side by side; the first failure cancels the others and is raised as it is."""
    if not work:
        return []
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(each) for each in work]
            await asyncio.wait(tasks)  # in here: Python 3.11's group takes back its cancellation of this task only then
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return [task.result() for task in tasks]


def _fitting(shape: type[BaseModel], name: str, value: Any) -> Any:
    """The value as the type's field has it; a model of that field alone checks it."""
    known = shape.model_fields[name]
    fields: dict[str, Any] = {name: (known.annotation, known)}
    alone: type[BaseModel] = create_model(shape.__name__, **fields)
    try:
        return getattr(alone.model_validate({name: value}), name)
    except ValidationError as error:
        why = error.errors()[0]["msg"]
        raise Mismatch(f"{name} is not what {shape.__name__}.{name} must be: {why}.") from None


def _check_state(shape: type[BaseModel] | None, names: tuple[str, ...]) -> None:
    if shape is None:
        return
    for name, known in shape.model_fields.items():
        if known.is_required():
            raise ConfigurationError(f"{shape.__name__}.{name} needs a default: nothing is known when a flow begins.")
    for name in names:
        if name not in shape.model_fields:
            raise ConfigurationError(f"{shape.__name__} has no field {name!r}: add it, or name the part otherwise.")
