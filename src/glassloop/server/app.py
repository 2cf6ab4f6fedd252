"""The HTTP server: the app, from a runtime and who may call it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection
from contextlib import asynccontextmanager
from importlib.metadata import version

from fastapi import FastAPI, Security
from fastapi.security import HTTPBearer

from glassloop.runtime import Runtime
from glassloop.server import approvals, health, runs, sessions
from glassloop.server.auth import Auth
from glassloop.server.closing import Closing
from glassloop.server.desk import Desk
from glassloop.server.openapi import problems
from glassloop.server.problems import install
from glassloop.server.shell import PUBLIC, Shell
from glassloop.server.sse import HEARTBEAT_S

MAX_BODY = 1_000_000
MAX_RUNS = 250

_VERSION = version("glassloop")
_DESCRIPTION = """Start runs of agents, watch them, look at them and decide about their calls.

Everything belongs to a user of a tenant, who is known by the bearer token; what belongs to others is not found. Every
error is `application/problem+json`, and its `code` is for programs.
"""


def create_app(
    runtime: Runtime,
    *,
    auth: Auth,
    max_body: int = MAX_BODY,
    max_runs: int = MAX_RUNS,
    heartbeat: float = HEARTBEAT_S,
    public: Collection[str] = (),
    docs: bool = False,
) -> FastAPI:
    """The server as an ASGI app. While it runs, the runtime is entered.

    Routes that you add are behind `auth` like all others; `Caller` (`glassloop.server`) is who calls them. Started by
    anything but `glassloop.server.serve`, streams end only when their clients leave: call
    `app.state.glassloop.closing.begin()` when the server is told to stop.

    Args:
        runtime: agents and store.
        auth: who may call.
        max_body: bytes that a request's body may have.
        max_runs: runs that one user may have going at once.
        heartbeat: seconds of silence on a stream before a comment keeps it open.
        public: paths of yours that need no key.
        docs: offer a page at /docs, whose scripts come from a CDN.
    """
    desk = Desk(runtime, Closing(), max_runs, heartbeat)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
        try:
            async with runtime:
                yield
                desk.closing.begin()
        except Exception as error:
            desk.failure = error
            raise
        finally:
            await desk.closing.finish()

    app = FastAPI(
        title="Glassloop",
        version=_VERSION,
        description=_DESCRIPTION,
        lifespan=lifespan,
        docs_url="/docs" if docs else None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.glassloop = desk
    shown = {*PUBLIC, *public, *(["/docs"] if docs else [])}
    app.add_middleware(Shell, auth=auth, closing=desk.closing, max_body=max_body, public=shown)
    install(app)
    bearer = Security(HTTPBearer(auto_error=False, description="An API key, or a JSON Web Token."))
    for module in (runs, sessions, approvals):
        app.include_router(module.router, dependencies=[bearer], responses=problems(401, 404, 422, 503))
    app.include_router(health.router)
    return app
