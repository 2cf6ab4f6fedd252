"""Group commit: the work of many callers in one transaction, so that they share one flush to disk."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Sequence

from glassloop.core.errors import StoreError
from glassloop.stores.sqlite.connection import explain, patiently, roll_back
from glassloop.stores.sqlite.same_file import SameFile
from glassloop.stores.sqlite.worker import Job


class GroupCommit:
    """Commits jobs together; one that fails is undone alone and does not hurt the others.

    Args:
        path: of the file, for messages.
        file: the same, to see that it is still there.
        turn: gives the lock that is held while writing.
    """

    def __init__(self, path: str, file: SameFile, turn: Callable[[], threading.Lock]) -> None:
        self._path, self._file, self._turn = path, file, turn

    def __call__(self, connection: sqlite3.Connection, jobs: Sequence[Job]) -> None:
        """Do the work of `jobs` and fill in their results and errors."""
        cursor = connection.cursor()
        with self._turn():
            if len(jobs) == 1 or not self._together(cursor, jobs):
                for job in jobs:
                    self._alone(cursor, job)
        _refuse_lost(self._file, jobs)

    def _together(self, cursor: sqlite3.Cursor, jobs: Sequence[Job]) -> bool:
        """Commit all jobs at once; False, with everything undone, if the transaction as a whole failed."""
        try:
            self._begin(cursor)
            for job in jobs:
                self._nested(cursor, job)
            cursor.execute("COMMIT")
        except sqlite3.Error:  # on a full disk SQLite has undone all of them, though some may fit
            roll_back(cursor.connection)
            return False
        return True

    def _nested(self, cursor: sqlite3.Cursor, job: Job) -> None:
        cursor.execute("SAVEPOINT job")
        try:
            job.result, job.error = job.work(cursor), None
        except sqlite3.Error:
            raise
        except Exception as error:  # noqa: BLE001 - it goes to the caller
            job.error = error
            cursor.execute("ROLLBACK TO job")
        cursor.execute("RELEASE job")

    def _alone(self, cursor: sqlite3.Cursor, job: Job) -> None:
        try:
            self._begin(cursor)
            job.result, job.error = job.work(cursor), None
            cursor.execute("COMMIT")
        except Exception as error:  # noqa: BLE001 - it goes to the caller
            roll_back(cursor.connection)
            job.error = explain(self._path, error)

    def _begin(self, cursor: sqlite3.Cursor) -> None:
        patiently(lambda: cursor.execute("BEGIN IMMEDIATE"), self._path)


class OneByOne:
    """Does jobs that only read, each for itself.

    Args:
        path: of the file, for messages.
        file: the same, to see that it is still there.
    """

    def __init__(self, path: str, file: SameFile) -> None:
        self._path, self._file = path, file

    def __call__(self, connection: sqlite3.Connection, jobs: Sequence[Job]) -> None:
        """Do the work of `jobs` and fill in their results and errors."""
        cursor = connection.cursor()
        for job in jobs:
            self._read(cursor, job)
        _refuse_lost(self._file, jobs)

    def _read(self, cursor: sqlite3.Cursor, job: Job) -> None:
        try:
            job.result = patiently(lambda: job.work(cursor), self._path)
        except Exception as error:  # noqa: BLE001 - it goes to the caller
            job.error = explain(self._path, error)


def _refuse_lost(file: SameFile, jobs: Sequence[Job]) -> None:
    """Acknowledge nothing once the file is one that nobody will find again."""
    try:
        file.watch()
    except StoreError as error:
        for job in jobs:
            job.error = job.error or error
