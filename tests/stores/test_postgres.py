"""The store in PostgreSQL passes the suites of all journals, sessions and ledgers."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from glassloop.journal.journal import Journal
from glassloop.journal.ledger import Ledger
from glassloop.memory.session import SessionStore
from glassloop.stores import open_store
from glassloop.stores.postgres.engine import Database
from glassloop.stores.postgres.ledger import PostgresLedger
from glassloop.testing.conformance.journal import JournalConformance
from glassloop.testing.conformance.ledger import LedgerConformance, OpenLedger
from glassloop.testing.conformance.sessions import SessionsConformance


class TestPostgresJournal(JournalConformance):
    @pytest.fixture
    def open_journal(self, postgres_url: str) -> Callable[[], Journal]:
        return lambda: open_store(postgres_url).journal


class TestPostgresSessions(SessionsConformance):
    @pytest.fixture
    def open_sessions(self, postgres_url: str) -> Callable[[], SessionStore]:
        return lambda: open_store(postgres_url).sessions


class TestPostgresLedger(LedgerConformance):
    @pytest.fixture
    def open_ledger(self, postgres_url: str) -> OpenLedger:
        def open_ledger(clock: Callable[[], float]) -> Ledger:
            return PostgresLedger(Database(postgres_url), clock)

        return open_ledger
