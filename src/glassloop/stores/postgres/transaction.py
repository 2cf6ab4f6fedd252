"""What a tool with `transaction=True` gets of PostgreSQL: the open transaction in which its result is recorded too."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, event
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from glassloop.core.errors import StoreError
from glassloop.journal.ledger import Owner
from glassloop.stores.postgres.blobs import keep_blobs
from glassloop.stores.postgres.errors import is_of_the_store
from glassloop.stores.postgres.ledger import settle_claim
from glassloop.stores.postgres.wire import WIRE_ERRORS
from glassloop.stores.statements import NOT_YOURS, StatementError, begins_or_ends


class Writing:
    """An open transaction of the journal's database: what a tool may use of it, and what is recorded beside.

    Args:
        connection: the connection; a tool gets it as `context.transaction`.
    """

    def __init__(self, connection: Connection) -> None:
        self.transaction = connection

    def keep(self, run_id: str, contents: Mapping[str, bytes]) -> None:
        """Store contents by digest."""
        if contents:
            keep_blobs(run_id, contents, self.transaction)

    def settle(self, key: str, owner: Owner, result: bytes) -> None:
        """Settle a claim in the ledger.

        Raises:
            StoreError: the claim is another's by now; the transaction is undone.
        """
        if not settle_claim(key, owner, result, None, self.transaction):
            raise StoreError("The effect was claimed by another call meanwhile, and was not repeated.")


class Raised(Exception):
    """Carries what a tool raised that looks like an error of the database's connection.

    Args:
        error: the tool's.
    """

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error


@contextmanager
def not_the_store_s(connection: Connection) -> Generator[None]:
    """A tool's own statements: they may not end the transaction, and their errors are the tool's.

    Raises:
        StatementError: a statement is wrong, breaks a constraint, or would end the transaction; `__cause__` is
            SQLAlchemy's error.
        Raised: the tool had trouble with something else.
    """

    def refuse(connection: Connection) -> None:
        connection.invalidate()  # SQLAlchemy takes the transaction for ended, and would not undo it
        raise StatementError(NOT_YOURS)

    def look(connection: Connection, cursor: Any, statement: str, *_: Any) -> None:
        if begins_or_ends(statement):
            raise StatementError(NOT_YOURS)

    hooks = {"commit": refuse, "rollback": refuse, "before_cursor_execute": look}
    for name, hook in hooks.items():
        event.listen(connection, name, hook)
    try:
        yield
        connection.exec_driver_sql("SELECT 1")  # fails where a statement has failed and the tool went on
    except DBAPIError as error:
        if is_of_the_store(error):
            raise
        raise StatementError(f"{error.orig}".partition(">: ")[2] or str(error.orig)) from error
    except SQLAlchemyError as error:
        raise StatementError(str(error)) from error
    except WIRE_ERRORS as error:
        raise Raised(error) from error
    finally:
        for name, hook in hooks.items():
            event.remove(connection, name, hook)
