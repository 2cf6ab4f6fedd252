"""One run and what the loop needs to drive it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from glassloop.core.context import RunContext
from glassloop.core.encoding import dumps
from glassloop.core.errors import RunError
from glassloop.core.events import RunFinished, ToolFinished, ToolProgress
from glassloop.core.messages import ResultStatus, ToolResult
from glassloop.journal.moves import Finish
from glassloop.journal.recorder import Recorder
from glassloop.journal.requests import RequestLog
from glassloop.middleware.call import Call, Done, Ended, Failed, ModelNext, Pending
from glassloop.models.model import Model, ModelSettings, ToolSpec
from glassloop.models.prices import Prices
from glassloop.tools.results import render_result
from glassloop.tools.toolset import ToolIndex


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
        """Record the one result of a call; a pending one has none yet."""
        match ended:
            case Done(value):
                shown = render_result(value)
                self.recorder.keep_media(shown.media)
                content = self._noted(call, shown.content)
                complete = shown.complete and content == shown.content
                whole = None if complete else self.recorder.keep_value(call.call.id, shown.value)
                result = ToolResult(call.call.id, call.call.name, content, media=shown.media)
                self._finished(call, result, ms, value=whole, form=shown.form)
            case Failed(message, status, private):
                result = ToolResult(call.call.id, call.call.name, self._noted(call, message), status)
                self._finished(call, result, ms, private)
            case Pending():
                pass

    async def finish(self, end: Finish) -> None:
        """Give every open call its result, then close the run."""
        state = self.recorder.state
        for call in list(state.open_calls.values()):
            begun = call.id in state.begun
            status: ResultStatus = "unknown" if begun else "cancelled"
            text = _INTERRUPTED_WRITE if begun else _INTERRUPTED
            self.recorder.record(ToolFinished(call.id, ToolResult(call.id, call.name, text, status), 0.0))
        self.recorder.record(RunFinished(end.outcome, end.output, end.message, end.limit, end.error_kind))
        await self.recorder.commit()

    def _finished(
        self,
        call: Call,
        result: ToolResult,
        ms: float,
        private: Any = None,
        value: str | None = None,
        form: Any = "text",
    ) -> None:
        arguments = None if call.arguments is None else dumps(call.arguments).decode()
        said = (call.reason, call.confidence, call.replayed)
        self.recorder.record(ToolFinished(call.call.id, result, ms, arguments, value, form, *said), private)

    def _noted(self, call: Call, content: str) -> str:
        """The last kept call of an oversized reply tells the model what was cut."""
        reply = self.recorder.state.replies[-1]
        if not reply.dropped_calls or call.call.id != reply.calls[-1].id:
            return content
        most = self.recorder.state.limits.calls_per_step
        return f"{content}\n[{reply.dropped_calls} further calls were dropped: at most {most} are run in one step.]"


_INTERRUPTED = "Not finished: the run was interrupted or cancelled before this call had a result."
_INTERRUPTED_WRITE = "Interrupted or cancelled after it had begun: whether it took effect is unknown."
