"""The tables of knowledge in PostgreSQL, beside those of a store, with versions of their own."""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    ForeignKey,
    Identity,
    Index,
    Integer,
    MetaData,
    Table,
    event,
    text,
)
from sqlalchemy.dialects.postgresql import TSVECTOR
from sqlalchemy.types import UserDefinedType

from glassloop.core.errors import ConfigurationError
from glassloop.stores.postgres.schema import Plain, Schema, column

_metadata = MetaData()


def _id() -> Column[Any]:
    return Column("id", BigInteger, Identity(always=True), primary_key=True)


def _of(table: Table, name: str, *, key: bool = False) -> Column[Any]:
    """The row of `table` that a row belongs to, and goes with."""
    owner = ForeignKey(table.c.id, ondelete="CASCADE")
    return Column(name, BigInteger, owner, primary_key=key, nullable=False)


collections = Table(
    "glassloop_knowledge_collections", _metadata, _id(), Column("name", Plain, unique=True, nullable=False)
)

documents = Table(
    "glassloop_knowledge_documents",
    _metadata,
    _id(),
    _of(collections, "collection_id"),
    column("source"),
    column("title"),
    column("digest"),
    column("added_at", BigInteger),
)
Index("glassloop_knowledge_documents_source", documents.c.collection_id, documents.c.source, unique=True)

passages = Table(
    "glassloop_knowledge_passages",
    _metadata,
    _id(),
    _of(collections, "collection_id"),
    _of(documents, "document_id"),
    column("position", Integer),
    column("text"),
    column("headings"),
    column("page", Integer, optional=True),
    column("line", Integer, optional=True),
    column("digest"),
    column("words", TSVECTOR),
    column("length", Integer),
)
Index("glassloop_knowledge_passages_collection", passages.c.collection_id)
Index("glassloop_knowledge_passages_document", passages.c.document_id, passages.c.position)
Index("glassloop_knowledge_passages_words", passages.c.words, postgresql_using="gin")

KNOWLEDGE = Schema("knowledge", _metadata)
"""Documents, passages and their words."""


class Vector(UserDefinedType[object]):
    """pgvector's type without a fixed size; values travel as `real[]`."""

    cache_ok = True

    def get_col_spec(self, **_: object) -> str:
        """Its name in SQL."""
        return "vector"


_vector_metadata = MetaData()

vectors = Table(
    "glassloop_knowledge_vectors",
    _vector_metadata,
    _of(passages, "passage_id", key=True),
    _of(collections, "collection_id"),
    column("model"),
    column("vector", Vector),
)
Index("glassloop_knowledge_vectors_collection", vectors.c.collection_id)


@event.listens_for(_vector_metadata, "before_create")
def _extension(_: MetaData, connection: Connection, **__: object) -> None:
    found = connection.execute(text("SELECT 1 FROM pg_available_extensions WHERE name = 'vector'")).first()
    if found is None:
        raise ConfigurationError(
            "This PostgreSQL server has no pgvector: install it there (github.com/pgvector/pgvector), "
            "or unset EMBEDDING_MODEL to search by words alone."
        )
    connection.execute(text("CREATE EXTENSION IF NOT EXISTS vector"))


VECTORS = Schema("knowledge vectors", _vector_metadata)
"""Vectors of passages; made only where there is an embedding model, for it takes an extension."""
