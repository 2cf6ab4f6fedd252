"""Go on with a recorded run."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from glassloop.cli.background import Background
from glassloop.cli.deciding import check_decision
from glassloop.cli.keyboard import login
from glassloop.cli.options import limits_of
from glassloop.cli.output import View
from glassloop.cli.problems import UsageProblem, say
from glassloop.cli.recorded import find_run, is_missing, opened, unknown, with_below
from glassloop.cli.running import Options, asker, chosen_model, conclude, watched
from glassloop.cli.signals import ended_by_signals
from glassloop.cli.target import Target
from glassloop.core.ids import root_of
from glassloop.core.result import Decision

if TYPE_CHECKING:
    from glassloop.cli.watching import Ask
    from glassloop.core.limits import Limits
    from glassloop.journal.state import State
    from glassloop.middleware.approval import Approver
    from glassloop.models.model import Model
    from glassloop.stores import Store
    from glassloop.stream import RunStream

Decisions = Mapping[str, Decision]


def decisions_of(
    approved: Iterable[str], denied: Iterable[str], answered: Iterable[str], reason: str | None
) -> dict[str, Decision]:
    """What `--approve`, `--deny`, `--answer` and `--reason` say, by approval id.

    Raises:
        UsageProblem: a call is decided in two ways, an answer is not one, or there is a reason for nothing.
    """
    yes, no, answers = set(approved), set(denied), dict(map(_answer, answered))
    if both := sorted(yes & no):
        raise UsageProblem(f"{both[0]} cannot be both approved and denied.")
    if both := sorted((yes | no) & answers.keys()):
        raise UsageProblem(f"{both[0]} cannot be answered and decided otherwise, too.")
    if reason and not no:
        raise UsageProblem("--reason belongs to --deny: say which call is denied.")
    refusals = dict.fromkeys(no, Decision("deny", reason=reason, by=login()))
    given = {each: Decision("answer", by=login(), answer=answer) for each, answer in answers.items()}
    return {**dict.fromkeys(yes, Decision("approve", by=login())), **refusals, **given}


def _answer(given: str) -> tuple[str, str]:
    approval_id, sign, answer = given.partition("=")
    if not sign or not answer.strip():
        raise UsageProblem(f'--answer needs the approval and the answer: --answer {approval_id or "APPROVAL"}="..."')
    return approval_id, answer


def go_on(
    given_run: str, target: Target, view: View, given: Options, decisions: Decisions, changed: Mapping[str, Any]
) -> int:
    """Drive a recorded run to its next rest, show it and return the exit code.

    Args:
        given_run: the run's id, or its beginning.
        target: the agent.
        view: shows it.
        given: store, model and `--yes`.
        decisions: about calls that wait.
        changed: the limits that are new (`limits_of`).

    Raises:
        Problem: there is no such run, several begin like that, or a decision is not theirs to take.
    """
    from glassloop.journal.state import fold

    if is_missing(given.store):
        raise unknown(given_run, given.store)
    ask = asker(given, target.agent)
    with (
        ended_by_signals(),
        Background() as background,
        opened(given.store, background, os.environ.get("SESSIONS")) as store,
    ):
        row, events = find_run(store, background, given_run)
        state = fold(events)
        if row.status == "completed":
            say(f"Run {row.id} was completed already.")
        _check(store, background, row.id, decisions, given.roles)
        answers = _answers(state, decisions, ask)
        view.recall(with_below(store, background, events))
        limits = limits_of(state.limits, **changed)
        with chosen_model(target, given.model) as model:
            begin = _Resumption(target, row.id, {**decisions, **answers}, limits, model, store)
            return conclude(watched(background, begin, view, ask), target, view, given)


def _answers(state: State, decisions: Decisions, ask: Ask | None) -> Decisions:
    """What the human says now about the calls that hold the run and that the command line does not speak of."""
    from glassloop.results import result_of

    answers: dict[str, Decision] = {}
    if ask is None:
        return answers
    held = {one.approval_id for call_id in state.open_calls if (one := state.held_by(call_id)) is not None}
    for pending in result_of(state).pending:
        if pending.approval_id not in held or pending.approval_id in decisions:
            continue
        said = ask(pending)
        if said != "park":
            answers[pending.approval_id] = said
    return answers


def _check(store: Store, background: Background, run_id: str, decisions: Decisions, roles: Iterable[str]) -> None:
    """Refuse decisions that are not theirs to take; of an approval that the run does not have, the run tells."""
    from glassloop.journal.projection import ApprovalFilter

    for approval_id, decision in decisions.items():
        for row in background.call(store.journal.approvals(ApprovalFilter(id=approval_id))):
            if root_of(row.run_id) == run_id:
                check_decision(row, decision, roles)


class _Resumption:
    def __init__(
        self,
        target: Target,
        run_id: str,
        decisions: Decisions,
        limits: Limits | None,
        model: str | Model | None,
        store: Store,
    ) -> None:
        self.agent = target.agent
        self.run_id = run_id
        self.decisions = decisions
        self.limits = limits
        self.model = model
        self.store = store

    def __call__(self, approve: Approver | None) -> RunStream:
        from glassloop.stream import RunStream

        return RunStream(
            lambda subscriber: self.agent.resume(
                self.run_id,
                decisions=self.decisions,
                subscriber=subscriber,
                limits=self.limits,
                model=self.model,
                store=self.store,
                approve=approve,
            )
        ).whole()
