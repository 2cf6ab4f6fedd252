"""One connection to a SQLite file: how it is opened, how it waits, and what its errors mean."""

from __future__ import annotations

import logging
import os
import random
import sqlite3
import time
from collections.abc import Callable
from typing import TypeVar

from glassloop.core.errors import ConfigurationError, GlassloopError, StoreError
from glassloop.stores.sqlite.schema import is_current, migrate

T = TypeVar("T")

_log = logging.getLogger("glassloop.stores")

_PAUSE_S = (0.0005, 0.02)  # first and longest; SQLite's own waiting grows to 0.1 s and starves whoever lost once
_WARN_S = 10.0

_PRAGMAS = (
    "PRAGMA synchronous = FULL",  # a power cut must not forget a write that was begun
    "PRAGMA wal_autocheckpoint = 250",  # pages: a log that grows costs more than to copy it into the file more often
    "PRAGMA journal_size_limit = 1048576",  # of the log: a big transaction must not leave a big one behind
    "PRAGMA secure_delete = ON",  # what was erased is overwritten
)

_WRITERS_CACHE = "PRAGMA cache_size = -256"  # KiB: who appends comes back to few pages, and the system has the others


def connect(path: str, *, query_only: bool = False) -> sqlite3.Connection:
    """Open a store's file, creating its tables or bringing them up to date where needed.

    Raises:
        ConfigurationError: the file cannot be used; the message says why and what to do, and it was left as it is.
        StoreError: the disk failed.
    """
    if os.path.exists(path) and not os.access(path, os.W_OK):
        raise ConfigurationError(_read_only(path))  # SQLite would notice at the first write, and leave a read-only log
    connection: sqlite3.Connection | None = None
    try:
        # Never open the file to look at its header: closing that handle would drop SQLite's own locks (POSIX)
        connection = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
        patiently(lambda: _prepare(connection, path, query_only), path)
    except (sqlite3.Error, GlassloopError) as error:
        if connection is not None:
            connection.close()
        raise explain(path, error) from error
    return connection


def _prepare(connection: sqlite3.Connection, path: str, query_only: bool) -> None:
    current = is_current(connection, path)
    mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
    if mode != "wal":
        raise ConfigurationError(
            f"{path} cannot be shared by several connections (journal mode {mode!r} instead of 'wal'): "
            "put the store on a local disk."
        )
    for pragma in _PRAGMAS:
        connection.execute(pragma).fetchall()
    if not current:
        connection.execute("BEGIN IMMEDIATE")
        try:
            migrate(connection)
            connection.execute("COMMIT")
        except BaseException:
            roll_back(connection)
            raise
    connection.execute("PRAGMA query_only = ON" if query_only else _WRITERS_CACHE)


def patiently(action: Callable[[], T], path: str) -> T:
    """Do `action`, again and again while another process holds the file: a held lock delays and never fails."""
    begun = warned = time.monotonic()
    pause, longest = _PAUSE_S
    while True:
        try:
            return action()
        except sqlite3.OperationalError as error:
            if not _is_busy(error):
                raise
        if (now := time.monotonic()) - warned > _WARN_S:
            warned = now
            _log.warning("%s has been locked by another process for %.0f s; waiting.", path, now - begun)
        time.sleep(pause * random.uniform(0.5, 1.0))
        pause = min(pause * 1.5, longest)


def roll_back(connection: sqlite3.Connection) -> None:
    """End a failed transaction, where SQLite has not done so itself."""
    if connection.in_transaction:
        connection.execute("ROLLBACK")


def explain(path: str, error: Exception) -> Exception:
    """`error` as one sentence that names the file, what is wrong and what to do; others than SQLite's as they are."""
    if not isinstance(error, sqlite3.Error):
        return error
    match _code(error):
        case sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_PERM | sqlite3.SQLITE_AUTH:
            return ConfigurationError(_why_closed(path))
        case sqlite3.SQLITE_NOTADB:
            return ConfigurationError(f"{path} is not an SQLite file: name another one for the store.")
        case sqlite3.SQLITE_READONLY:
            return ConfigurationError(_read_only(path))
        case sqlite3.SQLITE_FULL:
            return StoreError(f"The disk is full: {path} could not be written. What it held before is intact.")
        case sqlite3.SQLITE_CORRUPT:
            return StoreError(f"{path} is damaged: restore a backup, or try `sqlite3 FILE .recover`.")
        case _:
            return StoreError(f"The store {path} failed: {error}.")


def _code(error: sqlite3.Error) -> int:
    """SQLite's primary result code; 0 for errors of the Python module itself."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def _is_busy(error: sqlite3.Error) -> bool:
    return _code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def _read_only(path: str) -> str:
    return f"{path} is read-only: the store needs to write to it and its directory."


def _why_closed(path: str) -> str:
    directory = os.path.dirname(path)
    if not os.path.isdir(directory):
        return f"The store {path} cannot be opened: there is no directory {directory}. Create it or correct the path."
    if os.path.isdir(path):
        return f"The store {path} cannot be opened: it is a directory. Name a file in it."
    return f"The store {path} cannot be opened: no permission to read and write the file and its directory."
