"""The order desk over HTTP: a conversation whose answers are streamed."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints
from starlette.responses import Response

from glassloop.runtime import Runtime
from glassloop.server import Caller, EventStream, TheDesk, run_frames, with_session
from glassloop.server.openapi import problems
from glassloop.server.schemas import SessionName

AGENT = "orders"


def not_blank(text: str) -> str:
    """The text, if there is something in it."""
    if not text.strip():
        raise ValueError("must not be blank")
    return text


class ChatIn(BaseModel):
    """One turn of a conversation."""

    model_config = ConfigDict(extra="forbid", strict=True)

    message: Annotated[str, StringConstraints(max_length=20_000), AfterValidator(not_blank)]
    sessionId: SessionName | None = Field(None, description="A conversation of yours that goes on.")  # noqa: N815 - as on the wire


def routes(runtime: Runtime) -> APIRouter:
    """`/api/orders/chat`.

    Args:
        runtime: has the agent `orders`.
    """
    router = APIRouter(prefix="/api/orders", tags=["order desk"], responses=problems(401, 422, 429, 503))

    @router.post("/chat", response_class=Response, responses={200: {"content": {"text/event-stream": {}}}})
    async def chat(given: ChatIn, desk: TheDesk, caller: Caller) -> Response:  # pyright: ignore[reportUnusedFunction] - a route
        """The run's events as they happen, `text_delta` for the answer's text; `end` is last.

        Whoever closes the stream stops the run two seconds later, and with it the request to the model.
        """
        async with desk.place_for_run(caller):
            who = with_session(caller, given.sessionId)
            run_id = await runtime.start(AGENT, given.message, identity=who, attached=True)
        return EventStream(run_frames(runtime, run_id), desk.closing, heartbeat=desk.heartbeat)

    return router
