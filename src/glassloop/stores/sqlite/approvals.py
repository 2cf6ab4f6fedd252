"""The inbox of a SQLite store: who is to decide what, kept beside the events in the same transaction."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import astuple, fields
from typing import assert_never

from glassloop.core.events import ApprovalAsked, ApprovalDecided, Event, RunFinished
from glassloop.journal.projection import DECISION_OF, WITHDRAW, ApprovalFilter, ApprovalRow, RunRow, asked_row
from glassloop.stores.codec import storable

_PUT = f"INSERT OR IGNORE INTO glassloop_approvals VALUES ({', '.join('?' * len(fields(ApprovalRow)))})"
_DECIDE = """
    UPDATE glassloop_approvals SET decision = ?, decided_by = ?, reason = ?, answer = ?
    WHERE approval_id = ? AND decision IS NULL
"""
_WITHDRAW = f"""
    UPDATE glassloop_approvals SET decision = '{WITHDRAW}' WHERE run_id = ? AND decision IS NULL AND mode <> 'defer'
"""


def project_approval(row: RunRow, event: Event, cursor: sqlite3.Cursor) -> None:
    """Take an event of a run into the inbox."""
    match event.data:
        case ApprovalAsked() as asked:
            cursor.execute(_PUT, _storable(astuple(asked_row(row, event, asked))))
        case ApprovalDecided(approval_id, decision, by, reason, answer=answer):
            cursor.execute(_DECIDE, _storable((decision, by, reason, answer, approval_id)))
        case RunFinished() if row.pending:
            cursor.execute(_WITHDRAW, (row.id,))
        case _:
            pass


def _storable(values: Iterable[object]) -> list[object]:
    return [storable(value) if isinstance(value, str) else value for value in values]


def list_approvals(wanted: ApprovalFilter, cursor: sqlite3.Cursor) -> list[ApprovalRow]:
    """See `Journal.approvals`."""
    conditions = list(_conditions(wanted))
    where = f"WHERE {' AND '.join(text for text, _ in conditions)}" if conditions else ""
    query = f"SELECT * FROM glassloop_approvals {where} ORDER BY approval_id DESC LIMIT ?"
    values = [value for _, several in conditions for value in several]
    found = cursor.execute(query, (*values, -1 if wanted.limit is None else wanted.limit))
    return [ApprovalRow(*stored) for stored in found.fetchall()]


def _conditions(wanted: ApprovalFilter) -> Iterator[tuple[str, tuple[object, ...]]]:
    """See `ApprovalFilter.matches`."""
    if wanted.id is not None:
        yield "approval_id = ?", (wanted.id,)
    if wanted.run_id is not None:
        yield "run_id = ?", (wanted.run_id,)
    if wanted.before is not None:
        yield "approval_id < ?", (wanted.before,)
    if (who := wanted.concerns) is not None:
        roles = json.dumps(who.roles)
        yield "tenant IS ? AND (user IS ? OR role IN (SELECT value FROM json_each(?)))", (who.tenant, who.user, roles)
    match wanted.status:
        case None:
            pass
        case "pending":
            yield "decision IS NULL AND (expires_at IS NULL OR expires_at > ?)", (wanted.now,)
        case "expired":
            yield "decision IS NULL AND expires_at <= ?", (wanted.now,)
        case "decided":
            yield "decision <> ?", (WITHDRAW,)
        case "approved" | "denied" | "edited" | "answered" | "withdrawn" as status:
            yield "decision = ?", (DECISION_OF[status],)
        case _:
            assert_never(wanted.status)
