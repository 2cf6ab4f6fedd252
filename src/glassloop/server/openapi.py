"""How errors look in the OpenAPI document."""

from __future__ import annotations

from typing import Any

from glassloop.server.schemas import ProblemOut

_MEANINGS = {
    400: "The body is not JSON.",
    401: "No key, or one that is not known.",
    403: "You may see this, and may not decide it.",
    404: "You have nothing of that name.",
    409: "Too late: it has been decided, or has finished.",
    410: "The approval has expired.",
    413: "The body is too large.",
    422: "A field is wrong; `errors` names it.",
    429: "You have as many runs going as are allowed.",
    503: "The server is stopping, or its store does not answer.",
}


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """For `responses=` of a route: the errors that it answers with."""
    content = {"application/problem+json": {"schema": ProblemOut.model_json_schema()}}
    return {status: {"description": _MEANINGS[status], "content": content} for status in statuses}
