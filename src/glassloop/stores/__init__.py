"""Stores: where runs, sessions and remembered effects are kept."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from glassloop.core.errors import ConfigurationError

if TYPE_CHECKING:
    from glassloop.journal.journal import Journal
    from glassloop.journal.ledger import Ledger
    from glassloop.memory.session import SessionStore

__all__ = ["Store", "open_store"]

_SUPPORTED = 'Supported are "memory:" and "sqlite:///file.db" (an absolute path has four slashes).'


@dataclass(frozen=True)
class Store:
    """Where a runtime keeps everything. An async context manager that opens it, and closes it at the end.

    Args:
        url: where it is.
        journal: the events of every run.
        sessions: conversations of many runs.
        ledger: which effects have happened.
        driving: the runs that are driven through it now, each with the process.
    """

    url: str
    journal: Journal
    sessions: SessionStore
    ledger: Ledger
    driving: set[tuple[int, str]] = field(default_factory=set[tuple[int, str]], compare=False, repr=False)

    async def close(self) -> None:
        """Finish what was begun and release files, connections and threads; idempotent."""
        await self.sessions.close()
        await self.ledger.close()
        await self.journal.close()

    async def __aenter__(self) -> Store:
        """Open the store now rather than at first use, so that a wrong one is told at once.

        Raises:
            ConfigurationError: it cannot be used; the message says why and what to do.
        """
        await self.journal.read("")
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()


def open_store(url: str) -> Store:
    """The store that `url` names. It touches no file yet: that happens at first use, off the event loop.

    Args:
        url: `memory:` (gone with the process), or `sqlite:///relative.db`, `sqlite:////absolute.db`.

    Raises:
        ConfigurationError: not a store that Glassloop knows.
    """
    scheme, colon, rest = url.partition(":")
    match scheme.lower():
        case "memory" if colon and rest in ("", "//"):
            return _open_memory(url)
        case "sqlite" if rest.startswith("///"):
            return _open_sqlite(url, rest[3:])
        case "sqlite":
            raise ConfigurationError(f"The store {url!r} names no file: write sqlite:///file.db, with three slashes.")
        case other if "://" in url:
            raise ConfigurationError(f"Stores of kind {other!r} are not supported. {_SUPPORTED}")
        case _:
            raise ConfigurationError(f"The store {url!r} is no URL: write sqlite:///{url} for a file. {_SUPPORTED}")


def _open_memory(url: str) -> Store:
    from glassloop.journal.journal import MemoryJournal
    from glassloop.journal.ledger import MemoryLedger
    from glassloop.memory.session import MemorySessions

    return Store(url, MemoryJournal(), MemorySessions(), MemoryLedger())


def _open_sqlite(url: str, path: str) -> Store:
    from glassloop.stores.sqlite import open_sqlite

    if path in ("", ":memory:"):
        raise ConfigurationError(f"The store {url!r} names no file: write sqlite:///file.db, or memory: for none.")
    if "?" in path:
        raise ConfigurationError(f"The store {url!r} has options after '?': a SQLite store takes none, remove them.")
    return open_sqlite(url, os.path.expanduser(path))
