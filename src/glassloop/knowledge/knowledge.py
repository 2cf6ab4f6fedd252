"""Knowledge: documents that agents look things up in."""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from glassloop.core.errors import ConfigurationError, ModelError
from glassloop.core.fulltext import query_terms
from glassloop.core.fusion import fused
from glassloop.knowledge.conflicts import Conflict, find_conflicts
from glassloop.knowledge.documents import Document, Passage
from glassloop.knowledge.index import Change, Found, Index, Source, Vectors
from glassloop.models.embeddings import Embedder, resolve_embedder
from glassloop.stores.codec import storable
from glassloop.tools.tool import Tool

DEFAULT_URL = "sqlite:///glassloop.db"
DEFAULT_COLLECTION = "default"
_SUPPORTED = 'Supported are "sqlite:///file.db" (an absolute path has four slashes) and "postgresql://...".'

_DEPTH = 20
"""Passages that are ranked, and compared for conflicts, beyond those that are asked for."""

_log = logging.getLogger("glassloop.knowledge")


@dataclass(frozen=True, slots=True)
class Hit:
    """A passage that answers a search.

    Args:
        passage: the passage, with its source and its place there.
        score: higher is better; comparable within one search alone.
        conflicts: where another source says otherwise, found or not among the hits.
    """

    passage: Passage
    score: float
    conflicts: tuple[Conflict, ...] = ()


class Knowledge:
    """Documents of one collection, split into passages, searched by words and, with an embedding model, by meaning.

    An async context manager that sees at once whether the database can be used; without it, the first call does.
    Usable from several event loops and threads; other processes may use the same database.

    Args:
        url: `sqlite:///file.db`, a store's file if you like, or `postgresql://...`; by default what STORE says, else
            `sqlite:///glassloop.db`.
        collection: documents of other collections are never found.
        embeddings: a model, or `provider:model`; by default what EMBEDDING_MODEL says. Without one, words alone count.

    Raises:
        ConfigurationError: the URL or the embedding model cannot be used; one sentence.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        collection: str = DEFAULT_COLLECTION,
        embeddings: Embedder | str | None = None,
    ) -> None:
        if not collection.strip() or not collection.isprintable():
            raise ConfigurationError("The name of a collection must be printable and not empty.")
        self.url = url or os.environ.get("STORE", "").strip() or DEFAULT_URL
        self.collection = collection
        self._embedder = resolve_embedder(embeddings)
        self._make = _index_of(self.url)
        self._made: Index | None = None
        self._warned = False

    async def __aenter__(self) -> Knowledge:
        """Open the database now.

        Raises:
            ConfigurationError: it cannot be used; the message says why and what to do.
            StoreError: it is down.
        """
        await (await self._index()).collections()
        if self._embedder is not None:
            await (await self._index()).without_vector(self.collection, None, self._embedder.name)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Finish what was begun and let go of the database; idempotent."""
        await (await self._index()).close()

    async def put(self, document: Document, passages: Sequence[Passage]) -> Change:
        """Keep a document in place of what was kept under its source, in one transaction.

        A passage whose text and headings are as before keeps its row and its vector; nothing is embedded twice.

        Raises:
            ModelError: the embedding model failed; nothing has changed.
            StoreError: the database failed; nothing has changed.
        """
        document = replace(document, source=storable(document.source))
        vectors = None if self._embedder is None else await self._embed(self._embedder, document.source, passages)
        return await (await self._index()).put(self.collection, document, passages, vectors)

    async def digest_of(self, source: str) -> str | None:
        """Digest of the document that is kept under a source and need not be put again.

        Returns:
            None if there is none, or if some of its passages lack a vector of the embedding model: put it again.
        """
        index, source = await self._index(), storable(source)
        if self._embedder and await index.without_vector(self.collection, source, self._embedder.name):
            return None
        return await index.digest_of(self.collection, source)

    async def sources(self) -> list[Source]:
        """The documents that are kept, by name."""
        return await (await self._index()).sources(self.collection)

    async def collections(self) -> list[str]:
        """Names of all collections in the database that hold something."""
        return await (await self._index()).collections()

    async def remove(self, source: str) -> int:
        """Forget a document.

        Returns:
            How many passages it had; 0 if there was no such document.
        """
        return await (await self._index()).remove(self.collection, storable(source))

    async def search(self, query: str, limit: int = 5) -> list[Hit]:
        """The passages that fit a query best.

        Args:
            query: words, or a question in any language.
            limit: at most so many.

        Returns:
            Best first; empty if nothing fits. Where another source says otherwise, a hit says so.
        """
        depth = max(limit, 1) + _DEPTH
        index = await self._index()
        by_words = await index.by_words(self.collection, query_terms(query), depth)
        by_meaning = await self._by_meaning(index, query, depth)
        found = by_words if by_meaning is None else _fused(by_words, by_meaning)
        return _marked(found[: max(limit, 1)], found)

    def tool(self, name: str = "search_knowledge", *, limit: int = 5, description: str | None = None) -> Tool:
        """A tool that searches here. Its results are outside text to the model, with source and place.

        Args:
            name: for the model.
            limit: passages in one result, at most.
            description: what is to be found here, for the model.
        """
        from glassloop.knowledge.tool import search_tool

        return search_tool(self, name, limit=limit, description=description)

    async def _index(self) -> Index:
        """The index. What it needs is loaded with the first call, in a thread: reading modules would block the loop."""
        if self._made is None:
            made = await asyncio.to_thread(self._load)
            self._made = self._made or made
        return self._made

    def _load(self) -> Index:
        if self._embedder is not None:
            importlib.import_module("glassloop.knowledge.matrix")
        return self._make()

    async def _embed(self, embedder: Embedder, source: str, passages: Sequence[Passage]) -> Vectors:
        """Vectors of the passages that have none of this model yet."""
        from glassloop.knowledge.matrix import packed

        known = await (await self._index()).embedded(self.collection, source, embedder.name)
        texts = {passage.digest: _text(passage) for passage in passages if passage.digest not in known}
        vectors = await embedder.embed(list(texts.values())) if texts else []
        return Vectors(embedder.name, dict(zip(texts, map(packed, vectors), strict=True)))

    async def _by_meaning(self, index: Index, query: str, depth: int) -> list[Found] | None:
        """None where words alone must do."""
        if self._embedder is None or not query.strip():
            return None
        from glassloop.knowledge.matrix import packed

        await self._warn(index, self._embedder.name)
        try:
            vector = packed((await self._embedder.embed([query]))[0])
        except ModelError as error:
            _log.warning("Searching by words alone: %s", error)
            return None
        return await index.by_vector(self.collection, self._embedder.name, vector, depth)

    async def _warn(self, index: Index, model: str) -> None:
        """Say once that passages were put without a model, or with another one, whose vectors are not comparable."""
        if self._warned:
            return
        self._warned = True
        if lacking := await index.without_vector(self.collection, None, model):
            _log.warning(
                "%d passages of collection %r have no vector of %s and are found by words alone: ingest them again.",
                lacking,
                self.collection,
                model,
            )


def _index_of(url: str) -> Callable[[], Index]:
    """What makes the index that a URL names.

    Raises:
        ConfigurationError: it names no database that can hold knowledge.
    """
    scheme, _, rest = url.partition(":")
    match scheme.lower():
        case "sqlite" if rest.startswith("///") and rest[3:] not in ("", ":memory:") and "?" not in rest:
            return lambda: _sqlite(os.path.expanduser(rest[3:]))
        case "sqlite":
            raise ConfigurationError(f"{url!r} names no file to keep knowledge in: write sqlite:///file.db.")
        case "postgresql" | "postgres" if rest.startswith("//"):
            return lambda: _postgres(url)
        case "memory":
            raise ConfigurationError("Knowledge is not kept in memory: name a file, as in sqlite:///glassloop.db.")
        case other if "://" in url:
            raise ConfigurationError(f"Knowledge cannot be kept in a database of kind {other!r}. {_SUPPORTED}")
        case _:
            raise ConfigurationError(f"The URL of the knowledge is none: write sqlite:///FILE. {_SUPPORTED}")


def _sqlite(path: str) -> Index:
    from glassloop.knowledge.sqlite_index import SqliteIndex

    return SqliteIndex(path)


def _postgres(url: str) -> Index:
    try:
        from glassloop.knowledge.postgres_index import PostgresIndex
    except ImportError as error:
        raise ConfigurationError(
            "PostgreSQL needs more packages: install them with pip install 'glassloop[postgres]'."
        ) from error
    return PostgresIndex(url)


def _text(passage: Passage) -> str:
    """What of a passage is embedded: its place in the document says what it is about."""
    return "\n".join([passage.title, *passage.headings, passage.text])


def _fused(*rankings: Sequence[Found]) -> list[Found]:
    """Rankings with scores that cannot be compared, as one."""
    known = {found.id: found for ranking in rankings for found in ranking}
    scores = fused(*([found.id for found in ranking] for ranking in rankings))
    return [replace(known[id_], score=score) for id_, score in scores.items()]


def _marked(hits: Sequence[Found], others: Sequence[Found]) -> list[Hit]:
    conflicts = find_conflicts([hit.passage for hit in hits], [other.passage for other in others])
    return [Hit(hit.passage, hit.score, conflicts.get(at, ())) for at, hit in enumerate(hits)]
