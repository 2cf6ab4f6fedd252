"""What PostgreSQL's errors mean: one sentence, without the password."""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from glassloop.core.errors import ConfigurationError, GlassloopError, StoreError
from glassloop.stores.postgres.address import Address
from glassloop.stores.postgres.wire import WIRE_ERRORS

# https://www.postgresql.org/docs/current/errcodes-appendix.html
_REPEAT = frozenset({"40001", "40P01"})  # serialization failure, deadlock: the server has undone the transaction
_DOWN = frozenset(
    {"57P01", "57P02", "57P03", "08000", "08001", "08003", "08004", "08006"}
)  # stopping, starting, cut off
_FULL = frozenset({"53100", "53200"})  # disk full, out of memory
_BUSY = frozenset({"53300"})  # too many connections
_READ_ONLY = frozenset({"25006"})


class Repeat(Exception):
    """Raised by work on a database: others came between, undo this transaction and do it again."""


class CutOff(StoreError):
    """The connection broke during a commit, which may or may not have happened."""


def sqlstate(error: BaseException) -> str:
    """PostgreSQL's code of an error; empty if the server has not said anything."""
    return next((code for each in _chain(error) if (code := getattr(each, "sqlstate", None))), "")


def is_cut_off(error: Exception) -> bool:
    """Whether the connection broke, or the server is going down or coming up."""
    return (isinstance(error, DBAPIError) and error.connection_invalidated) or sqlstate(error) in _DOWN


def may_repeat(error: Exception) -> bool:
    """Whether an error before the commit says nothing against doing the transaction again."""
    return isinstance(error, Repeat) or is_cut_off(error) or sqlstate(error) in _REPEAT


def is_of_the_store(error: Exception) -> bool:
    """Whether the server failed, and not a statement."""
    code = sqlstate(error)
    return may_repeat(error) or code[:2] in ("53", "57", "58", "XX", "08") or code in _READ_ONLY or not code


DATABASE_ERRORS = (Repeat, SQLAlchemyError, *WIRE_ERRORS)
"""What work on a database raises where the database, and not the work, failed."""


def explain(place: Address, error: Exception) -> GlassloopError:
    """One of `DATABASE_ERRORS` as one sentence that names the server, what is wrong and what to do."""
    code = sqlstate(error)
    if code:
        return _server_said(place, code, _words(error))
    if isinstance(error, PoolTimeout):
        return StoreError(f"{place} is too busy: no connection came free within a minute.")
    if type(error).__name__ == "ClientConfigurationError":
        return ConfigurationError(f"The URL of the store cannot be used: {_words(error)}.")
    if isinstance(error, TimeoutError):
        return StoreError(f"{place} does not answer in time: is it reachable, or overloaded?")
    if isinstance(error, OSError):
        if "SSL upgrade" in str(error):
            return ConfigurationError(f"{place} does not speak TLS: set it up there, or take sslmode out of the URL.")
        why = "no such host" if type(error).__name__ == "gaierror" else (error.strerror or "no connection").lower()
        why = "nothing listens there" if isinstance(error, ConnectionRefusedError) or not error.errno else why
        return StoreError(f"{place} cannot be reached ({why}): start it, or correct the URL.")
    return StoreError(f"{place} failed: {_words(error)}.")


def _server_said(place: Address, code: str, words: str) -> GlassloopError:
    user = repr(place.user) if place.user else "a user whom the URL does not name"
    match code:
        case "28P01" | "28000":
            return ConfigurationError(
                f"{place} does not let {user} in: correct user and password in the URL ({words})."
            )
        case "3D000" if not place.database:
            return ConfigurationError(
                f"The URL names no database, and {place} has none of the user's name: write its name after the host."
            )
        case "3D000":
            return ConfigurationError(
                f"{place} has no database {place.database!r}: create it with createdb, or correct the URL."
            )
        case "42501" | "3F000":
            return ConfigurationError(
                f"{place}: {words}. {user} needs the right to create tables in {place.database!r} and use them."
            )
        case _ if words.endswith("timeout"):
            return StoreError(
                f"{place} broke off what took too long for it ({words}): raise that timeout for {user}, or see what "
                "keeps the server busy."
            )
        case "25006":
            return ConfigurationError(f"{place} is read-only, a standby perhaps: name the primary in the URL.")
        case "42704" if "configuration parameter" in words:
            return ConfigurationError(f"{place} does not know an option of the URL ({words}): remove it.")
        case _ if code in _BUSY:
            return StoreError(f"{place} takes no more connections: raise max_connections, or start fewer processes.")
        case _ if code in _FULL:
            return StoreError(f"{place} has no room left ({words}). What it held before is intact.")
        case _ if code in _DOWN:
            return StoreError(f"{place} is starting or stopping ({words}): try again in a moment.")
        case _:
            return StoreError(f"{place} failed: {words}.")


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An error and what it wraps."""
    seen: BaseException | None = error
    while seen is not None:
        yield seen
        seen = getattr(seen, "orig", None) or seen.__cause__


def _words(error: BaseException) -> str:
    """What the server said, else the innermost error, on one line."""
    *_, last = [each for each in _chain(error) if getattr(each, "sqlstate", None)] or _chain(error)
    return " ".join(str(last).split()).rstrip(".") or type(last).__name__
