"""The seam between knowledge and the database that keeps it, and what both sides of it share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from glassloop.core.fulltext import Term
from glassloop.knowledge.documents import Document, Passage

HEADINGS_WEIGHT = 2
"""What a word in a heading counts against one in the text or the title. On the paragraphs of Python's reference, asked
for by their first sentences, recall@5 is 0.46 without headings, 0.51 with a weight of 1 and 0.53 with 2 (or 3)."""


@dataclass(frozen=True, slots=True)
class Change:
    """What putting a document did: passages that are new, gone, and as they were."""

    added: int
    removed: int
    kept: int


@dataclass(frozen=True, slots=True)
class Source:
    """A document that is kept.

    Args:
        source: its name, as passages cite it.
        title: what it calls itself.
        passages: how many it was split into.
        characters: of their texts together.
        added_at: when it was last put, UTC milliseconds.
    """

    source: str
    title: str
    passages: int
    characters: int
    added_at: int


@dataclass(frozen=True, slots=True)
class Found:
    """A passage that a search came to, and its score there: higher is better, and never 0 or less."""

    id: int
    score: float
    passage: Passage


@dataclass(frozen=True, slots=True)
class Vectors:
    """Vectors of one embedding model, of length 1, by the digest of their passages."""

    model: str
    by_digest: Mapping[str, bytes]
    """Float32, little-endian."""


class Index(Protocol):
    """Where passages are kept. Every method may be the first one, and opens what it needs.

    Every method raises:
        StoreError: the database failed or is closed.
        ConfigurationError: it cannot be used; one sentence that says why and what to do.
    """

    async def put(
        self, collection: str, document: Document, passages: Sequence[Passage], vectors: Vectors | None
    ) -> Change:
        """Keep a document in place of what was kept under its source, in one transaction.

        A passage with the digest of a kept one is that one: row and vector stay.
        """
        ...

    async def digest_of(self, collection: str, source: str) -> str | None:
        """Digest of the document that is kept under a source."""
        ...

    async def embedded(self, collection: str, source: str, model: str) -> set[str]:
        """Digests of the passages of a source that have a vector of `model`."""
        ...

    async def without_vector(self, collection: str, source: str | None, model: str) -> int:
        """How many passages of a source, or of all, have no vector of `model`."""
        ...

    async def sources(self, collection: str) -> list[Source]:
        """The documents that are kept, by name."""
        ...

    async def collections(self) -> list[str]:
        """Names of the collections that hold something, in order."""
        ...

    async def remove(self, collection: str, source: str) -> int:
        """Forget a document; how many passages it had."""
        ...

    async def by_words(self, collection: str, terms: Sequence[Term], limit: int) -> list[Found]:
        """Passages that have some of the terms, best first by BM25."""
        ...

    async def by_vector(self, collection: str, model: str, vector: bytes, limit: int) -> list[Found]:
        """Passages whose vectors of `model` point in the direction of `vector`, best first by cosine."""
        ...

    async def close(self) -> None:
        """Finish what was begun and let go of the database; idempotent."""
        ...


@dataclass(frozen=True, slots=True)
class Row:
    """A passage that is kept, as far as it takes to recognise it."""

    id: int
    digest: str
    position: int
    page: int | None
    line: int | None

    def stands_as(self, passage: Passage) -> bool:
        """Whether the place of `passage` is the one that is kept."""
        return (self.position, self.page, self.line) == (passage.position, passage.page, passage.line)


@dataclass(frozen=True, slots=True)
class Difference:
    """How the passages that are kept become those that are wanted.

    Args:
        kept: rows that stay, by id, and what they are now.
        moved: those of them that stand in another place of the document than before.
        added: passages that are new.
        removed: ids of rows whose passage is gone.
    """

    kept: list[tuple[int, Passage]]
    moved: list[tuple[int, Passage]]
    added: list[Passage]
    removed: list[int]

    @property
    def change(self) -> Change:
        """As numbers."""
        return Change(len(self.added), len(self.removed), len(self.kept))


def difference(rows: Iterable[Row], passages: Sequence[Passage]) -> Difference:
    """Match rows, in the document's order, with passages; of equal ones the first goes with the first."""
    left: dict[str, list[Row]] = {}
    for row in rows:
        left.setdefault(row.digest, []).append(row)
    what = Difference([], [], [], [])
    for passage in passages:
        if not (same := left.get(passage.digest)):
            what.added.append(passage)
            continue
        row = same.pop(0)
        what.kept.append((row.id, passage))
        if not row.stands_as(passage):
            what.moved.append((row.id, passage))
    what.removed.extend(row.id for rest in left.values() for row in rest)
    return what
