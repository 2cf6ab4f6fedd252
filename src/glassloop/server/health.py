"""`/healthz` and `/readyz`: whether the process lives, and whether it can do anything."""

from __future__ import annotations

import asyncio
import logging

from fastapi import APIRouter

from glassloop.core.errors import GlassloopError
from glassloop.journal.projection import RunFilter
from glassloop.server.desk import TheDesk
from glassloop.server.openapi import problems
from glassloop.server.problems import Refused

log = logging.getLogger("glassloop.server")
router = APIRouter(tags=["health"])

_STORE_S = 2.0


@router.get("/healthz")
async def healthz() -> dict[str, str]:
    """The process answers."""
    return {"status": "ok"}


@router.get("/readyz", responses=problems(503))
async def readyz(desk: TheDesk) -> dict[str, str]:
    """The store can be reached and the server is not stopping."""
    if desk.closing.begun:
        raise Refused(503, "stopping", "The server is stopping.")
    try:
        async with asyncio.timeout(_STORE_S):
            await desk.runtime.runs(RunFilter(limit=1))
            await desk.runtime.store.sessions.load("", 0)
    except (TimeoutError, GlassloopError) as error:
        log.warning("the store cannot be reached: %s", error or f"no answer in {_STORE_S:g} s")
        raise Refused(503, "store", "The store cannot be reached.") from None
    return {"status": "ready"}
