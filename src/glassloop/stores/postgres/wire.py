"""asyncpg as this package uses it, with types that it does not bring itself."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, Protocol

from glassloop.stores.postgres.address import Address

_CONNECT_S = 10.0
_STATEMENT_S = 120.0  # a network that swallows answers must not hold a run for ever

_asyncpg: Any = import_module("asyncpg")

WIRE_ERRORS: tuple[type[Exception], ...] = (OSError, TimeoutError, _asyncpg.PostgresError, _asyncpg.InterfaceError)
"""What a connection raises by itself; SQLAlchemy wraps them."""


class Wire(Protocol):
    """One connection (asyncpg.Connection)."""

    async def execute(self, query: str, *values: object) -> str:
        """Execute one statement."""
        ...

    async def add_listener(self, channel: str, callback: Callable[[Any, int, str, object], None]) -> None:
        """Call back for what is notified on a channel: connection, pid of the sender's server, channel, payload."""
        ...

    def add_termination_listener(self, callback: Callable[[Any], None]) -> None:
        """Call back when the connection has ended."""
        ...

    def is_closed(self) -> bool:
        """Whether it has ended."""
        ...

    async def close(self, *, timeout: float | None = None) -> None:
        """End it politely."""
        ...

    def terminate(self) -> None:
        """End it at once."""
        ...


async def connect(address: Address) -> Wire:
    """Open a connection; raises `WIRE_ERRORS`."""
    return await _asyncpg.connect(
        address.dsn,
        user=address.user or None,
        password=address.password,
        timeout=_CONNECT_S,
        command_timeout=_STATEMENT_S,
        server_settings={"application_name": "glassloop"},
    )
