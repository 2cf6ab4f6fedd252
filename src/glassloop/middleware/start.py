"""A write is journaled before it runs, so that a crash leaves a question and never a silent repeat."""

from __future__ import annotations

import asyncio
from typing import Any

from glassloop.core.events import EffectStarted
from glassloop.middleware.call import Call, CallStopped, Next

IN_DOUBT = (
    "This call had begun before the run was interrupted, and nobody recorded how it ended: outcome unknown. "
    "Do not repeat it; check its effect or tell the user."
)
GRACE_SECONDS = 5.0
"""How long a cancelled run waits for a write that has begun."""


class Start:
    """Appends a write's start after every gate has said yes; a cancelled run waits a moment for a write in flight.

    Args:
        grace: seconds.
    """

    def __init__(self, grace: float = GRACE_SECONDS) -> None:
        self.grace = grace

    async def __call__(self, call: Call, next: Next, /) -> Any:
        """See `ToolMiddleware`.

        Raises:
            CallStopped: the call had begun in an earlier life of the run, and repeating it could do it twice.
        """
        if call.found.effect != "write":
            return await next(call)
        if call.call.id in call.recorder.state.begun and not call.found.idempotent:
            raise CallStopped(IN_DOUBT, "unknown")
        call.recorder.record(EffectStarted(call.call.id, call.context.idempotency_key))
        await call.recorder.commit()
        work = asyncio.ensure_future(next(call))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            call.context.cancelled.set()
            await asyncio.wait([work], timeout=self.grace)
            work.cancel()
            await asyncio.wait([work])
            if work.cancelled():
                raise
            # it got through in time: its result counts, and the run stops after it
            return work.result()
