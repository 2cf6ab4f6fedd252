"""A store in one SQLite file."""

from __future__ import annotations

from glassloop.journal.feed import Feed
from glassloop.stores import Store
from glassloop.stores.database import Database
from glassloop.stores.sqlite_journal import SqliteJournal, Watch
from glassloop.stores.sqlite_ledger import SqliteLedger
from glassloop.stores.sqlite_sessions import SqliteSessions


def open_sqlite(url: str, path: str) -> Store:
    """Journal, sessions and ledger in the file at `path`, which is opened when first used."""
    followed = Feed()
    database = Database(path, Watch(followed))
    return Store(url, SqliteJournal(database, followed), SqliteSessions(database), SqliteLedger(database))
