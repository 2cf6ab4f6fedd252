"""The journal in memory passes the suite of all journals, and does not grow for ever."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from glassloop.core.events import RunContinued
from glassloop.journal.journal import Journal, MemoryJournal
from glassloop.testing.conformance.journal import JournalConformance, event, finished, started


class TestMemoryJournal(JournalConformance):
    @pytest.fixture
    def open_journal(self) -> Callable[[], Journal]:
        journal = MemoryJournal()
        return lambda: journal


async def run(journal: Journal, run_id: str, *, end: bool = True) -> None:
    events = [started(run_id), *([finished(run_id)] if end else [])]
    await journal.append(run_id, events, after=0, epoch=1, blobs={run_id: b"own", "tools": b"shared"})


async def known(journal: Journal) -> list[str]:
    return sorted(row.id for row in await journal.runs())


async def test_the_runs_that_finished_first_are_forgotten_with_their_blobs() -> None:
    journal = MemoryJournal(max_finished=2)
    await run(journal, "open", end=False)
    for run_id in ("1", "2", "3", "4"):
        await run(journal, run_id)
    assert await known(journal) == ["3", "4", "open"]
    assert await journal.read("1") == []
    with pytest.raises(KeyError):
        await journal.blob("1")
    assert [await journal.blob(name) for name in ("3", "open", "tools")] == [b"own", b"own", b"shared"]


async def test_a_run_that_goes_on_is_not_forgotten() -> None:
    journal = MemoryJournal(max_finished=1)
    await run(journal, "1")
    await journal.append("1", [event("1", RunContinued())], after=2, epoch=2)
    for run_id in ("2", "3"):
        await run(journal, run_id)
    assert await known(journal) == ["1", "3"]
    await journal.append("1", [finished("1")], after=3, epoch=2)
    assert await known(journal) == ["1"]


async def test_without_runs_no_blob_is_left() -> None:
    journal = MemoryJournal(max_finished=0)
    for run_id in ("1", "2", "3"):
        await run(journal, run_id)
    assert await known(journal) == []
    with pytest.raises(KeyError):
        await journal.blob("tools")
