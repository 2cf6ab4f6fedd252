"""The research assistant over HTTP: `chat` is the runtime's loop, `manual` the one that is written by hand."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Annotated, Any, cast

from fastapi import APIRouter, FastAPI
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

from glassloop import Agent, ModelError
from glassloop.core.encoding import loads
from glassloop.core.ids import new_id
from glassloop.options import RunOptions
from glassloop.runtime import Runtime
from glassloop.server import Caller, Refused, TheDesk, with_session
from glassloop.server.openapi import problems
from glassloop.server.schemas import SessionName

from .manual import converse
from .search import DOCUMENTS, Library

AGENT = "research"


def not_blank(text: str) -> str:
    """The text, if there is something in it."""
    if not text.strip():
        raise ValueError("must not be blank")
    return text


class ChatIn(BaseModel):
    """A question."""

    model_config = ConfigDict(extra="forbid", strict=True)

    question: Annotated[str, StringConstraints(max_length=20_000), AfterValidator(not_blank)]
    sessionId: SessionName = Field(  # noqa: N815 - as on the wire
        default_factory=lambda: new_id("chat"), description="A conversation of yours that goes on; default a new one."
    )


class ManualIn(ChatIn):
    """A question for the loop that is written by hand."""

    tools: bool = Field(True, description="False leaves out the list of tools; the model then calls none.")


def routes(runtime: Runtime, library: Library) -> APIRouter:
    """`/api/agent/chat` and `/api/agent/manual`. Both have the same memory: a session of one goes on in the other.

    Args:
        runtime: has the agent `research`.
        library: what it searches; put in order when the server starts.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
        try:
            await library.search_tool(runtime.store)
            yield
        finally:
            await library.close()

    router = APIRouter(
        prefix="/api/agent", tags=["research"], responses=problems(401, 422, 429, 503), lifespan=lifespan
    )

    @router.post("/chat")
    async def chat(given: ChatIn, desk: TheDesk, caller: Caller) -> dict[str, Any]:  # pyright: ignore[reportUnusedFunction] - a route
        """Answer a question with what was said before in the session."""
        async with desk.place_for_run(caller):
            run_id = await runtime.start(AGENT, given.question, identity=with_session(caller, given.sessionId))
        result = await runtime.wait(run_id)
        if result.outcome == "failed":
            raise Refused(502, "model", result.message or "The model does not answer; try again later.")
        steps = [step(done.tool, done.arguments, done.content) for done in result.tool_executions]
        told = answered(given, run_id, result.output, steps)
        return told if result.outcome == "completed" else told | {"success": False, "message": result.message}

    @router.post("/manual")
    async def manual(given: ManualIn, desk: TheDesk, caller: Caller) -> dict[str, Any]:  # pyright: ignore[reportUnusedFunction] - a route
        """The same by the loop of manual.py. It is in no journal, so its `runId` leads nowhere."""
        agent = cast("Agent[Any]", runtime.agents[AGENT])
        who, model = with_session(caller, given.sessionId), agent.model_for(RunOptions())
        try:
            async with desk.place_for_run(caller):
                turn = await converse(given.question, agent, runtime.store, who=who, model=model, tools=given.tools)
        except ModelError as error:
            raise Refused(502, "model", str(error)) from None
        steps = [step(call.name, as_json(call.arguments), result.content) for call, result in turn.calls]
        return answered(given, turn.run_id, turn.answer, steps)

    return router


def step(tool: str, args: object, observation: str) -> dict[str, Any]:
    """A tool call, on the wire."""
    return {"toolName": tool, "args": args, "observation": observation}


def as_json(arguments: str) -> object:
    """Arguments as the model wrote them: as JSON where they are, else as text."""
    try:
        return loads(arguments)
    except ValueError:
        return arguments


def answered(given: ChatIn, run_id: str, answer: str | None, steps: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """An answer, on the wire. `sources` are the documents that it names."""
    return {
        "success": bool(answer),
        "answer": answer,
        "sources": [name for name in DOCUMENTS if name in (answer or "")],
        "sessionId": given.sessionId,
        "runId": run_id,
        "steps": steps,
    }
