"""From a run's state to what the caller gets, and to the exception it may have to be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from glassloop.core.encoding import loads
from glassloop.core.errors import FatalToolError, LimitReached, ModelError, RunError
from glassloop.core.events import ToolFinished
from glassloop.core.limits import OnLimit
from glassloop.core.result import PendingApproval, RunResult, ToolExecution
from glassloop.core.usage import Spent
from glassloop.journal.journal import Journal
from glassloop.journal.state import State
from glassloop.middleware.approval import pending_of


def result_of(state: State, values: Mapping[str, Any] | None = None) -> RunResult:
    """The result of a run that rests.

    Args:
        state: the run.
        values: whole tool results by call id, where the model saw less of them.
    """
    end = state.finished
    last = state.replies[-1] if state.replies else None
    return RunResult(
        run_id=state.run_id,
        outcome=end.outcome if end else "waiting",
        output=end.output if end else None,
        messages=tuple(state.conversation),
        steps=state.step,
        usage=state.usage,
        cost_usd=state.cost_usd,
        replies=tuple(state.replies),
        tool_executions=_executions(state, values or {}),
        nudges=tuple(state.nudges),
        pending=_pending(state),
        message=end.message if end else None,
        limit=end.limit if end else None,
        refusal=end.message if end and end.outcome == "refused" else None,
        seconds=state.active_ms / 1000,
        agent=state.speaker,
        spent=Spent(state.usage.total, state.cost_usd, state.step),
        error_kind=(end.error_kind if end else None) or (last.stop if last and last.stop == "length" else None),
    )


async def whole_result(journal: Journal, state: State, known: Mapping[str, Any]) -> RunResult:
    """The result of a run with all of its values, also those from before it was taken over.

    Args:
        journal: where they stand.
        state: the run.
        known: whole tool results by call id, as far as they are at hand.
    """
    values = dict(known)
    for _, done in state.executions:
        if done.value is not None and done.call_id not in values:
            try:
                values[done.call_id] = loads(await journal.blob(done.value))
            except KeyError:
                continue  # erased
    return result_of(state, values)


def raise_for(result: RunResult, cause: RunError | None, on_limit: OnLimit) -> RunResult:
    """The result, or the exception that its outcome is.

    Raises:
        LimitReached: a limit stopped the run, and it was not asked to answer or return then.
        ModelError: the model or its server failed.
        FatalToolError: a tool stopped the run.
    """
    message = result.message or f"The run ended: {result.outcome}."
    error: RunError | None = None
    if result.outcome == "failed" and isinstance(cause, ModelError):
        error = cause
    elif result.outcome == "failed" and result.error_kind == "fatal_tool":
        error = cause if isinstance(cause, FatalToolError) else FatalToolError(message)
    elif result.outcome == "failed":
        error = ModelError(message, kind=result.error_kind or "protocol")  # pyright: ignore[reportArgumentType] - as recorded
    elif result.outcome == "limited" and on_limit == "raise":
        error = LimitReached(message, limit=result.limit or "")
    if error is None:
        return result
    error.result = result
    raise error


def _executions(state: State, values: Mapping[str, Any]) -> tuple[ToolExecution, ...]:
    order = {call.id: number for number, call in enumerate(call for reply in state.replies for call in reply.calls)}
    done = sorted(state.executions, key=lambda item: order.get(item[1].call_id, 0))
    return tuple(_execution(step, finished, values) for step, finished in done)


def _execution(step: int, finished: ToolFinished, values: Mapping[str, Any]) -> ToolExecution:
    result = finished.result
    value: Any = None
    if result.status == "ok":
        value = values.get(finished.call_id)
        if value is None and finished.value is None:
            value = loads(result.content) if finished.form == "json" else result.content
    return ToolExecution(
        call_id=finished.call_id,
        step=step,
        tool=result.name,
        arguments=None if finished.arguments is None else loads(finished.arguments),
        status=result.status,
        content=result.content,
        value=value,
        ms=finished.ms,
        reason=finished.reason,
        confidence=finished.confidence,
        replayed=finished.replayed,
    )


def _pending(state: State) -> tuple[PendingApproval, ...]:
    """Calls that wait for a human: the held ones of a run that rests, and the deferred ones of any."""
    by_id = {call.id: call for reply in state.replies for call in reply.calls}
    asked = [*state.asked.values(), *(questions[-1] for questions in state.questions.values())]
    return tuple(
        pending_of(state, one, by_id[one.call_id].provider_id)
        for one in asked
        if one.approval_id not in state.decided and (one.mode == "defer" or one.call_id in state.open_calls)
    )
