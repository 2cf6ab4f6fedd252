"""Stated reasons: the model says why it calls, and how sure it is, before it may."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from glassloop.core.encoding import dumps
from glassloop.core.errors import ToolError
from glassloop.middleware.call import Call, Next
from glassloop.models.model import ToolSpec
from glassloop.tools.arguments import parse_arguments

FIELDS: dict[str, dict[str, Any]] = {
    "reason": {"type": "string", "description": "Why this call is needed now, in one sentence."},
    "confidence": {"type": "number", "minimum": 0, "maximum": 1, "description": "How sure you are, from 0 to 1."},
}


class Reasons:
    """Adds `reason` and `confidence` to every tool's schema, records them, and takes them out before validation.

    A tool that has a parameter of one of these names keeps it as its own.
    """

    def specs(self, specs: tuple[ToolSpec, ...]) -> tuple[ToolSpec, ...]:
        """The tools as the model sees them."""
        return tuple(replace(spec, parameters=_with_reasons(spec.parameters)) for spec in specs)

    async def __call__(self, call: Call, next: Next, /) -> Any:
        """See `ToolMiddleware`."""
        own = call.found.spec.parameters.get("properties", {})
        try:
            arguments = parse_arguments(call.raw, _with_reasons(call.found.spec.parameters))
        except ToolError:
            return await next(call)
        stated = {name: arguments.pop(name) for name in FIELDS if name in arguments and name not in own}
        if "reason" in stated:
            call.reason = str(stated["reason"])
        if isinstance(stated.get("confidence"), int | float):
            call.confidence = min(1.0, max(0.0, float(stated["confidence"])))
        call.raw = dumps(arguments).decode()
        return await next(call)


def _with_reasons(schema: Mapping[str, Any]) -> dict[str, Any]:
    own = dict(schema.get("properties", {}))
    return {**schema, "properties": {**own, **{name: FIELDS[name] for name in FIELDS if name not in own}}}
