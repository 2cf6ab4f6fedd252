"""What the routes of the server share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Annotated
from weakref import WeakValueDictionary

from fastapi import Depends, Request

from glassloop.core.context import Identity
from glassloop.journal.projection import RunFilter, RunRow
from glassloop.runtime import Runtime
from glassloop.server.closing import Closing
from glassloop.server.problems import Refused
from glassloop.server.scope import owns


@dataclass
class Desk:
    """The server's runtime and what it allows.

    Args:
        runtime: agents and store.
        closing: the server's end.
        max_runs: runs that one user may have going at once.
        heartbeat: seconds of silence on a stream before a comment.
        failure: why the runtime could not be entered, or left.
    """

    runtime: Runtime
    closing: Closing
    max_runs: int
    heartbeat: float
    failure: Exception | None = None
    _starting: WeakValueDictionary[tuple[str | None, str | None], asyncio.Lock] = field(
        default_factory=WeakValueDictionary[tuple[str | None, str | None], asyncio.Lock]
    )

    async def own_run(self, run_id: str, identity: Identity) -> RunRow:
        """The caller's run.

        Raises:
            Refused: 404, whether there is no such run or it is somebody else's.
        """
        row = await self.runtime.row(run_id)
        if row is None or not owns(identity, row):
            raise Refused(404, "run_not_found", "You have no such run.")
        return row

    @asynccontextmanager
    async def place_for_run(self, identity: Identity) -> AsyncGenerator[None]:
        """Hold a place for a run of the user while the block starts it.

        Raises:
            Refused: 429, the user has as many runs going as are allowed.
        """
        who = (identity.tenant, identity.user)
        lock = self._starting.setdefault(who, asyncio.Lock())
        async with lock:
            wanted = RunFilter(user=identity.user, tenant=identity.tenant, status="running", limit=self.max_runs)
            if len(await self.runtime.runs(wanted)) >= self.max_runs:
                detail = f"You have {self.max_runs} runs going, as many as are allowed: wait for one, or cancel it."
                raise Refused(429, "too_many_runs", detail, headers={"Retry-After": "5"})
            yield


def desk_of(request: Request) -> Desk:
    """The desk of the server that the request came to."""
    return request.app.state.glassloop


def caller_of(request: Request) -> Identity:
    """Who is calling; every path that is not public has one."""
    return request.state.identity


TheDesk = Annotated[Desk, Depends(desk_of)]
Caller = Annotated[Identity, Depends(caller_of)]
