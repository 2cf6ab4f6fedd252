"""The tables of a store in PostgreSQL, and how an older database is brought up to date."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Double,
    ForeignKey,
    Identity,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    func,
    inspect,
    literal,
    select,
    text,
)
from sqlalchemy.dialects.postgresql import TIMESTAMP, insert
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator

from glassloop.core.errors import ConfigurationError
from glassloop.stores.codec import storable

OLDEST = 13
"""The oldest PostgreSQL that is taken; older ones get no fixes any more (postgresql.org/support/versioning)."""

_LOCK = 0x676C617373  # "glass": of two processes that start at once, one makes the tables


class Plain(TypeDecorator[str]):
    """Text, compared byte by byte; what PostgreSQL cannot hold (lone surrogates, NUL) is spelled out."""

    impl = Text
    cache_ok = True

    def __init__(self) -> None:
        super().__init__(collation="C")

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """Spell out what cannot be stored."""
        return None if value is None else storable(value).replace("\x00", "\\x00")


@dataclass(frozen=True)
class Schema:
    """Tables that are made together and have one version.

    Args:
        name: of the part of Glassloop that they belong to.
        tables: as the newest version has them; made so where there are none.
        steps: what leads from version 1 to 2, from 2 to 3, and so on.
    """

    name: str
    tables: MetaData
    steps: tuple[Callable[[Connection], None], ...] = ()

    @property
    def version(self) -> int:
        """Of the tables as they are here."""
        return 1 + len(self.steps)


_metadata = MetaData()


def column(name: str, kind: Any = Plain, *rest: Any, optional: bool = False, key: bool = False) -> Column[Any]:
    """A column, by default of text that must be given."""
    return Column(name, kind, *rest, nullable=optional, primary_key=key)


versions = Table("glassloop_schema", MetaData(), column("name", key=True), column("version", Integer))

runs = Table(
    "glassloop_runs",
    _metadata,
    column("id", key=True),
    column("seq", BigInteger),
    column("epoch", BigInteger),
    column("agent", optional=True),
    column("session", optional=True),
    column("user", optional=True),
    column("tenant", optional=True),
    column("status", optional=True),
    column("input", optional=True),
    column("started_at", BigInteger, optional=True),
    column("updated_at", BigInteger, optional=True),
    column("steps", BigInteger, optional=True),
    column("tokens", BigInteger, optional=True),
    column("cost_usd", Double, optional=True),
    column("pending", BigInteger, optional=True),
    column("owner", optional=True),
)
Index("glassloop_runs_session", runs.c.session, postgresql_where=runs.c.session.is_not(None))
Index("glassloop_runs_user", runs.c.user, postgresql_where=runs.c.user.is_not(None))
Index("glassloop_runs_open", runs.c.status, postgresql_where=text("status IN ('running', 'waiting', 'cancelling')"))

events = Table(
    "glassloop_events",
    _metadata,
    column("run_id", key=True),
    column("seq", BigInteger, key=True),
    column("type"),
    column("v", Integer),
    column("at", BigInteger),
    column("step", BigInteger),
    column("epoch", BigInteger, optional=True),
    column("data", Text),  # not jsonb, which takes no NUL and orders keys anew
    column("private", Text, optional=True),
)

approvals = Table(
    "glassloop_approvals",
    _metadata,
    column("approval_id", key=True),
    column("run_id"),
    column("call_id"),
    column("tool"),
    column("arguments"),
    column("summary"),
    column("risk"),
    column("role", optional=True),
    column("kind"),
    column("mode"),
    column("user", optional=True),
    column("tenant", optional=True),
    column("session", optional=True),
    column("agent"),
    column("asked_at", BigInteger),
    column("expires_at", BigInteger, optional=True),
    column("decision", optional=True),
    column("decided_by", optional=True),
    column("reason", optional=True),
    Column("choices", Plain, nullable=False, server_default="[]"),
    column("answer", optional=True),
)
Index("glassloop_approvals_open", approvals.c.asked_at, postgresql_where=approvals.c.decision.is_(None))

blobs = Table("glassloop_blobs", _metadata, column("digest", key=True), column("data", LargeBinary))

run_blobs = Table(
    "glassloop_run_blobs",
    _metadata,
    column("run_id", key=True),
    column("digest", Plain, ForeignKey(blobs.c.digest, name="glassloop_run_blobs_digest"), key=True),
)
Index("glassloop_run_blobs_holders", run_blobs.c.digest)

messages = Table(
    "glassloop_messages",
    _metadata,
    Column("position", BigInteger, Identity(always=True), primary_key=True),
    column("session"),
    column("run_id"),
    column("v", Integer),
    column("message", Text),
)
Index("glassloop_messages_session", messages.c.session, messages.c.position)

session_runs = Table("glassloop_session_runs", _metadata, column("session", key=True), column("run_id", key=True))

session_locks = Table(
    "glassloop_session_locks",
    _metadata,
    Column("ticket", BigInteger, Identity(always=True), primary_key=True),
    column("session"),
    column("run_id"),
    column("token"),
    column("process"),
)
Index("glassloop_session_locks_session", session_locks.c.session, session_locks.c.ticket)

ledger = Table(
    "glassloop_ledger",
    _metadata,
    column("key", key=True),
    column("run_id"),
    column("call_id"),
    column("process"),
    column("until", BigInteger),
    column("ttl", BigInteger),
    column("result", LargeBinary, optional=True),
)

processes = Table(
    "glassloop_processes",
    _metadata,
    column("process", key=True),
    column("until", TIMESTAMP(timezone=True)),
)


def _add_questions(connection: Connection) -> None:
    columns = 'ADD COLUMN choices text COLLATE "C" NOT NULL DEFAULT \'[]\', ADD COLUMN answer text COLLATE "C"'
    connection.execute(text(f"ALTER TABLE glassloop_approvals {columns}"))


STORE = Schema("store", _metadata, (_add_questions,))
"""Journal, sessions and ledger."""


def rows_of(result: Any) -> Sequence[tuple[Any, ...]]:
    """All rows of a query whose columns the type checker does not know."""
    return result.all()


def check_server(version: int, encoding: str, *, read_only: bool) -> None:
    """Refuse a server that cannot hold a store.

    Args:
        version: `server_version_num`.
        encoding: `server_encoding`.
        read_only: whether it is a standby, say.

    Raises:
        ConfigurationError: it is too old, its text is not UTF-8, or it cannot be written.
    """
    if version < OLDEST * 10_000:
        raise ConfigurationError(f"PostgreSQL {version // 10_000} is too old: Glassloop needs {OLDEST} or newer.")
    if encoding.upper() not in ("UTF8", "UTF-8"):
        raise ConfigurationError(
            f"The database holds text as {encoding}: create one with ENCODING 'UTF8' for Glassloop."
        )
    if read_only:
        raise ConfigurationError("The database is read-only, a standby perhaps: name the primary in the URL.")


def is_current(schema: Schema, connection: Connection) -> bool:
    """Whether the tables are those of this version, or must be made, or migrated.

    Raises:
        ConfigurationError: a newer Glassloop made them; they were left as they are.
    """
    known = _version(schema, connection)
    if known > schema.version:
        raise ConfigurationError(
            f"The database was written by a newer Glassloop ({schema.name} schema {known}, this one knows "
            f"{schema.version}): upgrade Glassloop, or use another database."
        )
    return known == schema.version


def migrate(schema: Schema, connection: Connection) -> None:
    """Bring the tables up to date, inside the transaction that is open; of several processes one does it."""
    connection.execute(select(func.pg_advisory_xact_lock(_LOCK)))
    versions.metadata.create_all(connection)
    if is_current(schema, connection):
        return
    known = _version(schema, connection)
    if known == 0:
        schema.tables.create_all(connection, checkfirst=False)
    for step in schema.steps[known - 1 :] if known else ():
        step(connection)
    put = insert(versions).values(name=schema.name, version=schema.version)
    connection.execute(put.on_conflict_do_update(index_elements=["name"], set_={"version": put.excluded.version}))


def _version(schema: Schema, connection: Connection) -> int:
    if not inspect(connection).has_table(versions.name):
        return 0
    return connection.execute(select(versions.c.version).where(versions.c.name == literal(schema.name))).scalar() or 0
