"""The ledger in memory passes the suite of all ledgers."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from glassloop.journal.ledger import Ledger, MemoryLedger
from glassloop.testing.conformance.ledger import LedgerConformance, OpenLedger


class TestMemoryLedger(LedgerConformance):
    @pytest.fixture
    def open_ledger(self) -> OpenLedger:
        opened: list[Ledger] = []

        def open_ledger(clock: Callable[[], float]) -> Ledger:
            opened.append(opened[0] if opened else MemoryLedger(clock))
            return opened[0]

        return open_ledger
