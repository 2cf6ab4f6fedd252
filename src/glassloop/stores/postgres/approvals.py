"""The inbox of a PostgreSQL store: who is to decide what, kept beside the events in the same transaction."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, fields
from typing import assert_never

from sqlalchemy import ColumnElement, Connection, or_, select, update
from sqlalchemy.dialects.postgresql import insert

from glassloop.core.events import ApprovalAsked, ApprovalDecided, Event, RunFinished
from glassloop.journal.projection import DECISION_OF, WITHDRAW, ApprovalFilter, ApprovalRow, RunRow, asked_row
from glassloop.stores.postgres.schema import approvals, rows_of

_COLUMNS = [approvals.c[field.name] for field in fields(ApprovalRow)]


def project_approval(row: RunRow, event: Event, connection: Connection) -> None:
    """Take an event of a run into the inbox."""
    match event.data:
        case ApprovalAsked() as asked:
            connection.execute(insert(approvals).on_conflict_do_nothing(), asdict(asked_row(row, event, asked)))
        case ApprovalDecided(approval_id, decision, by, reason, answer=answer):
            undecided = update(approvals).where(approvals.c.approval_id == approval_id, approvals.c.decision.is_(None))
            connection.execute(undecided.values(decision=decision, decided_by=by, reason=reason, answer=answer))
        case RunFinished() if row.pending:
            its = approvals.c
            held = update(approvals).where(its.run_id == row.id, its.decision.is_(None), its.mode != "defer")
            connection.execute(held.values(decision=WITHDRAW))
        case _:
            pass


def list_approvals(wanted: ApprovalFilter, connection: Connection) -> list[ApprovalRow]:
    """See `Journal.approvals`."""
    query = select(*_COLUMNS).where(*_conditions(wanted)).order_by(approvals.c.approval_id.desc())
    return [ApprovalRow(*stored) for stored in rows_of(connection.execute(query.limit(wanted.limit)))]


def _conditions(wanted: ApprovalFilter) -> Iterator[ColumnElement[bool]]:
    """See `ApprovalFilter.matches`."""
    its = approvals.c
    if wanted.id is not None:
        yield its.approval_id == wanted.id
    if wanted.run_id is not None:
        yield its.run_id == wanted.run_id
    if wanted.before is not None:
        yield its.approval_id < wanted.before
    if (who := wanted.concerns) is not None:
        yield its.tenant.is_not_distinct_from(who.tenant)
        yield or_(its.user.is_not_distinct_from(who.user), its.role.in_(who.roles))
    match wanted.status:
        case None:
            pass
        case "pending":
            yield its.decision.is_(None)
            yield or_(its.expires_at.is_(None), its.expires_at > wanted.now)
        case "expired":
            yield its.decision.is_(None)
            yield its.expires_at <= wanted.now
        case "decided":
            yield its.decision != WITHDRAW
        case "approved" | "denied" | "edited" | "answered" | "withdrawn" as status:
            yield its.decision == DECISION_OF[status]
        case _:
            assert_never(wanted.status)
