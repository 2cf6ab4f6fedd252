"""What a tool with `transaction=True` gets: the open transaction in which its result is recorded too."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from glassloop.core.errors import StoreError
from glassloop.journal.ledger import Owner
from glassloop.stores.sqlite.blobs import keep_blobs
from glassloop.stores.sqlite.ledger import settle_claim
from glassloop.stores.statements import NOT_YOURS, StatementError, begins_or_ends

_OF_THE_STORE = frozenset(
    {"SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_FULL", "SQLITE_IOERR", "SQLITE_NOMEM", "SQLITE_CORRUPT"}
)


class Writing:
    """An open transaction of the journal's database: what a tool may use of it, and what is recorded beside."""

    def __init__(self, cursor: sqlite3.Cursor) -> None:
        self._cursor = cursor
        self.transaction = OpenTransaction(cursor)

    def keep(self, run_id: str, contents: Mapping[str, bytes]) -> None:
        """Store contents by digest."""
        if contents:
            keep_blobs(run_id, contents, self._cursor)

    def settle(self, key: str, owner: Owner, result: bytes) -> None:
        """Settle a claim in the ledger.

        Raises:
            StoreError: the claim is another's by now; the transaction is undone.
        """
        if not settle_claim(key, owner, result, time.time_ns() // 1_000_000, self._cursor):
            raise StoreError("The effect was claimed by another call meanwhile, and was not repeated.")


class OpenTransaction:
    """Executes statements in a transaction that others begin and end.

    Args:
        cursor: of the connection that writes.
    """

    def __init__(self, cursor: sqlite3.Cursor) -> None:
        self._connection = cursor.connection

    def execute(self, statement: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> sqlite3.Cursor:
        """Execute one statement and return its cursor.

        Raises:
            StatementError: the statement is wrong, breaks a constraint, or would end the transaction.
        """
        return self._guarded(statement, lambda: self._connection.execute(statement, parameters))

    def executemany(self, statement: str, parameters: Iterable[Sequence[Any]]) -> sqlite3.Cursor:
        """Execute one statement for each of `parameters`; raises like `execute`."""
        return self._guarded(statement, lambda: self._connection.executemany(statement, parameters))

    def _guarded(self, statement: str, execute: Any) -> sqlite3.Cursor:
        others = ("SAVEPOINT", "RELEASE", "ROLLBACK", "ATTACH")
        if begins_or_ends(statement) or statement.lstrip().upper().startswith(others):
            raise StatementError(NOT_YOURS)
        try:
            return execute()
        except sqlite3.Error as error:
            name = getattr(error, "sqlite_errorname", "") or ""
            if "_".join(name.split("_")[:2]) in _OF_THE_STORE:
                raise
            raise StatementError(str(error)) from error
