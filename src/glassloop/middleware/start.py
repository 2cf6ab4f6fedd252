"""A write is journaled before it runs, so that a crash leaves a question and never a silent repeat."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

from glassloop.core.events import ApprovalAsked, EffectStarted
from glassloop.core.insist import insist
from glassloop.middleware.call import Call, Next, Pending, question
from glassloop.tools.threads import run_in_thread

GRACE_SECONDS = 5.0
"""How long a cancelled run waits for a write that has begun."""


class Start:
    """Appends a write's start after every gate has said yes, and settles what an earlier life of the run began.

    A call that was begun and has no result is in doubt. An idempotent tool runs again under the same key; a tool with
    `reconcile` is asked; anything else is held for a human, who may have it run again. A tool with `transaction=True`
    has no start: its effect and its result are one commit.

    Args:
        grace: seconds that a cancelled run waits for a write in flight.
    """

    def __init__(self, grace: float = GRACE_SECONDS) -> None:
        self.grace = grace

    async def __call__(self, call: Call, next: Next, /) -> Any:
        """See `ToolMiddleware`."""
        tool = call.found
        if tool.effect != "write" or tool.transaction:
            return await next(call)
        if call.call.id in call.recorder.state.begun and not tool.idempotent:
            known, result = (False, None) if tool.reconcile is None else await _reconciled(call)
            if known and result is not None:
                return result
            if not known and not _may_run_again(call):
                return await _hold(call)
        call.recorder.record(EffectStarted(call.call.id, call.context.idempotency_key))
        await call.recorder.commit()
        return await self._run(call, next)

    async def _run(self, call: Call, next: Next) -> Any:
        work = asyncio.ensure_future(next(call))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            call.context.cancelled.set()
            try:
                await asyncio.wait([work], timeout=self.grace)
            finally:  # also where it is cancelled once more: nothing goes on after the run
                work.cancel()
                await asyncio.wait([work])
            if work.cancelled():
                raise
            # it got through in time: its result counts, and the run stops after it
            return work.result()


def _may_run_again(call: Call) -> bool:
    """Whether a human has looked at this doubt and said that it may; said once, it holds for one start."""
    asked = _doubt(call)
    decision = call.recorder.state.decided.get(asked.approval_id) if asked else None
    return decision is not None and decision.decision != "deny"


async def _hold(call: Call) -> Pending:
    earlier = _doubt(call)
    if earlier is not None:
        return Pending(earlier.approval_id)
    before = call.recorder.state.asked.get(call.call.id)
    asked = question(call, mode="park", kind="doubt", role=before.role if before else None)
    call.recorder.record(asked)
    await call.recorder.commit()
    return Pending(asked.approval_id)


def _doubt(call: Call) -> ApprovalAsked | None:
    """What a human was asked about the latest start of this call."""
    state = call.recorder.state
    asked = state.asked.get(call.call.id)
    fresh = asked is not None and asked.kind == "doubt" and asked.approval_id not in state.used
    return asked if fresh else None


async def _reconciled(call: Call) -> tuple[bool, Any]:
    """Ask the tool's `reconcile(key)`: whether it knows, and the result of an effect that happened, or None."""
    reconcile = call.found.reconcile
    assert reconcile is not None
    key = call.context.idempotency_key
    try:
        if inspect.iscoroutinefunction(reconcile):
            return True, await insist(reconcile(key), f"reconcile= of {call.found.name}")
        return True, await run_in_thread(lambda: reconcile(key))
    except Exception:  # noqa: BLE001 - whatever keeps it from telling, the doubt stays
        return False, None
