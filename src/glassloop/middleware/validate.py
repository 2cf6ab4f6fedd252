"""The validation gate: no function sees arguments that its schema does not allow."""

from __future__ import annotations

from typing import Any

from glassloop.middleware.call import Call, Next


class Validate:
    """Repairs what can be repaired without guessing and turns the rest back with what is wrong and what is allowed."""

    async def __call__(self, call: Call, next: Next, /) -> Any:
        """See `ToolMiddleware`.

        Raises:
            ArgumentsError: the arguments do not fit; its text is for the model.
        """
        checked = call.found.validate(call.raw)
        call.kwargs, call.arguments = checked.kwargs, checked.arguments
        return await next(call)
