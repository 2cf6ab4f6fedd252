"""Outermost shell: whatever went wrong inside becomes a result for the model, without secrets."""

from __future__ import annotations

import asyncio
import inspect
import logging
import traceback
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from glassloop.core.blank import is_blank
from glassloop.core.errors import FatalToolError, StoreError, ToolError
from glassloop.core.ids import new_id
from glassloop.core.messages import ResultStatus
from glassloop.middleware.call import Call, CallStopped, Done, Ended, Failed, Next, Pending
from glassloop.tools.results import CAP, capped

ErrorHandler = Callable[[Exception, Call], str | Awaitable[str | None] | None]
"""Rewrites an error for the model, which reads what it returns, or the text of a `ToolError` that it raises. It returns
None to leave the error as it is, and raises FatalToolError to stop the run."""

_log = logging.getLogger("glassloop.tools")


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
            if task is None or task.cancelling():
                raise
            return _redacted(error)  # the tool cancelled itself; nobody cancelled the run
        except (FatalToolError, StoreError):
            if call.context.below is not None:
                call.context.below.stops = True
            raise
        except Exception as error:  # noqa: BLE001 - the boundary between a tool's code and the run
            return await self._failed(error, call)
        return value if isinstance(value, Pending) else Done(value)

    async def _failed(self, error: Exception, call: Call) -> Failed:
        text = None if self.handler is None else await self._rewritten(self.handler, error, call)
        if text is not None:
            status = error.status if isinstance(error, CallStopped) else "error"
            return _said(text, status, None if isinstance(error, ToolError) else _detail(error))
        match error:
            case CallStopped():
                return _said(str(error), error.status)
            case ToolError():
                return _said(_words(str, error))
            case _:
                begun = call.call.id in call.recorder.state.begun  # a write whose function has been called
                hint = " It may have taken effect before it failed: check before you call it again." if begun else ""
                return _redacted(error, hint)

    async def _rewritten(self, handler: ErrorHandler, error: Exception, call: Call) -> str | None:
        """What the handler makes of an error; one that fails itself is as if there were none."""
        try:
            text = handler(error, call)
            return await text if inspect.isawaitable(text) else text
        except (FatalToolError, StoreError):
            raise
        except ToolError as said:
            return _words(str, said) or None
        except Exception:  # noqa: BLE001 - a handler's bug must not be worse than the error
            _log.exception("The error handler failed on a call of %s", call.call.name)
            return None


def _redacted(error: BaseException, hint: str = "") -> Failed:
    detail = _detail(error)
    kind, reference = type(error).__name__, detail["reference"]
    message = (
        f"The tool failed with {kind} (reference {reference}). This is not about your arguments as such: "
        "try something else, or tell the user that it did not work."
    )
    return Failed(message + hint, "error", detail)


def _said(text: str, status: ResultStatus = "error", private: Mapping[str, Any] | None = None) -> Failed:
    """What the model is told, as long as a result may be; the operator sees the whole."""
    if is_blank(text):
        text = "The tool reported an error without saying which."
    if len(text) <= CAP:
        return Failed(text, status, private)
    return Failed(capped(text, CAP), status, {**(private or {}), "message": text})


def _detail(error: BaseException) -> dict[str, str]:
    """What only the operator sees."""
    trace = "".join(traceback.format_exception(error))
    return {"reference": new_id("err"), "exception": _words(repr, error), "traceback": trace}


def _words(spell: Callable[[object], str], error: BaseException) -> str:
    """An exception as text, also one that fails at that."""
    try:
        return spell(error)
    except Exception:  # noqa: BLE001 - it is an exception's own code, and must not be worse than the exception
        return f"<{type(error).__name__} that cannot be shown>"
