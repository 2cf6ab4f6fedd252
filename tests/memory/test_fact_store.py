"""Facts in memory pass the suite of all stores of facts."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from glassloop.core.context import Identity
from glassloop.memory.fact_store import FactOwner, FactStore, MemoryFacts
from glassloop.testing.conformance.facts import FactsConformance


class TestMemoryFacts(FactsConformance):
    @pytest.fixture
    def open_facts(self) -> Callable[[], FactStore]:
        facts = MemoryFacts()
        return lambda: facts


def test_an_anonymous_run_owns_nothing() -> None:
    assert FactOwner.of(Identity()) is None
    assert FactOwner.of(Identity("", "acme")) is None
    assert FactOwner.of(Identity("ann", "acme", session="s")) == FactOwner("acme", "ann")
    assert FactOwner.of(Identity("ann")) == FactOwner(None, "ann")


def test_owners_have_different_keys() -> None:
    owners = [
        FactOwner(None, "a"),
        FactOwner("", "a"),
        FactOwner("null", "a"),
        FactOwner('", "', "a"),
        FactOwner("", '", "a'),
        FactOwner("\ud83d", "a"),
        FactOwner("\\ud83d", "a"),
    ]
    assert len({owner.key for owner in owners}) == len(owners)
    assert all(owner.key.isascii() for owner in owners)
