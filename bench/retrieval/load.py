"""10,000 generated passages: how long they take to put, how big they are, how long a search takes.

`python -m bench.retrieval.load [URL] [--vectors]`; without a URL, a SQLite file in a temporary folder.
"""

import asyncio
import os
import random
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from glassloop.core.encoding import digest
from glassloop.knowledge.documents import Document, Passage
from glassloop.knowledge.knowledge import Knowledge
from glassloop.testing.embeddings import embedding

PASSAGES = 10_000
PER_DOCUMENT = 100
QUERIES = 200
_random = random.Random(1)


class Hashed:
    """An embedding model without a server."""

    name = "hashed"

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """256 numbers for each text."""
        return await asyncio.to_thread(lambda: [embedding(text) for text in texts])


def words() -> list[str]:
    """5,000 words, half of them Chinese of two characters, the first ones much more frequent (Zipf)."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    latin = ["".join(_random.choices(letters, k=_random.randint(3, 9))) for _ in range(2500)]
    return [word for pair in zip(latin, (han(2) for _ in range(2500)), strict=True) for word in pair]


def han(count: int) -> str:
    """Characters out of the 1,500 that are first in Unicode."""
    return "".join(chr(0x4E00 + _random.randrange(1500)) for _ in range(count))


def passages(vocabulary: Sequence[str]) -> list[str]:
    """Half of them English words, half Chinese, about 400 characters each."""
    weights = [1 / rank for rank in range(1, len(vocabulary) // 2 + 1)]
    made: list[str] = []
    for number in range(PASSAGES):
        chosen = _random.choices(vocabulary[number % 2 :: 2], weights, k=65 if number % 2 == 0 else 200)
        made.append((" " if number % 2 == 0 else "").join(chosen))
    return made


async def measure(knowledge: Knowledge) -> None:
    """Print what was measured."""
    vocabulary = words()
    texts = passages(vocabulary)
    chunks = [
        Passage(str(n // PER_DOCUMENT), "", n, text, digest=digest(text.encode())) for n, text in enumerate(texts)
    ]
    documents = [chunks[start : start + PER_DOCUMENT] for start in range(0, PASSAGES, PER_DOCUMENT)]
    for turn in ("put", "put again"):
        begun = time.perf_counter()
        for parts in documents:
            await knowledge.put(Document(parts[0].source, "", (), "1"), parts)
        print(f"{turn}: {time.perf_counter() - begun:.1f} s for {PASSAGES} passages in {len(documents)} documents")
    print(f"characters: {sum(map(len, texts)):,}, {sum(len(text.encode()) for text in texts) / 1e6:.1f} MB as UTF-8")
    for name, length in (("one word", 1), ("five words", 5), ("twenty words", 20)):
        queries = [" ".join(_random.choices(vocabulary, k=length)) for _ in range(QUERIES)]
        seconds: list[float] = []
        for query in queries:
            begun = time.perf_counter()
            await knowledge.search(query)
            seconds.append(time.perf_counter() - begun)
        median, high = statistics.median(seconds), statistics.quantiles(seconds, n=20)[-1]
        print(f"search for {name}: median {median * 1000:.1f} ms, 95 % below {high * 1000:.1f} ms")


async def run(url: str, *, vectors: bool) -> None:
    """Measure one database."""
    async with Knowledge(url, embeddings=Hashed() if vectors else None) as knowledge:
        await measure(knowledge)


def main(arguments: Sequence[str]) -> None:
    """See the module."""
    urls = [argument for argument in arguments if "://" in argument]
    with TemporaryDirectory() as directory:
        path = Path(directory, "knowledge.db")
        asyncio.run(run(urls[0] if urls else f"sqlite:///{path}", vectors="--vectors" in arguments))
        if not urls:
            print(f"file: {path.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    for name in ("STORE", "EMBEDDING_MODEL", "EMBEDDING_ENDPOINT"):
        os.environ.pop(name, None)
    main(sys.argv[1:])
