"""What a command prints: the answer as it streams, the trace, or JSON."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Generator, Iterable
from contextlib import contextmanager, redirect_stdout
from dataclasses import asdict
from typing import Any, TextIO

from glassloop.cli.printable import printable
from glassloop.cli.problems import CANCELLED, EXIT_CODES, OK, count_json, say
from glassloop.core.encoding import dumps
from glassloop.core.events import Event, ModelReplied, ReplyRestarted, TextDelta
from glassloop.core.ids import root_of
from glassloop.core.result import RunResult


def use_colour(no_color: bool, out: TextIO | None = None) -> bool:
    """Whether to colour standard output, or `out`: on a terminal, without `--no-color` and NO_COLOR (no-color.org)."""
    plain = no_color or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return not plain and (out or sys.stdout).isatty()


_standard_output: TextIO | None = None


@contextmanager
def json_alone(json: bool) -> Generator[None]:
    """With `json`, what an agent's own code prints goes to standard error: standard output has JSON alone."""
    global _standard_output
    if not json:
        yield
        return
    _standard_output = sys.stdout
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        _standard_output = None


def standard_output() -> TextIO:
    """Standard output, also where `json_alone` keeps others from it."""
    return _standard_output or sys.stdout


def write(text: str) -> None:
    """Text to standard output at once, harmless to a terminal."""
    sys.stdout.write(printable(text) if sys.stdout.isatty() else text)
    sys.stdout.flush()


def print_json(value: object) -> None:
    """One JSON value: on one line for programs, indented for a human; ASCII where the output cannot hold more."""
    count_json()
    plain = json.loads(dumps(value))
    out = standard_output()
    ascii_only = (out.encoding or "ascii").lower().replace("-", "") not in ("utf8", "utf16", "utf32")
    out.write(json.dumps(plain, ensure_ascii=ascii_only, indent=2 if out.isatty() else None) + "\n")
    out.flush()


def result_as_dict(result: RunResult) -> dict[str, Any]:
    """What `--json` prints of a run; tokens in `usage`, US dollars in `cost_usd` (null where a price is unknown)."""
    return {
        "run_id": result.run_id,
        "outcome": result.outcome,
        "output": result.output,
        "steps": result.steps,
        "usage": {**asdict(result.usage), "total": result.usage.total},
        "cost_usd": result.cost_usd,
        "spent": asdict(result.spent),
        "seconds": result.seconds,
        "tool_executions": [asdict(execution) for execution in result.tool_executions],
        "pending": [asdict(pending) for pending in result.pending],
        "message": result.message,
        "limit": result.limit,
    }


class View:
    """Shows a run on standard output, and on standard error why it did not complete.

    Args:
        trace: a line for each thought, action, observation and the finish; the answer after them.
        json: nothing but the result as one JSON object.
        colour: whether to colour the trace.
    """

    def __init__(self, *, trace: bool = False, json: bool = False, colour: bool = False) -> None:
        from glassloop.observe.trace import TracePrinter

        self.json = json
        self._printer = TracePrinter(colour=colour) if trace and not json else None
        self._streamed = ""
        self._open_line = False

    def event(self, event: Event) -> None:
        """Show what `event` says."""
        if self._printer is not None:
            self._printer(event)
        elif not self.json and root_of(event.run_id) == event.run_id:
            self._stream(event)

    def recall(self, events: Iterable[Event]) -> None:
        """Count what happened before, without showing it."""
        for event in events:
            if self._printer is not None:
                self._printer.recall(event)

    def end(self, result: RunResult) -> int:
        """Show how the run ended and return the exit code."""
        if self.json:
            print_json(result_as_dict(result))
            return EXIT_CODES[result.outcome]
        self._end_line()
        if result.outcome == "waiting" and self._printer is not None:
            self._printer.end(result)
        if result.output and result.output != self._streamed:
            write(f"{result.output.rstrip()}\n")
        _explain(result)
        return EXIT_CODES[result.outcome]

    def _stream(self, event: Event) -> None:
        match event.data:
            case TextDelta(text):
                if not self._open_line:
                    self._streamed, self._open_line = "", True
                self._streamed += text
                write(text)
            case ModelReplied() | ReplyRestarted():
                self._end_line()
            case _:
                pass

    def _end_line(self) -> None:
        if self._open_line:
            self._open_line = False
            write("" if self._streamed.endswith("\n") else "\n")


def _explain(result: RunResult) -> None:
    """One line on why there is no answer; a waiting run is explained by who knows how to decide."""
    why = (result.message or "").strip() or f"The run ended: {result.outcome}."
    code = EXIT_CODES[result.outcome]
    if result.outcome == "failed":
        say(f"Error: {why}")
    elif result.outcome not in ("completed", "waiting") and code not in (OK, CANCELLED):
        limit = f" ({result.limit})" if result.limit else ""
        say(f"Not completed: {result.outcome}{limit}: {why}")
    elif code == CANCELLED:
        say("Cancelled." if why == "The run was cancelled." else f"Cancelled: {why}")
