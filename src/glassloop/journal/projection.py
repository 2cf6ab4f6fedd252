"""Lists of runs: one row per run, folded from its events as they are written."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from glassloop.core.events import (
    ApprovalAsked,
    ApprovalDecided,
    Event,
    ModelReplied,
    RunContinued,
    RunFinished,
    RunStarted,
)


@dataclass(frozen=True, slots=True)
class RunRow:
    """One line of a list of runs.

    Args:
        id: the run.
        agent: the agent's name.
        session: the session it belongs to.
        user: on whose behalf.
        tenant: of which tenant.
        status: the outcome, `waiting` for a human, or `running`.
        input: the beginning of the user's text.
        started_at: UTC milliseconds.
        updated_at: UTC milliseconds of the last event.
        steps: model calls so far.
        tokens: tokens so far.
        cost_usd: money so far; None where a price is unknown.
        pending: approvals asked and not decided.
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

    @property
    def finished(self) -> bool:
        """Whether the run rests for good, and not only until somebody decides."""
        return self.status not in ("running", "waiting")


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
    """

    agent: str | None = None
    session: str | None = None
    user: str | None = None
    tenant: str | None = None
    status: str | None = None
    finished: bool | None = None
    limit: int = 50
    before: str | None = None

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
        case ModelReplied(reply=reply, cost_usd=cost):
            total = None if cost is None or row.cost_usd is None else row.cost_usd + cost
            tokens = row.tokens + reply.usage.total
            return replace(row, updated_at=event.at, steps=row.steps + 1, tokens=tokens, cost_usd=total)
        case RunFinished(outcome=outcome):
            return replace(row, updated_at=event.at, status=outcome, pending=0)
        case ApprovalAsked():
            return _resting(replace(row, updated_at=event.at, pending=row.pending + 1))
        case ApprovalDecided() if not row.finished:
            return _resting(replace(row, updated_at=event.at, pending=max(0, row.pending - 1)))
        case RunContinued():
            return _resting(replace(row, updated_at=event.at))
        case _:
            return replace(row, updated_at=event.at)


def _resting(row: RunRow) -> RunRow:
    return replace(row, status="waiting" if row.pending else "running")


def summarize(events: Iterable[Event]) -> RunRow | None:
    """The row of a run, from all its events."""
    row: RunRow | None = None
    for event in events:
        row = project(row, event)
    return row
