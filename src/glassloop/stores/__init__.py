"""Stores: where runs, sessions and remembered effects are kept."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from glassloop.core.errors import ConfigurationError
from glassloop.stores.owner import Liveness, LocalLiveness

if TYPE_CHECKING:
    from glassloop.journal.journal import Journal
    from glassloop.journal.ledger import Ledger
    from glassloop.memory.fact_store import FactStore
    from glassloop.memory.session import SessionStore

__all__ = ["Store", "open_configured", "open_store"]

_SUPPORTED = (
    'Supported are "memory:", "sqlite:///file.db" (an absolute path has four slashes) and '
    '"postgresql://user:password@host/database".'
)


T = TypeVar("T")


class Once(Generic[T]):
    """Something that is opened when it is first asked for, once, whoever comes first.

    Args:
        open: opens it.
    """

    def __init__(self, open: Callable[[], T]) -> None:
        self._open = open
        self._gate = threading.Lock()
        self.value: T | None = None
        """What was opened; None before that."""

    def __call__(self) -> T:
        """Open it, unless that has been done."""
        with self._gate:
            if self.value is None:
                self.value = self._open()
            return self.value


@dataclass(frozen=True)
class Store:
    """Where a runtime keeps everything. An async context manager that opens it, and closes it at the end.

    Args:
        url: where it is.
        journal: the events of every run.
        sessions: conversations of many runs.
        ledger: which effects have happened.
        open_facts: opens `facts`, which most runs do without.
        sessions_url: where the sessions are, if not in the same place.
        liveness: tells whether the process that drives a run still lives.
        database: of a PostgreSQL store, its `Database`, for what else is kept there; None for others.
        driving: the runs that are driven through it now, each with the process.
    """

    url: str
    journal: Journal
    sessions: SessionStore
    ledger: Ledger
    open_facts: Once[FactStore] = field(compare=False, repr=False)
    sessions_url: str | None = None
    liveness: Liveness = field(default_factory=LocalLiveness, compare=False, repr=False)
    database: Any = field(default=None, compare=False, repr=False)
    driving: set[tuple[int, str]] = field(default_factory=set[tuple[int, str]], compare=False, repr=False)

    @property
    def facts(self) -> FactStore:
        """What is remembered of users over sessions."""
        return self.open_facts()

    @property
    def places(self) -> str:
        """Where it is, in words."""
        return self.url if self.sessions_url is None else f"{self.url}, sessions in {self.sessions_url}"

    async def is_gone(self, owner: str) -> bool:
        """Whether the process that `str(Process)` named is known to be gone; False where that cannot be known."""
        return await self.liveness.alive(owner) is False

    def with_sessions(self, sessions: SessionStore, place: str) -> Store:
        """This store, with the sessions in another place; turns that they lack are added from the journal.

        Args:
            sessions: a session store; closed with this one.
            place: where it is, in words without a password.
        """
        return replace(self, sessions=sessions, sessions_url=place)

    async def close(self) -> None:
        """Finish what was begun and release files, connections and threads; idempotent."""
        await self.sessions.close()
        await self.ledger.close()
        if self.open_facts.value is not None:
            await self.open_facts.value.close()
        await self.journal.close()

    async def __aenter__(self) -> Store:
        """Open the store now rather than at first use, so that a wrong one is told at once.

        Raises:
            ConfigurationError: it cannot be used; the message says why and what to do.
            StoreError: it does not answer.
        """
        await self.journal.read("")
        await self.sessions.load("", 0)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()


def open_configured(url: str | None, default: str) -> Store:
    """`open_store` as the environment says.

    Args:
        url: where the journal is; None for the STORE variable, else
        default: this URL. The sessions are where the SESSIONS variable says, or in the same place.
    """
    return open_store(url or os.environ.get("STORE") or default, os.environ.get("SESSIONS"))


def open_store(url: str, sessions: str | None = None) -> Store:
    """The store that `url` names. It touches no file or server yet: that happens at first use, off the event loop.

    Args:
        url: where the journal is: `memory:` (gone with the process), `sqlite:///relative.db`, `sqlite:////absolute.db`
            or `postgresql://user:password@host:port/database`.
        sessions: where the sessions are, if elsewhere: such a URL, or `redis://[user:password@]host[:port][/database]`
            (`rediss://` with TLS). The ledger stays with the journal, which settles it in its own transactions; only
            where the journal is in memory it goes with the sessions.

    Raises:
        ConfigurationError: not a store that Glassloop knows.
    """
    if _is_redis(url):
        raise ConfigurationError(
            "Redis keeps sessions and the ledger, not the journal: set STORE=sqlite:///glassloop.db, say, and "
            "SESSIONS=redis://..."
        )
    store = _open(url)
    return store if sessions in (None, "", url) else _with_sessions(store, sessions)


def _with_sessions(store: Store, url: str) -> Store:
    """The store, but with its sessions at `url`."""
    if _is_redis(url):
        from glassloop.stores.redis.ledger import RedisLedger
        from glassloop.stores.redis.server import RedisServer
        from glassloop.stores.redis.sessions import RedisSessions

        server = RedisServer(url)
        place, sessions, ledger = server.url, RedisSessions(server), RedisLedger(server)
    else:
        other = _open(url)
        place, sessions, ledger = other.url, other.sessions, other.ledger
    if store.url.partition(":")[0].lower() == "memory":
        store = replace(store, ledger=ledger)
    return store.with_sessions(sessions, place)


def _is_redis(url: str) -> bool:
    return url.partition("://")[0].lower() in ("redis", "rediss")


def _open(url: str) -> Store:
    scheme, colon, rest = url.partition(":")
    match scheme.lower():
        case "memory" if colon and rest in ("", "//"):
            return _open_memory(url)
        case "sqlite" if rest.startswith("///"):
            return _open_sqlite(url, rest[3:])
        case "sqlite":
            raise ConfigurationError(f"The store {url!r} names no file: write sqlite:///file.db, with three slashes.")
        case "postgresql" | "postgres" if rest.startswith("//"):
            return _open_postgres(url)
        case "postgresql" | "postgres":
            raise ConfigurationError(
                "The store's URL names no server: write postgresql://user:password@host:5432/database."
            )
        case other if "://" in url:
            raise ConfigurationError(f"Stores of kind {other!r} are not supported. {_SUPPORTED}")
        case _:
            raise ConfigurationError(f"The store {url!r} is no URL: write sqlite:///{url} for a file. {_SUPPORTED}")


def _open_postgres(url: str) -> Store:
    try:
        from glassloop.stores.postgres.store import open_postgres
    except ImportError as error:
        raise ConfigurationError(
            "PostgreSQL needs more packages: install them with pip install 'glassloop[postgres]'."
        ) from error
    return open_postgres(url)


def _open_memory(url: str) -> Store:
    from glassloop.journal.journal import MemoryJournal
    from glassloop.journal.ledger import MemoryLedger
    from glassloop.memory.session import MemorySessions

    return Store(url, MemoryJournal(), MemorySessions(), MemoryLedger(), Once(_facts_in_memory))


def _facts_in_memory() -> FactStore:
    from glassloop.memory.fact_store import MemoryFacts

    return MemoryFacts()


def _open_sqlite(url: str, path: str) -> Store:
    from glassloop.stores.sqlite.store import open_sqlite

    if path in ("", ":memory:"):
        raise ConfigurationError(f"The store {url!r} names no file: write sqlite:///file.db, or memory: for none.")
    if "?" in path:
        raise ConfigurationError(f"The store {url!r} has options after '?': a SQLite store takes none, remove them.")
    return open_sqlite(url, os.path.expanduser(path))
