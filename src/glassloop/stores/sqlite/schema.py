"""The tables of a store in a SQLite file, and how an older file is brought up to date."""

from __future__ import annotations

import sqlite3

from glassloop.core.errors import ConfigurationError

_VERSION_1 = (
    """
    CREATE TABLE glassloop_runs (
        id TEXT PRIMARY KEY,
        seq INTEGER NOT NULL,
        epoch INTEGER NOT NULL,
        owner TEXT,
        agent TEXT,
        session TEXT,
        user TEXT,
        tenant TEXT,
        status TEXT,
        input TEXT,
        started_at INTEGER,
        updated_at INTEGER,
        steps INTEGER,
        tokens INTEGER,
        cost_usd REAL,
        pending INTEGER
    ) STRICT, WITHOUT ROWID
    """,
    "CREATE INDEX glassloop_runs_session ON glassloop_runs (session) WHERE session IS NOT NULL",
    "CREATE INDEX glassloop_runs_user ON glassloop_runs (user) WHERE user IS NOT NULL",
    "CREATE INDEX glassloop_runs_open ON glassloop_runs (status) WHERE status IN ('running', 'waiting', 'cancelling')",
    # Rows of several kilobytes: WITHOUT ROWID would keep them in inner nodes too, four to a page.
    """
    CREATE TABLE glassloop_events (
        run_id TEXT NOT NULL,
        seq INTEGER NOT NULL,
        type TEXT NOT NULL,
        v INTEGER NOT NULL,
        at INTEGER NOT NULL,
        step INTEGER NOT NULL,
        epoch INTEGER,
        data ANY NOT NULL,
        private ANY,
        PRIMARY KEY (run_id, seq)
    ) STRICT
    """,
    """
    CREATE TABLE glassloop_approvals (
        approval_id TEXT PRIMARY KEY,
        run_id TEXT NOT NULL,
        call_id TEXT NOT NULL,
        tool TEXT NOT NULL,
        arguments TEXT NOT NULL,
        summary TEXT NOT NULL,
        risk TEXT NOT NULL,
        role TEXT,
        kind TEXT NOT NULL,
        mode TEXT NOT NULL,
        user TEXT,
        tenant TEXT,
        session TEXT,
        agent TEXT NOT NULL,
        asked_at INTEGER NOT NULL,
        expires_at INTEGER,
        decision TEXT,
        decided_by TEXT,
        reason TEXT
    ) STRICT, WITHOUT ROWID
    """,
    "CREATE INDEX glassloop_approvals_open ON glassloop_approvals (asked_at) WHERE decision IS NULL",
    "CREATE TABLE glassloop_blobs (digest TEXT PRIMARY KEY, data BLOB NOT NULL) STRICT",
    """
    CREATE TABLE glassloop_run_blobs (
        run_id TEXT NOT NULL, digest TEXT NOT NULL, PRIMARY KEY (run_id, digest)
    ) STRICT, WITHOUT ROWID
    """,
    """
    CREATE TABLE glassloop_messages (
        position INTEGER PRIMARY KEY,
        session TEXT NOT NULL,
        run_id TEXT NOT NULL,
        v INTEGER NOT NULL,
        message ANY NOT NULL
    ) STRICT
    """,
    "CREATE INDEX glassloop_messages_session ON glassloop_messages (session)",
    """
    CREATE TABLE glassloop_session_runs (
        session TEXT NOT NULL, run_id TEXT NOT NULL, PRIMARY KEY (session, run_id)
    ) STRICT, WITHOUT ROWID
    """,
    """
    CREATE TABLE glassloop_session_locks (
        ticket INTEGER PRIMARY KEY,
        session TEXT NOT NULL,
        run_id TEXT NOT NULL,
        token TEXT NOT NULL,
        process TEXT NOT NULL,
        beat_at INTEGER NOT NULL
    ) STRICT
    """,
    """
    CREATE TABLE glassloop_ledger (
        key TEXT PRIMARY KEY,
        run_id TEXT NOT NULL,
        call_id TEXT NOT NULL,
        process TEXT NOT NULL,
        until INTEGER NOT NULL,
        ttl INTEGER NOT NULL,
        result BLOB
    ) STRICT
    """,
)

_VERSION_2 = (
    """
    CREATE TABLE glassloop_facts (
        position INTEGER PRIMARY KEY,
        owner TEXT NOT NULL,
        id TEXT NOT NULL,
        same TEXT NOT NULL,
        text TEXT NOT NULL,
        run_id TEXT NOT NULL,
        created_at INTEGER NOT NULL,
        model TEXT,
        vector BLOB,
        UNIQUE (owner, same)
    ) STRICT
    """,
    # Its own index for each owner: FTS5 would search the words of all, and (before 3.42) keep those of what was erased
    """
    CREATE TABLE glassloop_fact_words (
        owner TEXT NOT NULL, word TEXT NOT NULL, position INTEGER NOT NULL, PRIMARY KEY (owner, word, position)
    ) STRICT, WITHOUT ROWID
    """,
)

_VERSION_3 = (
    "ALTER TABLE glassloop_approvals ADD COLUMN choices TEXT NOT NULL DEFAULT '[]'",
    "ALTER TABLE glassloop_approvals ADD COLUMN answer TEXT",
)

MIGRATIONS: tuple[tuple[str, ...], ...] = (_VERSION_1, _VERSION_2, _VERSION_3)
"""The statements that lead from each version of the schema to the next; a file that has seen all is up to date."""


def is_current(connection: sqlite3.Connection, path: str) -> bool:
    """Whether the tables of an open file are those of this version, or must be made, or migrated.

    Raises:
        ConfigurationError: a newer Glassloop wrote the file; it was left as it is.
    """
    if sqlite3.sqlite_version_info < (3, 37):
        raise ConfigurationError(f"SQLite {sqlite3.sqlite_version} is too old: Glassloop needs 3.37 or newer.")
    version = _version(connection)
    if version > len(MIGRATIONS):
        raise ConfigurationError(
            f"{path} was written by a newer Glassloop (schema {version}, this one knows {len(MIGRATIONS)}): "
            "upgrade Glassloop, or use another file."
        )
    return version == len(MIGRATIONS)


def migrate(connection: sqlite3.Connection) -> None:
    """Bring the schema up to date, inside the transaction that is open."""
    version = _version(connection)
    if version == 0:
        connection.execute("CREATE TABLE glassloop_schema (version INTEGER NOT NULL) STRICT")
        connection.execute("INSERT INTO glassloop_schema VALUES (0)")
    for statements in MIGRATIONS[version:]:
        for statement in statements:
            connection.execute(statement)
    connection.execute("UPDATE glassloop_schema SET version = ?", (len(MIGRATIONS),))


def _version(connection: sqlite3.Connection) -> int:
    if connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'glassloop_schema'").fetchone() is None:
        return 0
    return int(connection.execute("SELECT version FROM glassloop_schema").fetchone()[0])
