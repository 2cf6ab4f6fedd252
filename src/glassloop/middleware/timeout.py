"""Every call ends: an async tool is cancelled at its time-out, a thread is told and no longer waited for."""

from __future__ import annotations

import asyncio
import math
from typing import Any

from glassloop.core.errors import FatalToolError, StoreError
from glassloop.middleware.call import Call, CallStopped, Next


class Timeout:
    """Ends a call after its tool's time-out (15 s for reads and 60 s for writes unless the tool says otherwise).

    Args:
        seconds: for every tool instead.
    """

    def __init__(self, seconds: float | None = None) -> None:
        self.seconds = seconds

    async def __call__(self, call: Call, next: Next, /) -> Any:
        """See `ToolMiddleware`.

        Raises:
            CallStopped: the time-out passed; the text says whether the call may have had an effect.
        """
        tool = call.found
        seconds = self.seconds or tool.effective_timeout
        clock = asyncio.timeout(None if seconds == math.inf else seconds)
        call.context.is_late = clock.expired
        try:
            async with clock:
                value = await next(call)
        except (FatalToolError, StoreError):
            raise
        except Exception:
            if not clock.expired():  # after it, whatever a tool makes of its cancellation
                raise
        else:
            # a tool that swallowed the cancellation is late all the same
            if not clock.expired():
                return value
        call.context.cancelled.set()
        if tool.effect == "write" and not tool.transaction:
            raise CallStopped(
                f"{tool.name} did not answer within {seconds:g} s. It may or may not have taken effect: outcome "
                "unknown. Do not repeat it; check its effect or tell the user.",
                "unknown",
            )
        still = " Its thread may still be running; a late result is dropped." if tool.in_thread else ""
        raise CallStopped(f"{tool.name} timed out after {seconds:g} s.{still}", "timeout")
