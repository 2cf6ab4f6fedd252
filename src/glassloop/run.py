"""One run and what the loop needs to drive it."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from glassloop.core.context import RunContext
from glassloop.core.encoding import loads
from glassloop.core.errors import FatalToolError, RunError
from glassloop.core.events import (
    DriverRested,
    RunFinished,
    ToolAborted,
    ToolFinished,
    ToolProgress,
    UndoFinished,
    UndoStarted,
)
from glassloop.core.messages import ResultStatus, ToolResult
from glassloop.journal.moves import Finish
from glassloop.journal.recorder import Recorder
from glassloop.journal.requests import RequestLog
from glassloop.middleware.call import Call, Ended, Failed, ModelNext, Pending
from glassloop.middleware.outcome import outcome_of
from glassloop.models.model import Model, ModelSettings, ToolSpec
from glassloop.models.prices import Prices
from glassloop.tools.threads import run_in_thread
from glassloop.tools.toolset import ToolIndex

UNDO_SECONDS = 60.0


@dataclass
class Run:
    """What the loop needs to drive one run.

    Args:
        recorder: the journal's one writer, with the state.
        requests: describes each model request for the journal.
        model: who is asked.
        ask: the model stack.
        call: the tool stack.
        tools: the tools of this moment, and how the model sees them.
        context: what tools may know.
        instructions: the system prompt.
        settings: how to sample.
        prices: what a reply costs.
        error: the exception behind an outcome `failed`.
        task: the task that drives it.
        cancels: cancellations of that task that are not this run's.
        letting_go: whether a cancellation means that this process stops, and not that the run does.
    """

    recorder: Recorder
    requests: RequestLog
    model: Model
    ask: ModelNext
    call: Callable[[Call], Awaitable[Ended]]
    tools: Callable[[], Awaitable[tuple[ToolIndex, tuple[ToolSpec, ...]]]]
    context: RunContext[Any]
    instructions: str
    settings: ModelSettings
    prices: Prices
    error: RunError | None = None
    task: asyncio.Task[Any] | None = None
    cancels: int = 0
    letting_go: Callable[[], bool] = lambda: False

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
        if isinstance(ended, Pending) or call.recorded:
            return
        private = ended.private if isinstance(ended, Failed) else None
        outcome = outcome_of(call, ended, ms)
        self.recorder.keep_all(outcome.blobs)
        self.recorder.values.update(outcome.values)
        self.recorder.record(outcome.data, private)

    def abort(self, error: FatalToolError) -> None:
        """A tool asked for the run to stop."""
        self.error = error
        call_id = str(getattr(error, "call_id", ""))
        call = self.recorder.state.open_calls.get(call_id)
        if call is not None:
            result = ToolResult(call_id, call.name, str(error), "error")
            self.recorder.record(ToolFinished(call_id, result, 0.0))
        self.recorder.record(ToolAborted(call_id, str(error)))

    async def undo(self, index: ToolIndex, done: ToolFinished) -> None:
        """Undo one finished write; its start is journaled, so that a crash never repeats it."""
        tool = index.find(done.result.name)
        assert tool is not None
        assert tool.undo is not None
        key = self.context.for_call(0, f"undo/{done.call_id}", None).idempotency_key
        self.recorder.record(UndoStarted(done.call_id, key))
        await self.recorder.commit()
        arguments = loads(done.arguments or "{}")
        value = self.recorder.values.get(done.call_id)
        if value is None and done.value is not None:
            value = await self.recorder.value(done.value)
        elif value is None:
            value = loads(done.result.content) if done.form == "json" else done.result.content
        error: str | None = None
        try:
            async with asyncio.timeout(UNDO_SECONDS):
                if inspect.iscoroutinefunction(tool.undo):
                    await tool.undo(arguments, value)
                else:
                    await run_in_thread(lambda: tool.undo(arguments, value) if tool.undo else None)
        except Exception as failed:  # noqa: BLE001 - the other undos must still run
            error = type(failed).__name__
        self.recorder.record(UndoFinished(done.call_id, error))
        await self.recorder.commit()

    async def interrupted(self) -> None:
        """The driving was cancelled: so is the run, unless only this process stops; then any driver may go on."""
        if self.letting_go():
            self.recorder.record(DriverRested())
            return await self.recorder.commit()
        return await self.finish(Finish("cancelled", message="The run was cancelled."))

    async def finish(self, end: Finish) -> None:
        """Give every open call its result, then close the run."""
        await close(self.recorder, end)


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
