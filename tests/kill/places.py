"""Where the store of a round is, with the program's own table in it: a file, or a database of a PostgreSQL server."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from collections.abc import Generator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any, Protocol

from points import Points, watch_postgres, watch_sqlite

Rows = list[tuple[Any, ...]]

_TABLE = "CREATE TABLE bookings (id TEXT NOT NULL, key TEXT NOT NULL)"


class Place(Protocol):
    """A place of a store."""

    @property
    def url(self) -> str:
        """The store's URL."""
        ...

    def create(self) -> None:
        """Make it, with the table `bookings`."""
        ...

    def drop(self) -> None:
        """Remove it."""
        ...

    def rows(self, statement: str) -> Rows:
        """What a query gives."""
        ...

    def has(self, table: str) -> bool:
        """Whether there is such a table."""
        ...

    def integrity(self) -> str:
        """`ok`, or what is wrong with how it is stored."""
        ...

    def book(self, transaction: Any, id: str, key: str) -> None:
        """Add a row to `bookings` in the transaction that a tool was given."""
        ...

    def watch(self, points: Points, max_pages: int | None) -> None:
        """Let this process tell `points` of its statements, and a file hold no more than `max_pages` pages."""
        ...

    def copied(self) -> AbstractContextManager[Place]:
        """A copy while the block lasts. The original is left to whoever opens it next, as a kill has left it."""
        ...


def place_of(url: str) -> Place:
    """The place that a store's URL names."""
    return File(Path(url.removeprefix("sqlite:///"))) if url.startswith("sqlite") else Database(url)


class File:
    """A file in a folder of its own.

    Args:
        path: of the file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def url(self) -> str:
        """The store's URL."""
        return f"sqlite:///{self.path}"

    def create(self) -> None:
        """See `Place`."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(self.path)) as store, store:
            store.execute(_TABLE)

    def drop(self) -> None:
        """See `Place`."""
        shutil.rmtree(self.path.parent)

    def rows(self, statement: str) -> Rows:
        """See `Place`."""
        with closing(sqlite3.connect(self.path, timeout=60)) as connection:
            return connection.execute(statement).fetchall()

    def has(self, table: str) -> bool:
        """See `Place`."""
        return bool(self.rows(f"SELECT 1 FROM sqlite_schema WHERE name = '{table}'"))

    def integrity(self) -> str:
        """What SQLite says about the file."""
        return self.rows("PRAGMA integrity_check")[0][0]

    def book(self, transaction: Any, id: str, key: str) -> None:
        """See `Place`."""
        transaction.execute("INSERT INTO bookings VALUES (?, ?)", (id, key))

    def watch(self, points: Points, max_pages: int | None) -> None:
        """See `Place`."""
        watch_sqlite(str(self.path), points, max_pages)

    @contextmanager
    def copied(self) -> Generator[Place]:
        """A copy of the file and of the log that a kill has left beside it."""
        copy = File(self.path.parent.with_name("audit") / self.path.name)
        copy.path.parent.mkdir()
        try:
            for suffix in ("", "-wal"):
                source = Path(f"{self.path}{suffix}")
                if source.exists():
                    shutil.copyfile(source, f"{copy.path}{suffix}")
            yield copy
        finally:
            copy.drop()


class Database:
    """A database of a PostgreSQL server.

    Args:
        url: its URL.
        server: the URL of another database, through which this one is made, copied and removed.
    """

    def __init__(self, url: str, server: str = "") -> None:
        self.url, self._server = url, server

    @staticmethod
    def beside(server: str, name: str) -> Database:
        """The database `name` of the server that has the one at `server`."""
        from sqlalchemy import make_url

        return Database(make_url(server).set(database=name).render_as_string(hide_password=False), server)

    @property
    def name(self) -> str:
        """Of the database."""
        from sqlalchemy import make_url

        return make_url(self.url).database or ""

    def create(self) -> None:
        """See `Place`."""
        self._create("template1")
        _execute(self.url, _TABLE)

    def drop(self) -> None:
        """See `Place`."""
        _execute(self._server, f"DROP DATABASE {self.name} WITH (FORCE)")

    def rows(self, statement: str) -> Rows:
        """See `Place`."""
        return _execute(self.url, statement)

    def has(self, table: str) -> bool:
        """See `Place`."""
        return self.rows(f"SELECT to_regclass('{table}')") != [(None,)]

    def integrity(self) -> str:
        """The server has not been killed."""
        return "ok"

    def book(self, transaction: Any, id: str, key: str) -> None:
        """See `Place`."""
        from sqlalchemy import text

        transaction.execute(text("INSERT INTO bookings VALUES (:id, :key)"), {"id": id, "key": key})

    def watch(self, points: Points, max_pages: int | None) -> None:
        """See `Place`."""
        assert max_pages is None
        watch_postgres(points)

    @contextmanager
    def copied(self) -> Generator[Place]:
        """A copy; the server makes it once what dead processes have sent is done and their connections are gone."""
        copy = Database.beside(self._server, f"{self.name}_audit")
        copy._create(self.name)
        try:
            yield copy
        finally:
            copy.drop()

    def _create(self, template: str) -> None:
        _execute(self._server, f"CREATE DATABASE {self.name} TEMPLATE {template}")


def _execute(url: str, statement: str) -> Rows:
    """Execute one statement on a connection of its own; what it gives."""
    from sqlalchemy import make_url, text
    from sqlalchemy.ext.asyncio import create_async_engine

    async def execute() -> Rows:
        place = make_url(url).set(drivername="postgresql+asyncpg")
        engine = create_async_engine(place, isolation_level="AUTOCOMMIT")
        try:
            async with engine.connect() as connection:
                result = await connection.execute(text(statement))
                return [tuple(row) for row in result] if result.returns_rows else []
        finally:
            await engine.dispose()

    return asyncio.run(execute())
