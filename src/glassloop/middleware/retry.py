"""Retries: of model calls, where the same request may succeed; of tools, where repeating is harmless."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from glassloop.core.cancellation import Cancellation
from glassloop.core.errors import FatalToolError, ModelError, ToolError
from glassloop.core.events import AttemptFailed, ReplyRestarted
from glassloop.core.messages import Reply
from glassloop.middleware.call import Call, CallStopped, ModelCall, ModelNext, Next
from glassloop.models.failures import pause_after

LONGEST_PAUSE_SECONDS = 10.0


class Retry:
    """Repeats a tool call that failed or timed out as often as the tool allows, if it only reads or is idempotent.

    Args:
        delay: seconds before the first repetition; doubles each time, up to `LONGEST_PAUSE_SECONDS`.
    """

    def __init__(self, delay: float = 0.2) -> None:
        self.delay = delay

    async def __call__(self, call: Call, next: Next, /) -> Any:
        """See `ToolMiddleware`."""
        tool = call.found
        left = tool.retries if tool.effect == "read" or tool.idempotent else 0
        delay = self.delay
        while True:
            try:
                return await next(call)
            except Exception as error:
                timed_out = isinstance(error, CallStopped)
                meant = isinstance(error, ToolError | FatalToolError) or call.context.cancelled.is_set()
                if left <= 0 or (meant and not timed_out):
                    raise
                left -= 1
                call.context = replace(call.context, cancelled=Cancellation())
                await asyncio.sleep(delay)
                if call.context.cancelled.is_set():  # the run ends, and waits for a write that is in flight
                    raise
            delay = min(2 * delay, LONGEST_PAUSE_SECONDS)


class ModelRetry:
    """Repeats a model call on 408, 409, 429, 5xx and broken connections, while no text of it has been shown.

    Waits as long as the server's `Retry-After` asks (RFC 9110, 10.2.3), else exponentially with full jitter. Each
    failed attempt is an event.

    Args:
        attempts: at most so many in all.
        delay: seconds before the second attempt, doubled for each further one.
        longest: seconds; a server that asks for more is not waited for.
    """

    around_model = True

    def __init__(self, attempts: int = 4, delay: float = 0.5, longest: float = 60.0) -> None:
        self.attempts = attempts
        self.delay = delay
        self.longest = longest

    async def __call__(self, call: ModelCall, next: ModelNext, /) -> Reply:
        """See `ModelMiddleware`.

        Raises:
            ModelError: the last attempt's.
        """
        attempt = 1
        while True:
            call.parts_shown = 0
            try:
                return await next(call)
            except ModelError as error:
                wait = self._wait(error, attempt)
                if wait is None or call.shown:
                    raise
                call.recorder.record(
                    AttemptFailed(call.model.name, error.kind, str(error), error.status, round(wait, 3))
                )
            if call.parts_shown:
                call.recorder.emit(ReplyRestarted())
            await asyncio.sleep(wait)
            attempt += 1

    def _wait(self, error: ModelError, attempt: int) -> float | None:
        if attempt >= self.attempts:
            return None
        return pause_after(error, attempt, delay=self.delay, longest=self.longest)
