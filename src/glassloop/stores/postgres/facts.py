"""Facts in PostgreSQL."""

from __future__ import annotations

import asyncio
from functools import partial

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    ForeignKey,
    Identity,
    LargeBinary,
    MetaData,
    Select,
    Table,
    UniqueConstraint,
    and_,
    case,
    delete,
    func,
    literal,
    or_,
    select,
    update,
)
from sqlalchemy.dialects.postgresql import insert

from glassloop.core.fulltext import tokens
from glassloop.memory.fact_store import Embedding, Fact, FactOwner, new_fact
from glassloop.memory.relevance import NEAR
from glassloop.stores.fact_rows import FactRow, best, packed, same_key, wanted
from glassloop.stores.postgres.engine import Database
from glassloop.stores.postgres.schema import Schema, column, rows_of

_metadata = MetaData()

_facts = Table(
    "glassloop_facts",
    _metadata,
    Column("position", BigInteger, Identity(always=True), primary_key=True),
    column("owner"),
    column("id"),
    column("same"),
    column("text"),
    column("run_id"),
    column("created_at", BigInteger),
    column("model", optional=True),
    column("vector", LargeBinary, optional=True),
    UniqueConstraint("owner", "same", name="glassloop_facts_same"),
)

_words = Table(
    "glassloop_fact_words",
    _metadata,
    column("owner", key=True),
    column("word", key=True),
    Column(
        "position",
        BigInteger,
        ForeignKey(_facts.c.position, name="glassloop_fact_words_fact", ondelete="CASCADE"),
        primary_key=True,
        index=True,
    ),
)

FACTS = Schema("facts", _metadata)
"""What is remembered of users."""

_LAST = chr(0x10FFFF)


class PostgresFacts:
    """Facts in PostgreSQL, with an index of their words for each owner.

    Args:
        database: the database.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    async def remember(
        self, owner: FactOwner, text: str, *, run_id: str = "", embedding: Embedding | None = None
    ) -> Fact:
        """See `FactStore.remember`."""
        fresh = new_fact(text, run_id)
        return await self._database.write(partial(_remember, owner.key, fresh, embedding), schema=FACTS)

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
        model = embedding.model if embedding else None
        rows, count = await self._database.read(partial(_candidates, owner.key, query, model), schema=FACTS)
        found = await asyncio.to_thread(best, rows, count, query, embedding, near)
        return found[: max(0, limit)]

    async def all(self, owner: FactOwner) -> list[Fact]:
        """See `FactStore.all`."""
        return await self._database.read(partial(_all, owner.key), schema=FACTS)

    async def forget(self, owner: FactOwner, fact_id: str) -> bool:
        """See `FactStore.forget`."""
        return await self._database.write(partial(_forget, owner.key, fact_id), schema=FACTS)

    async def close(self) -> None:
        """See `FactStore.close`."""
        await self._database.close()


def _remember(owner: str, fresh: Fact, embedding: Embedding | None, connection: Connection) -> Fact:
    its = _facts.c
    put = insert(_facts).values(
        owner=owner,
        id=fresh.id,
        same=same_key(fresh.text),
        text=fresh.text,
        run_id=fresh.run_id,
        created_at=fresh.created_at,
    )
    put = put.on_conflict_do_update(index_elements=["owner", "same"], set_={"same": put.excluded.same})
    kept = put.returning(its.position, its.id, its.text, its.created_at, its.run_id)
    ((position, *fields),) = rows_of(connection.execute(kept))
    fact = Fact(*fields)
    if fact.id == fresh.id:
        values = [{"owner": owner, "word": word, "position": position} for word in dict.fromkeys(tokens(fact.text))]
        if values:
            connection.execute(insert(_words), values)
    if embedding is not None:
        vector = {"model": embedding.model, "vector": packed(embedding)}
        connection.execute(update(_facts).where(its.position == position).values(vector))
    return fact


def _candidates(owner: str, query: str, model: str | None, connection: Connection) -> tuple[list[FactRow], int]:
    its = _facts.c
    answers = its.position.in_(_with_words(owner, query))
    if model is not None:
        answers = or_(answers, its.model == model)
    vector = case((its.model == literal(model), its.vector))
    rows = select(its.position, its.id, its.text, its.created_at, its.run_id, vector).where(its.owner == owner, answers)
    count = connection.execute(select(func.count()).where(its.owner == owner)).scalar_one()
    return [FactRow(*row) for row in rows_of(connection.execute(rows))], count


def _with_words(owner: str, query: str) -> Select[tuple[int]]:
    word = _words.c.word
    words, prefixes = wanted(query)
    begins = (and_(word >= prefix, word < prefix + _LAST) for prefix in prefixes)  # in the order of code points
    return select(_words.c.position).where(_words.c.owner == owner, or_(word.in_(words), *begins))


def _all(owner: str, connection: Connection) -> list[Fact]:
    its = _facts.c
    query = select(its.id, its.text, its.created_at, its.run_id).where(its.owner == owner).order_by(its.position)
    return [Fact(*row) for row in rows_of(connection.execute(query))]


def _forget(owner: str, fact_id: str, connection: Connection) -> bool:
    gone = delete(_facts).where(_facts.c.owner == owner, _facts.c.id == fact_id)
    return connection.execute(gone).rowcount > 0
