"""From an agent and a journal to a run that is driven: the one way in, for fresh runs and for those that go on."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from glassloop.core.context import RunContext
from glassloop.core.errors import ConfigurationError, Fenced
from glassloop.core.events import (
    AgentChanged,
    ApprovalDecided,
    ApprovalMode,
    DriverClaimed,
    Event,
    RunContinued,
    RunFinished,
    RunStarted,
)
from glassloop.core.messages import Message
from glassloop.core.result import Decision, RunResult
from glassloop.holding import check_readable, hand_over, held, session_length
from glassloop.journal.projection import summarize
from glassloop.journal.recorder import Recorder, Subscriber
from glassloop.journal.requests import RequestLog, message_digest
from glassloop.journal.state import State, fold
from glassloop.loop import drive
from glassloop.memory.turn import HandedOver, handed_over, turn_of
from glassloop.middleware.approval import Approval, decided
from glassloop.middleware.call import ToolMiddleware
from glassloop.middleware.idempotency import Idempotency
from glassloop.middleware.reasons import Reasons
from glassloop.middleware.stack import model_stack, tool_layers, tool_stack
from glassloop.models.model import ToolSpec
from glassloop.models.prices import load_prices
from glassloop.options import RunOptions
from glassloop.results import raise_for, result_of
from glassloop.run import Run
from glassloop.stores import Store
from glassloop.stores.owner import Process, alive, this_process
from glassloop.tools.toolset import ToolIndex, ToolSources

if TYPE_CHECKING:
    from glassloop.agent import Agent


async def begin(
    agent: Agent,
    store: Store,
    run_id: str,
    started: RunStarted,
    options: RunOptions,
    *,
    subscribers: Sequence[Subscriber] = (),
) -> RunResult:
    """Begin a run and drive it until it rests; raises like `Agent.run`."""
    busy = options.get("when_busy", "queue")
    async with held(store, run_id, started.identity, busy, begins=True) as before:
        state = State(run_id=run_id, conversation=list(before))
        recorder = Recorder(store.journal, state, epoch=1, history=before, subscribers=subscribers)
        recorder.record(replace(started, history=_not_in(before, started.history)))
        recorder.record(DriverClaimed(1, str(this_process()), len(before)))
        return await _drive(agent, store, recorder, started, options)


async def go_on(
    agent: Agent,
    store: Store,
    run_id: str,
    options: RunOptions,
    *,
    decisions: Mapping[str, Decision | bool],
    subscribers: Sequence[Subscriber] = (),
    letting_go: Callable[[], bool] = lambda: False,
) -> RunResult:
    """Take a run over, whatever it was cut off in, and drive it until it rests; raises like `Agent.resume`."""
    known = await _read(store, run_id, agent)
    started = known.started
    async with held(store, run_id, started.identity, options.get("when_busy", "queue")) as session:
        seen = await _read(store, run_id, agent)
        before = session if seen.session_length is None else session[: seen.session_length]
        state = fold(seen.events, before)
        answers = _answers(state, decisions)
        if state.finished is not None and (state.finished.outcome == "completed" or not known.finished):
            return result_of(state)  # complete, or ended by another while this driver waited for the session
        recorder = Recorder(store.journal, state, epoch=state.epoch + 1, history=before, subscribers=subscribers)
        told = handed_over(seen.events, before)
        recorder.record(DriverClaimed(recorder.epoch, str(this_process()), len(before)))
        fingerprint = agent.fingerprint(agent.model_for(options))
        if fingerprint != state.fingerprint:
            recorder.record(AgentChanged(fingerprint))
        if state.finished is not None or options.get("limits") is not None:
            recorder.record(RunContinued(options.get("limits")))
        for answer in answers:
            recorder.record(answer)
        return await _drive(agent, store, recorder, started, options, told, letting_go)


class _Seen:
    """A run as its journal has it before it is driven."""

    def __init__(self, started: RunStarted, events: Sequence[Event]) -> None:
        self.started, self.events = started, events
        self.session_length = session_length(events)
        self.finished = isinstance(events[-1].data, RunFinished)


async def _read(store: Store, run_id: str, agent: Agent) -> _Seen:
    events = await store.journal.read(run_id)
    if not events or not isinstance(events[0].data, RunStarted):
        raise ConfigurationError(f"There is no run {run_id!r} in {store.url}.")
    started = events[0].data
    if started.agent != agent.name:
        raise ConfigurationError(f"Run {run_id} belongs to the agent {started.agent!r}, not to {agent.name!r}.")
    check_readable(run_id, events)
    row = summarize(events)
    if row is not None and row.owner is not None and await _lives_elsewhere(row.owner):
        raise Fenced(f"Run {run_id} is taken: it is driven by another process, which is alive ({row.owner}).")
    return _Seen(started, events)


async def _lives_elsewhere(owner: str) -> bool:
    if owner == str(this_process()):
        return False
    try:
        return await asyncio.to_thread(alive, Process.parse(owner)) is True
    except ValueError:
        return False


async def _drive(
    agent: Agent,
    store: Store,
    recorder: Recorder,
    started: RunStarted,
    options: RunOptions,
    told: HandedOver | None = None,
    letting_go: Callable[[], bool] = lambda: False,
) -> RunResult:
    """Drive to rest, then hand the run's messages to its session, which was `told` of some before."""
    run = await _assemble(agent, store, recorder, started, options)
    run.letting_go = letting_go
    recorder.turn = partial(turn_of, before=told)
    try:
        await drive(run)
    except asyncio.CancelledError as error:
        error.result = result_of(recorder.state, recorder.values)  # type: ignore[attr-defined] - documented
        raise
    finally:
        if recorder.clean:
            await hand_over(store, recorder)
    return raise_for(result_of(recorder.state, recorder.values), run.error, recorder.state.limits.on_limit)


async def _assemble(agent: Agent, store: Store, recorder: Recorder, started: RunStarted, options: RunOptions) -> Run:
    model = agent.model_for(options)
    context = RunContext(options.get("deps"), recorder.state.run_id, recorder.state.identity, store=store)
    also = [name.strip() for name in os.environ.get("APPROVE_TOOLS", "").split(",") if name.strip()]
    layers = [_bound(layer, store, options, started.approvals, also) for layer in tool_layers(agent.middleware)]
    reasons = next((layer for layer in layers if isinstance(layer, Reasons)), None)
    return Run(
        recorder=recorder,
        requests=RequestLog(recorder),
        model=model,
        ask=model_stack(agent.middleware),
        call=tool_stack(layers),
        tools=_ToolsOfTheMoment(agent.tools, context, recorder, reasons),
        context=context,
        instructions=await agent.instructions_for(context),
        settings=agent.settings,
        prices=await load_prices(model.name, agent.settings.price),
    )


class _ToolsOfTheMoment:
    """The run's tools: looked up before each model request, the same until its calls have their results."""

    def __init__(
        self, tools: ToolSources, context: RunContext[Any], recorder: Recorder, reasons: Reasons | None
    ) -> None:
        self.tools, self.context, self.recorder, self.reasons = tools, context, recorder, reasons
        self.known: tuple[ToolIndex, tuple[ToolSpec, ...]] | None = None

    async def __call__(self) -> tuple[ToolIndex, tuple[ToolSpec, ...]]:
        if self.known is not None and self.recorder.state.open_calls:
            return self.known
        index = await self.tools.resolve(self.context)
        if self.known is None or index is not self.known[0]:
            self.known = index, index.specs if self.reasons is None else self.reasons.specs(index.specs)
        return self.known


def _bound(
    layer: ToolMiddleware, store: Store, options: RunOptions, mode: ApprovalMode | None, also: Collection[str]
) -> ToolMiddleware:
    """A layer with what only the run knows: who is asked, and where claims stand."""
    match layer:
        case Approval():
            return layer.bound(options.get("approve"), mode, also)
        case Idempotency(ledger=None):
            return Idempotency(store.ledger, layer.ttl)
        case _:
            return layer


def _not_in(session: Sequence[Message], history: Sequence[Message]) -> tuple[Message, ...]:
    """The history without what the session has already: a caller may give both."""
    known = Counter(map(message_digest, session))
    fresh: list[Message] = []
    for message in history:
        key = message_digest(message)
        if known[key]:
            known[key] -= 1
        else:
            fresh.append(message)
    return tuple(fresh)


def _answers(state: State, decisions: Mapping[str, Decision | bool]) -> list[ApprovalDecided]:
    """What humans decided, as events, without what an attempt before this one has recorded.

    Raises:
        ConfigurationError: an approval that the run does not wait for.
    """
    waiting = {asked.approval_id for asked in state.asked.values()} - state.decided.keys()
    answers: list[ApprovalDecided] = []
    for approval_id, decision in decisions.items():
        answer, recorded = decided(approval_id, decision), state.decided.get(approval_id)
        if recorded is not None and (recorded.decision, recorded.arguments) == (answer.decision, answer.arguments):
            continue
        if approval_id not in waiting:
            raise ConfigurationError(f"Run {state.run_id} has no approval {approval_id!r} that waits for a decision.")
        answers.append(answer)
    return answers
