"""A run as lines to read: every thought, action, observation and the finish."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TextIO

from glassloop.core.events import (
    CUT_OFF,
    AgentChanged,
    ApprovalAsked,
    ApprovalDecided,
    AttemptFailed,
    CancelRequested,
    DriverClaimed,
    Event,
    ModelReplied,
    ModelRequested,
    Nudged,
    ReplyRestarted,
    RunContinued,
    RunFinished,
    RunStarted,
    Summarized,
    ToolFinished,
    ToolStarted,
)
from glassloop.core.messages import ToolCall
from glassloop.core.rendering import render_written_call
from glassloop.core.result import RunResult
from glassloop.core.usage import Usage

LineKind = Literal[
    "run", "thinking", "thought", "action", "observation", "failure", "approval", "nudge", "summary", "finish"
]

_COLOURS: dict[LineKind, str] = {
    "run": "1",
    "thinking": "2",
    "thought": "3",
    "action": "36",
    "observation": "32",
    "failure": "31",
    "approval": "33",
    "nudge": "33",
    "summary": "35",
    "finish": "1",
}
_WIDTH = 200
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f]")  # what a tool returns must not steer the reader's terminal
_OF_THE_RUN = (RunStarted, RunContinued, AgentChanged, CancelRequested, RunFinished)
_AFTER_A_REST = (RunStarted, DriverClaimed, RunContinued, ApprovalDecided)  # the time before them nobody worked


@dataclass(frozen=True, slots=True)
class TraceLine:
    """One line of a trace.

    Args:
        kind: what it tells.
        text: the rest of the line, without line breaks.
        step: the model call it belongs to, from 1; 0 for the run as a whole.
    """

    kind: LineKind
    text: str
    step: int = 0

    def __str__(self) -> str:
        place = f"step {self.step}" if self.step else "run"
        return f"{place:<7} {'' if self.kind == 'run' else self.kind:<11} {self.text}"

    @property
    def coloured(self) -> str:
        """The line with ANSI colours (ECMA-48, 8.3.117)."""
        return f"\x1b[{_COLOURS[self.kind]}m{self}\x1b[0m"


class TraceLines:
    """Turns the events of one run, live or read from a journal, into lines.

    It counts steps, tokens and money as the events go by; begin with the run's first event for totals that are right.

    Args:
        width: characters after which a value is cut.
    """

    def __init__(self, width: int = _WIDTH) -> None:
        self.width = width
        self._steps = 0
        self._usage = Usage()
        self._cost: float | None = 0.0
        self._last_at = 0
        self._worked_ms = 0
        self._calls: dict[str, ToolCall] = {}
        self._shown: set[str] = set()
        self._done = 0

    def __call__(self, event: Event) -> list[TraceLine]:
        """The lines for `event`, mostly none or one."""
        if not isinstance(event.data, _AFTER_A_REST):
            self._worked_ms += max(0, event.at - self._last_at)
        self._last_at = max(self._last_at, event.at)
        step = 0 if isinstance(event.data, _OF_THE_RUN) else event.step
        return [TraceLine(kind, self._short(text), step) for kind, text in self._lines(event)]

    def finish(self, result: RunResult) -> TraceLine:
        """The last line, from the result; for a run that waits no event says that it rests."""
        calls = len(result.tool_executions)
        return self._finish(result.outcome, result.steps, calls, result.usage, result.cost_usd, result.seconds)

    def _lines(self, event: Event) -> Iterator[tuple[LineKind, str]]:
        match event.data:
            case RunStarted() as data:
                yield "run", f"{data.agent}: {data.input.text}" if data.input else data.agent
            case RunContinued() as data:
                yield "run", "continued"
            case AgentChanged():
                yield "run", "the agent is not the one the run began with"
            case ModelRequested() as data:
                yield "thinking", self._thinking(data)
            case ModelReplied() as data:
                yield from self._replied(data)
            case AttemptFailed() as data if data.kind == CUT_OFF:
                yield "failure", data.message
            case AttemptFailed() as data:
                again = "gave up" if data.wait is None else f"again in {data.wait:.1f} s"
                yield "failure", f"{data.model} {data.kind}, {again}: {data.message}"
            case ReplyRestarted():
                yield "failure", "the reply broke off and is asked for again"
            case Nudged() as data:
                yield "nudge", f"{data.reason}: {data.message.text}"
            case Summarized() as data:
                yield self._summarized(data)
            case ToolStarted() | ToolFinished() as data:
                yield from self._tool(data)
            case ApprovalAsked() as data:
                role = f" by {data.role}" if data.role else ""
                waits = f"{data.tool} asks a human" if data.kind == "question" else f"waits for a human's yes{role}"
                yield "approval", f"{waits}: {data.summary} ({data.approval_id})"
            case ApprovalDecided() as data:
                yield "approval", _decided(data)
            case CancelRequested() as data:
                yield "run", f"to be cancelled{f': {data.reason}' if data.reason else ''}"
            case RunFinished() as data:
                yield from self._finished(data)
            case _:
                return

    def _thinking(self, data: ModelRequested) -> str:
        if data.purpose == "summary":
            return f"{data.model}, summarises the older part of the conversation"
        messages = sum(1 if isinstance(item, str) else item[1] - item[0] for item in data.view)
        final = f", the last answer: {data.final} reached" if data.final else ""
        counts = f"{_count(messages, 'message')} in context, {_count(data.offered, 'tool')} on offer"
        return f"{data.model}, {counts}{final}"

    def _replied(self, data: ModelReplied) -> Iterator[tuple[LineKind, str]]:
        reply = data.reply
        self._spend(reply.usage, data.cost_usd)
        self._calls |= {call.id: call for call in reply.calls}
        if reply.thinking:
            yield "thought", reply.thinking
        if reply.text and reply.calls:
            yield "thought", reply.text

    def _summarized(self, data: Summarized) -> tuple[LineKind, str]:
        if data.asked:
            self._spend(data.usage, data.cost_usd)
        place = f"messages {data.start + 1} to {data.stop}"
        if data.text is None:
            return "failure", f"no summary, {place} are left out: {data.error}"
        whose = "of an earlier run, " if data.carried else ""
        return "summary", f"{whose}{place}: {data.text}"

    def _spend(self, usage: Usage, cost_usd: float | None) -> None:
        self._steps += 1
        self._usage += usage
        self._cost = None if cost_usd is None or self._cost is None else self._cost + cost_usd

    def _tool(self, data: ToolStarted | ToolFinished) -> Iterator[tuple[LineKind, str]]:
        """The action once, at its start or, in a journal, at its end; then what came of it."""
        if data.call_id not in self._shown:
            self._shown.add(data.call_id)
            yield "action", self._action(data)
        if isinstance(data, ToolFinished):
            self._done += 1
            result = data.result
            kind: LineKind = "failure" if result.is_error else "observation"
            status = f" [{result.status}]" if result.status not in ("ok", "error") else ""
            replayed = " (remembered)" if data.replayed else ""
            yield kind, f"{result.name}{status} {data.ms:.1f} ms{replayed}: {result.content}"

    def _action(self, data: ToolStarted | ToolFinished) -> str:
        if isinstance(data, ToolStarted):
            return render_written_call(data.tool, data.arguments)
        call = self._calls.get(data.call_id)
        return render_written_call(data.result.name, data.arguments or (call.arguments if call else ""))

    def _finished(self, data: RunFinished) -> Iterator[tuple[LineKind, str]]:
        if data.message and data.outcome != "completed":
            yield "failure", data.message
        seconds = self._worked_ms / 1000
        line = self._finish(data.outcome, self._steps, self._done, self._usage, self._cost, seconds)
        yield line.kind, line.text

    def with_below(self, below: Sequence[TraceLines]) -> TraceLine:
        """What this run and those below it have taken together."""
        every = [self, *below]
        costs = [each._cost for each in every]
        known = [cost for cost in costs if cost is not None]
        cost = sum(known) if len(known) == len(costs) else None
        usage = sum((each._usage for each in every), Usage())
        taken = _taken(sum(each._steps for each in every), sum(each._done for each in every), usage, cost)
        return TraceLine("finish", f"with {_count(len(below), 'run')} below: {taken}")

    def _finish(
        self, outcome: str, steps: int, calls: int, usage: Usage, cost: float | None, seconds: float
    ) -> TraceLine:
        return TraceLine("finish", f"{outcome}: {_taken(steps, calls, usage, cost)}, {seconds:.2f} s")

    def _short(self, text: str) -> str:
        line = _CONTROLS.sub("", " ".join(text.split()))
        return line if len(line) <= self.width else f"{line[: self.width - 1]}…"


class TracePrinter:
    """Prints the lines of a run as it goes: `printer = TracePrinter()`, then `printer(event)` for each event.

    Args:
        out: where to; default standard output.
        colour: whether to colour; default on a terminal without NO_COLOR (no-color.org).
    """

    def __init__(self, out: TextIO | None = None, *, colour: bool | None = None) -> None:
        self.out = sys.stdout if out is None else out
        self.colour = self.out.isatty() and not os.environ.get("NO_COLOR") if colour is None else colour
        self._runs: dict[str, TraceLines] = {}

    def __call__(self, event: Event) -> None:
        """Print what `event` says; runs below another are set in, with the end of their id."""
        for line in self._of(event.run_id)(event):
            self._print(line, event.run_id)
        if isinstance(event.data, RunFinished):
            self._end_tree(event.run_id)

    def recall(self, event: Event) -> None:
        """Count what happened before, without printing it."""
        self._of(event.run_id)(event)

    def end(self, result: RunResult) -> None:
        """Print the last line of a run that waits: no event says that it rests."""
        self._print(self._of(result.run_id).finish(result), result.run_id)
        self._end_tree(result.run_id)

    def _end_tree(self, run_id: str) -> None:
        below = [lines for each, lines in self._runs.items() if each.startswith(f"{run_id}.")]
        if below:
            self._print(self._of(run_id).with_below(below), run_id)

    def _of(self, run_id: str) -> TraceLines:
        return self._runs.setdefault(run_id, TraceLines())

    def _print(self, line: TraceLine, run_id: str) -> None:
        depth = run_id.count(".")
        place = f"{'  ' * depth}[{run_id.rpartition('.')[2][:4]}] " if depth else ""
        self.out.write(f"{place}{line.coloured if self.colour else line}\n")
        self.out.flush()


def _taken(steps: int, calls: int, usage: Usage, cost: float | None) -> str:
    money = "cost unknown" if cost is None else f"${cost:.4f}"
    unreported = " or more" if usage.unreported else ""
    return f"{_count(steps, 'step')}, {_count(calls, 'tool call')}, {usage.total:,} tokens{unreported}, {money}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _decided(data: ApprovalDecided) -> str:
    by = f" by {data.by}" if data.by else ""
    said = data.answer or data.reason
    reason = f": {said}" if said else ""
    verbs = {"approve": "approved", "deny": "denied", "edit": "approved with other arguments", "answer": "answered"}
    return f"{verbs[data.decision]}{by}{reason}"
