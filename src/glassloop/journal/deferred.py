"""A deferred call that a human decided on: a run of its own, and the run that asked for it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from glassloop.core.errors import Conflict
from glassloop.core.events import ApprovalDecided, Event, RunStarted
from glassloop.journal.journal import Journal
from glassloop.journal.recorder import now_ms


def answers_of(events: Iterable[Event]) -> dict[str, ApprovalDecided]:
    """The decisions that a run knows of, by approval id; of several about one approval the first counts."""
    answers: dict[str, ApprovalDecided] = {}
    for event in events:
        if isinstance(event.data, ApprovalDecided):
            answers.setdefault(event.data.approval_id, event.data)
    return answers


async def record_answer(journal: Journal, run_id: str, answer: ApprovalDecided) -> bool:
    """Append a decision to a run, once, whoever else does so too; False if it has one."""
    while True:
        events = await journal.read(run_id)
        if answer.approval_id in answers_of(events):
            return False
        try:
            await journal.append(run_id, [Event(run_id, 0, now_ms(), 0, answer)], after=len(events), epoch=None)
        except Conflict:
            continue
        return True


async def tell_parent(journal: Journal, events: Sequence[Event]) -> None:
    """Let the run that a deferred call belongs to know of the decision that the call's own run begins with.

    The call's run is written first, since only one can be; a process that ends right then leaves the rest to whoever
    drives that run.
    """
    started = events[0].data
    if not isinstance(started, RunStarted) or started.kind != "call" or started.parent is None:
        return
    held = next((event.data for event in events if isinstance(event.data, ApprovalDecided)), None)
    if held is not None and await journal.read(started.parent):
        await record_answer(journal, started.parent, held)
