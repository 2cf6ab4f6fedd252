"""`glassloop runs`: what the journal holds, and going on with a run that rests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from glassloop.cli import options
from glassloop.cli.problems import OK, UsageProblem

if TYPE_CHECKING:
    from glassloop.core.events import Event

_GROUP = """\b
Examples:
  glassloop runs list --status waiting
  glassloop runs show run_0m7x3k
  glassloop runs resume run_0m7x3k orders.py:agent --approve appr_0m7x3m
"""

_LIST = """\b
Examples:
  glassloop runs list
  glassloop runs list --status waiting --limit 10
  glassloop runs list --json --store sqlite:///path/to/glassloop.db
"""

_SHOW = """\b
Examples:
  glassloop runs show run_0m7x3k
  glassloop runs show run_0m7x3k --json
"""

_RESUME = """\b
Examples:
  glassloop runs resume run_0m7x3k orders.py:agent --approve appr_0m7x3m
  glassloop runs resume run_0m7x3k orders.py:agent --deny appr_0m7x3m --reason "not this customer"
  glassloop runs resume run_0m7x3k orders.py:agent --answer appr_0m7x3m="the blue one"
  glassloop runs resume run_0m7x3k examples/minimal.py:agent --max-steps 40
"""

runs = typer.Typer(
    help="List and show recorded runs, and go on with one.",
    epilog=_GROUP,
    no_args_is_help=True,
    rich_markup_mode=None,
)


@runs.command("list", epilog=_LIST)
def list_(
    agent: Annotated[str | None, typer.Option("--agent", metavar="NAME", help="Of this agent.")] = None,
    session: Annotated[str | None, typer.Option("--session", metavar="NAME", help="Of this conversation.")] = None,
    user: Annotated[str | None, typer.Option("--user", metavar="NAME", help="On behalf of this user.")] = None,
    status: Annotated[
        str | None, typer.Option("--status", metavar="STATUS", help="running, waiting, or an outcome.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, help="At most so many, newest first.")] = 50,
    before: Annotated[str | None, typer.Option("--before", metavar="ID", help="Only runs older than this one.")] = None,
    json: options.Json = False,
    store: options.Store = options.DEFAULT_STORE,
    no_color: options.NoColor = False,
    debug: options.Debug = False,
) -> int:
    """List recorded runs, newest first."""
    from dataclasses import asdict

    from glassloop.cli.output import print_json, use_colour
    from glassloop.cli.recorded import list_runs
    from glassloop.cli.tables import print_runs
    from glassloop.journal.projection import RunFilter

    _check_status(status)
    wanted = RunFilter(agent=agent, session=session, user=user, status=status, limit=limit, before=before, roots=True)
    rows = list_runs(store, wanted)
    if json:
        print_json([asdict(row) for row in rows])
    else:
        print_runs(rows, colour=use_colour(no_color))
    return OK


@runs.command(epilog=_SHOW)
def show(
    run: options.RunArgument,
    json: options.Json = False,
    private: Annotated[
        bool, typer.Option("--private", help="For the operator: raw exceptions and tracebacks too.")
    ] = False,
    store: options.Store = options.DEFAULT_STORE,
    no_color: options.NoColor = False,
    debug: options.Debug = False,
) -> int:
    """Show what happened in a recorded run, step by step."""
    from dataclasses import asdict

    from glassloop.cli.output import print_json, use_colour
    from glassloop.cli.recorded import read_tree, show_run

    row, events, all_events = read_tree(store, run)
    if json:
        print_json({**asdict(row), "events": [_as_dict(event, private) for event in events]})
    else:
        show_run(all_events, colour=use_colour(no_color), private=private)
    return OK


@runs.command(epilog=_RESUME)
def resume(
    run: options.RunArgument,
    target: options.TargetArgument,
    approve: Annotated[
        list[str] | None, typer.Option("--approve", metavar="APPROVAL", help="Let this call run; repeatable.")
    ] = None,
    deny: Annotated[
        list[str] | None, typer.Option("--deny", metavar="APPROVAL", help="Do not let this call run; repeatable.")
    ] = None,
    reason: Annotated[
        str | None, typer.Option("--reason", metavar="TEXT", help="Why it is denied, for the model.")
    ] = None,
    answer: Annotated[
        list[str] | None,
        typer.Option("--answer", metavar="APPROVAL=TEXT", help="Answer what this call asks; repeatable."),
    ] = None,
    role: options.Roles = None,
    trace: options.Trace = False,
    json: options.Json = False,
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
    """Go on with a run that rests: limited, waiting for approval, cancelled, failed, or cut off by a crash.

    Limits count the whole run, with what it did before. At a terminal, calls that wait are asked for.
    """
    from glassloop.cli.output import View, json_alone, use_colour
    from glassloop.cli.resuming import decisions_of, go_on
    from glassloop.cli.running import Options
    from glassloop.cli.target import load_target

    decisions = decisions_of(approve or (), deny or (), answer or (), reason)
    changed = {"steps": max_steps, "tokens": max_tokens, "seconds": timeout, "cost": max_cost, "on_limit": on_limit}
    with json_alone(json):
        found = load_target(target)
        view = View(trace=trace, json=json, colour=use_colour(no_color))
        return go_on(run, found, view, Options(store, model, yes=yes, roles=tuple(role or ())), decisions, changed)


def _check_status(status: str | None) -> None:
    from glassloop.cli.problems import EXIT_CODES

    known = ["running", *EXIT_CODES]
    if status is not None and status not in known:
        raise UsageProblem(f"There is no status {status!r}; there are {', '.join(known)}.")


def _as_dict(event: Event, private: bool) -> dict[str, object]:
    return {**event.as_dict(), "private": event.private} if private else event.as_dict()
