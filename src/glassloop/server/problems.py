"""Errors on the wire: `application/problem+json` (RFC 9457), the same for every status, without internals."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from glassloop.core.encoding import dumps
from glassloop.core.errors import ConfigurationError, StoreError
from glassloop.memory.session import SessionBusy

log = logging.getLogger("glassloop.server")

_DETAILS = {
    404: "There is nothing at this address.",
    405: "This address does not take this method.",
    400: "The request could not be read.",
    413: "The request is too large.",
}
_CODES = {400: "bad_request", 404: "not_found", 405: "method_not_allowed", 413: "too_large"}


class Refused(HTTPException):
    """The request is answered with a problem instead.

    Args:
        status: HTTP status.
        code: for programs, e.g. `run_not_found`.
        detail: one sentence for humans that names what is wrong and what to do.
        errors: the fields that are wrong, each with `field` and `message`.
        headers: to answer with.
        about: more members of the problem, for programs, e.g. `run_id`.
    """

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        errors: Sequence[Mapping[str, str]] = (),
        headers: Mapping[str, str] | None = None,
        about: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(status, detail, dict(headers or {}))
        self.code = code
        self.errors = errors
        self.about = dict(about or {})


def problem_response(problem: Refused, request_id: str) -> Response:
    """The answer that tells about `problem`.

    `type` is `about:blank`, so that `title` is the status's own phrase (RFC 9457, 4.2.1); `code` says more.
    """
    body: dict[str, Any] = {
        "type": "about:blank",
        "title": HTTPStatus(problem.status_code).phrase,
        "status": problem.status_code,
        "detail": problem.detail,
        "code": problem.code,
        "request_id": request_id,
        **problem.about,
    }
    if problem.errors:
        body["errors"] = list(problem.errors)
    return Response(dumps(body), problem.status_code, problem.headers, "application/problem+json")


def invalid(field: str, message: str) -> Refused:
    """A 422 about one field."""
    return Refused(422, "invalid", f"{field}: {message}", errors=[{"field": field, "message": message}])


def as_problem(error: Exception) -> Refused:
    """What a caller is told about an exception."""
    match error:
        case Refused():
            return error
        case RequestValidationError():
            return _invalid_request(error)
        case HTTPException(status_code=status):
            detail = _DETAILS.get(status, HTTPStatus(status).phrase)
            return Refused(status, _CODES.get(status, "refused"), detail, headers=error.headers)
        case SessionBusy(holder=run_id, approval_id=None):
            detail = "Another run of this session is going on; try again when it rests."
            return Refused(409, "session_busy", detail, about={"run_id": run_id})
        case SessionBusy(holder=run_id, approval_id=str(held)):
            detail = f"A run of this session waits for a human: decide on approval {held} first."
            return Refused(409, "session_busy", detail, about={"run_id": run_id, "approval_id": held})
        case StoreError():
            return Refused(503, "store", "The store does not answer; try again later.", headers={"Retry-After": "5"})
        case ConfigurationError():
            return Refused(500, "configuration", "The server is not configured for this; its log says more.")
        case _:
            return Refused(500, "internal", "Something went wrong in the server; its log says more.")


def install(app: FastAPI) -> None:
    """Let every exception of the app's routes be answered with a problem."""
    for kind in (HTTPException, RequestValidationError, StoreError, ConfigurationError):
        app.add_exception_handler(kind, _answer)


async def _answer(request: Request, error: Exception) -> Response:
    problem = as_problem(error)
    sent = request.headers.get("content-length", "0") != "0" or "transfer-encoding" in request.headers
    if problem.status_code == 422 and sent and "json" not in request.headers.get("content-type", ""):
        problem = Refused(415, "not_json", "The body must be JSON: send the header Content-Type: application/json.")
    if problem.status_code >= 500:
        log.error("%s: %s", request.state.request_id, error)
    return problem_response(problem, request.state.request_id)


def _invalid_request(error: RequestValidationError) -> Refused:
    found: list[dict[str, str]] = []
    for each in error.errors():
        if each["type"] == "json_invalid":
            detail = f"The body is not JSON: {each['ctx']['error']} at character {each['loc'][-1]}."
            return Refused(400, "not_json", detail)
        found.append({"field": _field(each["loc"]), "message": str(each["msg"]).removeprefix("Value error, ")})
    first = found[0]
    more = f" ({len(found) - 1} more)" if len(found) > 1 else ""
    return Refused(422, "invalid", f"{first['field']}: {first['message']}{more}", errors=found)


def _field(where: Sequence[str | int]) -> str:
    """`limits.steps` for a part of the body, the parameter's name otherwise."""
    return ".".join(map(str, where[1:])) or "body"
