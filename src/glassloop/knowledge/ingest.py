"""Files into knowledge: what is new or changed is loaded, split and put; what is not stays."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from os import PathLike
from typing import TYPE_CHECKING, Literal

from glassloop.core.encoding import digest
from glassloop.core.errors import ConfigurationError, LoadError
from glassloop.knowledge.documents import Document, Passage
from glassloop.knowledge.load import MAX_BYTES, check_format, parse
from glassloop.knowledge.load.reading import Unreadable, read_bytes
from glassloop.knowledge.load.walk import File, Found, find
from glassloop.knowledge.split import require_splitter, split

if TYPE_CHECKING:
    from glassloop.knowledge.knowledge import Knowledge

CONCURRENCY = 4

FileOutcome = Literal["added", "changed", "unchanged", "failed"]


@dataclass(frozen=True, slots=True)
class Progress:
    """One file is done.

    Args:
        done: how many are.
        total: how many there are.
        source: the file's name.
        outcome: what became of it.
    """

    done: int
    total: int
    source: str
    outcome: FileOutcome


@dataclass(frozen=True, slots=True)
class Failure:
    """A file that did not go in; what was kept of it before is still there.

    Args:
        source: its name.
        reason: what is wrong and what to do, to be read after the name.
    """

    source: str
    reason: str


@dataclass(slots=True)
class IngestReport:
    """What ingesting did; sources are in order.

    Args:
        added: sources that are new.
        changed: sources whose file was another before.
        unchanged: sources whose file is as before; they were not loaded.
        failed: files that were skipped, each with the reason.
        vanished: sources in the folders given whose file is there no longer; they are still found.
        pruned: such sources that were removed, as asked for.
        passages_added: passages that are new.
        passages_removed: passages that are gone.
        passages_kept: passages of these sources that are as before.
        seconds: how long it took.
    """

    added: list[str] = field(default_factory=list[str])
    changed: list[str] = field(default_factory=list[str])
    unchanged: list[str] = field(default_factory=list[str])
    failed: list[Failure] = field(default_factory=list[Failure])
    vanished: list[str] = field(default_factory=list[str])
    pruned: list[str] = field(default_factory=list[str])
    passages_added: int = 0
    passages_removed: int = 0
    passages_kept: int = 0
    seconds: float = 0.0


async def ingest(
    knowledge: Knowledge,
    paths: Iterable[str | PathLike[str]],
    *,
    root: str | PathLike[str] | None = None,
    prune: bool = False,
    on_progress: Callable[[Progress], object] | None = None,
    concurrency: int = CONCURRENCY,
    max_bytes: int = MAX_BYTES,
) -> IngestReport:
    """Put files into knowledge: those that are new or have changed since.

    A file that cannot be loaded is named in the report, and the others go in. Nothing is removed without `prune`.
    Cancelled, or failing, it keeps what has gone in so far; the next time goes on from there.

    Args:
        knowledge: where to.
        paths: files and folders; folders with all that is in them, without hidden files and links to folders.
        root: sources are named by their path below it; default for each path the folder that it is in.
        prune: remove the sources in the folders given whose file is there no longer.
        on_progress: called in the event loop after each file.
        concurrency: files that are loaded at once, in threads.
        max_bytes: the largest file that is loaded.

    Raises:
        ConfigurationError: the libraries for it are not installed, or the database cannot be used.
        ModelError: the embedding model failed.
        StoreError: the database failed.
    """
    if concurrency < 1:
        raise ConfigurationError(f"Ingesting {concurrency} files at once: it must be 1 or more.")
    begun = time.monotonic()
    found = await asyncio.to_thread(_prepare, list(paths), root)
    known = {source.source: source.passages for source in await knowledge.sources()}
    work = _Work(knowledge, found, known, on_progress, max_bytes)
    try:
        async with asyncio.TaskGroup() as group:
            # waited for in here: Python 3.11's group takes back its cancellation of this task only then
            await asyncio.wait([group.create_task(work.go()) for _ in range(concurrency)])
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
    await work.finish(prune)
    work.report.seconds = time.monotonic() - begun
    return work.report


def _prepare(paths: list[str | PathLike[str]], root: str | PathLike[str] | None) -> Found:
    require_splitter()
    return find(paths, root)


class _Work:
    """The files that are left, and what became of the others."""

    def __init__(
        self,
        knowledge: Knowledge,
        found: Found,
        known: dict[str, int],
        on_progress: Callable[[Progress], object] | None,
        max_bytes: int,
    ) -> None:
        self.report = IngestReport(failed=[Failure(problem.source, problem.reason) for problem in found.problems])
        self._knowledge = knowledge
        self._found = found
        self._known = known
        self._on_progress = on_progress
        self._max_bytes = max_bytes
        self._left = iter(found.files)
        self._done = 0

    async def go(self) -> None:
        """Take one file after another until none is left."""
        for file in self._left:
            outcome = await self._take(file)
            self._done += 1
            if self._on_progress is not None:
                self._on_progress(Progress(self._done, len(self._found.files), file.source, outcome))

    async def finish(self, prune: bool) -> None:
        """Deal with the sources whose files have vanished."""
        there = {file.source for file in self._found.files}
        report = self.report
        gone = [source for source in sorted(self._known) if source not in there and self._found.covers(source)]
        if prune:
            for source in gone:
                report.passages_removed += await self._knowledge.remove(source)
            report.pruned = gone
        else:
            report.vanished = gone
        for sources in (report.added, report.changed, report.unchanged):
            sources.sort()
        report.failed.sort(key=lambda failure: failure.source)

    async def _take(self, file: File) -> FileOutcome:
        report = self.report
        try:
            data, content = await asyncio.to_thread(_read, file, self._max_bytes)
            if file.source in self._known and await self._knowledge.digest_of(file.source) == content:
                report.unchanged.append(file.source)
                report.passages_kept += self._known[file.source]
                return "unchanged"
            document, passages = await asyncio.to_thread(_passages, data, file.source)
        except LoadError as error:
            report.failed.append(Failure(error.source, error.reason))
            return "failed"
        change = await self._knowledge.put(document, passages)
        report.passages_added += change.added
        report.passages_removed += change.removed
        report.passages_kept += change.kept
        known = file.source in self._known
        (report.changed if known else report.added).append(file.source)
        return "changed" if known else "added"


def _read(file: File, max_bytes: int) -> tuple[bytes, str]:
    """The content of a file and its digest."""
    check_format(file.source)
    try:
        data = read_bytes(file.path, max_bytes)
    except Unreadable as why:
        raise LoadError(file.source, str(why)) from why
    return data, digest(data)


def _passages(data: bytes, source: str) -> tuple[Document, list[Passage]]:
    document = parse(data, source)
    return document, split(document)
