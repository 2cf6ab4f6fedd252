"""The shop's tables: orders, policies, tickets, refunds. They stand in the same SQLite file as the journal."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Generator, Iterable
from contextlib import closing, contextmanager
from dataclasses import astuple
from datetime import datetime
from typing import Any, Protocol

from glassloop import FatalToolError, RunContext, ToolError

from .data import POLICIES, orders

DEFAULT_STORE = "sqlite:///glassloop.db"

TABLES = (
    """
    CREATE TABLE orders (
        order_id TEXT PRIMARY KEY,
        agent_id INTEGER NOT NULL,
        agent TEXT NOT NULL,
        agent_zh TEXT NOT NULL,
        customer TEXT NOT NULL,
        product TEXT NOT NULL,
        product_zh TEXT NOT NULL,
        kind TEXT NOT NULL CHECK (kind IN ('buyout', 'rental', 'installment')),
        amount_cny REAL NOT NULL,
        ordered_on TEXT NOT NULL,
        status TEXT NOT NULL,
        shipped_on TEXT,
        delivered_on TEXT,
        carrier TEXT,
        carrier_zh TEXT,
        tracking TEXT,
        place TEXT,
        place_zh TEXT
    )
    """,
    """
    CREATE TABLE policies (
        policy_id TEXT PRIMARY KEY,
        title TEXT NOT NULL,
        title_zh TEXT NOT NULL,
        text TEXT NOT NULL,
        text_zh TEXT NOT NULL,
        words TEXT NOT NULL
    )
    """,
    """
    CREATE TABLE tickets (
        id INTEGER PRIMARY KEY,
        number TEXT NOT NULL UNIQUE,
        order_id TEXT NOT NULL REFERENCES orders (order_id),
        kind TEXT NOT NULL,
        title TEXT NOT NULL,
        description TEXT NOT NULL,
        priority TEXT NOT NULL,
        status TEXT NOT NULL DEFAULT 'open',
        opened_by TEXT,
        session TEXT NOT NULL,
        opened_at TEXT NOT NULL
    )
    """,
    """
    CREATE TABLE refunds (
        id INTEGER PRIMARY KEY,
        number TEXT NOT NULL UNIQUE,
        order_id TEXT NOT NULL REFERENCES orders (order_id),
        amount_cny REAL NOT NULL,
        reason TEXT NOT NULL,
        status TEXT NOT NULL DEFAULT 'submitted',
        requested_by TEXT,
        requested_at TEXT NOT NULL
    )
    """,
)


class Connection(Protocol):
    """A connection to the file, or the transaction that a write is given."""

    def execute(self, statement: str, parameters: Any = ..., /) -> sqlite3.Cursor:
        """Execute one statement."""
        ...


def database(context: RunContext | None = None) -> str:
    """The path of the file that the run's journal stands in; outside a run that of STORE, or else glassloop.db.

    Raises:
        FatalToolError: the journal stands somewhere else than in a file.
    """
    url = context.store.url if context and context.store else os.environ.get("STORE") or DEFAULT_STORE
    scheme, _, path = url.partition(":///")
    if scheme.lower() != "sqlite" or not path:
        kind = scheme.partition(":")[0]
        raise FatalToolError(f"The shop's tables stand in an SQLite file: set STORE=sqlite:///file.db, not {kind!r}.")
    return os.path.abspath(os.path.expanduser(path))


@contextmanager
def connected(context: RunContext | None = None) -> Generator[sqlite3.Connection]:
    """A connection to the file, whose tables are there; rows can be read by name."""
    with closing(sqlite3.connect(database(context), timeout=30, isolation_level=None)) as connection:
        connection.row_factory = sqlite3.Row
        if not is_prepared(connection):
            connection.execute("BEGIN IMMEDIATE")
            with connection:  # commits, or rolls back on an error
                prepare(connection)
        yield connection


def is_prepared(connection: Connection) -> bool:
    """Whether the tables are there."""
    query = "SELECT count(*) FROM sqlite_schema WHERE name IN ('orders', 'policies', 'tickets', 'refunds')"
    return connection.execute(query).fetchone()[0] == len(TABLES)


def prepare(connection: Connection) -> None:
    """Make the tables and fill them, inside the transaction that is open, unless that was done before."""
    if is_prepared(connection):
        return
    for statement in TABLES:
        connection.execute(statement)
    _fill(connection, "orders", orders())
    _fill(connection, "policies", [astuple(policy) for policy in POLICIES])


def _fill(connection: Connection, table: str, rows: Iterable[tuple[Any, ...]]) -> None:
    for row in rows:
        connection.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", row)


def find_order(connection: Connection, order_id: str) -> dict[str, Any]:
    """An order by its number, however it is written: `#a-1024`, `A1024`.

    Raises:
        ToolError: there is none.
    """
    wanted = order_id.strip().lstrip("#").upper()
    query = "SELECT * FROM orders WHERE replace(order_id, '-', '') = ?"
    found = connection.execute(query, (wanted.replace("-", ""),))
    row = found.fetchone()
    if row is None:
        raise ToolError(f"There is no order {order_id!r}; ask for the number. It looks like A-1024 or 2024001.")
    return dict(zip((column[0] for column in found.description), row, strict=True))


def next_number(connection: Connection, table: str, prefix: str) -> tuple[int, str]:
    """The next id and number of a table, e.g. (7, "TK-0007"), inside the transaction that is open."""
    (number,) = connection.execute(f"SELECT coalesce(max(id), 0) + 1 FROM {table}").fetchone()
    return number, f"{prefix}-{number:04}"


def now() -> str:
    """The time to the second, with its offset."""
    return datetime.now().astimezone().isoformat(timespec="seconds")


def lean(row: dict[str, Any]) -> dict[str, Any]:
    """A row without what is empty."""
    return {name: value for name, value in row.items() if value is not None}
