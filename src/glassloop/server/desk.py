"""What the routes of the server share."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends, Request

from glassloop.core.context import Identity
from glassloop.journal.projection import RunFilter, RunRow
from glassloop.runtime import Runtime
from glassloop.server.closing import Closing
from glassloop.server.problems import Refused
from glassloop.server.scope import owns

_RECOUNT_S = 5.0  # so long may a run that another process began go unseen
_COUNTS = 5  # where others begin while it counts, it may count them twice: before it refuses it counts again
_MOST_TALLIES = 10_000


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
    _tallies: dict[tuple[str | None, str | None], _Tally] = field(
        default_factory=dict[tuple[str | None, str | None], "_Tally"]
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
        if len(self._tallies) > _MOST_TALLIES:
            self._tallies.clear()
        tally = self._tallies.setdefault((identity.tenant, identity.user), _Tally())
        if tally.going + tally.starting >= self.max_runs or time.monotonic() - tally.at > _RECOUNT_S:
            await self._count(tally, identity)
        if tally.going + tally.starting >= self.max_runs:
            detail = f"You have {self.max_runs} runs going, as many as are allowed: wait for one, or cancel it."
            raise Refused(429, "too_many_runs", detail, headers={"Retry-After": "5"})
        tally.starting += 1
        try:
            yield
            tally.going += 1
            tally.begun += 1
        finally:
            tally.starting -= 1

    async def _count(self, tally: _Tally, identity: Identity) -> None:
        wanted = RunFilter(
            user=identity.user, tenant=identity.tenant, status="running", roots=True, limit=self.max_runs
        )
        for _ in range(_COUNTS):
            begun, at = tally.begun, time.monotonic()
            found = len(await self.runtime.runs(wanted))
            late = tally.begun - begun  # these may be missing in what was found, or be in it
            tally.going, tally.at = found + late, at
            if late == 0 or tally.going + tally.starting < self.max_runs:
                return


@dataclass
class _Tally:
    """How many runs of a user are going, at most: as counted in the store, and all begun here since.

    Counting for every run would cost more than starting it.
    """

    going: int = 0
    starting: int = 0
    begun: int = 0
    at: float = float("-inf")


async def desk_of(request: Request) -> Desk:  # async: a plain function would cost a thread each time
    """The desk of the server that the request came to."""
    return request.app.state.glassloop


async def caller_of(request: Request) -> Identity:
    """Who is calling; every path that is not public has one."""
    return request.state.identity


TheDesk = Annotated[Desk, Depends(desk_of)]
Caller = Annotated[Identity, Depends(caller_of)]
