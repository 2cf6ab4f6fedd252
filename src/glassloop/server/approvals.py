"""`/v1/approvals`: what waits for a human, and what the human says."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Literal

from fastapi import APIRouter, Query

from glassloop.core.encoding import loads
from glassloop.core.result import Decision, RunResult
from glassloop.journal.projection import ApprovalStatus
from glassloop.journal.recorder import now_ms
from glassloop.runtime import ApprovalProblem, ApprovalRow
from glassloop.server.desk import Caller, TheDesk
from glassloop.server.openapi import problems
from glassloop.server.problems import Refused
from glassloop.server.schemas import (
    ApprovalOut,
    ApprovalsOut,
    CallResultOut,
    DecidedOut,
    DecisionIn,
)
from glassloop.server.scope import session_name

router = APIRouter(prefix="/v1/approvals", tags=["approvals"])

NOT_FOUND = "There is no such approval for you to see."
_STATUS = {"not_found": 404, "forbidden": 403, "decided": 409, "expired": 410, "invalid": 422}


@router.get("")
async def list_approvals(
    desk: TheDesk,
    caller: Caller,
    status: Annotated[
        ApprovalStatus | Literal["decided", "any"],
        Query(description="`decided`: approved, denied, edited or answered."),
    ] = "pending",
    run_id: str | None = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    before: Annotated[str | None, Query(description="`next` of the page before.")] = None,
) -> ApprovalsOut:
    """Approvals of your own runs, or for a role of yours to decide; newest first."""
    found = await desk.runtime.approvals(
        identity=caller,
        status=None if status == "any" else status,
        run_id=run_id,
        limit=limit + 1,
        before=before,
    )
    page, now = found[:limit], now_ms()
    more = len(found) > limit
    return ApprovalsOut(approvals=[_out(row, now) for row in page], next=page[-1].approval_id if more else None)


@router.get("/{approval_id}")
async def get_approval(approval_id: str, desk: TheDesk, caller: Caller) -> ApprovalOut:
    """One approval."""
    row = await desk.runtime.approval(approval_id)
    if row is None or not row.concerns(caller):
        raise Refused(404, "approval_not_found", NOT_FOUND)
    return _out(row, now_ms())


@router.post("/{approval_id}", responses=problems(403, 409, 410))
async def decide(approval_id: str, given: DecisionIn, desk: TheDesk, caller: Caller) -> DecidedOut:
    """Approve a call, deny it, let it run with other arguments, or answer what it asks; once.

    A run that waits goes on in the background. A call that was deferred runs now, and `result` tells how it ended.
    """
    decision = Decision(given.decision, given.reason, caller.user, given.args, given.answer)
    try:
        result = await desk.runtime.decide(approval_id, decision, by=caller)
    except ApprovalProblem as problem:
        raise approval_refused(problem) from None
    return DecidedOut(approval_id=approval_id, decision=given.decision, result=_result(result))


def approval_refused(problem: ApprovalProblem) -> Refused:
    """What the caller is told about a decision that was not taken."""
    status = _STATUS[problem.kind]
    field = "args" if problem.about == "arguments" else problem.about
    errors = [{"field": field, "message": str(problem)}] if status == 422 else []
    detail = NOT_FOUND if status == 404 else str(problem)
    return Refused(status, f"approval_{problem.kind}", detail, errors=errors)


def _result(result: RunResult | None) -> CallResultOut | None:
    if result is None:
        return None
    return CallResultOut(run_id=result.run_id, outcome=result.outcome, output=result.output, message=result.message)


def _out(row: ApprovalRow, now: int) -> ApprovalOut:
    return ApprovalOut.model_validate(
        {
            **asdict(row),
            "arguments": loads(row.arguments),
            "choices": loads(row.choices),
            "session": session_name(row.session),
            "status": row.status(now),
        }
    )
