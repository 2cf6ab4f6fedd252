"""One run and what the loop needs to drive it."""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from glassloop.core.context import RunContext
from glassloop.core.encoding import loads
from glassloop.core.errors import FatalToolError, ModelError, RunError, StoreError
from glassloop.core.events import (
    CallSuspended,
    DriverRested,
    HandedOff,
    Nudged,
    RunFinished,
    Summarized,
    ToolAborted,
    ToolFinished,
    ToolProgress,
    UndoFinished,
    UndoStarted,
)
from glassloop.core.insist import insist
from glassloop.core.messages import Reply, ResultStatus, ToolResult
from glassloop.core.usage import Usage
from glassloop.journal.allowance import Allowance
from glassloop.journal.budget import Terms
from glassloop.journal.moves import AskModel, Finish, Nudge, Summarize
from glassloop.journal.recorder import Recorder
from glassloop.journal.requests import RequestLog
from glassloop.journal.state import State
from glassloop.journal.view import View, message_digest
from glassloop.middleware.call import Call, Done, Ended, Failed, ModelCall, ModelNext, Pending
from glassloop.middleware.outcome import outcome_of
from glassloop.models.model import Model, ModelRequest, ModelSettings, OutputSpec, ToolSpec
from glassloop.models.prices import Prices
from glassloop.tools.output import Output
from glassloop.tools.signature import takes_context_first
from glassloop.tools.threads import run_in_thread
from glassloop.tools.toolset import ToolIndex

UNDO_SECONDS = 60.0
SEAT = ("requests", "model", "ask", "call", "tools", "context", "instructions", "settings", "prices", "view", "output")
"""What of a run is its agent's."""

_log = logging.getLogger("glassloop.run")

_SAID = ("stop", "length", "unknown")


@dataclass(kw_only=True)
class Driven:
    """A run that is driven: by the loop, or by the code of a flow.

    Args:
        recorder: the journal's one writer, with the state.
        error: the exception behind an outcome `failed`.
        task: the task that drives it.
        cancels: cancellations of that task that are not this run's.
        letting_go: whether a cancellation only lets go of the run, which does not end with it.
        close_below: ends the runs below this one.
    """

    recorder: Recorder
    error: RunError | None = None
    task: asyncio.Task[Any] | None = None
    cancels: int = 0
    letting_go: Callable[[], bool] = lambda: False
    close_below: Callable[[], Awaitable[None]] | None = None

    @asynccontextmanager
    async def guarded(self) -> AsyncGenerator[None]:
        """Within it the run's clock runs, and whatever ends the driving is an outcome of the run.

        Raises:
            asyncio.CancelledError: cancelled; the run has its outcome.
            StoreError: the journal failed; the run can be resumed.
        """
        self.task = asyncio.current_task()
        self.cancels = self.task.cancelling() if self.task else 0
        state, limits = self.recorder.state, self.recorder.state.limits
        left = None if limits.seconds is None else limits.seconds - state.active_ms / 1000
        clock = self.recorder.stopwatch.limit(left)
        try:
            async with clock:
                yield
        except TimeoutError:
            if not clock.expired():
                raise
            text = f"The run used its {limits.seconds:g} seconds without finishing."
            await self.finish(Finish("limited", output=state.said, limit="seconds", message=text))
        except asyncio.CancelledError:
            await self.interrupted()
            raise
        except StoreError:
            raise
        except Exception as error:
            text = f"An unexpected {type(error).__name__} ended the run."
            await self.finish(Finish("failed", message=text, error_kind="unexpected"))
            raise

    async def rest(self) -> bool:
        """Let go of the run, which waits for a human; False where one has decided, or cancelled it, just then."""
        self.recorder.record(DriverRested(waiting=True))
        await self.recorder.commit()
        return self.recorder.state.rested

    async def interrupted(self) -> None:
        """The driving was cancelled: so is the run, unless it is only let go of; then any driver may go on."""
        if self.letting_go():
            self.recorder.record(DriverRested(waiting=False))
            return await self.recorder.commit()
        output = self.recorder.state.said
        return await self.finish(Finish("cancelled", output=output, message="The run was cancelled."))

    async def finish(self, end: Finish) -> None:
        """End the runs below, give every open call its result, then close the run.

        In this order: a crash in between leaves a run that goes on, and none that nobody looks after.
        """
        if self.close_below is not None:
            await self.close_below()
        await close(self.recorder, end)


@dataclass(kw_only=True)
class Run(Driven):
    """What the loop needs to drive one run.

    Args:
        requests: describes each model request for the journal.
        model: who is asked.
        ask: the model stack.
        call: the tool stack.
        tools: the tools of this moment, and how the model sees them.
        context: what tools may know.
        instructions: the system prompt.
        settings: how to sample.
        prices: what a reply costs.
        view: what of the conversation the next request shows; None where it shows everything.
        left: what the tree of runs leaves to this one.
        output: what the answer must be; None for a text.
        agent: whose model, instructions and tools these are.
        seat: what the loop needs for another agent of this name.
    """

    requests: RequestLog
    model: Model
    ask: ModelNext
    call: Callable[[Call], Awaitable[Ended]]
    tools: Callable[[], Awaitable[tuple[ToolIndex, tuple[ToolSpec, ...]]]]
    context: RunContext[Any]
    instructions: str
    settings: ModelSettings
    prices: Prices
    view: Callable[[State, int], Awaitable[View | None]] | None = None
    left: Callable[[], Allowance | None] = lambda: None
    output: Output[Any] | None = None
    agent: str = ""
    seat: Callable[[str], Awaitable[Run]] | None = None

    async def take_over(self) -> None:
        """Let the agent that has the conversation now have its own model, instructions and tools.

        Calls that are still to be run were made by the agent before it, and are run with that agent's tools.
        """
        state = self.recorder.state
        speaker = state.caller if state.open_calls else state.speaker
        if speaker == self.agent or self.seat is None:
            return
        other = await self.seat(speaker)
        for name in SEAT:
            setattr(self, name, getattr(other, name))
        self.agent = speaker

    @property
    def wanted(self) -> OutputSpec | None:
        """What the answer must be, as a model is told."""
        return self.output.spec if self.output is not None else None

    def terms(self, index: ToolIndex, head_bytes: int, view: View | None) -> Terms:
        """What the next decision needs beside the state."""
        return Terms(
            self.recorder.now(),
            head_bytes,
            self.prices.rates,
            self.model.name,
            index.undoable,
            index.sequential,
            view,
            self.left(),
            output=self.output,
            tools=index.by_name,
            switches=self.settings.tool_mode == "auto",
        )

    def settings_for(self, move: AskModel) -> ModelSettings:
        """How the next request samples and how its tools travel; the same object while nothing of that changes.

        Where a call is forced, it is so until one has been made: a model that must always call could never answer. An
        answer that is itself given by a call is another matter.
        """
        mode, state = self.settings.tool_mode, self.recorder.state
        if mode == "auto" and "schema_mode" in state.nudges:
            mode = "schema"
        if state.executions and self.output is None and self.settings.tool_choice not in (None, "auto", "none"):
            self.settings = replace(self.settings, tool_choice=None)
        if (self.settings.max_tokens, self.settings.tool_mode) != (move.max_tokens, mode):
            self.settings = replace(self.settings, max_tokens=move.max_tokens, tool_mode=mode)
        return self.settings

    def nudge(self, nudge: Nudge) -> None:
        """Tell the model to do what it said."""
        if nudge.reason == "schema_mode":
            _log.warning("%s wrote a tool call as text; from here on its tools travel as a schema", self.model.name)
        self.recorder.record(Nudged(nudge.message, nudge.reason))

    def progress(self, call_id: str) -> Callable[[Any], None] | None:
        """What a tool's progress goes to, from any thread; None where nobody watches."""
        if not self.recorder.watched:
            return None
        loop, thread = asyncio.get_running_loop(), threading.get_ident()

        def tell(value: object) -> None:
            data = ToolProgress(call_id, value)
            if threading.get_ident() == thread:
                self.recorder.emit(data)
            else:
                loop.call_soon_threadsafe(self.recorder.emit, data)

        return tell

    def settle(self, call: Call, ended: Ended, ms: float) -> None:
        """Record the one result of a call; a pending one has none yet, and a transaction has recorded its own."""
        if isinstance(ended, Pending) and ended.below is not None:
            self.recorder.record(CallSuspended(call.call.id, ended.below))
        if isinstance(ended, Pending) or call.recorded:
            return
        target: Any = getattr(call.tool.function, "hands_off_to", None) if call.tool else None
        if target is not None and isinstance(ended, Done):
            ended = self._handed_off(call, target.name, ended)
        private = ended.private if isinstance(ended, Failed) else None
        outcome = outcome_of(call, ended, ms)
        self.recorder.keep_all(outcome.blobs)
        self.recorder.values.update(outcome.values)
        self.recorder.record(outcome.data, private)

    def _handed_off(self, call: Call, agent: str, ended: Done) -> Done | Failed:
        state = self.recorder.state
        if state.handoffs and state.handoffs[-1] == state.step:
            return Failed(f"The conversation has been handed to {state.speaker} already, in this very step.")
        self.recorder.record(HandedOff(call.call.id, agent))
        return ended

    async def summarize(self, move: Summarize) -> None:
        """Have the older part of the conversation summarised, or record that it is left out without."""
        wanted, reply, error = move.wanted, None, move.problem
        model, prices = wanted.model or self.model, wanted.prices or self.prices
        began = time.perf_counter()
        if error is None:
            try:
                reply = await self._summary(move, model)
            except ModelError as failed:
                error = str(failed)
        text = reply.text.strip() if reply is not None and reply.stop in _SAID else ""
        self.recorder.record(
            Summarized(
                wanted.start,
                wanted.stop,
                wanted.covered,
                text or None,
                error=None if text else error or "The model gave no summary.",
                model="" if move.problem else model.name,
                usage=reply.usage if reply else Usage(),
                cost_usd=prices.cost(reply) if reply else 0.0,
                ms=round((time.perf_counter() - began) * 1000, 3),
            )
        )
        await self.recorder.commit()

    async def _summary(self, move: Summarize, model: Model) -> Reply:
        """Ask, as for a step, but without tools and without anybody watching."""
        wanted = move.wanted
        settings = ModelSettings(timeout=self.settings.timeout, idle_timeout=self.settings.idle_timeout)
        if wanted.model is None:
            extra = {key: value for key, value in self.settings.extra.items() if key != "tools"}
            settings = replace(settings, extra=extra)
        settings = replace(settings, max_tokens=move.max_tokens)
        request = ModelRequest(wanted.messages, wanted.instructions, settings=settings)
        placed = {message_digest(message): message for message in wanted.messages}
        view = View(wanted.messages, tuple(placed), placed)
        self.recorder.record(self.requests.describe(request, model.name, move, view))
        await self.recorder.commit()
        return await self.ask(ModelCall(model, request, self.recorder, aside=True))

    def abort(self, error: FatalToolError) -> None:
        """A tool asked for the run to stop."""
        self.error = error
        call_id = str(getattr(error, "call_id", ""))
        call = self.recorder.state.open_calls.get(call_id)
        if call is not None:
            result = ToolResult(call_id, call.name, str(error), "error")
            self.recorder.record(ToolFinished(call_id, result, 0.0))
        self.recorder.record(ToolAborted(call_id, str(error), error.kind))

    async def undo(self, index: ToolIndex, done: ToolFinished) -> None:
        """Undo one finished write; its start is journaled, so that a crash never repeats it."""
        tool = index.find(done.result.name)
        assert tool is not None
        assert tool.undo is not None
        context = self.context.for_call(0, f"undo/{done.call_id}", None)
        self.recorder.record(UndoStarted(done.call_id, context.idempotency_key))
        await self.recorder.commit()
        arguments = loads(done.arguments or "{}")
        value = self.recorder.values.get(done.call_id)
        if value is None and done.value is not None:
            value = await self.recorder.value(done.value)
        elif value is None:
            value = loads(done.result.content) if done.form == "json" else done.result.content
        error: str | None = None
        try:
            undo = partial(tool.undo, context) if takes_context_first(tool.undo) else tool.undo
            async with asyncio.timeout(UNDO_SECONDS):
                if inspect.iscoroutinefunction(undo):
                    await insist(undo(arguments, value), f"The undo of {tool.name}")
                else:
                    await run_in_thread(lambda: undo(arguments, value))
        except Exception as failed:  # noqa: BLE001 - the other undos must still run
            error = type(failed).__name__
        self.recorder.record(UndoFinished(done.call_id, error))
        await self.recorder.commit()


async def close(recorder: Recorder, end: Finish) -> None:
    """Give every open call its result, then close the run."""
    state = recorder.state
    for call in list(state.open_calls.values()):
        begun = call.id in state.begun
        status: ResultStatus = "unknown" if begun else "cancelled"
        text = _INTERRUPTED_WRITE if begun else _INTERRUPTED
        recorder.record(ToolFinished(call.id, ToolResult(call.id, call.name, text, status), 0.0))
    recorder.record(RunFinished(end.outcome, end.output, end.message, end.limit, end.error_kind))
    await recorder.commit()


_INTERRUPTED = "Not finished: the run was interrupted or cancelled before this call had a result."
_INTERRUPTED_WRITE = "Interrupted or cancelled after it had begun: whether it took effect is unknown."
