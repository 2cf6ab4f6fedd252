"""Appending to a run in PostgreSQL: in one statement where the run stands as this process left it, else in several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Connection,
    LargeBinary,
    Text,
    bindparam,
    select,
    text,
    update,
)
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.exc import IntegrityError

from glassloop.core.events import ApprovalAsked, ApprovalDecided, DriverClaimed, Event
from glassloop.journal.journal import Turn, check_position, check_writer
from glassloop.journal.projection import RunRow, project
from glassloop.stores.postgres.approvals import project_approval
from glassloop.stores.postgres.blobs import keep_blobs
from glassloop.stores.postgres.errors import Repeat
from glassloop.stores.postgres.schema import Plain, rows_of, runs
from glassloop.stores.postgres.schema import events as entries
from glassloop.stores.postgres.sessions import append_messages
from glassloop.stores.rows import (
    CHANGING_COLUMNS,
    EVENT_COLUMNS,
    RUN_COLUMNS,
    changed_values,
    event_values,
    run_values,
)

_FIND = (
    select(runs.c.seq, runs.c.epoch, *[runs.c[name] for name in RUN_COLUMNS])
    .where(runs.c.id == bindparam("run"))
    .with_for_update()
)
_PUT_RUN = insert(runs).on_conflict_do_nothing()
_UPDATE_RUN = update(runs).where(runs.c.id == bindparam("run"))
_INSERT_EVENTS = insert(entries)


class Position(NamedTuple):
    """Where a run stands.

    Args:
        seq: its last event.
        epoch: of its driver.
        row: its line in lists; None until it has started.
    """

    seq: int
    epoch: int
    row: RunRow | None


@dataclass(frozen=True)
class Addition:
    """What is to be appended; see `Journal.append`."""

    run_id: str
    events: Sequence[Event]
    after: int | None
    epoch: int | None
    blobs: Mapping[str, bytes] | None = None
    turn: Turn | None = None

    def rows(self, last: int) -> list[tuple[Any, ...]]:
        """The events as rows that come after `last`."""
        numbered = enumerate(self.events, last + 1)
        return [event_values(self.run_id, seq, each, epoch=self.epoch, pack=bytes.decode) for seq, each in numbered]


def append(adding: Addition, connection: Connection) -> Position:
    """Append inside the transaction that is open, and return where the run stands then; raises like `Journal.append`.

    The run's row is locked until the transaction ends.
    """
    position = _append_events(adding, connection)
    if adding.turn is not None:
        append_messages(*adding.turn, connection, adding.run_id)
    return position


def _append_events(adding: Addition, connection: Connection) -> Position:
    found = next(iter(rows_of(connection.execute(_FIND, {"run": adding.run_id}))), None)
    last, known = found[:2] if found else (0, 0)
    raised = check_writer(adding.run_id, adding.events, epoch=adding.epoch, known=known)
    check_position(adding.run_id, after=adding.after, last=last)
    before = row = RunRow(*found[2:]) if found and found[3] is not None else None
    if not adding.events and not adding.blobs:
        return Position(last, known, row)
    for event in adding.events:
        row = project(row, event)
        if row is not None:
            project_approval(row, event, connection)
    values: dict[str, Any] = {"seq": last + len(adding.events), "epoch": raised}
    if row is None or before is None:
        values |= zip(RUN_COLUMNS, run_values(adding.run_id, row), strict=True)
    else:
        values |= zip(CHANGING_COLUMNS, changed_values(row), strict=True)
    if found:
        connection.execute(_UPDATE_RUN, {"run": adding.run_id, **values})
    elif not connection.execute(_PUT_RUN, values).rowcount:
        raise Repeat(f"Another has begun run {adding.run_id} at this moment.")
    if adding.events:
        named: list[dict[str, Any]] = [dict(zip(EVENT_COLUMNS, each, strict=True)) for each in adding.rows(last)]
        connection.execute(_INSERT_EVENTS, named)
    if adding.blobs:
        keep_blobs(adding.run_id, adding.blobs, connection)
    return Position(last + len(adding.events), raised, row)


# In one statement

_KINDS = {"seq": BigInteger, "v": BigInteger, "at": BigInteger, "step": BigInteger, "epoch": BigInteger}
_ARRAYS = {name: ARRAY(_KINDS.get(name, Text)) for name in EVENT_COLUMNS[1:]}
_CHANGES = {name: runs.c[name].type for name in CHANGING_COLUMNS}
_BLOBS = """
    , kept AS (
        INSERT INTO glassloop_blobs (digest, data)
        SELECT each.* FROM moved, unnest(:digests, :contents) AS each ON CONFLICT DO NOTHING
    ), held AS (
        INSERT INTO glassloop_run_blobs (run_id, digest)
        SELECT moved.id, each FROM moved, unnest(:digests) AS each ON CONFLICT DO NOTHING
    )
"""


def _statement(blobs: str) -> Any:
    types = {"run": Plain(), "seq": BigInteger(), "after": BigInteger(), **_CHANGES, "epoch": BigInteger()}
    arrays = {f"each_{name}": kind for name, kind in _ARRAYS.items()}
    if blobs:
        arrays |= {"digests": ARRAY(Text), "contents": ARRAY(LargeBinary)}
    return text(f"""
        WITH moved AS (
            UPDATE glassloop_runs SET seq = :seq, {", ".join(f"{name} = :{name}" for name in CHANGING_COLUMNS)}
            WHERE id = :run AND seq = :after AND epoch = :epoch RETURNING id
        ) {blobs}
        INSERT INTO glassloop_events ({", ".join(EVENT_COLUMNS)})
        SELECT moved.id, each.* FROM moved, unnest({", ".join(f":each_{name}" for name in _ARRAYS)}) AS each
    """).bindparams(*(bindparam(name, type_=kind) for name, kind in {**types, **arrays}.items()))


_AT_ONCE, _AT_ONCE_WITH_BLOBS = _statement(""), _statement(_BLOBS)
_SPECIAL = (DriverClaimed, ApprovalAsked, ApprovalDecided)


def is_plain(adding: Addition, known: Position | None) -> bool:
    """Whether one statement can do it: a driver goes on where it stands, and nobody is asked or answered."""
    return (
        known is not None
        and known.row is not None
        and (adding.after, adding.epoch) == (known.seq, known.epoch)
        and adding.turn is None
        and bool(adding.events)
        and not any(isinstance(event.data, _SPECIAL) for event in adding.events)
    )


def append_at_once(adding: Addition, row: RunRow, connection: Connection) -> Position | None:
    """Append what is plain, in one statement; None, with nothing written, where the run stands elsewhere by now.

    Args:
        adding: what to append.
        row: the run's line as of `adding.after`.
        connection: commits each statement by itself.
    """
    assert adding.after is not None
    assert adding.epoch is not None
    for event in adding.events:
        row = project(row, event) or row
    position = Position(adding.after + len(adding.events), adding.epoch, row)
    values: dict[str, Any] = {"run": adding.run_id, "after": adding.after, "seq": position.seq, "epoch": adding.epoch}
    values |= zip(CHANGING_COLUMNS, changed_values(row), strict=True)
    columns = zip(*adding.rows(adding.after), strict=True)
    values |= {f"each_{name}": list(column) for name, column in zip(EVENT_COLUMNS, columns, strict=True)}
    del values["each_run_id"]
    if adding.blobs:
        values |= {"digests": list(adding.blobs), "contents": list(adding.blobs.values())}
    try:
        done = connection.execute(_AT_ONCE_WITH_BLOBS if adding.blobs else _AT_ONCE, values).rowcount
    except IntegrityError:  # a content was erased while it was being stored again
        return None
    return position if done else None


def append_unless_there(adding: Addition, connection: Connection) -> int:
    """Append after a connection broke in the middle of it, unless that had happened; the new last `seq`."""
    query = select(*[entries.c[name] for name in EVENT_COLUMNS]).where(
        entries.c.run_id == adding.run_id, entries.c.seq > (adding.after or 0)
    )
    there = rows_of(connection.execute(query.order_by(entries.c.seq).limit(len(adding.events))))
    wanted = adding.rows(adding.after or 0)
    if [tuple(row) for row in there] == wanted:
        return (adding.after or 0) + len(wanted)
    return append(adding, connection).seq
