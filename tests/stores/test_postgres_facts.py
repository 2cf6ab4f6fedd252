"""Facts in PostgreSQL pass the suite of all stores of facts."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from glassloop.memory.fact_store import FactStore
from glassloop.stores import open_store
from glassloop.testing.conformance.facts import FactsConformance


class TestPostgresFacts(FactsConformance):
    @pytest.fixture
    def open_facts(self, postgres_url: str) -> Callable[[], FactStore]:
        return lambda: open_store(postgres_url).facts
