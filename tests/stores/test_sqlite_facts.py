"""Facts in a SQLite file pass the suite of all stores of facts, and what is erased is gone from the file."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from glassloop.core.fulltext import tokens
from glassloop.memory.fact_store import Embedding, FactOwner, FactStore
from glassloop.stores import open_store
from glassloop.stores.sqlite import schema
from glassloop.stores.sqlite.facts import CANDIDATES
from glassloop.stores.sqlite.store import open_sqlite
from glassloop.testing.conformance.facts import FactsConformance

ANN = FactOwner("acme", "ann")


class TestSqliteFacts(FactsConformance):
    @pytest.fixture
    def open_facts(self, tmp_path: Path) -> Callable[[], FactStore]:
        file = str(tmp_path / "store.db")
        return lambda: open_sqlite(f"sqlite:///{file}", file).facts


def content(path: Path) -> bytes:
    return path.read_bytes()


async def test_facts_outlive_the_process(url: str) -> None:
    async with open_store(url) as store:
        fact = await store.facts.remember(ANN, "I like green tea")
    async with open_store(url) as store:
        assert await store.facts.recall(ANN, "tea") == [fact]


async def test_nothing_of_a_forgotten_fact_is_left_in_the_file(path: Path, url: str) -> None:
    async with open_store(url) as store:
        fact = await store.facts.remember(ANN, "The zanzibarian parrot 鹦鹉学舌", embedding=Embedding("m", (0.1, 0.7)))
        await store.facts.remember(ANN, "Something else")
    assert b"zanzibarian" in content(path)
    async with open_store(url) as store:
        assert await store.facts.forget(ANN, fact.id)
    erased = ("zanzibarian", "parrot", "鹦鹉", "学舌", fact.id)
    assert [word for word in erased if word.encode() in content(path)] == []
    with closing(sqlite3.connect(path)) as connection:
        words = {row[0] for row in connection.execute("SELECT word FROM glassloop_fact_words")}
    assert words == set(tokens("Something else"))


async def test_a_file_from_before_there_were_facts_gets_them(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(schema, "MIGRATIONS", schema.MIGRATIONS[:1])
        async with open_store(url) as store:
            await store.journal.runs()
    async with open_store(url) as store:
        fact = await store.facts.remember(ANN, "I like green tea")
        assert await store.facts.all(ANN) == [fact]


async def test_only_the_owners_words_are_looked_at(path: Path, url: str) -> None:
    async with open_store(url) as store:
        await store.facts.remember(ANN, "I like green tea")
    asked = {"owner": ANN.key, "words": "[]", "prefixes": "[]", "model": None}
    with closing(sqlite3.connect(path)) as connection:
        plan = " ".join(row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {CANDIDATES}", asked))
    assert "USING PRIMARY KEY (owner=? AND word=?)" in plan
    assert "USING PRIMARY KEY (owner=? AND word>? AND word<?)" in plan
    assert "SCAN glassloop" not in plan
