"""Drive one run in the background and show it in the foreground: events, questions to a human, Ctrl-C."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Literal

from glassloop.cli.background import Background
from glassloop.cli.problems import CANCELLED, Problem, leave_at_once, say
from glassloop.cli.signals import Terminated
from glassloop.core.errors import RunError
from glassloop.core.events import Event, TextDelta, ThinkingDelta
from glassloop.core.result import Decision, PendingApproval, RunResult

if TYPE_CHECKING:
    from glassloop.middleware.approval import Approver
    from glassloop.stream import RunStream

Begin = Callable[["Approver | None"], "RunStream"]
"""Makes the run, given whom it may ask about held calls."""

Said = Decision | Literal["park"]
Ask = Callable[[PendingApproval], Said]
"""Asks the human at the terminal, in the main thread; `park` leaves the call to somebody else."""

Show = Callable[[Event], None]

_LONG_S = 2.0


class Interrupted(KeyboardInterrupt):
    """Ctrl-C while a run was going; the run has stopped, and `result` is what it came to, if it had begun."""

    def __init__(self, result: RunResult | None, *, leave: bool) -> None:
        super().__init__()
        self.result = result
        self.leave = leave


def watch(background: Background, begin: Begin, show: Show, ask: Ask | None = None) -> RunResult:
    """Run to rest and return the result, also where `Agent.run` would raise it (LimitReached, ModelError, ...).

    Args:
        background: the loop that drives it.
        begin: makes the run.
        show: called with each event, in this thread.
        ask: decides about held calls, in this thread, one after another; None lets the run rest at them.

    Raises:
        Interrupted: Ctrl-C, SIGTERM or SIGHUP; the run was cancelled and has stopped.
        GlassloopError: the run could not begin.
    """
    run = _Run(begin, ask is not None)
    future = background.start(run.go())
    try:
        while (news := run.news.get()) is not None:
            if isinstance(news, Event):
                show(news)
            elif ask is not None and not news.late:
                _put(news, ask)
        result = future.result()
    except KeyboardInterrupt as error:
        if sys.stderr.isatty():
            say("")  # the terminal has written ^C
        _stop(background, run, show)
        raise Interrupted(_result_of(future), leave=isinstance(error, Terminated)) from None
    except BaseException:
        _stop(background, run, None)
        raise
    if result is None:
        raise Problem("The run was cancelled before it had begun.", CANCELLED)
    return result


class _Run:
    def __init__(self, begin: Begin, asks: bool) -> None:
        self.news: SimpleQueue[Event | _Question | None] = SimpleQueue()
        self.stream = begin(self._ask if asks else None)
        self.over = False
        self._unwanted = False

    async def cancel(self) -> None:
        """Stop it, or do not begin it."""
        self._unwanted = True
        await self.stream.cancel()

    async def go(self) -> RunResult | None:
        """Drive it; None if it was cancelled before it began."""
        try:
            if self._unwanted:
                return None
            async with self.stream:
                async for event in self.stream:
                    self.news.put(event)
            return self.stream.result
        except (RunError, asyncio.CancelledError) as error:
            result: RunResult | None = getattr(error, "result", None)
            if result is None and isinstance(error, RunError):
                raise
            return result
        finally:
            self.over = True
            self.news.put(None)

    async def _ask(self, pending: PendingApproval) -> Said:
        question = _Question(pending)
        self.news.put(question)
        return await question.wait()


class _Question:
    """A held call on its way to the main thread, and the decision on its way back."""

    def __init__(self, pending: PendingApproval) -> None:
        self.pending = pending
        self.late = False
        self._answer: Future[Said] = Future()

    async def wait(self) -> Said:
        try:
            return await asyncio.wrap_future(self._answer)
        except asyncio.CancelledError:
            self.late = True
            raise

    def decide(self, decision: Said) -> None:
        if self._answer.set_running_or_notify_cancel():
            self._answer.set_result(decision)


def _put(question: _Question, ask: Ask) -> None:
    decision = ask(question.pending)
    if question.late:
        say(f"Too late: {question.pending.tool} was denied meanwhile, because nobody had answered in time.")
    else:
        question.decide(decision)


def _stop(background: Background, run: _Run, show: Show | None) -> None:
    """Cancel the run and show how it ends; whoever has been told that it takes long may leave with Ctrl-C."""
    if run.over:
        return
    background.start(run.cancel())
    told = False
    while True:
        try:
            while (news := run.news.get(timeout=None if told else _LONG_S)) is not None:
                if show and isinstance(news, Event) and not isinstance(news.data, TextDelta | ThinkingDelta):
                    show(news)
            return
        except (KeyboardInterrupt, Empty) as error:
            if told and isinstance(error, KeyboardInterrupt):
                leave_at_once(CANCELLED)
            told = True
            say("Waiting until everything has stopped; press Ctrl-C to leave without waiting.")
        except OSError:
            show = None


def _result_of(future: Future[RunResult | None]) -> RunResult | None:
    """What the stopped run came to; None where it failed to begin."""
    with suppress(Exception):
        return future.result(timeout=1.0)
    return None
