"""The inbox of a SQLite store: who is to decide what, kept beside the events in the same transaction."""

from __future__ import annotations

import sqlite3
from dataclasses import astuple

from glassloop.core.events import ApprovalAsked, ApprovalDecided, Event
from glassloop.journal.projection import ApprovalRow, RunRow, asked_row

_PUT = f"INSERT OR IGNORE INTO glassloop_approvals VALUES ({', '.join('?' * 19)})"
_DECIDE = """
    UPDATE glassloop_approvals SET decision = ?, decided_by = ?, reason = ? WHERE approval_id = ? AND decision IS NULL
"""


def project_approval(row: RunRow, event: Event, cursor: sqlite3.Cursor) -> None:
    """Take an event of a run into the inbox."""
    match event.data:
        case ApprovalAsked() as asked:
            cursor.execute(_PUT, astuple(asked_row(row, event, asked)))
        case ApprovalDecided(approval_id, decision, by, reason):
            cursor.execute(_DECIDE, (decision, by, reason, approval_id))
        case _:
            pass


def list_approvals(approval_id: str | None, cursor: sqlite3.Cursor) -> list[ApprovalRow]:
    """See `Journal.approvals`."""
    where, values = ("decision IS NULL", ()) if approval_id is None else ("approval_id = ?", (approval_id,))
    found = cursor.execute(f"SELECT * FROM glassloop_approvals WHERE {where} ORDER BY asked_at, approval_id", values)
    return [ApprovalRow(*stored) for stored in found.fetchall()]
