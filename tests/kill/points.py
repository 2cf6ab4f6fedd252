"""Where the program dies by its own hand: chosen instants, named in the environment.

`KILL_AT=effect:3:500` kills the process with SIGKILL 500 microseconds after it has reached the point `effect` for the
third time in its life. The points stand in the program's own tools and around the store's COMMIT, none in Glassloop.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

POINTS = {
    "start": 6,
    "ask": 12,
    "enter": 8,
    "effect": 8,
    "leave": 12,
    "booked": 4,
    "statement": 400,
    "commit": 15,
    "decide": 3,
    "decided": 2,
    "reconcile": 2,
}
"""The points, with how often a life reaches each as a rule.

start: a run was started. ask: the model is asked. enter: a tool's function begins, and effect: has had its effect.
leave: it returns. booked: inside the shared transaction. statement: any statement on the store begins, and commit: one
that commits. decide, decided: around an operator's decision. reconcile: the world is asked about a call.
"""


class Points:
    """Counts the points that are reached and kills the process at the chosen one.

    Args:
        wanted: `point:count:microseconds`, or nothing.
    """

    def __init__(self, wanted: str = "") -> None:
        self._seen: Counter[str] = Counter()
        self._point, self._count, self._delay = "", 0, 0.0
        self._reached = threading.Event()
        if wanted:
            point, count, delay = wanted.split(":")
            self._point, self._count, self._delay = point, int(count), int(delay) / 1e6
            threading.Thread(target=self._wait_and_die, daemon=True).start()

    @property
    def in_store(self) -> bool:
        """Whether the store's statements have to be watched."""
        return self._point in ("statement", "commit")

    def statement(self, text: str) -> None:
        """A statement begins."""
        self.reach("statement")
        if text == "COMMIT":
            self.reach("commit")

    def reach(self, point: str) -> None:
        """The program is at a point."""
        if point != self._point:
            return
        self._seen[point] += 1
        if self._seen[point] == self._count:
            if not self._delay:
                os.kill(os.getpid(), signal.SIGKILL)
            self._reached.set()

    def _wait_and_die(self) -> None:
        self._reached.wait()
        time.sleep(self._delay)
        os.kill(os.getpid(), signal.SIGKILL)


def watch_sqlite(path: str, points: Points, max_pages: int | None) -> None:
    """Let connections to the file at `path` tell of their statements, and hold no more than `max_pages` pages.

    The page limit makes the disk full as SQLite sees it (SQLITE_FULL), on any system and without privileges.
    """
    plain: Callable[..., sqlite3.Connection] = sqlite3.connect

    def connect(database: Any, *args: Any, **options: Any) -> sqlite3.Connection:
        connection = plain(database, *args, **options)
        if str(database) == path:
            if max_pages is not None:
                connection.execute(f"PRAGMA max_page_count = {max_pages}")
            if points.in_store:
                connection.set_trace_callback(points.statement)
        return connection

    sqlite3.connect = connect


def watch_postgres(points: Points) -> None:
    """Let all of SQLAlchemy's connections tell of their statements; one that commits itself counts as a COMMIT too."""
    from sqlalchemy import Connection, Engine, event

    def begin(connection: Connection, cursor: Any, statement: str, *_: Any) -> None:
        points.reach("statement")
        commits = connection.get_execution_options().get("isolation_level") == "AUTOCOMMIT"
        if commits and not statement.lstrip().startswith("SELECT"):
            points.reach("commit")

    def commit(connection: Connection) -> None:
        points.statement("COMMIT")

    if points.in_store:
        event.listen(Engine, "before_cursor_execute", begin)
        event.listen(Engine, "commit", commit)


def turn_clock(offsets: str) -> None:
    """Make the wall clock wrong: `-3600` is an hour slow; `0,-600,300` jumps on to the next offset every 100 ms."""
    seconds = [float(offset) for offset in offsets.split(",")]
    true, begun = time.time_ns, time.monotonic()

    def time_ns() -> int:
        return true() + int(seconds[int((time.monotonic() - begun) / 0.1) % len(seconds)] * 1e9)

    time.time_ns = time_ns
    time.time = lambda: time_ns() / 1e9
