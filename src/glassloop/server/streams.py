"""A run as server-sent events: its journal, what goes on live, and an ending that tells success from failure."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from glassloop.core.errors import StoreError
from glassloop.core.events import DriverClaimed, Event, RunFinished, RunStarted, Unknown, version_of
from glassloop.runtime import Runtime
from glassloop.server.scope import session_name
from glassloop.server.sse import RECONNECT, frame

log = logging.getLogger("glassloop.server")

_SAID: dict[str, str] = {
    "limited": "A limit stopped the run.",
    "truncated": "The reply was cut off by the output limit.",
    "refused": "The model refused.",
    "filtered": "The provider's content filter stopped the reply.",
    "unanswered": "The model said that it would act, and did not.",
    "cancelled": "The run was cancelled.",
    "failed": "The run failed.",
    "partly_rolled_back": "The run failed, and not everything that it had done could be undone.",
}


async def run_frames(runtime: Runtime, run_id: str, after: int = 0, *, whole: bool = False) -> AsyncGenerator[bytes]:
    """The frames of a run, from its event `after` + 1 until it rests; with those of the runs below, if `whole`.

    Journal events carry `id: seq`; live ones have no id, nor do those of the runs below. The last frame is `end` with
    the run's `status`. A run that rests without having completed, and not to wait for a human, has an `error` before
    it: whoever sees none may take the answer as it is.
    """
    finished: RunFinished | None = None
    yield RECONNECT
    try:
        async with aclosing(runtime.watch(run_id, after, whole=whole)) as events:
            async for event in events:
                if event.run_id != run_id:
                    yield frame(event.type, public_event(event))
                    continue
                if isinstance(event.data, RunFinished):
                    finished = event.data
                elif event.seq:
                    finished = None
                yield event_frame(event)
        ending = await _ending(runtime, run_id, finished)
    except Exception as error:
        log.error("%s: %s", run_id, error, exc_info=None if isinstance(error, StoreError) else error)
        ending = _broken(run_id)
    for piece in ending:
        yield piece


def event_frame(event: Event) -> bytes:
    """An event as a frame."""
    return frame(event.type, public_event(event), event.seq or None)


def public_event(event: Event) -> dict[str, Any]:
    """What the run's owner sees of an event; its data are still to be written as JSON."""
    data: Any = event.data
    match data:
        case RunStarted(identity=who):
            data = replace(data, identity=replace(who, session=session_name(who.session)))
        case DriverClaimed(epoch=epoch):
            data = {"epoch": epoch}  # which process of which machine drives it is the operator's business
        case Unknown():
            data = data.data
        case _:
            pass
    head = {"run_id": event.run_id, "seq": event.seq, "type": event.type, "v": version_of(event.data)}
    return {**head, "at": event.at, "step": event.step, "data": data}


async def _ending(runtime: Runtime, run_id: str, finished: RunFinished | None) -> list[bytes]:
    """The last frames; none where the run goes on and only this server does not."""
    if finished is None:
        row = await runtime.row(run_id)
        if row is None or row.status in ("running", "cancelling"):
            return []
        if row.status != "waiting":
            result = await runtime.result(run_id)
            assert result is not None
            finished = RunFinished(result.outcome, result.output, result.message, result.limit, result.error_kind)
    status = finished.outcome if finished else "waiting"
    end = frame("end", {"run_id": run_id, "status": status})
    if finished is None or status == "completed":
        return [end]
    error = {
        "run_id": run_id,
        "code": status,
        "detail": finished.message or _SAID.get(status, "The run did not complete."),
        "kind": finished.error_kind,
        "limit": finished.limit,
    }
    return [frame("error", error), end]


def _broken(run_id: str) -> list[bytes]:
    detail = "The stream broke off in the server; ask for the run's state, or reconnect with Last-Event-ID."
    error = {"run_id": run_id, "code": "internal", "detail": detail, "kind": None, "limit": None}
    return [frame("error", error), frame("end", {"run_id": run_id, "status": "unknown"})]
