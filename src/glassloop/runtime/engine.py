"""The engine seam, and the engine inside this process."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Protocol

Drive = Callable[[str], Awaitable[object]]
"""Drives a run until it rests. Calling it for a run that rests, or that another drives, does no harm."""

_log = logging.getLogger("glassloop.runtime")


class Engine(Protocol):
    """Promises to call `drive(run_id)` at least once for each run submitted, until the run rests.

    The journal fences out a second driver, so an engine need not.
    """

    def start(self, drive: Drive) -> None:
        """Be ready; called once, on the event loop."""
        ...

    def submit(self, run_id: str) -> None:
        """Drive a run soon; again, if it is being driven now."""
        ...

    def cancel(self, run_id: str) -> bool:
        """Cancel the driving of a run here; False if it is not driven here."""
        ...

    def driving(self) -> set[str]:
        """The runs that are driven here."""
        ...

    async def idle(self, run_id: str) -> None:
        """Return once the run is not driven here."""
        ...

    async def stop(self, grace: float) -> None:
        """Stop driving: wait `grace` seconds, then let go of the rest, which stay resumable."""
        ...


class InlineEngine:
    """Drives runs as tasks on this event loop.

    Args:
        most: runs at once; more wait their turn.
    """

    def __init__(self, most: int = 1_000) -> None:
        self._slots = asyncio.Semaphore(most)
        self._drive: Drive | None = None
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._again: set[str] = set()
        self._stopping = False

    def start(self, drive: Drive) -> None:
        """See `Engine.start`."""
        self._drive = drive

    def submit(self, run_id: str) -> None:
        """See `Engine.submit`."""
        if self._stopping:
            return
        if run_id in self._tasks:
            self._again.add(run_id)
            return
        task = asyncio.create_task(self._serve(run_id), name=f"drive {run_id}")
        self._tasks[run_id] = task
        task.add_done_callback(lambda _: self._done(run_id))

    def cancel(self, run_id: str) -> bool:
        """See `Engine.cancel`."""
        task = self._tasks.get(run_id)
        return task is not None and task.cancel()

    def driving(self) -> set[str]:
        """See `Engine.driving`."""
        return set(self._tasks)

    async def idle(self, run_id: str) -> None:
        """See `Engine.idle`."""
        while run_id in self._tasks:
            await asyncio.wait([self._tasks[run_id]])
            await asyncio.sleep(0)

    async def stop(self, grace: float) -> None:
        """See `Engine.stop`."""
        self._stopping = True
        tasks = list(self._tasks.values())
        if tasks:
            await asyncio.wait(tasks, timeout=grace)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _serve(self, run_id: str) -> None:
        async with self._slots:
            assert self._drive is not None
            try:
                await self._drive(run_id)
            except Exception:  # noqa: BLE001 - one run must not hurt the others; it can be resumed
                _log.exception("Run %s could not be driven; it stays resumable.", run_id)

    def _done(self, run_id: str) -> None:
        del self._tasks[run_id]
        if run_id in self._again:
            self._again.discard(run_id)
            self.submit(run_id)
