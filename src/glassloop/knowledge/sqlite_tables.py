"""The tables of knowledge in a SQLite file, beside those of a store, with a version of their own."""

from __future__ import annotations

import sqlite3

from glassloop.core.errors import ConfigurationError, GlassloopError
from glassloop.core.fulltext import FTS5_TOKENIZER
from glassloop.stores.sqlite.connection import connect, explain, patiently, roll_back

_VERSION = 1
_TABLES = (
    "CREATE TABLE glassloop_knowledge_schema (version INTEGER NOT NULL) STRICT",
    f"INSERT INTO glassloop_knowledge_schema VALUES ({_VERSION})",
    # AUTOINCREMENT: whoever remembers a collection's vectors by its id must not meet another one under it
    """
    CREATE TABLE glassloop_knowledge_collections (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        name TEXT NOT NULL UNIQUE,
        changes INTEGER NOT NULL
    ) STRICT
    """,
    """
    CREATE TABLE glassloop_knowledge_documents (
        id INTEGER PRIMARY KEY,
        collection_id INTEGER NOT NULL,
        source TEXT NOT NULL,
        title TEXT NOT NULL,
        digest TEXT NOT NULL,
        added_at INTEGER NOT NULL,
        UNIQUE (collection_id, source)
    ) STRICT
    """,
    """
    CREATE TABLE glassloop_knowledge_passages (
        id INTEGER PRIMARY KEY,
        document_id INTEGER NOT NULL,
        position INTEGER NOT NULL,
        text TEXT NOT NULL,
        headings TEXT NOT NULL,
        page INTEGER,
        line INTEGER,
        digest TEXT NOT NULL
    ) STRICT
    """,
    "CREATE INDEX glassloop_knowledge_passages_document ON glassloop_knowledge_passages (document_id)",
    """
    CREATE TABLE glassloop_knowledge_vectors (
        passage_id INTEGER PRIMARY KEY, model TEXT NOT NULL, vector BLOB NOT NULL
    ) STRICT
    """,
)


def connect_knowledge(path: str, *, query_only: bool = False) -> sqlite3.Connection:
    """Open a file, creating the tables of store and knowledge where they are missing.

    Raises:
        ConfigurationError: the file, or this SQLite, cannot be used; the message says why and what to do.
        StoreError: the disk failed.
    """
    connection = connect(path)
    try:
        patiently(lambda: _prepare(connection, path), path)
        if query_only:
            connection.execute("PRAGMA query_only = ON")
    except (sqlite3.Error, GlassloopError) as error:
        connection.close()
        raise explain(path, error) from error
    return connection


def words_table(collection_id: int) -> str:
    """Name of the full-text table of a collection. Each has its own: a word is rare or not among its own kind."""
    return f"glassloop_knowledge_words_{collection_id}"


def create_words(cursor: sqlite3.Cursor, collection_id: int) -> None:
    """Make the full-text table of a collection; its rows have the ids of passages."""
    cursor.execute(
        f"CREATE VIRTUAL TABLE {words_table(collection_id)} "
        f'USING fts5(title, headings, text, tokenize = "{FTS5_TOKENIZER}")'
    )


def _prepare(connection: sqlite3.Connection, path: str) -> None:
    if not connection.execute("SELECT 1 FROM pragma_module_list WHERE name = 'fts5'").fetchone():
        raise ConfigurationError(
            "This Python's SQLite has no full-text search (FTS5): use another build of Python, or PostgreSQL."
        )
    if _version(connection, path) == _VERSION:
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        if _version(connection, path) == 0:
            for statement in _TABLES:
                connection.execute(statement)
        connection.execute("COMMIT")
    except BaseException:
        roll_back(connection)
        raise


def _version(connection: sqlite3.Connection, path: str) -> int:
    if not connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'glassloop_knowledge_schema'").fetchone():
        return 0
    version = int(connection.execute("SELECT version FROM glassloop_knowledge_schema").fetchone()[0])
    if version > _VERSION:
        raise ConfigurationError(
            f"The knowledge in {path} was written by a newer Glassloop (schema {version}, this one knows {_VERSION}): "
            "upgrade Glassloop, or use another file."
        )
    return version
