"""Lists of runs: one row per run, folded from its events as they are written."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from glassloop.core.context import Identity
from glassloop.core.encoding import dumps
from glassloop.core.events import (
    ApprovalAsked,
    ApprovalDecided,
    CancelRequested,
    DriverClaimed,
    DriverRested,
    Event,
    ModelReplied,
    ModelRequested,
    RunContinued,
    RunFinished,
    RunStarted,
    Summarized,
)
from glassloop.core.messages import Reply

OPEN_STATUSES = ("running", "waiting", "cancelling")

ApprovalStatus = Literal["pending", "expired", "approved", "denied", "edited", "answered", "withdrawn"]
WITHDRAW = "withdraw"
"""Stands for a decision where the run has ended without one, and the call with it."""

DECISION_OF: dict[ApprovalStatus, str] = {
    "approved": "approve",
    "denied": "deny",
    "edited": "edit",
    "answered": "answer",
    "withdrawn": WITHDRAW,
}
"""The decision that makes each status."""

_STATUS_OF: dict[str, ApprovalStatus] = {decision: status for status, decision in DECISION_OF.items()}


@dataclass(frozen=True, slots=True)
class RunRow:
    """One line of a list of runs.

    Args:
        id: the run.
        agent: the agent's name.
        session: the session it belongs to.
        user: on whose behalf.
        tenant: of which tenant.
        status: the outcome, `waiting` for a human, `running`, or `cancelling`.
        input: the beginning of the user's text.
        started_at: UTC milliseconds.
        updated_at: UTC milliseconds of the last event.
        steps: model calls so far.
        tokens: tokens so far.
        cost_usd: money so far; None where a price is unknown.
        pending: approvals asked and not decided.
        owner: the process that drives it, or did until it was cut off; None while nobody is meant to.
    """

    id: str
    agent: str
    session: str | None
    user: str | None
    tenant: str | None
    status: str
    input: str
    started_at: int
    updated_at: int
    steps: int = 0
    tokens: int = 0
    cost_usd: float | None = 0.0
    pending: int = 0
    owner: str | None = None

    @property
    def finished(self) -> bool:
        """Whether the run rests for good, and not only until somebody decides."""
        return self.status not in OPEN_STATUSES


@dataclass(frozen=True, slots=True)
class RunFilter:
    """Which runs to list; None means any.

    Args:
        agent: of this agent.
        session: of this session.
        user: of this user.
        tenant: of this tenant.
        status: with this status.
        finished: True for those that rest for good, False for those that do not.
        limit: at most so many, newest first.
        before: only runs older than this id.
        below: only runs that this one has begun, and those that they have.
        roots: only runs that no other has begun.
    """

    agent: str | None = None
    session: str | None = None
    user: str | None = None
    tenant: str | None = None
    status: str | None = None
    finished: bool | None = None
    limit: int = 50
    before: str | None = None
    below: str | None = None
    roots: bool = False

    def matches(self, row: RunRow) -> bool:
        """Whether `row` is one of those wanted."""
        return (
            all(
                wanted is None or wanted == value
                for wanted, value in (
                    (self.agent, row.agent),
                    (self.session, row.session),
                    (self.user, row.user),
                    (self.tenant, row.tenant),
                    (self.status, row.status),
                )
            )
            and self.finished in (None, row.finished)
            and (self.before is None or row.id < self.before)
            and (self.below is None or row.id.startswith(f"{self.below}."))
            and not (self.roots and "." in row.id)
        )


def project(row: RunRow | None, event: Event) -> RunRow | None:
    """The row after `event`; None until the run has started."""
    data = event.data
    if isinstance(data, RunStarted):
        who = data.identity
        text = data.input.text[:200] if data.input else ""
        return RunRow(event.run_id, data.agent, who.session, who.user, who.tenant, "running", text, event.at, event.at)
    if row is None:
        return None
    match data:
        case RunFinished(outcome=outcome):
            return replace(row, updated_at=event.at, status=outcome, owner=None)
        case ApprovalAsked():
            return replace(row, updated_at=event.at, pending=row.pending + 1)
        case ApprovalDecided():
            status = "running" if row.status == "waiting" else row.status
            return replace(row, updated_at=event.at, status=status, pending=max(0, row.pending - 1))
        case RunContinued():
            return replace(row, updated_at=event.at, status="running")
        case DriverClaimed(owner=owner):
            status = "running" if row.status == "waiting" else row.status
            return replace(row, updated_at=event.at, status=status, owner=owner)
        case DriverRested(waiting=waiting) if not row.finished:
            status = "waiting" if (row.pending if waiting is None else waiting) else "running"
            return replace(row, updated_at=event.at, status=status, owner=None)
        case CancelRequested() if not row.finished:
            return replace(row, updated_at=event.at, status="cancelling")
        case _:
            at, steps, tokens, cost = _growth(event)
            total = None if cost is None or row.cost_usd is None else row.cost_usd + cost
            return replace(row, updated_at=at, steps=row.steps + steps, tokens=row.tokens + tokens, cost_usd=total)


class Growth(NamedTuple):
    """What events that only go on with a run do to its row: a database adds it without reading the row.

    Args:
        updated_at: UTC milliseconds, in the place of the row's.
        steps: more.
        tokens: more.
        cost_usd: more; None where the price is unknown, and with it the sum.
    """

    updated_at: int
    steps: int = 0
    tokens: int = 0
    cost_usd: float | None = 0.0


_TURNS = (
    RunStarted,
    RunFinished,
    RunContinued,
    ApprovalAsked,
    ApprovalDecided,
    DriverClaimed,
    DriverRested,
    CancelRequested,
)


def growth(events: Sequence[Event]) -> Growth | None:
    """What `events` add to the row of a run that has started, as `project` would; None where they do more than add.

    Two prices are more: how a sum of fractions is rounded depends on which are added first.
    """
    if not events or any(isinstance(event.data, _TURNS) for event in events):
        return None
    grown = [_growth(event) for event in events]
    priced = [each.cost_usd for each in grown if each.cost_usd != 0]
    if len(priced) > 1:
        return None
    steps, tokens = sum(each.steps for each in grown), sum(each.tokens for each in grown)
    return Growth(events[-1].at, steps, tokens, priced[0] if priced else 0.0)


def _growth(event: Event) -> Growth:
    match event.data:
        case ModelReplied(reply=Reply(usage=usage), cost_usd=cost) | Summarized(asked=True, usage=usage, cost_usd=cost):
            return Growth(event.at, tokens=usage.total, cost_usd=cost)
        case ModelRequested():
            return Growth(event.at, steps=1)
        case _:
            return Growth(event.at)


def summarize(events: Iterable[Event]) -> RunRow | None:
    """The row of a run, from all its events."""
    row: RunRow | None = None
    for event in events:
        row = project(row, event)
    return row


@dataclass(frozen=True, slots=True)
class ApprovalRow:
    """One line of an inbox: a call that a human decides on.

    Args:
        approval_id: names the decision.
        run_id: the run that asks.
        call_id: the journal's id of the call.
        tool: the tool.
        arguments: exactly what will run, as JSON.
        summary: one line for the human; the question, of one.
        risk: low, medium or high.
        role: who decides; None for the run's owner.
        kind: `call`, `doubt` for one that had begun before a crash and may have happened, or `question` for one whose
            function asks something.
        mode: how the call is held: `wait`, `park` or `defer`.
        user: on whose behalf the run acts.
        tenant: of which tenant.
        session: in which session.
        agent: which agent asks.
        asked_at: UTC milliseconds.
        expires_at: UTC milliseconds, or None.
        decision: approve, deny, edit or answer, or withdraw where the run ended first; None while nobody has decided.
        decided_by: who did.
        reason: what they said.
        choices: what may be answered to a question, as a JSON list; empty for anything.
        answer: what was answered.
    """

    approval_id: str
    run_id: str
    call_id: str
    tool: str
    arguments: str
    summary: str
    risk: str
    role: str | None
    kind: str
    mode: str
    user: str | None
    tenant: str | None
    session: str | None
    agent: str
    asked_at: int
    expires_at: int | None
    decision: str | None = None
    decided_by: str | None = None
    reason: str | None = None
    choices: str = "[]"
    answer: str | None = None

    def status(self, now: int) -> ApprovalStatus:
        """Where the approval stands at `now` (UTC milliseconds)."""
        if self.decision is not None:
            return _STATUS_OF[self.decision]
        return "expired" if self.expires_at is not None and self.expires_at <= now else "pending"

    @property
    def is_held(self) -> bool:
        """Whether nobody has decided, and the call goes with its run."""
        return self.decision is None and self.mode != "defer"

    def concerns(self, who: Identity) -> bool:
        """Whether it is any business of `who`: its owner's, or that of the role it asks for, in its tenant."""
        return self.tenant == who.tenant and (self.user == who.user or self.role in who.roles)


@dataclass(frozen=True, slots=True)
class ApprovalFilter:
    """Which approvals to list; None means any.

    Args:
        id: the one with this id.
        run_id: asked for by this run.
        concerns: any business of this identity (`ApprovalRow.concerns`).
        status: with this status, or `decided` for those that a decision makes.
        now: UTC milliseconds, for `status`; at the default nothing has expired, so that `pending` is all undecided.
        limit: at most so many, newest first.
        before: only approvals with an id below this one.
    """

    id: str | None = None
    run_id: str | None = None
    concerns: Identity | None = None
    status: ApprovalStatus | Literal["decided"] | None = None
    now: int = 0
    limit: int | None = None
    before: str | None = None

    def matches(self, row: ApprovalRow) -> bool:
        """Whether `row` is one of those wanted."""
        decided = self.status == "decided" and row.decision not in (None, WITHDRAW)
        return (
            self.id in (None, row.approval_id)
            and self.run_id in (None, row.run_id)
            and (self.concerns is None or row.concerns(self.concerns))
            and (decided or self.status in (None, row.status(self.now)))
            and (self.before is None or row.approval_id < self.before)
        )


def asked_row(row: RunRow, event: Event, asked: ApprovalAsked) -> ApprovalRow:
    """The line of an approval that a run asks for."""
    return ApprovalRow(
        asked.approval_id,
        row.id,
        asked.call_id,
        asked.tool,
        asked.arguments,
        asked.summary,
        asked.risk,
        asked.role,
        asked.kind,
        asked.mode,
        row.user,
        row.tenant,
        row.session,
        row.agent,
        event.at,
        asked.expires_at,
        choices=dumps(asked.choices).decode(),
    )


def approvals_of(runs: Iterable[Iterable[Event]]) -> list[ApprovalRow]:
    """The approvals of these runs, each from all its events, older ones first.

    The run of a deferred call repeats what it was asked, under the same id, and brings the decision.
    """
    found: dict[str, ApprovalRow] = {}
    for events in runs:
        row: RunRow | None = None
        for event in events:
            row = project(row, event)
            match event.data:
                case ApprovalAsked() as asked if row is not None:
                    found.setdefault(asked.approval_id, asked_row(row, event, asked))
                case ApprovalDecided(approval_id, decision, by, reason, answer=answer) if approval_id in found:
                    if found[approval_id].decision is None:
                        said = {"decision": decision, "decided_by": by, "reason": reason, "answer": answer}
                        found[approval_id] = replace(found[approval_id], **said)
                case RunFinished():
                    for each in [each for each in found.values() if each.run_id == event.run_id and each.is_held]:
                        found[each.approval_id] = replace(each, decision=WITHDRAW)
                case _:
                    pass
    return list(found.values())
