"""`/v1/runs`: start a run, watch it, look at it, stop it."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Annotated, Any

from fastapi import APIRouter, Body, Header, Query, Request
from fastapi.responses import JSONResponse
from starlette.responses import Response

from glassloop.core.limits import Limits
from glassloop.core.result import RunResult
from glassloop.journal.projection import RunFilter, RunRow
from glassloop.runnable import Runnable
from glassloop.server.desk import Caller, Desk, TheDesk
from glassloop.server.openapi import problems
from glassloop.server.problems import Refused, invalid
from glassloop.server.schemas import (
    CancelIn,
    CancelOut,
    LimitsIn,
    PendingOut,
    RunIn,
    RunLine,
    RunLinks,
    RunOut,
    RunsOut,
    RunStartedOut,
    SessionName,
    Status,
    ToolCallOut,
    UsageOut,
)
from glassloop.server.scope import session_key, session_name, with_session
from glassloop.server.sse import EventStream
from glassloop.server.streams import run_frames

router = APIRouter(prefix="/v1/runs", tags=["runs"])

_STREAM = {
    "text/event-stream": {"schema": {"type": "string"}, "example": 'id: 1\nevent: run_started\ndata: {"...": 0}'}
}
_DEFAULT_COST = 1.0  # what `Limits.cost_usd` is when it is left alone


@router.post(
    "",
    status_code=202,
    response_model=RunStartedOut,
    responses={
        200: {"description": "The run's events, where a stream was asked for.", "content": _STREAM},
        **problems(400, 413, 429),
    },
)
async def start_run(
    request: Request, given: RunIn, desk: TheDesk, caller: Caller, accept: Annotated[str, Header()] = ""
) -> Response:
    """Start a run. It goes on in the background, or is streamed.

    With `stream: true`, or `Accept: text/event-stream`, the answer is the stream of its events. A run that was started
    so is cancelled two seconds after nobody reads any stream of it, unless `background` is true.
    """
    agent = _agent_of(desk, given.agent)
    limits = None if given.limits is None else limits_for(agent, given.limits)
    streamed = "text/event-stream" in accept if given.stream is None else given.stream
    async with desk.place_for_run(caller):
        run_id = await desk.runtime.start(
            agent.name,
            given.input,
            identity=with_session(caller, given.session),
            limits=limits,
            approvals=given.approvals,
            attached=streamed and not given.background,
            when_busy=given.when_busy,
        )
    place = f"{request.scope.get('root_path', '')}/v1/runs/{run_id}"
    if streamed:
        return _stream(desk, run_id, 0, {"Location": place})
    links = RunLinks(self=place, events=f"{place}/events", cancel=f"{place}/cancel")
    started = RunStartedOut(run_id=run_id, status="running", agent=agent.name, session=given.session, links=links)
    return JSONResponse(started.model_dump(), 202, {"Location": place})


@router.get("")
async def list_runs(
    desk: TheDesk,
    caller: Caller,
    agent: str | None = None,
    session: SessionName | None = None,
    status: Status | None = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    before: Annotated[str | None, Query(description="`next` of the page before.")] = None,
) -> RunsOut:
    """Your runs, newest first."""
    wanted = RunFilter(
        roots=True,
        agent=agent,
        session=None if session is None else session_key(caller, session),
        user=caller.user,
        tenant=caller.tenant,
        status=status,
        limit=limit + 1,
        before=before,
    )
    rows = await desk.runtime.runs(wanted)
    page = rows[:limit]
    return RunsOut(runs=[RunLine(**_line(row)) for row in page], next=page[-1].id if len(rows) > limit else None)


@router.get("/{run_id}")
async def get_run(run_id: str, desk: TheDesk, caller: Caller) -> RunOut:
    """A run of yours as far as it is now."""
    row = await desk.own_run(run_id, caller)
    result = await desk.runtime.result(run_id)
    assert result is not None
    return run_out(row, result)


@router.get("/{run_id}/events", response_class=Response, responses={200: {"content": _STREAM}})
async def watch_run(
    run_id: str,
    desk: TheDesk,
    caller: Caller,
    after: Annotated[int, Query(ge=0, description="Only events after this id.")] = 0,
    tree: Annotated[bool, Query(description="With the events of the runs below, from now on.")] = False,
    last_event_id: Annotated[str | None, Header(description="The same; it goes before `after`.")] = None,
) -> Response:
    """The events of a run of yours, until it rests.

    Events of its journal have an `id` and can be asked for again; deltas have none, nor have those of the runs below,
    which come with `tree` and can be asked for under the `run_id` that they name. The stream ends with `end`, which
    has the run's status; a run that failed, or ended otherwise without an answer, has an `error` before it.
    """
    await desk.own_run(run_id, caller)
    return _stream(desk, run_id, _position(last_event_id) if last_event_id else after, whole=tree)


@router.post("/{run_id}/cancel", status_code=202, responses=problems(409))
async def cancel_run(
    run_id: str, desk: TheDesk, caller: Caller, given: Annotated[CancelIn | None, Body()] = None
) -> CancelOut:
    """Stop a run of yours: the request to the model is closed and running tools are cancelled."""
    await desk.own_run(run_id, caller)
    if not await desk.runtime.cancel(run_id, by=caller, reason=given.reason if given else None):
        raise Refused(409, "run_finished", "The run has finished already.")
    row = await desk.own_run(run_id, caller)
    return CancelOut(run_id=run_id, status=_status(row))


def run_out(row: RunRow, result: RunResult) -> RunOut:
    """A run for its owner."""
    usage = result.usage
    return RunOut(
        **_line(row),
        output=result.output,
        message=result.message,
        limit=result.limit,
        seconds=result.seconds,
        usage=UsageOut(
            input=usage.input, output=usage.output, cached=usage.cached, reasoning=usage.reasoning, total=usage.total
        ),
        tool_executions=[
            ToolCallOut(
                call_id=each.call_id,
                step=each.step,
                tool=each.tool,
                arguments=each.arguments,
                status=each.status,
                content=each.content,
                ms=each.ms,
            )
            for each in result.tool_executions
        ],
        pending_approvals=[
            PendingOut(
                approval_id=each.approval_id,
                tool=each.tool,
                arguments=each.arguments,
                summary=each.summary,
                risk=each.risk,
                role=each.role,
                expires_at=each.expires_at,
                kind=each.kind,
                choices=each.choices,
            )
            for each in result.pending
        ],
    )


def limits_for(agent: Runnable, given: LimitsIn) -> Limits:
    """The agent's limits, tightened.

    Raises:
        Refused: 422, a limit is wider than the agent's.
    """
    wanted: dict[str, Any] = {name: value for name, value in given.model_dump().items() if value is not None}
    for name, value in wanted.items():
        most: Any = getattr(agent.limits, name)
        most = _DEFAULT_COST if most == "default" else most
        if name != "on_limit" and most is not None and value > most:
            raise invalid(f"limits.{name}", f"must be at most {most:g}, the agent's own limit")
    return replace(agent.limits, **wanted)


def _agent_of(desk: Desk, name: str | None) -> Runnable:
    agents = desk.runtime.agents
    if name is None and len(agents) == 1:
        return next(iter(agents.values()))
    if name is not None and name in agents:
        return agents[name]
    raise invalid("agent", f"must be one of {', '.join(sorted(agents))}")


def _stream(
    desk: Desk, run_id: str, after: int, headers: dict[str, str] | None = None, *, whole: bool = False
) -> EventStream:
    frames = run_frames(desk.runtime, run_id, after, whole=whole)
    return EventStream(frames, desk.closing, heartbeat=desk.heartbeat, headers=headers)


def _position(last_event_id: str) -> int:
    if not (last_event_id.isascii() and last_event_id.isdecimal() and len(last_event_id) < 16):
        raise invalid("last-event-id", "must be the id of an event of this run, a number")
    return int(last_event_id)


def _status(row: RunRow) -> Any:
    return row.status


def _line(row: RunRow) -> dict[str, Any]:
    """The fields of a `RunLine`."""
    line = asdict(row)
    kept = {name: line[name] for name in RunLine.model_fields if name in line}
    return {**kept, "run_id": row.id, "session": session_name(row.session)}
