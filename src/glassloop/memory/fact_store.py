"""The fact seam: what is remembered of a user over sessions, and facts in memory."""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from glassloop.core.context import Identity
from glassloop.memory.relevance import NEAR, Candidate, ranked


class FactOwner(NamedTuple):
    """Whose facts: a user of a tenant. Users of the same name in two tenants are two."""

    tenant: str | None
    user: str

    @staticmethod
    def of(who: Identity) -> FactOwner | None:
        """The owner of the facts of a run; None for an anonymous one, which has none."""
        return FactOwner(who.tenant, who.user) if who.user else None

    @property
    def key(self) -> str:
        """One text for the owner, a different one for each: JSON, in ASCII whatever the names hold."""
        return json.dumps([self.tenant, self.user])


@dataclass(frozen=True, slots=True)
class Fact:
    """Something that is remembered of a user.

    Args:
        id: names it among the owner's.
        text: what is remembered, in the words in which it was given first.
        created_at: UTC milliseconds.
        run_id: the run in which it was remembered; empty for one from elsewhere.
    """

    id: str
    text: str
    created_at: int
    run_id: str = ""


@dataclass(frozen=True, slots=True)
class Embedding:
    """A text as a vector; only those of one model can be compared.

    Args:
        model: the embedding model.
        vector: of any length, which is the same for all of a model.
    """

    model: str
    vector: Sequence[float]


class FactStore(Protocol):
    """Where facts are kept. It must pass `glassloop.testing.conformance.facts`."""

    async def remember(
        self, owner: FactOwner, text: str, *, run_id: str = "", embedding: Embedding | None = None
    ) -> Fact:
        """Keep a text; one that is kept already, up to case, width (NFKC) and blanks, is the fact that it was.

        Args:
            owner: whose.
            text: what to remember.
            run_id: the run in which that was said.
            embedding: of the text; replaces an earlier one.

        Raises:
            ValueError: the text is blank.
            StoreError: the store failed.
        """
        ...

    async def recall(
        self,
        owner: FactOwner,
        query: str,
        limit: int = 5,
        *,
        embedding: Embedding | None = None,
        near: float = NEAR,
    ) -> list[Fact]:
        """The owner's facts that have words of the query, or are near it, the best first.

        Args:
            owner: whose; nobody else's are looked at.
            query: any text.
            limit: how many at most.
            embedding: of the query; where given, facts with a vector of the same model are also found by meaning.
            near: the least cosine of those.

        Raises:
            StoreError: the store failed.
        """
        ...

    async def all(self, owner: FactOwner) -> list[Fact]:
        """Every fact of the owner, the oldest first."""
        ...

    async def forget(self, owner: FactOwner, fact_id: str) -> bool:
        """Erase a fact, its words and its vector; False if the owner has no such fact."""
        ...

    async def close(self) -> None:
        """Release files, connections and threads; idempotent."""
        ...


def new_fact(text: str, run_id: str) -> Fact:
    """A fact with a fresh id.

    Raises:
        ValueError: the text is blank.
    """
    kept = text.encode("utf-8", "backslashreplace").decode().replace("\x00", "").strip()
    if not kept:
        raise ValueError("A fact needs a text: it is blank.")
    return Fact(f"fact_{os.urandom(5).hex()}", kept, time.time_ns() // 1_000_000, run_id)


def sameness(text: str) -> str:
    """What two texts of the same fact have in common: without case, width and blanks that make no difference."""
    return " ".join(unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold()).split())


@dataclass
class _Owned:
    """The facts of one owner, in order, by what makes them the same."""

    facts: dict[str, Fact] = field(default_factory=dict[str, Fact])
    embeddings: dict[str, Embedding] = field(default_factory=dict[str, Embedding])


class MemoryFacts:
    """Facts that live and die with the process; usable from several threads and event loops."""

    def __init__(self) -> None:
        self._owners: dict[FactOwner, _Owned] = {}
        self._lock = threading.Lock()

    async def remember(
        self, owner: FactOwner, text: str, *, run_id: str = "", embedding: Embedding | None = None
    ) -> Fact:
        """See `FactStore.remember`."""
        fresh = new_fact(text, run_id)
        with self._lock:
            owned = self._owners.setdefault(owner, _Owned())
            fact = owned.facts.setdefault(sameness(fresh.text), fresh)
            if embedding is not None:
                owned.embeddings[fact.id] = embedding
        return fact

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
        with self._lock:
            owned = self._owners.get(owner, _Owned())
            known = [(fact, owned.embeddings.get(fact.id)) for fact in owned.facts.values()]
        model = embedding.model if embedding else None
        candidates = [
            Candidate(number, fact.text, own.vector if own and own.model == model else None)
            for number, (fact, own) in enumerate(known)
        ]
        vector = embedding.vector if embedding else None
        best = await asyncio.to_thread(ranked, query, candidates, len(known), vector=vector, near=near)
        return [known[number][0] for number in best[: max(0, limit)]]

    async def all(self, owner: FactOwner) -> list[Fact]:
        """See `FactStore.all`."""
        with self._lock:
            return list(self._owners[owner].facts.values()) if owner in self._owners else []

    async def forget(self, owner: FactOwner, fact_id: str) -> bool:
        """See `FactStore.forget`."""
        with self._lock:
            owned = self._owners.get(owner, _Owned())
            found = next((same for same, fact in owned.facts.items() if fact.id == fact_id), None)
            if found is None:
                return False
            del owned.facts[found]
            owned.embeddings.pop(fact_id, None)
        return True

    async def close(self) -> None:
        """See `FactStore.close`."""
