"""Recorded runs: find one, read it, show it."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from glassloop.cli.background import Background
from glassloop.cli.output import write
from glassloop.cli.printable import printable
from glassloop.cli.problems import Problem
from glassloop.core.events import Event
from glassloop.journal.projection import RunFilter, RunRow, summarize

if TYPE_CHECKING:
    from glassloop.stores import Store

_MOST = 100_000
_FEW = 5


@contextmanager
def opened(url: str, background: Background, sessions: str | None = None) -> Generator[Store]:
    """The store at `url`, closed at the end; its sessions, which no command that only looks needs, at `sessions`.

    Raises:
        ConfigurationError: no such kind of store, or it cannot be opened.
        StoreError: it does not answer.
    """
    from glassloop.stores import open_store

    store = open_store(url, sessions)
    background.call(store.__aenter__())
    try:
        yield store
    finally:
        background.call(store.close())


def file_of(url: str) -> Path | None:
    """The file of a SQLite store, wherever the process stands; None for another kind."""
    scheme, _, path = url.partition(":///")
    return Path(os.path.abspath(os.path.expanduser(path))) if scheme.lower() == "sqlite" and path else None


def is_missing(url: str) -> bool:
    """Whether a store is a file that does not exist, in a folder that does: it holds nothing and need not be made."""
    file = file_of(url)
    return file is not None and file.parent.is_dir() and not file.exists()


def list_runs(url: str, wanted: RunFilter) -> list[RunRow]:
    """The runs that match, newest first; a file that does not exist holds none, and is not made for the question."""
    if is_missing(url):
        return []
    with Background() as background, opened(url, background) as store:
        return background.call(store.journal.runs(wanted))


def read_run(url: str, given: str) -> tuple[RunRow, list[Event]]:
    """A run and its events, by its id or the beginning of it.

    Raises:
        Problem: there is no such run, or several begin like that.
    """
    if is_missing(url):
        raise unknown(given, url)
    with Background() as background, opened(url, background) as store:
        return find_run(store, background, given)


def read_tree(url: str, given: str) -> tuple[RunRow, list[Event], list[Event]]:
    """A run, its events, and those with the events of all runs below it, in the order they happened.

    Raises:
        Problem: there is no such run, or several begin like that.
    """
    if is_missing(url):
        raise unknown(given, url)
    with Background() as background, opened(url, background) as store:
        row, events = find_run(store, background, given)
        return row, events, with_below(store, background, events)


def with_below(store: Store, background: Background, events: Sequence[Event]) -> list[Event]:
    """The events of a run and those of all runs below it, in the order they happened."""
    everything = list(events)
    for each in background.call(store.journal.runs(RunFilter(below=events[0].run_id, limit=_MOST))):
        everything += background.call(store.journal.read(each.id))
    return sorted(everything, key=lambda event: event.at)


def find_run(store: Store, background: Background, given: str) -> tuple[RunRow, list[Event]]:
    """`read_run` in a store that is open."""
    events = background.call(store.journal.read(given))
    if not events:
        events = background.call(store.journal.read(_full_id(store, background, given)))
    row = summarize(events)
    if row is None:
        raise unknown(given, store.url)
    return row, events


def show_run(events: Sequence[Event], *, colour: bool, private: bool) -> None:
    """Print the trace of a recorded run, and its answer last.

    Args:
        events: all of them.
        colour: whether to colour the lines.
        private: print what is for the operator alone, too.
    """
    from glassloop.journal.state import fold
    from glassloop.observe.trace import TracePrinter
    from glassloop.results import result_of

    printer = TracePrinter(colour=colour)
    for event in events:
        printer(event)
        if private and event.private:
            for name, value in event.private.items():
                write("".join(f"        private     {line}\n" for line in f"{name}: {value}".rstrip().splitlines()))
    result = result_of(fold(event for event in events if event.run_id == events[0].run_id))
    if result.outcome == "waiting":
        printer.end(result)
    if result.output:
        sys.stdout.write(f"{printable(result.output).rstrip()}\n")


def _full_id(store: Store, background: Background, given: str) -> str:
    rows = background.call(store.journal.runs(RunFilter(limit=_MOST, roots="." not in given)))
    found = [row.id for row in rows if row.id.startswith((given, f"run_{given}"))]
    if not given or not found:
        raise unknown(given, store.url)
    if len(found) > 1:
        few = ", ".join(found[:_FEW]) + (f" and {len(found) - _FEW} more" if len(found) > _FEW else "")
        raise Problem(f"{len(found)} runs begin with {given!r}: {few}.")
    return found[0]


def unknown(given: str, url: str) -> Problem:
    """What there is to say about a run that a store does not hold."""
    return Problem(f"There is no run {given!r} in {url}; `glassloop runs list` shows those that there are.")
