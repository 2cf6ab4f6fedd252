"""Facts as rows: what every SQL store of facts writes and reads alike."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence
from typing import NamedTuple

from glassloop.core.encoding import digest
from glassloop.memory.fact_store import Embedding, Fact, sameness
from glassloop.memory.relevance import Candidate, ranked, search_terms


class FactRow(NamedTuple):
    """A fact that may answer, as it is stored; the vector where it is of the question's model."""

    position: int
    id: str
    text: str
    created_at: int
    run_id: str
    vector: bytes | None

    @property
    def fact(self) -> Fact:
        """Without its place and vector."""
        return Fact(self.id, self.text, self.created_at, self.run_id)


class Wanted(NamedTuple):
    """What to look for in the index of words."""

    words: list[str]
    prefixes: list[str]


def wanted(query: str) -> Wanted:
    """The words of which a fact must have one to answer, and what a word of it may begin with instead."""
    terms = search_terms(query)
    words = [term.token for term in terms if not term.prefix]
    return Wanted(words, [term.token for term in terms if term.prefix])


def best(rows: Sequence[FactRow], count: int, query: str, embedding: Embedding | None, near: float) -> list[Fact]:
    """The facts that answer, the best first; see `relevance.ranked`."""
    facts = {row.position: row.fact for row in rows}
    candidates = [Candidate(row.position, row.text, row.vector and unpacked(row.vector)) for row in rows]
    vector = embedding.vector if embedding else None
    return [facts[position] for position in ranked(query, candidates, count, vector=vector, near=near)]


def same_key(text: str) -> str:
    """The same for texts of the same fact; short, whatever the text."""
    return digest(sameness(text).encode())


def packed(embedding: Embedding) -> bytes:
    """Its vector as float32, little-endian."""
    numbers = array("f", embedding.vector)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tobytes()


def unpacked(stored: bytes) -> array[float]:
    """The vector that `packed` stored."""
    numbers = array("f", stored)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers
