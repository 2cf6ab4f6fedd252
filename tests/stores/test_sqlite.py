"""The store in a SQLite file passes the suites of all journals, sessions and ledgers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from glassloop.journal.journal import Journal
from glassloop.journal.ledger import Ledger
from glassloop.memory.session import SessionStore
from glassloop.stores import open_store
from glassloop.stores.sqlite.database import Database
from glassloop.stores.sqlite.ledger import SqliteLedger
from glassloop.testing.conformance.journal import JournalConformance
from glassloop.testing.conformance.ledger import LedgerConformance, OpenLedger
from glassloop.testing.conformance.sessions import SessionsConformance


class TestSqliteJournal(JournalConformance):
    @pytest.fixture
    def open_journal(self, tmp_path: Path) -> Callable[[], Journal]:
        return lambda: open_store(f"sqlite:///{tmp_path}/store.db").journal


class TestSqliteSessions(SessionsConformance):
    @pytest.fixture
    def open_sessions(self, tmp_path: Path) -> Callable[[], SessionStore]:
        return lambda: open_store(f"sqlite:///{tmp_path}/store.db").sessions


class TestSqliteLedger(LedgerConformance):
    @pytest.fixture
    def open_ledger(self, tmp_path: Path) -> OpenLedger:
        def open_ledger(clock: Callable[[], float]) -> Ledger:
            return SqliteLedger(Database(str(tmp_path / "store.db")), clock)

        return open_ledger
