"""Your own code around runs' model calls and tool calls, sync or async."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any

from pydantic_core import to_json

from glassloop.core.errors import FatalToolError
from glassloop.core.messages import Reply
from glassloop.middleware.call import Call, ModelCall, ModelNext, Next, Pending

Hook = Callable[..., Awaitable[None] | None]


class ToolHooks:
    """Calls `before(call)` and `after(call, value)` around each tool call that reaches the function.

    One that waits for a human has no value yet: `after` is called once it has.

    An exception in a hook is treated as one of the tool. What a human has approved runs as it was approved: change
    arguments in a layer of your own, which stands before the approval.
    """

    def __init__(self, before: Hook | None = None, after: Hook | None = None) -> None:
        self.before = before
        self.after = after

    async def __call__(self, call: Call, next: Next, /) -> Any:
        """See `ToolMiddleware`.

        Raises:
            FatalToolError: `before` changed the arguments that a human had approved; the function has not run.
        """
        approved = _arguments(call) if call.call.id in call.recorder.state.asked else None
        await _run(self.before, call)
        if approved is not None and _arguments(call) != approved:
            raise FatalToolError(
                f"{call.found.name} was not run: a hook changed the arguments that a human had approved. Change "
                "arguments in a layer of your own, which stands before the approval."
            )
        value = await next(call)
        if not isinstance(value, Pending):
            await _run(self.after, call, value)
        return value


class ModelHooks:
    """Calls `before(call)` and `after(call, reply)` around each model call."""

    around_model = True

    def __init__(self, before: Hook | None = None, after: Hook | None = None) -> None:
        self.before = before
        self.after = after

    async def __call__(self, call: ModelCall, next: ModelNext, /) -> Reply:
        """See `ModelMiddleware`."""
        await _run(self.before, call)
        reply = await next(call)
        await _run(self.after, call, reply)
        return reply


def _arguments(call: Call) -> bytes:
    """The arguments as the journal and as the function get them; 1, 1.0 and true differ."""
    return to_json([call.arguments, call.kwargs], bytes_mode="base64", serialize_unknown=True)


async def _run(hook: Hook | None, *arguments: Any) -> None:
    if hook is not None:
        done = hook(*arguments)
        if inspect.isawaitable(done):
            await done
