"""The last summary of a session, taken over from an earlier run of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from glassloop.core.context import RunContext
from glassloop.core.events import Event, Summarized
from glassloop.core.usage import Usage
from glassloop.journal.projection import RunFilter
from glassloop.journal.state import State
from glassloop.journal.view import digest_of
from glassloop.memory.summary import last_summary

_LOOK_BACK = 6
"""Runs of a session that are looked into: others, of agents without a summary, may be among them."""


async def carried_summary(context: RunContext[Any], state: State) -> Summarized | None:
    """The newest summary of the run's session that stands for messages which the run has, as an event of this run.

    So a run's journal names everything that its views are made of, and each message of a session is summarised once.
    """
    if context.session is None or context.store is None or not state.history_length:
        return None
    journal = context.store.journal
    for row in await journal.runs(RunFilter(session=context.session, roots=True, limit=_LOOK_BACK)):
        if row.id != context.run_id:
            known = _last(await journal.read(row.id))
            if known is not None and _fits(known, state):
                return replace(known, usage=Usage(), cost_usd=0.0, ms=0.0, carried=True)
    return None


def _last(events: Iterable[Event]) -> Summarized | None:
    return last_summary([event.data for event in events if isinstance(event.data, Summarized)])


def _fits(known: Summarized, state: State) -> bool:
    is_history = known.stop <= state.history_length
    return is_history and digest_of(state.conversation[known.start : known.stop]) == known.covered
