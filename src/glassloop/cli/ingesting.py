"""Ingest in the background and show it in the foreground: progress on stderr, the report at the end."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING

from glassloop.cli.background import Background
from glassloop.cli.knowing import opened
from glassloop.cli.output import write
from glassloop.cli.printable import printable
from glassloop.cli.problems import FAILED, NOT_COMPLETED, OK, say
from glassloop.cli.signals import ended_by_signals

if TYPE_CHECKING:
    from glassloop.knowledge.ingest import IngestReport, Progress
    from glassloop.knowledge.knowledge import Knowledge

    Show = Callable[[Progress], object]

_PLAIN_LINES = 10
_LONGEST_NAME = 40


def ingest_files(
    store: str, collection: str, paths: Sequence[Path], *, root: Path | None, prune: bool, no_color: bool
) -> IngestReport:
    """Ingest, showing how far it is.

    Raises:
        KeyboardInterrupt: Ctrl-C; what had gone in stays.
        GlassloopError: it failed as a whole.
    """
    with ended_by_signals(), Background() as background, opened(store, collection, background) as knowledge:
        try:
            return _watched(background, knowledge, paths, root=root, prune=prune, no_color=no_color)
        except KeyboardInterrupt:
            say("Stopped. The files that are in stay in; run it again for the others.")
            raise


def code_of(report: IngestReport) -> int:
    """The exit code: all in, some skipped, or none loaded."""
    if not report.failed:
        return OK
    return NOT_COMPLETED if report.added or report.changed or report.unchanged else FAILED


def print_report(report: IngestReport) -> None:
    """What was done to standard output, what was skipped and why to standard error."""
    for failure in report.failed:
        say(f"Skipped: {failure.source} {failure.reason}")
    files = {
        "added": len(report.added),
        "changed": len(report.changed),
        "unchanged": len(report.unchanged),
        "pruned": len(report.pruned),
        "skipped": len(report.failed),
    }
    passages = {
        "added": report.passages_added,
        "removed": report.passages_removed,
        "kept": report.passages_kept,
    }
    write(f"Files:    {_counted(files)}\nPassages: {_counted(passages)}\nTime:     {report.seconds:.1f} s\n")
    if report.vanished:
        say("These sources are kept, but their files are there no longer; --prune removes them:")
        for source in report.vanished:
            say(f"  {source}")


def _counted(numbers: dict[str, int]) -> str:
    return ", ".join(f"{number:,} {what}" for what, number in numbers.items() if number or what == "added")


def _watched(
    background: Background,
    knowledge: Knowledge,
    paths: Sequence[Path],
    *,
    root: Path | None,
    prune: bool,
    no_color: bool,
) -> IngestReport:
    from glassloop.knowledge.ingest import ingest

    news: SimpleQueue[Progress | None] = SimpleQueue()

    async def go() -> IngestReport:
        try:
            return await ingest(knowledge, paths, root=root, prune=prune, on_progress=news.put)
        finally:
            news.put(None)

    future = background.start(go())
    try:
        with _progress(no_color) as show:
            while (progress := news.get()) is not None:
                show(progress)
        return future.result()
    except BaseException:
        future.cancel()
        raise


@contextmanager
def _progress(no_color: bool) -> Generator[Show]:
    """A bar on a terminal, a line for each tenth of the files elsewhere."""
    if not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield _plain
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}", markup=False))
    console = Console(stderr=True, no_color=no_color or None, highlight=False)
    with Bar(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=None)

        def show(progress: Progress) -> None:
            name = printable(progress.source)[-_LONGEST_NAME:]
            bar.update(task, completed=progress.done, total=progress.total, description=name)

        yield show


def _plain(progress: Progress) -> None:
    done, total = progress.done, progress.total
    if done * _PLAIN_LINES // total > (done - 1) * _PLAIN_LINES // total:
        say(f"Files: {done:,} of {total:,}")
