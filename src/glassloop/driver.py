"""From an agent and a journal to a run that is driven: the one way in, for fresh runs and for those that go on."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from glassloop.core.encoding import loads
from glassloop.core.errors import ConfigurationError, Fenced
from glassloop.core.events import (
    AgentChanged,
    ApprovalDecided,
    CancelRequested,
    DriverClaimed,
    Event,
    RunContinued,
    RunFinished,
    RunStarted,
)
from glassloop.core.ids import root_of
from glassloop.core.messages import Message, UserMessage
from glassloop.core.result import Decision, RunResult, misfit
from glassloop.holding import check_readable, end_unheard, hand_over, held, session_length
from glassloop.journal.media import contents, recall
from glassloop.journal.projection import WITHDRAW, ApprovalFilter, summarize
from glassloop.journal.recorder import Recorder, Subscriber, now_ms
from glassloop.journal.state import State, fold
from glassloop.journal.view import message_digest
from glassloop.memory.turn import HandedOver, handed_over, turn_of
from glassloop.middleware.approval import decided
from glassloop.options import RunOptions
from glassloop.results import raise_for, whole_result
from glassloop.run import Driven
from glassloop.stores import Store
from glassloop.stores.owner import this_process
from glassloop.tree import Driving, Tree, with_below

if TYPE_CHECKING:
    from glassloop.runnable import Runnable


async def begin(
    runs: Runnable,
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
        await recall(store.journal, before)
        recorder.keep_all(contents((started.input, *started.history)))
        recorder.record(replace(started, history=_not_in(before, started.history)))
        recorder.record(DriverClaimed(1, str(this_process()), len(before)))
        driving = Driving(Tree(store, options, subscribers), recorder, started, options)
        async with _as_root(runs, driving):
            await runs.drive(driving)
        return await _result(runs, driving)


async def go_on(
    runs: Runnable,
    store: Store,
    run_id: str,
    options: RunOptions,
    *,
    decisions: Mapping[str, Decision | bool],
    subscribers: Sequence[Subscriber] = (),
    letting_go: Callable[[], bool] = lambda: False,
) -> RunResult:
    """Take a run over, whatever it was cut off in, and drive it until it rests; raises like `Agent.resume`."""
    from glassloop.journal.deferred import tell_parent

    known = await _read(store, run_id, runs)
    started = known.started
    await tell_parent(store.journal, known.events)
    busy, fresh = options.get("when_busy", "queue"), known.session_length is None
    if fresh and known.cancelled and started.kind == "run":
        await end_unheard(store, run_id, started.identity.session)
        return runs.completed(await whole_result(store.journal, fold(await store.journal.read(run_id)), {}))
    async with held(store, run_id, started.identity, busy, fresh=fresh) as session:
        seen = await _read(store, run_id, runs)
        before = session if seen.session_length is None else session[: seen.session_length]
        state = fold(seen.events, before)
        await recall(store.journal, [*state.conversation, *state.results.values()])
        answers = await _answers(store, state, decisions)
        if state.finished is not None and (state.finished.outcome == "completed" or not known.finished):
            # complete, or ended by another while this driver waited for the session
            return runs.completed(await with_below(store, await whole_result(store.journal, state, {})))
        recorder = Recorder(store.journal, state, epoch=state.epoch + 1, history=before, subscribers=subscribers)
        told = handed_over(seen.events, before)
        recorder.record(DriverClaimed(recorder.epoch, str(this_process()), len(before)))
        fingerprint = runs.fingerprint_for(options)
        if fingerprint != state.fingerprint:
            recorder.record(AgentChanged(fingerprint))
        if state.finished is not None or options.get("limits") is not None:
            recorder.record(RunContinued(options.get("limits")))
        for answer in answers:
            recorder.record(answer)
        driving = Driving(Tree(store, options, subscribers, letting_go), recorder, started, options)
        await driving.tree.recall(run_id)
        async with _as_root(runs, driving, told):
            await runs.drive(driving)
        return await _result(runs, driving)


class _Seen:
    """A run as its journal has it before it is driven."""

    def __init__(self, started: RunStarted, events: Sequence[Event]) -> None:
        self.started, self.events = started, events
        self.session_length = session_length(events)
        self.finished = isinstance(events[-1].data, RunFinished)
        self.cancelled = not self.finished and any(isinstance(event.data, CancelRequested) for event in events)


async def _read(store: Store, run_id: str, runs: Runnable) -> _Seen:
    events = await store.journal.read(run_id)
    root = root_of(run_id)
    if events and root != run_id:
        raise ConfigurationError(f"Run {run_id} is a part of run {root}: go on with that one.")
    if not events or not isinstance(events[0].data, RunStarted):
        raise ConfigurationError(f"There is no run {run_id!r} in {store.url}.")
    started = events[0].data
    if started.agent != runs.name:
        raise ConfigurationError(f"Run {run_id} belongs to the agent {started.agent!r}, not to {runs.name!r}.")
    check_readable(run_id, events)
    row = summarize(events)
    if row is not None and row.owner not in (None, str(this_process())) and await store.liveness.alive(row.owner):
        raise Fenced(f"Run {run_id} is taken: it is driven by another process, which is alive ({row.owner}).")
    return _Seen(started, events)


@asynccontextmanager
async def _as_root(runs: Runnable, driving: Driving, told: HandedOver | None = None) -> AsyncGenerator[None]:
    """Within it a root is driven; then its messages are handed to its session, which was `told` of some before."""
    recorder, tree = driving.recorder, driving.tree
    recorder.turn, recorder.apart = partial(turn_of, before=told), tree.store.sessions_url is not None
    try:
        with tree.driven(driving):
            try:
                yield
            except asyncio.CancelledError:
                await _interrupted(driving)
                raise
    except asyncio.CancelledError as error:
        error.result = await tree.result_of(runs, driving)  # type: ignore[attr-defined] - documented
        raise
    finally:
        if recorder.clean:
            await hand_over(tree.store, recorder)


async def _interrupted(driving: Driving) -> None:
    """Have the run end, or be let go of, where it was cancelled before its loop could do that, or while it did."""
    recorder = driving.recorder
    if recorder.state.finished is None and not recorder.state.rested:
        run = Driven(recorder=recorder, letting_go=driving.letting_go, close_below=driving.close_below)
        await run.interrupted()
    await recorder.commit()


async def _result(runs: Runnable, driving: Driving) -> RunResult:
    result = await driving.tree.result_of(runs, driving)
    return raise_for(result, driving.error, driving.recorder.state.limits.on_limit)


def _not_in(session: Sequence[Message], history: Sequence[Message]) -> tuple[Message, ...]:
    """The history without what the session has already: a caller may give both."""
    if not session or not history:
        return tuple(history)
    known, same = Counter(map(message_digest, session)), list[bool]()
    for key in map(message_digest, history):
        same.append(known[key] > 0)
        known[key] -= same[-1]
    if all(same):
        return ()
    return tuple(message for at, message in enumerate(history) if not same[at] or _said_again(message, at, same))


def _said_again(message: Message, at: int, same: Sequence[bool]) -> bool:
    """Whether a user has said the same words ("yes") elsewhere: nothing beside them is what stands in the session."""
    return isinstance(message, UserMessage) and not any((*same[max(0, at - 1) : at], *same[at + 1 : at + 2]))


async def _answers(store: Store, state: State, decisions: Mapping[str, Decision | bool]) -> list[ApprovalDecided]:
    """What humans decided, as events, without what an attempt before this one has recorded.

    Decisions on calls of the runs below are recorded there.

    Raises:
        ConfigurationError: an approval that the run does not wait for, or a decision that comes too late or does not
            fit what was asked.
    """
    # a deferred call runs by itself, where it is decided
    waiting = {held.approval_id: held for call_id in state.open_calls if (held := state.held_by(call_id)) is not None}
    answers: list[ApprovalDecided] = []
    for approval_id, decision in decisions.items():
        answer, recorded = decided(approval_id, decision), state.decided.get(approval_id)
        if recorded is not None and _same(recorded, answer):
            continue
        if (asked := waiting.get(approval_id)) is not None:
            _check_time(approval_id, asked.expires_at)
            _check_fit(approval_id, decision, asked.kind, asked.choices)
            answers.append(answer)
        elif not await _answer_below(store, state.run_id, answer, decision):
            raise ConfigurationError(f"Run {state.run_id} has no approval {approval_id!r} that waits for a decision.")
    return answers


def _same(one: ApprovalDecided, other: ApprovalDecided) -> bool:
    return (one.decision, one.arguments, one.answer) == (other.decision, other.arguments, other.answer)


def _check_time(approval_id: str, expires_at: int | None) -> None:
    if expires_at is not None and expires_at <= now_ms():
        raise ConfigurationError(f"{approval_id}: the time to decide has passed. Cancel the run, and begin it again.")


def _check_fit(approval_id: str, decision: Decision | bool, kind: str, choices: Sequence[str]) -> None:
    if problem := misfit(decision, kind, choices):
        raise ConfigurationError(f"{approval_id}: {problem}")


async def _answer_below(store: Store, root: str, answer: ApprovalDecided, decision: Decision | bool) -> bool:
    """Record a decision on a call of a run below; False where none waits for it."""
    from glassloop.journal.deferred import record_answer

    for row in await store.journal.approvals(ApprovalFilter(id=answer.approval_id)):
        if row.run_id != root and root_of(row.run_id) == root and row.mode != "defer":
            if row.decision not in (None, WITHDRAW):
                return True
            _check_time(answer.approval_id, row.expires_at)
            _check_fit(answer.approval_id, decision, row.kind, loads(row.choices))
            return await record_answer(store.journal, row.run_id, answer)
    return False
