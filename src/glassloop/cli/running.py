"""What `run`, `chat` and `runs resume` share: the store, the model and whom to ask."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from glassloop.cli.background import Background
from glassloop.cli.deciding import Decider
from glassloop.cli.keyboard import Approvals, Lines, login
from glassloop.cli.options import DEFAULT_STORE
from glassloop.cli.output import View
from glassloop.cli.plans import plan_of, show_plan
from glassloop.cli.problems import say
from glassloop.cli.recorded import opened
from glassloop.cli.signals import ended_by_signals
from glassloop.cli.target import Target
from glassloop.cli.watching import Ask, Begin, Interrupted, Said, watch
from glassloop.core.context import Identity
from glassloop.core.errors import ConfigurationError
from glassloop.core.limits import Limits
from glassloop.core.rendering import visible
from glassloop.core.result import Decision, PendingApproval, RunResult

if TYPE_CHECKING:
    from glassloop.middleware.approval import Approver
    from glassloop.models.model import Model
    from glassloop.runnable import Runnable
    from glassloop.stores import Store
    from glassloop.stream import RunStream

_RAISE = {
    "steps": "--max-steps N",
    "total_tokens": "--max-tokens N",
    "seconds": "--timeout SECONDS",
    "cost_usd": "--max-cost USD",
}
"""The option that lifts each limit."""


@contextmanager
def chosen_model(target: Target, wanted: str | None) -> Generator[str | Model | None]:
    """What to pass as `model=` while the block runs.

    That is what the user asks for, else None for the agent's own model or MODEL; where neither is configured and the
    module ships a stand-in, that one, served on loopback. A module with a stand-in gets a line that says which of the
    two is at work.

    Raises:
        ConfigurationError: the stand-in cannot be started.
    """
    stand_in = target.stand_in
    if wanted is not None or stand_in is None:
        yield wanted
    elif target.model is None:
        with stand_in.choose() as chosen:
            say(chosen.note)
            yield chosen.model
    elif not _usable(target):
        with stand_in.serve() as chosen:
            say(chosen.note)
            yield chosen.model
    else:
        model = target.model
        name = model if isinstance(model, str) else model.name if model else "none"
        say(f"Model: {name}")
        yield None


def _usable(target: Target) -> bool:
    """Whether the agent's own model can be asked: its provider is known and its key is there."""
    from glassloop.models.registry import resolve_model

    model = target.model
    if not isinstance(model, str):
        return True
    try:
        resolve_model(model)
    except ConfigurationError:
        return False
    return True


@dataclass(frozen=True)
class Options:
    """What the command line says about a run; see `RunOptions` for the names."""

    store: str
    model: str | None = None
    session: str | None = None
    user: str | None = None
    limits: Limits | None = None
    yes: bool = False
    roles: tuple[str, ...] = ()

    @property
    def identity(self) -> Identity:
        """On whose behalf a run acts."""
        return Identity(self.user, None, self.roles, self.session)


def answer(target: Target, question: str, view: View, given: Options) -> int:
    """Run an agent on one question, show it and return the exit code."""
    ask = asker(given, target.agent)
    with (
        ended_by_signals(),
        Background() as background,
        opened(given.store, background, os.environ.get("SESSIONS")) as store,
        chosen_model(target, given.model) as model,
    ):
        begin = beginning(target, question, given, model, store)
        return conclude(watched(background, begin, view, ask), target, view, given)


def beginning(target: Target, question: str, given: Options, model: str | Model | None, store: Store) -> Begin:
    """What begins a run of the agent on one question."""

    def begin(approve: Approver | None) -> RunStream:
        return target.agent.stream(
            question,
            identity=given.identity,
            limits=given.limits,
            model=model,
            store=store,
            approve=approve,
        ).whole()

    return begin


def watched(background: Background, begin: Begin, view: View, ask: Ask | None) -> RunResult:
    """Run to rest, showing it; a run that Ctrl-C stopped has the outcome `cancelled`.

    Raises:
        KeyboardInterrupt: Ctrl-C before the run had begun.
    """
    try:
        return watch(background, begin, view.event, ask)
    except Interrupted as interrupted:
        if interrupted.result is None:
            raise
        return interrupted.result


def conclude(result: RunResult, target: Target, view: View, given: Options) -> int:
    """Show how a run ended and how to go on; the exit code."""
    code = view.end(result)
    where = "" if given.store in (DEFAULT_STORE, os.environ.get("STORE")) else f" --store {given.store}"
    if result.outcome == "waiting":
        _explain_waiting(result)
        if _is_lost(given):
            say("It ends with this program, whose store is in memory: give a file as --store to decide later.")
        else:
            _explain_deciding(result, target, where)
    elif (option := _RAISE.get(result.limit or "")) and not _is_lost(given):
        say(f"Go on with: glassloop runs resume {result.run_id} {target.text}{where} {option}")
    return code


def asker(given: Options, agent: Runnable) -> Ask | None:
    """Who decides about held calls: `--yes`, the human at the terminal, or nobody now."""
    lines = Lines()
    if given.yes:
        return Decider(approve, agent, given.roles)
    terminal = lines.terminal and sys.stderr.isatty()
    return Decider(Approvals(lines, given.user), agent, given.roles) if terminal else None


def approve(pending: PendingApproval) -> Said:
    """What `--yes` says to every call; one that asks something it leaves to somebody who can answer."""
    return "park" if pending.kind == "question" else Decision("approve", by=login())


def _is_lost(given: Options) -> bool:
    """Whether nobody can go on with a run after this process."""
    return given.store.startswith("memory:")


def _explain_waiting(result: RunResult) -> None:
    """Say which calls wait."""
    calls = "call waits" if len(result.pending) == 1 else "calls wait"
    say(f"{len(result.pending)} {calls} for a human's decision:")
    for pending in result.pending:
        say(f"  {pending.approval_id}  {_waits_for(pending)}")
        if (plan := plan_of(pending)) is not None:
            show_plan(plan)


def _explain_deciding(result: RunResult, target: Target, where: str) -> None:
    """Say how to decide about calls that wait."""
    first = result.pending[0].approval_id if result.pending else "APPROVAL"
    if result.pending and result.pending[0].role:
        where = f" --role {result.pending[0].role}{where}"
    verb, how = "Decide", f"--approve {first}"
    if result.pending and result.pending[0].kind == "question":
        verb, how = "Answer", f'--answer {first}="..."'
    say(
        f"{verb} with: glassloop runs resume {result.run_id} {target.text} {how}{where} "
        f'(or --deny {first} --reason "...").'
    )


def _waits_for(pending: PendingApproval) -> str:
    if pending.kind == "question":
        choices = f"  ({_flat(', '.join(pending.choices))})" if pending.choices else ""
        return f"{pending.tool} asks: {_flat(pending.summary)}{choices}"
    role = f", needs the role {pending.role}" if pending.role else ""
    return f"{_flat(pending.summary)}  (risk {pending.risk}{role})"


def _flat(text: str) -> str:
    """On one line, that nothing in it leaves or turns around."""
    return visible(" ".join(text.split()))
