"""A store in a PostgreSQL database."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from glassloop.stores import Once, Store
from glassloop.stores.postgres.engine import Database
from glassloop.stores.postgres.journal import PostgresJournal
from glassloop.stores.postgres.ledger import PostgresLedger
from glassloop.stores.postgres.liveness import PostgresLiveness
from glassloop.stores.postgres.sessions import PostgresSessions

if TYPE_CHECKING:
    from glassloop.stores.postgres.facts import PostgresFacts


def open_postgres(url: str) -> Store:
    """Journal, sessions, ledger and facts in the database at `url`, which is connected to when first used.

    Raises:
        ConfigurationError: the URL is none.
    """
    database = Database(url)
    return Store(
        database.address.url,
        PostgresJournal(database),
        PostgresSessions(database),
        PostgresLedger(database),
        Once(partial(_open_facts, database)),
        liveness=PostgresLiveness(database),
        database=database,
    )


def _open_facts(database: Database) -> PostgresFacts:
    from glassloop.stores.postgres.facts import PostgresFacts

    return PostgresFacts(database)
