"""What is compared: each takes passages and answers questions with their numbers, best first."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import bm25s

from glassloop.core.encoding import digest
from glassloop.knowledge.documents import Document, Passage
from glassloop.knowledge.knowledge import Knowledge

Ranking = list[int]
System = Callable[[Sequence[str], Sequence[str], int], list[Ranking]]
"""Passages, questions, and how many passages each answer has at most."""


def bm25s_with(tokens: Callable[[str], list[str]] | None) -> System:
    """bm25s with its own tokenizer, or with another one."""

    def system(passages: Sequence[str], questions: Sequence[str], limit: int) -> list[Ranking]:
        if tokens is None:
            indexed = bm25s.tokenize(list(passages), show_progress=False)
            asked = bm25s.tokenize(list(questions), show_progress=False, return_ids=False)
        else:
            indexed, asked = [tokens(passage) for passage in passages], [tokens(question) for question in questions]
        index = bm25s.BM25()
        index.index(indexed, show_progress=False)
        rankings: list[Ranking] = []
        for words in asked:
            if not words:
                rankings.append([])
                continue
            numbers, scores = index.retrieve([words], k=min(limit, len(passages)), show_progress=False)
            rankings.append([int(number) for number, score in zip(numbers[0], scores[0], strict=True) if score > 0])
        return rankings

    return system


def bigrams(text: str) -> list[str]:
    """Words, and of Chinese overlapping pairs of characters: what one writes by hand for a library without Chinese."""
    found: list[str] = []
    for piece in re.findall(r"[\u4e00-\u9fff]+|[^\W\u4e00-\u9fff]+", text.lower()):
        pairs = [piece[at : at + 2] for at in range(len(piece) - 1)]
        found += pairs if "\u4e00" <= piece[0] <= "\u9fff" and pairs else [piece]
    return found


async def glassloop(passages: Sequence[str], questions: Sequence[str], limit: int, url: str = "") -> list[Ranking]:
    """Ours, through the public API: on SQLite, or on what the URL names."""
    with TemporaryDirectory() as directory:
        async with Knowledge(url or f"sqlite:///{Path(directory, 'knowledge.db')}") as knowledge:
            chunks = [
                Passage("d", "", n, text, digest=digest(f"{n} {text}".encode())) for n, text in enumerate(passages)
            ]
            await knowledge.put(Document("d", "", (), "1"), chunks)
            answers = [await knowledge.search(question, limit) for question in questions]
            await knowledge.remove("d")
    return [[hit.passage.position for hit in hits] for hits in answers]
