"""Facts in a SQLite file."""

from __future__ import annotations

import sqlite3
from functools import partial
from typing import Any

from glassloop.core.encoding import dumps
from glassloop.core.fulltext import tokens
from glassloop.memory.fact_store import Embedding, Fact, FactOwner, new_fact
from glassloop.memory.relevance import NEAR
from glassloop.stores.fact_rows import FactRow, best, packed, same_key, wanted
from glassloop.stores.sqlite.database import Database

_ADD = """
    INSERT INTO glassloop_facts (owner, id, same, text, run_id, created_at) VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT (owner, same) DO NOTHING
"""
_INDEX = "INSERT OR IGNORE INTO glassloop_fact_words (owner, word, position) VALUES (?, ?, ?)"
_EMBED = "UPDATE glassloop_facts SET model = ?, vector = ? WHERE owner = ? AND id = ?"
_SAME = "SELECT id, text, created_at, run_id FROM glassloop_facts WHERE owner = ? AND same = ?"
_ALL = "SELECT id, text, created_at, run_id FROM glassloop_facts WHERE owner = ? ORDER BY position"
_COUNT = "SELECT count(*) FROM glassloop_facts WHERE owner = ?"
CANDIDATES = """
    SELECT position, id, text, created_at, run_id, CASE WHEN model = :model THEN vector END FROM glassloop_facts
    WHERE position IN (
        SELECT position FROM glassloop_fact_words
        WHERE owner = :owner AND word IN (SELECT value FROM json_each(:words))
        UNION
        SELECT position FROM json_each(:prefixes) CROSS JOIN glassloop_fact_words  -- CROSS: SQLite keeps this order
        WHERE owner = :owner AND word >= value AND word < value || char(0x10ffff)
        UNION
        SELECT position FROM glassloop_facts WHERE :model IS NOT NULL AND owner = :owner AND model = :model
    )
"""
"""The owner's facts that have one of the words, or one that begins with a prefix, or a vector of the model."""
_FORGET = "DELETE FROM glassloop_facts WHERE owner = ? AND id = ? RETURNING position"
_UNINDEX = "DELETE FROM glassloop_fact_words WHERE owner = ? AND position = ?"


class SqliteFacts:
    """Facts in a SQLite file, with an index of their words for each owner.

    Args:
        database: the file.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    async def remember(
        self, owner: FactOwner, text: str, *, run_id: str = "", embedding: Embedding | None = None
    ) -> Fact:
        """See `FactStore.remember`."""
        fresh = new_fact(text, run_id)
        return await self._database.write(partial(_remember, owner.key, fresh, embedding))

    async def recall(
        self,
        owner: FactOwner,
        query: str,
        limit: int = 5,
        *,
        embedding: Embedding | None = None,
        near: float = NEAR,
    ) -> list[Fact]:
        """See `FactStore.recall`."""
        found = await self._database.read(partial(_recall, owner.key, query, embedding, near))
        return found[: max(0, limit)]

    async def all(self, owner: FactOwner) -> list[Fact]:
        """See `FactStore.all`."""
        return await self._database.read(partial(_all, owner.key))

    async def forget(self, owner: FactOwner, fact_id: str) -> bool:
        """See `FactStore.forget`."""
        return await self._database.write(partial(_forget, owner.key, fact_id))

    async def close(self) -> None:
        """See `FactStore.close`."""
        await self._database.close()


def _remember(owner: str, fresh: Fact, embedding: Embedding | None, cursor: sqlite3.Cursor) -> Fact:
    same = same_key(fresh.text)
    cursor.execute(_ADD, (owner, fresh.id, same, fresh.text, fresh.run_id, fresh.created_at))
    if cursor.rowcount:
        position = cursor.lastrowid
        cursor.executemany(_INDEX, [(owner, word, position) for word in tokens(fresh.text)])
    fact = Fact(*cursor.execute(_SAME, (owner, same)).fetchone())
    if embedding is not None:
        cursor.execute(_EMBED, (embedding.model, packed(embedding), owner, fact.id))
    return fact


def _recall(owner: str, query: str, embedding: Embedding | None, near: float, cursor: sqlite3.Cursor) -> list[Fact]:
    words, prefixes = wanted(query)
    asked: dict[str, Any] = {
        "owner": owner,
        "words": dumps(words).decode(),
        "prefixes": dumps(prefixes).decode(),
        "model": embedding.model if embedding else None,
    }
    rows = [FactRow(*row) for row in cursor.execute(CANDIDATES, asked)]
    count: int = cursor.execute(_COUNT, (owner,)).fetchone()[0]
    return best(rows, count, query, embedding, near)


def _all(owner: str, cursor: sqlite3.Cursor) -> list[Fact]:
    return [Fact(*row) for row in cursor.execute(_ALL, (owner,))]


def _forget(owner: str, fact_id: str, cursor: sqlite3.Cursor) -> bool:
    forgotten = cursor.execute(_FORGET, (owner, fact_id)).fetchall()
    for (position,) in forgotten:
        cursor.execute(_UNINDEX, (owner, position))
    return bool(forgotten)
