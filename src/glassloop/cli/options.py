"""Options that several commands share, with the same words everywhere."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

import typer

from glassloop.cli.problems import UsageProblem
from glassloop.core.limits import Limits, OnLimit

DEFAULT_STORE = "sqlite:///glassloop.db"
DEFAULT_COLLECTION = "default"

TargetArgument = Annotated[
    str,
    typer.Argument(
        metavar="FILE:AGENT",
        help="path/to/file.py:name or package.module:name; the only agent, or one named `agent`, needs no :name.",
    ),
]
RunArgument = Annotated[str, typer.Argument(metavar="ID", help="The run's id, or its beginning.")]
Store = Annotated[
    str,
    typer.Option(
        "--store",
        metavar="URL",
        envvar="STORE",
        help="Where the journal is: sqlite:///path.db, postgresql://... or memory:.",
    ),
]
KnowledgeStore = Annotated[
    str,
    typer.Option(
        "--store", metavar="URL", envvar="STORE", help="Where knowledge is, e.g. sqlite:///path.db or postgresql://..."
    ),
]
Collection = Annotated[
    str, typer.Option("--collection", metavar="NAME", help="Documents of other collections are never found.")
]
Session = Annotated[str | None, typer.Option("--session", metavar="NAME", help="Conversation that the run belongs to.")]
User = Annotated[
    str | None, typer.Option("--user", metavar="NAME", help="On whose behalf; tools see it, the model does not.")
]
Roles = Annotated[
    list[str] | None,
    typer.Option("--role", metavar="ROLE", help="A role of yours, to decide calls that need it; repeatable."),
]
ModelName = Annotated[
    str | None, typer.Option("--model", metavar="PROVIDER:MODEL", help="Instead of the agent's own and of MODEL.")
]
Trace = Annotated[bool, typer.Option("--trace", help="A line for each thought, action, observation and the finish.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
NoColor = Annotated[bool, typer.Option("--no-color", help="No colours; NO_COLOR does the same.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
Yes = Annotated[bool, typer.Option("--yes", help="Approve every call that needs a human, and no role but yours.")]
MaxSteps = Annotated[int | None, typer.Option("--max-steps", metavar="N", help="Model calls of the whole run.")]
MaxTokens = Annotated[
    int | None, typer.Option("--max-tokens", metavar="N", help="Tokens of the whole run, in and out.")
]
MaxCost = Annotated[
    float | None, typer.Option("--max-cost", metavar="USD", help="Money of the whole run, in US dollars.")
]
Timeout = Annotated[float | None, typer.Option("--timeout", metavar="SECONDS", help="Time of the whole run.")]
OnLimitOption = Annotated[
    OnLimit | None,
    typer.Option("--on-limit", help="What reaching a limit does: answer asks the model once more, without tools."),
]


def limits_of(
    base: Limits,
    *,
    steps: int | None = None,
    tokens: int | None = None,
    cost: float | None = None,
    seconds: float | None = None,
    on_limit: OnLimit | None = None,
) -> Limits | None:
    """`base` with what the options say; None where they say nothing.

    Raises:
        UsageProblem: a value that cannot be a limit.
    """
    given: dict[str, Any] = {
        "steps": steps,
        "total_tokens": tokens,
        "cost_usd": cost,
        "seconds": seconds,
        "on_limit": on_limit,
    }
    _check("--max-steps", steps)
    _check("--max-tokens", tokens)
    _check("--timeout", seconds)
    if cost is not None and not cost >= 0:
        raise UsageProblem(f"--max-cost {cost:g}: must be 0 or more.")
    changed = {name: value for name, value in given.items() if value is not None}
    return replace(base, **changed) if changed else None


def _check(option: str, value: float | None) -> None:
    if value is not None and not value > 0:
        raise UsageProblem(f"{option} {value:g}: must be more than 0.")
