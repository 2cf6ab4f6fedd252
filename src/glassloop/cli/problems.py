"""How a command ends: exit codes, and the one sentence about what went wrong."""

from __future__ import annotations

import errno
import os
import sys
import traceback
from contextlib import suppress
from json import dumps
from typing import TYPE_CHECKING, Any, NoReturn

from glassloop.cli.printable import printable
from glassloop.core.errors import GlassloopError

if TYPE_CHECKING:
    from glassloop.core.events import Outcome

OK = 0
FAILED = 1
"""The run, the configuration, the environment or a store failed."""
USAGE = 2
"""The command line itself is wrong; nothing was run."""
NOT_COMPLETED = 3
WAITING = 4
CANCELLED = 130

EXIT_CODES: dict[Outcome, int] = {
    "completed": OK,
    "failed": FAILED,
    "limited": NOT_COMPLETED,
    "truncated": NOT_COMPLETED,
    "refused": NOT_COMPLETED,
    "filtered": NOT_COMPLETED,
    "unanswered": NOT_COMPLETED,
    "partly_rolled_back": NOT_COMPLETED,
    "waiting": WAITING,
    "cancelled": CANCELLED,
}


_json_printed = 0


def count_json() -> None:
    """Note that a JSON value is printed."""
    global _json_printed
    _json_printed += 1


def json_printed() -> int:
    """How many JSON values this process has printed: who asked for JSON gets at least one."""
    return _json_printed


class Problem(Exception):
    """Ends a command with one sentence on stderr.

    Args:
        message: what is wrong and what to do.
        code: exit code.
    """

    def __init__(self, message: str, code: int = FAILED) -> None:
        super().__init__(message)
        self.code = code


class UsageProblem(Problem):
    """The command line is wrong: exit code 2."""

    def __init__(self, message: str) -> None:
        super().__init__(message, USAGE)


def report(error: BaseException, *, debug: bool = False, json: bool = False) -> int:
    """Tell the user about an error that ended a command, and return the exit code.

    Args:
        error: what ended it.
        debug: show the traceback too.
        json: tell standard output too, as `{"error": ..., "exit_code": ...}`.
    """
    if isinstance(error, BrokenPipeError):
        _forget_output()
        return FAILED
    if isinstance(error, KeyboardInterrupt):
        if json:
            _print_json("Interrupted.", CANCELLED)
        return CANCELLED
    if type(error).__name__ == "NoArgsIsHelpError":
        say(str(error))
        return USAGE
    if debug:
        traceback.print_exception(error)
    message, code = _described(error, debug)
    say(f"Error: {message}")
    if json:
        _print_json(message, code)
    if isinstance(error, OSError):
        _forget_output()
    return code


def _print_json(message: str, code: int) -> None:
    with suppress(OSError):  # it may be standard output that failed
        sys.stdout.write(dumps({"error": message, "exit_code": code}) + "\n")
        sys.stdout.flush()


def _described(error: Any, debug: bool) -> tuple[str, int]:
    """One sentence and the exit code."""
    match error:
        case Problem():
            return str(error), error.code
        case GlassloopError():
            return str(error), FAILED
        case OSError(errno=errno.ENOSPC | errno.EDQUOT, filename=None):
            return "The output could not be written: no space is left. Make room, or write it elsewhere.", FAILED
        case _ if callable(getattr(error, "format_message", None)):
            return _wrong_usage(error), int(getattr(error, "exit_code", USAGE))
        case _:
            hint = "" if debug else " Run it again with --debug to see where."
            return f"{one_line(f'{type(error).__name__}: {error}')}.{hint}", FAILED


def _wrong_usage(error: Any) -> str:
    """What the parser of the command line found wrong (typer's classes for it are private)."""
    context: Any = getattr(error, "ctx", None)
    message = str(error.format_message()).replace("Value error, ", "")
    hint = f" See {context.command_path} --help." if context is not None else ""
    return f"{one_line(message)}.{hint}"


def say(sentence: str) -> None:
    """One line on stderr; the answer alone goes to stdout."""
    try:
        sys.stderr.write(f"{printable(sentence)}\n")
        sys.stderr.flush()
    except OSError:  # nobody reads it
        _forget_output()


def leave_at_once(code: int) -> NoReturn:
    """End the process without waiting for threads that cannot be stopped."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def one_line(text: str) -> str:
    """`text` without line breaks and without the full stop at its end."""
    return " ".join(text.split()).removesuffix(".")


def _forget_output() -> None:
    """Let the interpreter's last flush go nowhere instead of failing again."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            os.dup2(nowhere, stream.fileno())
