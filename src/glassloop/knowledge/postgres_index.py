"""Passages in PostgreSQL: a tsvector of our own tokens with BM25 in SQL, pgvector for vectors.

`ts_rank` alone does not know how rare a word is, so that "the" counts as much as "refund". It is used for what it does
know: for one word it is nearly f / (f + 0.64), where f is how often the word stands there, and that gives f.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from sqlalchemy import Connection, delete, func, insert, select, text, update
from sqlalchemy.dialects.postgresql import insert as upsert

from glassloop.core.encoding import dumps, loads
from glassloop.core.fulltext import Term, tokens
from glassloop.knowledge.documents import Document, Passage
from glassloop.knowledge.index import HEADINGS_WEIGHT, Change, Found, Row, Source, Vectors, difference
from glassloop.knowledge.postgres_tables import KNOWLEDGE, VECTORS, collections, documents, passages, vectors
from glassloop.stores.postgres.engine import Database
from glassloop.stores.postgres.schema import rows_of

T = TypeVar("T")

_LONGEST = 500  # characters of a token; PostgreSQL takes 2046 bytes
_LAST = 16_383  # position that PostgreSQL can tell from later ones
_BATCH = 500

_BY_WORDS = text(
    """
    WITH total AS (
        SELECT count(*) AS passages, greatest(avg(length), 1) AS length
        FROM glassloop_knowledge_passages WHERE collection_id = :collection
    ), term AS (
        SELECT number, CAST(written AS tsquery) AS query
        FROM unnest(CAST(:terms AS text[])) WITH ORDINALITY AS given (written, number)
    ), match AS (
        SELECT p.id, p.length, term.number, least(ts_rank('{1,1,1,1}', p.words, term.query), 0.98) AS r
        FROM term JOIN glassloop_knowledge_passages p ON p.collection_id = :collection AND p.words @@ term.query
    ), hit AS (
        SELECT id, length, number, 0.64 * r / (1 - r) AS times FROM match
    ), worth AS (
        SELECT number, ln(1 + (total.passages - count(*) + 0.5) / (count(*) + 0.5)) AS idf
        FROM hit, total GROUP BY number, total.passages
    )
    SELECT id, sum(idf * times * 2.2 / (times + 1.2 * (0.25 + 0.75 * hit.length / total.length))) AS score
    FROM hit JOIN worth USING (number), total GROUP BY id ORDER BY score DESC, id LIMIT :limit
    """
)
_BY_VECTOR = text(
    """
    SELECT v.passage_id, 1 - (v.vector <=> CAST(CAST(:vector AS real[]) AS vector)) AS cosine
    FROM glassloop_knowledge_vectors v
    JOIN glassloop_knowledge_collections c ON c.id = v.collection_id AND c.name = :collection
    WHERE v.model = :model AND vector_dims(v.vector) = :size
    ORDER BY v.vector <=> CAST(CAST(:vector AS real[]) AS vector), v.passage_id LIMIT :limit
    """
)
_PUT_VECTOR = text(
    """
    INSERT INTO glassloop_knowledge_vectors (passage_id, collection_id, model, vector)
    VALUES (:id, :collection, :model, CAST(CAST(:vector AS real[]) AS vector))
    ON CONFLICT (passage_id) DO UPDATE SET model = excluded.model, vector = excluded.vector
    """
)


class PostgresIndex:
    """See `Index`.

    Args:
        url: `postgresql://user:password@host:port/database`.

    Raises:
        ConfigurationError: the URL is none.
    """

    def __init__(self, url: str) -> None:
        self._database = Database(url)

    async def put(
        self, collection: str, document: Document, passages: Sequence[Passage], vectors: Vectors | None
    ) -> Change:
        """See `Index.put`."""
        if vectors is not None:
            await self._read_vectors(lambda connection: None)
        return await self._write(lambda connection: _put(connection, collection, document, passages, vectors))

    async def digest_of(self, collection: str, source: str) -> str | None:
        """See `Index.digest_of`."""
        query = select(documents.c.digest).join(collections)
        query = query.where(collections.c.name == collection, documents.c.source == source)
        return await self._read(lambda connection: connection.execute(query).scalar_one_or_none())

    async def embedded(self, collection: str, source: str, model: str) -> set[str]:
        """See `Index.embedded`."""
        query = _passages_of(passages.c.digest, collection=collection, source=source)
        query = query.join(vectors, vectors.c.passage_id == passages.c.id).where(vectors.c.model == model)
        return await self._read_vectors(lambda connection: set(connection.execute(query).scalars()))

    async def without_vector(self, collection: str, source: str | None, model: str) -> int:
        """See `Index.without_vector`."""
        there = (vectors.c.passage_id == passages.c.id) & (vectors.c.model == model)
        query = _passages_of(func.count(), collection=collection, source=source)
        query = query.outerjoin(vectors, there).where(vectors.c.passage_id.is_(None))
        return await self._read_vectors(lambda connection: int(connection.execute(query).scalar_one()))

    async def sources(self, collection: str) -> list[Source]:
        """See `Index.sources`."""
        size = func.coalesce(func.sum(func.length(passages.c.text)), 0)
        shown = (documents.c.source, documents.c.title, func.count(passages.c.id), size, documents.c.added_at)
        query: Any = select(*shown).select_from(documents.join(collections).outerjoin(passages, _IN_DOCUMENT))
        query = query.where(collections.c.name == collection).group_by(documents.c.id).order_by(documents.c.source)
        return await self._read(lambda connection: [Source(*row) for row in rows_of(connection.execute(query))])

    async def collections(self) -> list[str]:
        """See `Index.collections`."""
        query = select(collections.c.name).order_by(collections.c.name)
        return await self._read(lambda connection: list(connection.execute(query).scalars()))

    async def remove(self, collection: str, source: str) -> int:
        """See `Index.remove`."""
        return await self._write(lambda connection: _remove(connection, collection, source))

    async def by_words(self, collection: str, terms: Sequence[Term], limit: int) -> list[Found]:
        """See `Index.by_words`."""

        def work(connection: Connection) -> list[Found]:
            id_ = connection.execute(select(collections.c.id).where(collections.c.name == collection)).scalar()
            if id_ is None or not terms:
                return []
            values = {"collection": id_, "terms": [_tsquery(term) for term in terms], "limit": limit}
            return _found(connection, rows_of(connection.execute(_BY_WORDS, values)))

        return await self._read(work)

    async def by_vector(self, collection: str, model: str, vector: bytes, limit: int) -> list[Found]:
        """See `Index.by_vector`."""
        values = {"collection": collection, "model": model, "vector": _numbers(vector), "limit": limit}
        values["size"] = len(vector) // 4

        def work(connection: Connection) -> list[Found]:
            near = rows_of(connection.execute(_BY_VECTOR, values))
            return _found(connection, [row for row in near if row[1] > 0])

        return await self._read_vectors(work)

    async def close(self) -> None:
        """See `Index.close`."""
        await self._database.close()

    async def _write(self, work: Callable[[Connection], T]) -> T:
        return await self._database.write(work, schema=KNOWLEDGE)

    async def _read(self, work: Callable[[Connection], T]) -> T:
        return await self._database.read(work, schema=KNOWLEDGE)

    async def _read_vectors(self, work: Callable[[Connection], T]) -> T:
        await self._read(lambda connection: None)  # vectors refer to passages
        return await self._database.read(work, schema=VECTORS)


_IN_DOCUMENT = passages.c.document_id == documents.c.id


# Reading


def _passages_of(what: Any, *, collection: str, source: str | None) -> Any:
    query = select(what).select_from(passages).join(documents, _IN_DOCUMENT)
    query = query.join(collections, collections.c.id == documents.c.collection_id)
    query = query.where(collections.c.name == collection)
    return query if source is None else query.where(documents.c.source == source)


def _found(connection: Connection, scores: Sequence[tuple[Any, ...]]) -> list[Found]:
    """The passages with these ids, in the same order; those that have just gone are left out."""
    p, d = passages.c, documents.c
    query: Any = select(p.id, d.source, d.title, p.position, p.text, p.headings, p.page, p.line, p.digest)
    query = query.join(documents, _IN_DOCUMENT).where(p.id.in_([id_ for id_, _ in scores]))
    rows = {row[0]: row[1:] for row in rows_of(connection.execute(query))}
    found: list[Found] = []
    for id_, score in scores:
        if id_ in rows:
            source, title, position, words, headings, page, line, digest = rows[id_]
            passage = Passage(source, title, position, words, tuple(loads(headings)), page, line, digest)
            found.append(Found(id_, float(score), passage))
    return found


def _tsquery(term: Term) -> str:
    """A term as a tsquery; tokens hold letters, digits and marks alone, so nothing in them needs escaping."""
    return f"'{term.token[:_LONGEST]}'{':*' if term.prefix else ''}"


# Writing


def _put(
    connection: Connection, collection: str, document: Document, wanted: Sequence[Passage], embedded: Vectors | None
) -> Change:
    collection_id = _locked(connection, collection)
    document_id, retitled = _document(connection, collection_id, document)
    p = passages.c
    query: Any = select(p.id, p.digest, p.position, p.page, p.line).where(p.document_id == document_id)
    rows = [Row(*row) for row in rows_of(connection.execute(query.order_by(p.position)))]
    what = difference(rows, wanted)
    _delete(connection, what.removed)
    for id_, passage in what.kept if retitled else what.moved:
        values = _row(document.title, passage)
        connection.execute(update(passages).where(p.id == id_).values(values))
    owner = {"collection_id": collection_id, "document_id": document_id}
    new = [owner | _row(document.title, passage) for passage in what.added]
    put = insert(passages).returning(p.id, sort_by_parameter_order=True)
    ids: list[int] = []
    for start in range(0, len(new), _BATCH):
        ids += connection.execute(put, new[start : start + _BATCH]).scalars()
    if embedded is not None:
        _put_vectors(connection, collection_id, [*what.kept, *zip(ids, what.added, strict=True)], embedded)
    return what.change


def _put_vectors(
    connection: Connection, collection_id: int, rows: Sequence[tuple[int, Passage]], embedded: Vectors
) -> None:
    same = {"collection": collection_id, "model": embedded.model}
    values = [
        {"id": id_, **same, "vector": _numbers(embedded.by_digest[passage.digest])}
        for id_, passage in rows
        if passage.digest in embedded.by_digest
    ]
    if values:
        connection.execute(_PUT_VECTOR, values)


def _locked(connection: Connection, name: str) -> int:
    """Id of a collection, made if there is none; until the transaction ends nobody else changes it."""
    put = upsert(collections).values(name=name)
    put = put.on_conflict_do_update(index_elements=["name"], set_={"name": put.excluded.name})
    return int(connection.execute(put.returning(collections.c.id)).scalar_one())


def _document(connection: Connection, collection_id: int, document: Document) -> tuple[int, bool]:
    """Id of a document's row, brought up to date, and whether it had another title before."""
    key = (documents.c.collection_id == collection_id, documents.c.source == document.source)
    before = connection.execute(select(documents.c.title).where(*key)).scalar()
    state = {"title": document.title, "digest": document.digest, "added_at": time.time_ns() // 1_000_000}
    put = upsert(documents).values(collection_id=collection_id, source=document.source, **state)
    put = put.on_conflict_do_update(index_elements=["collection_id", "source"], set_=state)
    id_ = int(connection.execute(put.returning(documents.c.id)).scalar_one())
    return id_, before is not None and before != document.title


def _row(title: str, passage: Passage) -> dict[str, Any]:
    words, length = _words(title, passage)
    return {
        "position": passage.position,
        "text": passage.text,
        "headings": dumps(passage.headings).decode(),
        "page": passage.page,
        "line": passage.line,
        "digest": passage.digest,
        "words": words,
        "length": length,
    }


def _words(title: str, passage: Passage) -> tuple[str, int]:
    """The tsvector of a passage, written out, and how many tokens it has; a heading's count as often as they weigh."""
    headings = tokens("\n".join(passage.headings))
    found = tokens(title) + tokens(passage.text) + headings
    places: dict[str, list[int]] = {}
    for position, token in enumerate(found + headings * (HEADINGS_WEIGHT - 1), 1):
        places.setdefault(token[:_LONGEST], []).append(min(position, _LAST))
    return " ".join(f"'{token}':{','.join(map(str, at))}" for token, at in places.items()), len(found)


def _numbers(vector: bytes) -> list[float]:
    """A packed vector as PostgreSQL takes it."""
    return list(struct.unpack(f"<{len(vector) // 4}f", vector))


def _delete(connection: Connection, ids: Sequence[int]) -> None:
    for start in range(0, len(ids), _BATCH):
        connection.execute(delete(passages).where(passages.c.id.in_(ids[start : start + _BATCH])))


def _remove(connection: Connection, collection: str, source: str) -> int:
    collection_id = connection.execute(
        select(collections.c.id).where(collections.c.name == collection).with_for_update()
    ).scalar()
    if collection_id is None:
        return 0
    key = (documents.c.collection_id == collection_id, documents.c.source == source)
    query = select(passages.c.id).join(documents, _IN_DOCUMENT).where(*key)
    ids = list(connection.execute(query).scalars())
    _delete(connection, ids)
    connection.execute(delete(documents).where(*key))
    left = select(documents.c.id).where(documents.c.collection_id == collection_id).limit(1)
    if connection.execute(left).first() is None:
        connection.execute(delete(collections).where(collections.c.id == collection_id))
    return len(ids)
