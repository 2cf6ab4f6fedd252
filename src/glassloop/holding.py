"""Hold a run and its session: one driver a run, one run at a time in a session, and no turn that was cut off in it."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial

from glassloop.core.context import Identity
from glassloop.core.errors import Conflict, Fenced, StoreError
from glassloop.core.events import EVENT_TYPES, DriverClaimed, DriverRested, Event, RunStarted, SessionTold, Unknown
from glassloop.core.messages import Message
from glassloop.journal.moves import Finish
from glassloop.journal.projection import ApprovalFilter, RunFilter
from glassloop.journal.recorder import Recorder, now_ms
from glassloop.journal.state import fold
from glassloop.memory.session import SessionBusy, WhenBusy
from glassloop.memory.turn import handed_over, turn_of, turns_of
from glassloop.run import close
from glassloop.stores import Store
from glassloop.stores.owner import this_process
from glassloop.tree import close_below

_log = logging.getLogger("glassloop")

_CUT_OFF = "Interrupted: the process that drove the run has ended."
_ALL = 1_000
_LAST = 3


@asynccontextmanager
async def held(
    store: Store, run_id: str, who: Identity, busy: WhenBusy, *, begins: bool = False, fresh: bool = False
) -> AsyncGenerator[list[Message]]:
    """Hold the run, and the session if there is one, and read the session's messages.

    Args:
        store: where both are.
        run_id: the run.
        who: on whose behalf, in which session.
        busy: whether to wait for the session.
        begins: the run is not in the journal yet.
        fresh: nobody has driven it yet.

    Raises:
        Fenced: another drives the run.
        SessionBusy: the session is taken and `busy` is `refuse`.
    """
    with _driving(store, run_id):
        if who.session is None:
            yield []
            return
        async with store.sessions.lock(who.session, run_id, busy):
            if begins and busy == "refuse":
                await refuse_where_busy(store, who.session, run_id)
            if store.sessions_url is not None:
                await _catch_up(store, who.session)
            if begins or fresh:
                await _tell_of_held(store, who.session)
            if begins:
                await _close_abandoned(store, who.session)
            yield await store.sessions.load(who.session)


@contextmanager
def _driving(store: Store, run_id: str) -> Generator[None]:
    """Be the one in this process that drives the run; a second one would cut the first off in the middle of a call."""
    key = os.getpid(), run_id  # a forked child drives none of its parent's runs
    if key in store.driving:
        raise Fenced(f"Run {run_id} is taken: this process is driving it already.")
    store.driving.add(key)
    try:
        yield
    finally:
        store.driving.discard(key)


async def refuse_where_busy(store: Store, session: str, run_id: str) -> None:
    """Raise SessionBusy where another run of the session goes on, or waits for a human."""
    for row in await store.journal.runs(RunFilter(session=session, finished=False, roots=True, limit=_ALL)):
        if row.id == run_id:
            continue
        if row.status == "waiting":
            asked = await store.journal.approvals(ApprovalFilter(run_id=row.id, status="pending"))
            raise SessionBusy(session, row.id, asked[-1].approval_id if asked else None)
        if row.owner is None or not await store.is_gone(row.owner):
            raise SessionBusy(session, row.id)


async def _catch_up(store: Store, session: str) -> None:
    """Let turns join a session that stands elsewhere than the journal, where a run was cut off before its turn had.

    Each run of the session begins with this, so the turns of those that were driven last are enough; where the session
    is empty, because its store has lost it or is new, it is all of them.
    """
    rows = await store.journal.runs(RunFilter(session=session, roots=True, limit=_ALL))
    driven = sorted((row for row in rows if row.finished or row.steps), key=lambda row: row.updated_at)
    messages = await store.sessions.load(session)
    for row in driven[-_LAST:] if messages else driven:
        try:
            events = await store.journal.read(row.id)
        except StoreError as error:
            _log.warning("What run %s said may be missing from session %r: %s", row.id, session, error)
            continue
        length = session_length(events)
        for turn in turns_of(events, messages[:length]):
            if length is None or messages[length : length + len(turn.messages)] != turn.messages:
                await store.sessions.append(*turn)
                messages = await store.sessions.load(session)


async def _tell_of_held(store: Store, session: str) -> None:
    """Let a session know of its runs that wait for a human, as its next run begins."""
    for row in reversed(await store.journal.runs(RunFilter(session=session, status="waiting", roots=True, limit=_ALL))):
        events = await store.journal.read(row.id)
        turn = turn_of(fold(events), handed_over(events, ()))
        if turn is None or not turn.messages:
            continue
        told = Event(row.id, 0, now_ms(), 0, SessionTold())
        together = None if store.sessions_url is not None else turn
        try:
            await store.journal.append(row.id, [told], after=len(events), epoch=None, turn=together)
        except Conflict:
            continue  # it was decided just now, and goes on after this one
        await store.sessions.append(*turn)


async def _close_abandoned(store: Store, session: str) -> None:
    """End the turns of a session whose process has ended in the middle of them, so that the next turn knows of them.

    Calls that have a result keep it; the others get one that says that they were interrupted.
    """
    for row in reversed(await store.journal.runs(RunFilter(session=session, finished=False, roots=True, limit=_ALL))):
        if row.status == "waiting" or row.owner is None or not await store.is_gone(row.owner):
            continue
        try:
            await _close(store, row.id, session, Finish("cancelled", message=_CUT_OFF))
        except Fenced:
            pass  # another goes on with it
        except StoreError as error:
            _log.warning("Run %s was cut off and stays as it is: %s", row.id, error)


async def end_unheard(store: Store, run_id: str, session: str | None) -> None:
    """End a run that was cancelled before anybody drove it, which need not wait for its session to be free."""
    await _close(store, run_id, session, Finish("cancelled", message="The run was cancelled before it began."))


async def _close(store: Store, run_id: str, session: str | None, end: Finish) -> None:
    events = await store.journal.read(run_id)
    started = events[0].data
    if not isinstance(started, RunStarted) or started.kind == "call":  # a call that a human has approved is still due
        return
    check_readable(run_id, events)
    messages = [] if session is None else await store.sessions.load(session)
    before = messages[: session_length(events)]
    state = fold(events, before)
    recorder = Recorder(store.journal, state, epoch=state.epoch + 1, history=before)
    recorder.record(DriverClaimed(recorder.epoch, str(this_process()), len(before)))
    recorder.turn, recorder.apart = partial(turn_of, before=handed_over(events, before)), store.sessions_url is not None
    try:
        await recorder.commit()  # claimed before those below it are ended
        await close_below(store, run_id, recorder.epoch)
        await close(recorder, end)
    except asyncio.CancelledError:
        await _let_go(recorder)
        raise
    await hand_over(store, recorder)


async def _let_go(recorder: Recorder) -> None:
    """Leave a run, of which this process said that it drives it, to any other driver: it lives on, and does not."""
    if recorder.state.finished is None:
        recorder.record(DriverRested(waiting=False))
    await recorder.commit()


def session_length(events: Sequence[Event]) -> int | None:
    """How many messages the session had before the run; None where nobody has driven it yet."""
    claims = (event.data for event in events if isinstance(event.data, DriverClaimed))
    return next((claim.session_length for claim in claims), None)


def check_readable(run_id: str, events: Sequence[Event]) -> None:
    """Refuse a run of which this version does not know all that has happened: it would do it again."""
    for event in events:
        if isinstance(event.data, Unknown) and event.type in EVENT_TYPES:
            what = f"event {event.seq}, {event.type}"
            raise StoreError(f"A newer Glassloop wrote to run {run_id} ({what}): upgrade it here to go on with it.")


async def hand_over(store: Store, recorder: Recorder) -> None:
    """Let the run's turn join its session, where that has not happened together with its last events."""
    turn = None if recorder.state.finished is None else recorder.turn(recorder.state)
    if turn is not None:
        await store.sessions.append(*turn)
