"""Only tools of this run's set are called, whatever exists elsewhere."""

from __future__ import annotations

from typing import Any

from glassloop.core.errors import ToolError
from glassloop.middleware.call import Call, CallStopped, Next
from glassloop.tools.toolset import unknown_tool_message


class Allow:
    """Finds the tool in the run's set; an unknown one, or a call that must not run, goes back to the model."""

    async def __call__(self, call: Call, next: Next, /) -> Any:
        """See `ToolMiddleware`.

        Raises:
            ToolError: the tool is not in this run's set.
        """
        if call.call.problem is not None:
            raise CallStopped(call.call.problem, "skipped")
        call.tool = call.index.find(call.call.name)
        if call.tool is None:
            raise ToolError(unknown_tool_message(call.call.name, call.index))
        return await next(call)
