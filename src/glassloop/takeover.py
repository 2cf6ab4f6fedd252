"""Whose a run is: who may take it over, and what becomes of a turn whose process is gone."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from glassloop.core.errors import Fenced, StoreError
from glassloop.core.events import EVENT_TYPES, DriverClaimed, Event, RunFinished, RunStarted, Unknown
from glassloop.core.messages import Message, UserMessage
from glassloop.journal.moves import Finish
from glassloop.journal.projection import RunFilter, RunRow, summarize
from glassloop.journal.recorder import Recorder
from glassloop.journal.state import State, fold
from glassloop.run import close
from glassloop.stores import Store
from glassloop.stores.owner import is_gone, this_process

_log = logging.getLogger("glassloop")

_driven: set[tuple[int, str]] = set()
"""Runs that are driven now, with the process: a forked child drives none of its parent's."""


@contextmanager
def driving(run_id: str) -> Iterator[None]:
    """Be the one in this process that drives a run.

    Raises:
        Fenced: the run is being driven here already.
    """
    key = os.getpid(), run_id
    if key in _driven:
        raise Fenced(f"Run {run_id} is taken: this process is driving it already.")
    _driven.add(key)
    try:
        yield
    finally:
        _driven.discard(key)


async def check_free(run_id: str, events: Sequence[Event]) -> None:
    """Check that a run may be taken over: a driver that lives would be cut off in the middle of a call.

    Raises:
        Fenced: another process is driving the run.
        StoreError: a newer version of Glassloop wrote to it, so that what has happened cannot be told here.
    """
    for event in events:
        if isinstance(event.data, Unknown) and event.type in EVENT_TYPES:
            raise StoreError(
                f"A newer Glassloop wrote to run {run_id} (event {event.seq}, {event.type}): upgrade it here to go on "
                "with the run."
            )
    row = summarize(events)
    if row is None or row.owner is None or row.owner == str(this_process()):
        return
    if await asyncio.to_thread(is_gone, row.owner) is False:
        raise Fenced(f"Run {run_id} is taken: another process is driving it ({row.owner}).")


async def hand_over(store: Store, state: State, written: int | None) -> None:
    """Hand a finished run's messages to its session, once; `written` of the conversation are there already."""
    if state.identity.session is None or state.finished is None:
        return
    if state.kind == "call":
        name, output = state.replies[0].calls[0].name, state.finished.output
        said = f"[A human decided on the held call of {name}. {output}]"
        await store.sessions.append(state.identity.session, state.run_id, [UserMessage(said, origin="note")])
        return
    first = state.history_length if written is None else written
    key = state.run_id if written is None else f"{state.run_id}.{state.epoch}"
    await store.sessions.append(state.identity.session, key, state.conversation[first:])


def written_of(events: Sequence[Event], before: Sequence[Message]) -> int | None:
    """How much of the conversation the session has of an earlier end of the run; None where it had none."""
    ends = [number for number, event in enumerate(events, 1) if isinstance(event.data, RunFinished)]
    return len(fold(events[: ends[-1]], before).conversation) if ends else None


def before_run(events: Sequence[Event], session: list[Message]) -> list[Message]:
    """The messages of the session that come before the run; later turns may have added others."""
    claims = (event.data for event in events if isinstance(event.data, DriverClaimed))
    length = next((claim.session_length for claim in claims), None)
    return session if length is None else session[:length]


async def close_abandoned(store: Store, session: str) -> bool:
    """End the turns of a session that were cut off with their process, so that the next one knows of them.

    Calls that have results keep them; the others get one that says that they were interrupted. The caller holds the
    session. Returns whether there were any.
    """
    found = False
    for row in reversed(await store.journal.runs(RunFilter(session=session, finished=False, limit=1_000))):
        if row.status == "waiting" or row.owner is None or not await asyncio.to_thread(is_gone, row.owner):
            continue
        try:
            found |= await _close_abandoned(store, row, session)
        except Fenced:
            pass  # somebody goes on with it
        except StoreError as error:
            _log.warning("Run %s was cut off and stays as it is: %s", row.id, error)
    return found


async def _close_abandoned(store: Store, row: RunRow, session: str) -> bool:
    events = await store.journal.read(row.id)
    await check_free(row.id, events)
    started = events[0].data
    if not isinstance(started, RunStarted) or started.kind == "call":  # an approved call is owed to a human
        return False
    messages = await store.sessions.load(session)
    before = before_run(events, messages)
    state = fold(events, before)
    recorder = Recorder(store.journal, state, epoch=state.epoch + 1, history=before)
    recorder.record(DriverClaimed(recorder.epoch, str(this_process()), len(before)))
    await close(recorder, Finish("cancelled", message="The run was interrupted: its process ended in the middle of it."))
    await hand_over(store, recorder.state, written_of(events, before))
    return True
