"""Passages in a SQLite file: FTS5 with BM25 for words, numpy for vectors."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from glassloop.core.encoding import dumps, loads
from glassloop.core.fulltext import Term, match_expression, tokens
from glassloop.knowledge.documents import Document, Passage
from glassloop.knowledge.index import (
    HEADINGS_WEIGHT,
    Change,
    Found,
    Row,
    Source,
    Vectors,
    difference,
)
from glassloop.knowledge.sqlite_tables import connect_knowledge, create_words, words_table
from glassloop.stores.codec import storable
from glassloop.stores.sqlite.database import Database

if TYPE_CHECKING:
    from glassloop.knowledge.matrix import Matrix

T = TypeVar("T")

_DOCUMENTS = (
    "FROM glassloop_knowledge_documents d "
    "JOIN glassloop_knowledge_collections c ON c.id = d.collection_id AND c.name = :collection"
)
_PASSAGES = f"{_DOCUMENTS} JOIN glassloop_knowledge_passages p ON p.document_id = d.id"
_RANKING = f"bm25(1, {HEADINGS_WEIGHT}, 1)"


class SqliteIndex:
    """See `Index`.

    Args:
        path: of the file, which is created when first used; it may be a store's as well.
    """

    def __init__(self, path: str) -> None:
        self._database = Database(path, opened=connect_knowledge)
        self._matrices: dict[tuple[str, str], tuple[tuple[int, int], Matrix]] = {}  # used by the reading thread alone

    async def put(
        self, collection: str, document: Document, passages: Sequence[Passage], vectors: Vectors | None
    ) -> Change:
        """See `Index.put`."""
        words = await asyncio.to_thread(_words, document.title, passages)
        return await self._database.write(
            lambda cursor: _put(cursor, collection, document, passages, words=words, vectors=vectors)
        )

    async def digest_of(self, collection: str, source: str) -> str | None:
        """See `Index.digest_of`."""
        sql = f"SELECT d.digest {_DOCUMENTS} WHERE d.source = :source"
        rows = await self._rows(sql, collection=collection, source=source)
        return rows[0][0] if rows else None

    async def embedded(self, collection: str, source: str, model: str) -> set[str]:
        """See `Index.embedded`."""
        sql = (
            f"SELECT p.digest {_PASSAGES} JOIN glassloop_knowledge_vectors v "
            "ON v.passage_id = p.id AND v.model = :model WHERE d.source = :source"
        )
        return {digest for (digest,) in await self._rows(sql, collection=collection, source=source, model=model)}

    async def without_vector(self, collection: str, source: str | None, model: str) -> int:
        """See `Index.without_vector`."""
        sql = (
            f"SELECT count(*) {_PASSAGES} LEFT JOIN glassloop_knowledge_vectors v "
            "ON v.passage_id = p.id AND v.model = :model "
            "WHERE v.model IS NULL AND (:source IS NULL OR d.source = :source)"
        )
        return (await self._rows(sql, collection=collection, source=source, model=model))[0][0]

    async def sources(self, collection: str) -> list[Source]:
        """See `Index.sources`."""
        sql = (
            f"SELECT d.source, d.title, count(p.id), coalesce(sum(length(p.text)), 0), d.added_at {_DOCUMENTS} "
            "LEFT JOIN glassloop_knowledge_passages p ON p.document_id = d.id GROUP BY d.id ORDER BY d.source"
        )
        return [Source(*row) for row in await self._rows(sql, collection=collection)]

    async def collections(self) -> list[str]:
        """See `Index.collections`."""
        return [name for (name,) in await self._rows("SELECT name FROM glassloop_knowledge_collections ORDER BY name")]

    async def remove(self, collection: str, source: str) -> int:
        """See `Index.remove`."""
        return await self._database.write(lambda cursor: _remove(cursor, collection, source))

    async def by_words(self, collection: str, terms: Sequence[Term], limit: int) -> list[Found]:
        """See `Index.by_words`."""
        return await self._database.read(_snapshot(lambda cursor: _by_words(cursor, collection, terms, limit)))

    async def by_vector(self, collection: str, model: str, vector: bytes, limit: int) -> list[Found]:
        """See `Index.by_vector`."""

        def work(cursor: sqlite3.Cursor) -> list[Found]:
            matrix = self._matrix(cursor, collection, model)
            return _found(cursor, matrix.nearest(vector, limit)) if matrix else []

        return await self._database.read(_snapshot(work))

    async def close(self) -> None:
        """See `Index.close`."""
        await self._database.close()

    async def _rows(self, sql: str, **values: object) -> list[tuple[Any, ...]]:
        return await self._database.read(lambda cursor: cursor.execute(sql, values).fetchall())

    def _matrix(self, cursor: sqlite3.Cursor, collection: str, model: str) -> Matrix | None:
        """The vectors of a collection, read anew after whichever process has changed it."""
        from glassloop.knowledge.matrix import Matrix

        state = _collection(cursor, collection)
        if state is None:
            return None
        known = self._matrices.get((collection, model))
        if known is None or known[0] != state:
            rows = cursor.execute(
                f"SELECT v.passage_id, v.vector {_PASSAGES} JOIN glassloop_knowledge_vectors v "
                "ON v.passage_id = p.id AND v.model = :model",
                {"collection": collection, "model": model},
            )
            known = state, Matrix(rows)
            self._matrices[collection, model] = known
        return known[1]


# Reading


def _snapshot(work: Callable[[sqlite3.Cursor], T]) -> Callable[[sqlite3.Cursor], T]:
    """`work` with all of its statements seeing the same state, whoever writes meanwhile."""

    def within(cursor: sqlite3.Cursor) -> T:
        cursor.execute("BEGIN")
        try:
            return work(cursor)
        finally:
            cursor.execute("ROLLBACK")

    return within


def _collection(cursor: sqlite3.Cursor, name: str) -> tuple[int, int] | None:
    """Id of a collection and how often it has been changed."""
    sql = "SELECT id, changes FROM glassloop_knowledge_collections WHERE name = ?"
    return cursor.execute(sql, (name,)).fetchone()


def _by_words(cursor: sqlite3.Cursor, collection: str, terms: Sequence[Term], limit: int) -> list[Found]:
    state = _collection(cursor, collection)
    if state is None or not terms:
        return []
    table = words_table(state[0])
    sql = f"SELECT rowid, -rank FROM {table} WHERE {table} MATCH ? AND rank MATCH '{_RANKING}' ORDER BY rank LIMIT ?"
    return _found(cursor, cursor.execute(sql, (match_expression(terms), limit)).fetchall())


def _found(cursor: sqlite3.Cursor, scores: Sequence[tuple[int, float]]) -> list[Found]:
    """The passages with these ids, in the same order."""
    sql = (
        "SELECT d.source, d.title, p.position, p.text, p.headings, p.page, p.line, p.digest "
        "FROM glassloop_knowledge_passages p JOIN glassloop_knowledge_documents d ON d.id = p.document_id "
        "WHERE p.id = ?"
    )
    found: list[Found] = []
    for id_, score in scores:
        source, title, position, text, headings, page, line, digest = cursor.execute(sql, (id_,)).fetchone()
        passage = Passage(source, title, position, text, tuple(loads(headings)), page, line, digest)
        found.append(Found(id_, score, passage))
    return found


# Writing

_Words = Mapping[str, tuple[str, str, str]]
"""Row of the full-text table for each digest of a passage."""


def _words(title: str, passages: Sequence[Passage]) -> _Words:
    shared = " ".join(tokens(title))
    return {
        passage.digest: (shared, " ".join(tokens("\n".join(passage.headings))), " ".join(tokens(passage.text)))
        for passage in passages
    }


def _put(
    cursor: sqlite3.Cursor,
    collection: str,
    document: Document,
    passages: Sequence[Passage],
    *,
    words: _Words,
    vectors: Vectors | None,
) -> Change:
    collection_id = _changed(cursor, collection)
    document_id, retitled = _document(cursor, collection_id, document)
    sql = (
        "SELECT id, digest, position, page, line FROM glassloop_knowledge_passages "
        "WHERE document_id = ? ORDER BY position"
    )
    what = difference([Row(*row) for row in cursor.execute(sql, (document_id,))], passages)
    table = words_table(collection_id)
    _delete(cursor, table, what.removed)
    cursor.executemany(
        "UPDATE glassloop_knowledge_passages SET position = ?, page = ?, line = ? WHERE id = ?",
        [(passage.position, passage.page, passage.line, id_) for id_, passage in what.moved],
    )
    if retitled:
        cursor.executemany(
            f"UPDATE {table} SET title = ? WHERE rowid = ?",
            [(words[passage.digest][0], id_) for id_, passage in what.kept],
        )
    rows = [*what.kept, *((_insert(cursor, document_id, passage), passage) for passage in what.added)]
    cursor.executemany(
        f"INSERT INTO {table} (rowid, title, headings, text) VALUES (?, ?, ?, ?)",
        [(id_, *words[passage.digest]) for id_, passage in rows[len(what.kept) :]],
    )
    if vectors is not None:
        cursor.executemany(
            "INSERT OR REPLACE INTO glassloop_knowledge_vectors (passage_id, model, vector) VALUES (?, ?, ?)",
            [
                (id_, vectors.model, vectors.by_digest[passage.digest])
                for id_, passage in rows
                if passage.digest in vectors.by_digest
            ],
        )
    return what.change


def _changed(cursor: sqlite3.Cursor, name: str) -> int:
    """Id of a collection that is about to be changed; it is made if there is none."""
    found = cursor.execute(
        "UPDATE glassloop_knowledge_collections SET changes = changes + 1 WHERE name = ? RETURNING id", (name,)
    ).fetchone()
    if found is not None:
        return found[0]
    sql = "INSERT INTO glassloop_knowledge_collections (name, changes) VALUES (?, 1) RETURNING id"
    id_ = int(cursor.execute(sql, (name,)).fetchone()[0])
    create_words(cursor, id_)
    return id_


def _document(cursor: sqlite3.Cursor, collection_id: int, document: Document) -> tuple[int, bool]:
    """Id of a document's row, brought up to date, and whether it had another title before."""
    sql = "SELECT title FROM glassloop_knowledge_documents WHERE collection_id = ? AND source = ?"
    before = cursor.execute(sql, (collection_id, document.source)).fetchone()
    sql = (
        "INSERT INTO glassloop_knowledge_documents (collection_id, source, title, digest, added_at) "
        "VALUES (?, ?, ?, ?, ?) ON CONFLICT (collection_id, source) DO UPDATE "
        "SET title = excluded.title, digest = excluded.digest, added_at = excluded.added_at RETURNING id"
    )
    now = time.time_ns() // 1_000_000
    values = (collection_id, document.source, storable(document.title), document.digest, now)
    id_ = int(cursor.execute(sql, values).fetchone()[0])
    return id_, before is not None and before[0] != storable(document.title)


def _insert(cursor: sqlite3.Cursor, document_id: int, passage: Passage) -> int:
    sql = (
        "INSERT INTO glassloop_knowledge_passages (document_id, position, text, headings, page, line, digest) "
        "VALUES (?, ?, ?, ?, ?, ?, ?) RETURNING id"
    )
    headings = dumps(passage.headings).decode()
    values = (passage.position, storable(passage.text), headings, passage.page, passage.line, passage.digest)
    return int(cursor.execute(sql, (document_id, *values)).fetchone()[0])


def _delete(cursor: sqlite3.Cursor, table: str, ids: Sequence[int]) -> None:
    for place, key in (
        (table, "rowid"),
        ("glassloop_knowledge_vectors", "passage_id"),
        ("glassloop_knowledge_passages", "id"),
    ):
        cursor.executemany(f"DELETE FROM {place} WHERE {key} = ?", [(id_,) for id_ in ids])


def _remove(cursor: sqlite3.Cursor, collection: str, source: str) -> int:
    state = _collection(cursor, collection)
    if state is None:
        return 0
    sql = "DELETE FROM glassloop_knowledge_documents WHERE collection_id = ? AND source = ? RETURNING id"
    found = cursor.execute(sql, (state[0], source)).fetchone()
    if found is None:
        return 0
    collection_id = _changed(cursor, collection)
    sql = "SELECT id FROM glassloop_knowledge_passages WHERE document_id = ?"
    ids = [id_ for (id_,) in cursor.execute(sql, found)]
    _delete(cursor, words_table(collection_id), ids)
    if not cursor.execute(
        "SELECT 1 FROM glassloop_knowledge_documents WHERE collection_id = ?", (collection_id,)
    ).fetchone():
        cursor.execute(f"DROP TABLE {words_table(collection_id)}")
        cursor.execute("DELETE FROM glassloop_knowledge_collections WHERE id = ?", (collection_id,))
    return len(ids)
