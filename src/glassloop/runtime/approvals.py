"""Who may decide what, and until when."""

from __future__ import annotations

from typing import Literal

from glassloop.core.context import Identity
from glassloop.core.errors import GlassloopError
from glassloop.journal.projection import ApprovalRow

ProblemKind = Literal["not_found", "forbidden", "decided", "expired", "invalid"]


class ApprovalProblem(GlassloopError):
    """A decision that is refused; `kind` says why.

    `not_found`: no such approval, or none of the asker's business. `forbidden`: the owner without the needed role.
    `decided`: somebody has decided already. `expired`: too late. `invalid`: the edited arguments do not fit.
    """

    def __init__(self, message: str, kind: ProblemKind) -> None:
        super().__init__(message)
        self.kind: ProblemKind = kind


def status_of(row: ApprovalRow, now: int) -> str:
    """`pending`, `approved`, `denied`, `edited` or `expired`, at `now` (UTC milliseconds)."""
    match row.decision:
        case None:
            return "expired" if row.expires_at is not None and row.expires_at <= now else "pending"
        case "approve":
            return "approved"
        case "deny":
            return "denied"
        case _:
            return "edited"


def is_owner(row: ApprovalRow, who: Identity) -> bool:
    """Whether the run acts on behalf of `who`."""
    return (row.user, row.tenant) == (who.user, who.tenant)


def may_see(row: ApprovalRow, who: Identity) -> bool:
    """Whether the approval is any business of `who`: its owner's, or that of the role it asks for, in its tenant."""
    return is_owner(row, who) or (row.role is not None and row.role in who.roles and row.tenant == who.tenant)


def check(row: ApprovalRow | None, who: Identity, now: int) -> ApprovalRow:
    """The approval, if `who` may decide it now.

    Raises:
        ApprovalProblem: otherwise.
    """
    if row is None or not may_see(row, who):
        raise ApprovalProblem("There is no such approval.", "not_found")
    if row.role is not None and row.role not in who.roles:
        raise ApprovalProblem(f"This needs the role {row.role!r}.", "forbidden")
    match status_of(row, now):
        case "pending":
            return row
        case "expired":
            raise ApprovalProblem("The time to decide has passed; ask for it again.", "expired")
        case decided:
            raise ApprovalProblem(f"This was {decided} already{_by(row)}.", "decided")


def _by(row: ApprovalRow) -> str:
    return f" by {row.decided_by}" if row.decided_by else ""
