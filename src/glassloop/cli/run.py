"""`glassloop run`: one question, one answer."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from glassloop.cli import options
from glassloop.cli.problems import UsageProblem

EXAMPLES = """\b
Examples:
  glassloop run examples/minimal.py:agent "Which is hotter, Beijing or Shanghai?"
  glassloop run examples/mini.py "What is (1024 + 768) * 2?" --trace
  echo "Where is order A-1024?" | glassloop run orders.py:agent --session shop --json
"""


def run(
    target: options.TargetArgument,
    question: Annotated[
        str | None,
        typer.Argument(metavar="QUESTION", help="What to ask; - or nothing reads it from a pipe.", show_default=False),
    ] = None,
    trace: options.Trace = False,
    json: options.Json = False,
    session: options.Session = None,
    user: options.User = None,
    role: options.Roles = None,
    model: options.ModelName = None,
    store: options.Store = options.DEFAULT_STORE,
    max_steps: options.MaxSteps = None,
    max_tokens: options.MaxTokens = None,
    timeout: options.Timeout = None,
    max_cost: options.MaxCost = None,
    on_limit: options.OnLimitOption = None,
    yes: options.Yes = False,
    no_color: options.NoColor = False,
    debug: options.Debug = False,
) -> int:
    """Ask an agent one question; its answer goes to standard output.

    A call that needs a human's yes is asked for at the terminal; without one the run rests (exit code 4) and goes on
    with `glassloop runs resume`. Ctrl-C cancels the run.
    """
    from glassloop.cli.output import View, json_alone, use_colour
    from glassloop.cli.running import Options, answer
    from glassloop.cli.target import load_target

    asked = _question(question)
    with json_alone(json):
        found = load_target(target)
        limits = options.limits_of(
            found.agent.limits, steps=max_steps, tokens=max_tokens, cost=max_cost, seconds=timeout, on_limit=on_limit
        )
        view = View(trace=trace, json=json, colour=use_colour(no_color))
        return answer(found, asked, view, Options(store, model, session, user, limits, yes, tuple(role or ())))


def _question(given: str | None) -> str:
    """The question: the argument, or what comes through a pipe."""
    if given in (None, "-"):
        if given is None and sys.stdin.isatty():
            raise UsageProblem('What is the question? Write it after FILE:AGENT, e.g. glassloop run f.py:agent "...".')
        given = sys.stdin.read()
    text = _read_as_utf8(given or "").strip()
    if not text:
        raise UsageProblem("The question is empty.")
    return text


def _read_as_utf8(text: str) -> str:
    """`text` without half characters: bytes that the locale could not read (PEP 383) are read as UTF-8."""
    try:
        return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()
