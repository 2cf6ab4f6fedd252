"""A store in one SQLite file."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from glassloop.journal.feed import Feed
from glassloop.stores import Once, Store
from glassloop.stores.sqlite.database import Database
from glassloop.stores.sqlite.journal import SqliteJournal, Watch
from glassloop.stores.sqlite.ledger import SqliteLedger
from glassloop.stores.sqlite.sessions import SqliteSessions

if TYPE_CHECKING:
    from glassloop.stores.sqlite.facts import SqliteFacts


def open_sqlite(url: str, path: str) -> Store:
    """Journal, sessions, ledger and facts in the file at `path`, which is opened when first used."""
    followed = Feed()
    database = Database(path, Watch(followed))
    return Store(
        url,
        SqliteJournal(database, followed),
        SqliteSessions(database),
        SqliteLedger(database),
        Once(partial(_open_facts, database)),
    )


def _open_facts(database: Database) -> SqliteFacts:
    from glassloop.stores.sqlite.facts import SqliteFacts

    return SqliteFacts(database)
