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


def check(row: ApprovalRow | None, who: Identity, now: int) -> ApprovalRow:
    """The approval, if `who` may decide it now.

    Raises:
        ApprovalProblem: otherwise.
    """
    if row is None or not row.concerns(who):
        raise ApprovalProblem("There is no such approval.", "not_found")
    if row.role is not None and row.role not in who.roles:
        raise ApprovalProblem(f"This needs the role {row.role!r}.", "forbidden")
    match row.status(now):
        case "pending":
            return row
        case "expired":
            raise ApprovalProblem("The time to decide has passed; ask for it again.", "expired")
        case decided:
            raise ApprovalProblem(f"This was {decided} already{_by(row)}.", "decided")


def _by(row: ApprovalRow) -> str:
    return f" by {row.decided_by}" if row.decided_by else ""
