"""The ticket desk over HTTP: hand a complaint in, confirm later what needs a human: held actions, or a plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Body
from fastapi.responses import JSONResponse
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, model_validator
from starlette.responses import Response

from glassloop import RunResult
from glassloop.core.ids import root_of
from glassloop.core.result import Decision, PendingApproval, ToolExecution
from glassloop.runtime import ApprovalProblem, Runtime
from glassloop.server import Caller, TheDesk, with_session
from glassloop.server.approvals import approval_refused
from glassloop.server.openapi import problems
from glassloop.server.schemas import SessionName

AGENT, PLANNER = "ticket", "ticket-plan"


def not_blank(text: str) -> str:
    """The text, if there is something in it."""
    if not text.strip():
        raise ValueError("must not be blank")
    return text


Text = Annotated[str, StringConstraints(max_length=20_000), AfterValidator(not_blank)]


class HandleIn(BaseModel):
    """A complaint."""

    model_config = ConfigDict(extra="forbid", strict=True)

    task: Text = Field(description="What the customer says, with the order number.")
    sessionId: SessionName | None = Field(None, description="A conversation of yours that goes on.")  # noqa: N815 - as on the wire
    plan: bool = Field(False, description="Plan first: nothing is done before the plan is confirmed.")


class ConfirmIn(BaseModel):
    """What a human says to a held action; nothing means yes."""

    model_config = ConfigDict(extra="forbid", strict=True)

    decision: Literal["approve", "deny", "edit"] = "approve"
    reason: Annotated[str, StringConstraints(max_length=2_000)] | None = Field(None, description="Why not.")
    args: dict[str, Any] | None = Field(None, description="With `edit`: the arguments to run instead, all of them.")

    @model_validator(mode="after")
    def _complete(self) -> ConfirmIn:
        if (self.decision == "edit") != (self.args is not None):
            raise ValueError("args belong to the decision `edit`, and only to it")
        return self


def routes(runtime: Runtime) -> APIRouter:
    """`/api/v1/ticket-agent/handle` and `/api/v1/agent/confirm/{action_id}`.

    Args:
        runtime: has the agents `ticket` and `ticket-plan`.
    """
    router = APIRouter(prefix="/api/v1", tags=["ticket desk"], responses=problems(401, 422, 503))

    @router.post("/ticket-agent/handle", responses=problems(429))
    async def handle(given: HandleIn, desk: TheDesk, caller: Caller) -> Response:  # pyright: ignore[reportUnusedFunction] - a route
        """Look the complaint into; what needs a human comes back in `pendingActions` and is not done yet."""
        async with desk.place_for_run(caller):
            who = with_session(caller, given.sessionId)
            agent, approvals = (PLANNER, "park") if given.plan else (AGENT, "defer")
            run_id = await runtime.start(agent, given.task, identity=who, approvals=approvals)
        result = await runtime.wait(run_id)
        return JSONResponse(handled(await runtime.tree(run_id)), 502 if result.outcome == "failed" else 200)

    @router.post("/agent/confirm/{action_id}", responses=problems(403, 404, 409, 410))
    async def confirm(  # pyright: ignore[reportUnusedFunction] - a route
        action_id: str, caller: Caller, given: Annotated[ConfirmIn | None, Body()] = None
    ) -> dict[str, Any]:
        """Say yes or no to a held action or a plan, or let it run with other arguments; once.

        The answer of a plan, or of an action of one, tells what the whole has come to, as `handle` does.
        """
        said = given or ConfirmIn(reason=None, args=None)
        decision = Decision(said.decision, said.reason, caller.user, said.args)
        try:
            result = await runtime.decide(action_id, decision, by=caller)
        except ApprovalProblem as problem:
            raise approval_refused(problem) from None
        if result is not None:
            return confirmed(decision, result)
        row = await runtime.approval(action_id)
        assert row is not None
        run = await runtime.wait(root_of(row.run_id))
        return gone_on(run, await runtime.tree(run.run_id))

    return router


def handled(results: Sequence[RunResult]) -> dict[str, Any]:
    """A complaint that was looked into, on the wire. `cost` is in US dollars, null where a price is unknown.

    Args:
        results: of the run, and of those below it.
    """
    result = results[0]
    done = [done for each in results if each.agent == AGENT for done in each.tool_executions]
    return {
        "traceId": result.run_id,
        "answer": result.output,
        "steps": [step_of(index, each) for index, each in enumerate(done, 1)],
        "success": result.outcome in ("completed", "waiting"),
        "outcome": result.outcome,
        "message": result.message,
        "elapsedMs": round(result.seconds * 1000),
        "tokens": result.spent.tokens,
        "cost": result.spent.cost_usd,
        "pendingActions": [action_of(pending) for pending in result.pending],
    }


def step_of(index: int, done: ToolExecution) -> dict[str, Any]:
    """A tool call, on the wire."""
    observation = done.content if done.value is None else done.value
    args: Mapping[str, Any] = done.arguments or {}
    return {
        "index": index,
        "toolName": done.tool,
        "args": args,
        "observation": observation,
        "costMs": round(done.ms, 1),
    }


def action_of(pending: PendingApproval) -> dict[str, Any]:
    """A held call, on the wire; `expiresAt` is ISO 8601 in UTC."""
    expires = None if pending.expires_at is None else datetime.fromtimestamp(pending.expires_at / 1000, UTC)
    return {
        "actionId": pending.approval_id,
        "toolName": pending.tool,
        "args": pending.arguments,
        "summary": pending.summary,
        "riskLevel": pending.risk,
        "role": pending.role,
        "expiresAt": None if expires is None else expires.isoformat(timespec="seconds").replace("+00:00", "Z"),
    }


def confirmed(decision: Decision, result: RunResult) -> dict[str, Any]:
    """What came of a decision on a held call, on the wire."""
    if decision.decision == "deny":
        because = f": {decision.reason}" if decision.reason else ""
        return {"ok": True, "message": f"Denied{because}. Nothing was done.", "result": None}
    done = result.tool_executions[-1] if result.tool_executions else None
    if done is None or done.status != "ok":
        message = result.message or (done.content if done else "") or f"The action ended: {result.outcome}."
        return {"ok": False, "message": message, "result": None}
    return {"ok": True, "message": f"Approved, and {done.tool} has run.", "result": done.value}


def gone_on(run: RunResult, results: Sequence[RunResult]) -> dict[str, Any]:
    """What came of a decision on a plan, or on an action of one, on the wire."""
    waits = f"{len(run.pending)} more to be confirmed." if run.outcome == "waiting" else ""
    message = run.output or run.message or waits or f"The run ended: {run.outcome}."
    return {"ok": run.outcome in ("completed", "waiting", "cancelled"), "message": message, "result": handled(results)}
