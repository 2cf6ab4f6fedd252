"""Events and runs as rows: what every SQL store writes and reads alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydantic_core import to_json

from glassloop.core.encoding import loads
from glassloop.core.errors import StoreError
from glassloop.core.events import Event, decode_data, encode_data, version_of
from glassloop.journal.projection import RunRow
from glassloop.stores.codec import storable, unpack

EVENT_COLUMNS = ("run_id", "seq", "type", "v", "at", "step", "epoch", "data", "private")
"""What `event_values` gives."""

READ_COLUMNS = ("seq", "type", "v", "at", "step", "data", "private")
"""What `read_event` takes."""

RUN_COLUMNS = (
    *("id", "agent", "session", "user", "tenant", "status", "input", "started_at", "updated_at"),
    *("steps", "tokens", "cost_usd", "pending", "owner"),
)
"""What `run_values` gives, and the fields of `RunRow` in their order."""

CHANGING_COLUMNS = ("status", "updated_at", "steps", "tokens", "cost_usd", "pending", "owner")
"""Those that may change after a run's first event."""


def event_values(
    run_id: str, seq: int, event: Event, *, epoch: int | None, pack: Callable[[bytes], str | bytes]
) -> tuple[object, ...]:
    """An event as a row; `pack` makes of JSON what the store keeps."""
    data = pack(encode_data(event.data))
    private = None if event.private is None else pack(to_json(event.private, serialize_unknown=True))
    return (run_id, seq, event.type, version_of(event.data), event.at, event.step, epoch, data, private)


def read_event(run_id: str, stored: tuple[Any, ...]) -> Event:
    """The event of a row.

    Raises:
        StoreError: it is damaged.
    """
    seq, type_, version, at, step, data, private = stored
    try:
        detail = None if private is None else loads(unpack(private))
        return Event(run_id, seq, at, step, decode_data(type_, version, unpack(data)), detail)
    except ValueError as error:
        raise StoreError(f"Event {seq} of run {run_id} ({type_}) is damaged and cannot be read.") from error


def run_values(run_id: str, row: RunRow | None) -> tuple[object, ...]:
    """A run's line as a row; of one that has not started, the id alone."""
    if row is None:
        return (run_id, *[None] * (len(RUN_COLUMNS) - 1))
    texts = (None if text is None else storable(text) for text in (row.session, row.user, row.tenant))
    head = (run_id, row.agent, *texts, row.status, storable(row.input), row.started_at, row.updated_at)
    return (*head, row.steps, row.tokens, row.cost_usd, row.pending, row.owner)


def changed_values(row: RunRow) -> tuple[object, ...]:
    """The values of `CHANGING_COLUMNS`."""
    return (row.status, row.updated_at, row.steps, row.tokens, row.cost_usd, row.pending, row.owner)
