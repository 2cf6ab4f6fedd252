"""Outermost shell: whatever went wrong inside becomes a result for the model, without secrets."""

from __future__ import annotations

import asyncio
import inspect
import traceback
from collections.abc import Awaitable, Callable

from glassloop.core.errors import FatalToolError, StoreError, ToolError
from glassloop.core.ids import new_id
from glassloop.middleware.call import Call, CallStopped, Done, Ended, Failed, Next, Pending

ErrorHandler = Callable[[Exception, Call], str | Awaitable[str | None] | None]
"""Rewrites an error for the model; returns None to leave it, raises FatalToolError to stop the run."""


class Errors:
    """Turns exceptions into results, in three layers.

    A `ToolError` reaches the model as written. Anything else reaches it as the kind of failure, a hint and a reference
    id: messages of exceptions hold addresses, paths and passwords; they stand in the event's private part. A
    `FatalToolError` and a cancellation pass through.

    Args:
        handler: may rewrite what the model is told, or fail the run.
    """

    def __init__(self, handler: ErrorHandler | None = None) -> None:
        self.handler = handler

    async def __call__(self, call: Call, next: Next, /) -> Ended:
        """See `ToolMiddleware`."""
        try:
            value = await next(call)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling() > call.cancels:
                raise
            return _redacted(error)  # the tool cancelled itself; nobody cancelled the run
        except (FatalToolError, StoreError):
            raise
        except Exception as error:  # noqa: BLE001 - the boundary between a tool's code and the run
            return await self._failed(error, call)
        return value if isinstance(value, Pending) else Done(value)

    async def _failed(self, error: Exception, call: Call) -> Failed:
        if self.handler is not None:
            text = self.handler(error, call)
            text = await text if inspect.isawaitable(text) else text
            if text is not None:
                return Failed(text)
        match error:
            case CallStopped():
                return Failed(str(error), error.status)
            case ToolError():
                return Failed(str(error) or "The tool reported an error without saying which.")
            case _:
                maybe = call.tool is not None and call.tool.effect == "write" and not call.tool.transaction
                hint = " It may have taken effect before it failed: check before you call it again." if maybe else ""
                return _redacted(error, hint)


def _redacted(error: BaseException, hint: str = "") -> Failed:
    reference = new_id("err")
    kind = type(error).__name__
    message = (
        f"The tool failed with {kind} (reference {reference}). This is not about your arguments as such: "
        "try something else, or tell the user that it did not work."
    )
    detail = "".join(traceback.format_exception(error))
    return Failed(message + hint, "error", {"reference": reference, "exception": repr(error), "traceback": detail})
