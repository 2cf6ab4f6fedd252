"""Your own code around runs' model calls and tool calls, sync or async."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any

from glassloop.core.messages import Reply
from glassloop.middleware.call import Call, ModelCall, ModelNext, Next

Hook = Callable[..., Awaitable[None] | None]


class ToolHooks:
    """Calls `before(call)` and `after(call, value)` around each tool call that reaches the function.

    An exception in a hook is treated as one of the tool.
    """

    def __init__(self, before: Hook | None = None, after: Hook | None = None) -> None:
        self.before = before
        self.after = after

    async def __call__(self, call: Call, next: Next, /) -> Any:
        """See `ToolMiddleware`."""
        await _run(self.before, call)
        value = await next(call)
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


async def _run(hook: Hook | None, *arguments: Any) -> None:
    if hook is not None:
        done = hook(*arguments)
        if inspect.isawaitable(done):
            await done
