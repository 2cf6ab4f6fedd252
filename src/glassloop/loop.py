"""THE loop: look at what is missing, do that one thing, record it, look again.

A run is its journal. Each turn `next_move` reads the folded state and says what to do: ask the model, run tool calls,
nudge, have the older part summarised, wait for a human, finish. Nothing is remembered here, so a fresh run and one that
goes on after a crash, an approval or a fork take the same path. Every defence is middleware around `ask` and `call`;
none is in this file.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from glassloop.core.errors import FatalToolError, ModelError
from glassloop.core.events import AttemptFailed, ModelReplied, ToolStarted
from glassloop.core.messages import ToolCall
from glassloop.journal.moves import AskModel, Finish, Nudge, Rest, RunCalls, Summarize, Undo, Wait, next_move
from glassloop.journal.view import View
from glassloop.middleware.call import Call, ModelCall
from glassloop.models.model import ModelRequest, ToolSpec
from glassloop.run import Run
from glassloop.tools.calls import prepare_calls
from glassloop.tools.toolset import ToolIndex


async def drive(run: Run) -> None:
    """Drive a run until it rests: finished, or waiting for a human.

    Raises:
        asyncio.CancelledError: cancelled; the run has its outcome.
        StoreError: the journal failed; the run can be resumed.
    """
    async with run.guarded():
        while True:
            await run.take_over()
            index, specs = await run.tools()
            head = run.requests.head_bytes(run.instructions, specs, run.wanted)
            view = await run.view(run.recorder.state, head) if run.view else None
            match next_move(run.recorder.state, run.terms(index, head, view)):
                case AskModel() as move:
                    await _ask(run, index, specs, move, view)
                case Summarize() as move:
                    await run.summarize(move)
                case RunCalls(calls):
                    await _run_calls(run, index, calls)
                case Nudge() as nudge:
                    run.nudge(nudge)
                case Undo(execution):
                    await run.undo(index, execution)
                case Finish() as end:
                    return await run.finish(end)
                case Wait():
                    if await run.rest():
                        return None
                case Rest():
                    return await run.recorder.commit()
            _raise_if_cancelled(run)


async def _ask(run: Run, index: ToolIndex, specs: tuple[ToolSpec, ...], move: AskModel, view: View | None) -> None:
    """One step: ask the model and record what it says. Without a view it reads the whole conversation."""
    request = ModelRequest(
        messages=tuple(run.recorder.state.conversation) if view is None else view.messages,
        instructions=run.instructions,
        tools=() if move.final else specs,
        settings=run.settings_for(move),
        stream=run.recorder.watched,
        output=run.wanted,
    )
    run.recorder.record(run.requests.describe(request, run.model.name, move, view))
    await run.recorder.commit()
    began = time.perf_counter()
    call = ModelCall(run.model, request, run.recorder)
    try:
        reply = await run.ask(call)
    except ModelError as error:
        run.error = error
        run.recorder.record(
            AttemptFailed(run.model.name, error.kind, str(error), error.status, None, error.partial or call.text)
        )
        return
    reply = prepare_calls(reply, index, run.recorder.state.limits.calls_per_step, run.wanted)
    run.recorder.record(ModelReplied(reply, _ms(began), run.prices.cost(reply)))


async def _run_calls(run: Run, index: ToolIndex, calls: Sequence[ToolCall]) -> None:
    """Run calls of one step side by side.

    The reply becomes durable before a write begins, and within moments where all calls read; results of reads with the
    next model request, in one append for the whole step.
    """
    soon = run.recorder.commit_soon()
    try:
        if len(calls) == 1:
            # a task of its own, too: before Python 3.13 a TaskGroup of the tool leaves its cancellation on its task
            await asyncio.create_task(_run_call(run, index, calls[0]))
        else:
            async with asyncio.TaskGroup() as group:
                # waited for in here: Python 3.11's group takes back its cancellation of this task only then
                await asyncio.wait([group.create_task(_run_call(run, index, call)) for call in calls])
    except FatalToolError as error:
        run.abort(error)
    except BaseExceptionGroup as failures:
        first = failures.exceptions[0]
        if not isinstance(first, FatalToolError):
            raise first from None
        run.abort(first)
    finally:
        soon.cancel()


async def _run_call(run: Run, index: ToolIndex, call: ToolCall) -> None:
    run.recorder.emit(ToolStarted(call.id, call.name, call.arguments))
    context = run.context.for_call(run.recorder.state.step, call.id, run.progress(call.id))
    travelling = Call(call, index, context, run.recorder, call.arguments)
    began = time.perf_counter()
    try:
        ended = await run.call(travelling)
    except FatalToolError as error:
        error.call_id = call.id
        raise
    run.settle(travelling, ended, _ms(began))
    if travelling.tool is not None and travelling.tool.effect == "write":
        await run.recorder.commit()


def _raise_if_cancelled(run: Run) -> None:
    """A tool that swallows a cancellation does not save the run from it."""
    if run.task is not None and run.task.cancelling() > run.cancels:
        raise asyncio.CancelledError


def _ms(began: float) -> float:
    return round((time.perf_counter() - began) * 1000, 3)
