"""A run watched while it goes."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic

from glassloop.core.errors import ConfigurationError
from glassloop.core.events import Event, ModelRequested, ReplyRestarted, TextDelta
from glassloop.core.ids import root_of
from glassloop.core.result import OutputT, RunResult
from glassloop.journal.recorder import Subscriber

if TYPE_CHECKING:
    from glassloop.tools.output import Output

Start = Callable[[Subscriber], Awaitable[RunResult[OutputT]]]


class RunStream(Generic[OutputT]):
    """The events of one run as they happen, and its result at the end.

    Iterate it inside `async with`, or directly; leaving either way before the end cancels the run, and with it the
    request to the model and the running tools. After the last event, `run_finished`, iteration raises what `Agent.run`
    would raise (`LimitReached`, `ModelError`, `FatalToolError`); it just ends where another task has called `cancel`.
    """

    def __init__(self, start: Start[OutputT], output: Output[OutputT] | None = None) -> None:
        self._start = start
        self._output = output
        self._events: deque[Event] = deque()
        self._news = asyncio.Event()
        self._task: asyncio.Task[RunResult[OutputT]] | None = None
        self._cancelled: RunResult[OutputT] | None = None
        self._run_id: str | None = None
        self._whole = False

    def whole(self) -> RunStream[OutputT]:
        """The same stream with the events of the runs below, too; each names its `run_id`."""
        self._whole = True
        return self

    @property
    def result(self) -> RunResult[OutputT]:
        """The result, once the run rests: also of one that was cancelled, by `cancel` or by leaving the stream.

        Raises:
            RuntimeError: it does not rest yet.
            RunError: what `Agent.run` would have raised.
            asyncio.CancelledError: it was cancelled before it had begun.
        """
        if self._task is None or not self._task.done():
            raise RuntimeError("The run has not finished: read the stream to its end first.")
        return self._cancelled or self._task.result()

    def __aiter__(self) -> AsyncGenerator[Event]:
        # not kept here: a loop that is left early drops the generator, and with it the run, at once
        return self._iterate()

    async def partial(self) -> AsyncGenerator[Any]:
        """The answer as it grows: each time as plain JSON values, as far as the model has written it.

        Nothing of it is validated, and the model may still be sent back to correct it: the answer that counts is
        `result.value`, after the last.

        Raises:
            ConfigurationError: the agent has no output type.
                And what iterating the stream raises.
        """
        if self._output is None:
            raise ConfigurationError("Only an agent with an output type has partial answers: Agent(output=...).")
        said, last = "", None
        async with aclosing(self._iterate()) as events:
            async for event in events:
                match event.data:
                    case TextDelta(text) if event.run_id == self._run_id:
                        said += text
                    case ModelRequested() | ReplyRestarted() if event.run_id == self._run_id:
                        said = ""
                        continue
                    case _:
                        continue
                value = self._output.partial(said)
                if value is not None and value != last:
                    yield value
                    last = value

    async def __aenter__(self) -> RunStream[OutputT]:
        self._begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.cancel()

    async def cancel(self) -> None:
        """Stop the run and wait until it has stopped; nothing if it rests already."""
        if self._task is None or self._task.done():
            return
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _iterate(self) -> AsyncGenerator[Event]:
        task = self._begin()
        try:
            while True:
                while self._events:
                    yield self._events.popleft()
                if task.done():
                    break
                self._news.clear()
                await self._news.wait()
            if not task.cancelled():  # that the run was stopped is no cancellation of whoever reads
                task.result()
        finally:
            await self.cancel()

    def _begin(self) -> asyncio.Task[RunResult[OutputT]]:
        if self._task is None:
            self._task = asyncio.ensure_future(self._run())
            self._task.add_done_callback(self._finished)
        return self._task

    async def _run(self) -> RunResult[OutputT]:
        try:
            return await self._start(self._take)
        except asyncio.CancelledError as error:
            self._cancelled = getattr(error, "result", None)
            raise

    def _take(self, event: Event) -> None:
        self._run_id = self._run_id or root_of(event.run_id)
        if event.run_id != self._run_id and not self._whole:
            return
        self._events.append(event)
        self._news.set()

    def _finished(self, task: asyncio.Task[RunResult[OutputT]]) -> None:
        if not task.cancelled():
            task.exception()  # a consumer who left does not want it
        self._news.set()
