"""The retrieval benchmark: a table on the screen, and in RESULTS.md beside this file."""

import asyncio
import os
import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path

from bench.retrieval.corpora import Corpus, Question, corpora
from bench.retrieval.systems import Ranking, bigrams, bm25s_with, glassloop

DEPTH = 10
RESULTS = Path(__file__).with_name("RESULTS.md")


def recall(questions: Sequence[Question], rankings: Sequence[Ranking], depth: int = 5) -> float:
    """Share of the answers that are among the first five, on average."""
    shares = [len(q.answers & set(r[:depth])) / len(q.answers) for q, r in zip(questions, rankings, strict=True)]
    return sum(shares) / len(shares)


def mrr(questions: Sequence[Question], rankings: Sequence[Ranking]) -> float:
    """Mean reciprocal rank of the first answer; 0 beyond the tenth place."""
    ranks = [
        next((n for n, at in enumerate(r, 1) if at in q.answers), None)
        for q, r in zip(questions, rankings, strict=True)
    ]
    return sum(1 / rank for rank in ranks if rank) / len(ranks)


async def rows(corpus: Corpus, urls: Sequence[str]) -> Iterator[tuple[str, list[Ranking]]]:
    """Every system's rankings of one task."""
    asked = [question.text for question in corpus.questions]
    found = {"**Glassloop**, SQLite": await glassloop(corpus.passages, asked, DEPTH)}
    for url in urls:
        found["**Glassloop**, PostgreSQL"] = await glassloop(corpus.passages, asked, DEPTH, url)
    found["bm25s"] = bm25s_with(None)(corpus.passages, asked, DEPTH)
    if corpus.language == "zh":
        found["bm25s, character pairs"] = bm25s_with(bigrams)(corpus.passages, asked, DEPTH)
    return iter(found.items())


async def report(urls: Sequence[str]) -> str:
    """The results in Markdown."""
    lines = [
        "# Finding passages",
        "",
        "Made by `python -m bench.retrieval`; corpora.py says how questions are made. Three general choices of ours",
        "were made with these numbers: endings of English words go, Chinese is looked for by pairs and not by phrases,",
        "headings count twice. Nothing knows a question or a text.",
        "",
        f"bm25s {version('bm25s')}, its own tokenizer and defaults unless said otherwise; the same passages for all.",
    ]
    for corpus in corpora():
        language = {"en": "English", "zh": "Chinese"}[corpus.language]
        lines += [
            "",
            f"## {language}: {corpus.name}",
            "",
            f"{corpus.source}: {len(corpus.passages)} passages, {len(corpus.questions)} questions.",
            "",
            "| | recall@5 | MRR@10 |",
            "| --- | ---: | ---: |",
        ]
        for name, rankings in await rows(corpus, urls):
            scores = recall(corpus.questions, rankings), mrr(corpus.questions, rankings)
            lines.append(f"| {name} | {scores[0]:.3f} | {scores[1]:.3f} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    for name in ("STORE", "EMBEDDING_MODEL", "EMBEDDING_ENDPOINT"):
        os.environ.pop(name, None)
    text = asyncio.run(report(sys.argv[1:]))
    print(text)
    RESULTS.write_text(text, "utf-8")
