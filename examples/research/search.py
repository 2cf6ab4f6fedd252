"""What the research assistant searches: the files in corpus/, kept in the database where the run's journal is."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from glassloop import RunContext, Tool
from glassloop.knowledge.ingest import ingest
from glassloop.knowledge.knowledge import Knowledge
from glassloop.stores import Store

CORPUS = Path(__file__).with_name("corpus")
DOCUMENTS = tuple(sorted(path.name for path in CORPUS.iterdir()))


class Library:
    """A toolset: `search_knowledge` over the corpus. Files that are new or have changed are ingested at first use."""

    def __init__(self) -> None:
        self._open: dict[str, tuple[Knowledge, Tool]] = {}

    async def tools(self, context: RunContext[Any], /) -> list[Tool]:
        """The search in the database of this run."""
        return [await self.search_tool(context.store)]

    async def search_tool(self, store: Store) -> Tool:
        """The search in the database of a store, where the corpus is brought up to date before the first one."""
        if store.url not in self._open:
            knowledge = Knowledge(address(store), collection="research")
            report = await ingest(knowledge, [CORPUS], root=CORPUS, prune=True)
            if new := len(report.added) + len(report.changed):
                print(f"Read {new} documents of the corpus into the database.", file=sys.stderr)
            for failure in report.failed:
                print(f"Left out {failure.source}: {failure.reason}", file=sys.stderr)
            self._open[store.url] = knowledge, knowledge.tool()
        return self._open[store.url][1]

    async def close(self) -> None:
        """Let go of the databases."""
        while self._open:
            await self._open.popitem()[1][0].close()


def address(store: Store) -> str:
    """The URL of a store's database. A store shows its own without the password, which is in STORE alone."""
    return store.url if store.url.startswith("sqlite:") else os.environ.get("STORE") or store.url
