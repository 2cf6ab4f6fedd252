"""Where a Redis server is, and what its errors mean: one sentence, without the password."""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Iterator
from importlib.util import find_spec
from urllib.parse import parse_qsl, urlsplit

from glassloop.core.errors import ConfigurationError, GlassloopError, StoreError


def check_url(url: str) -> tuple[str, str]:
    """The URL as it may be shown, without user, password and options, and its host.

    Raises:
        ConfigurationError: it cannot be used; the message shows nothing that could be the password.
    """
    scheme, _, rest = url.partition("://")
    login, _, place = rest.rpartition("@")
    if any(character in login for character in "/?#@"):
        raise ConfigurationError(
            "The password in the Redis URL has a character that stands for something else there: "
            "write / as %2F, ? as %3F, # as %23 and @ as %40."
        )
    parts = urlsplit(f"{scheme.lower()}://{place}")
    database = parts.path.removeprefix("/") or "0"
    try:
        name = parts.hostname or "localhost"
        host = f"{f'[{name}]' if ':' in name else name}:{parts.port or 6379}"
    except ValueError:
        raise ConfigurationError("The port in the Redis URL is no number: write redis://host:6379/0.") from None
    if not (database.isascii() and database.isdecimal()):
        raise ConfigurationError(f"A database of Redis is a number, not {database!r}: write redis://{host}/0.")
    for option, _ in parse_qsl(parts.query, keep_blank_values=True):
        if parts.scheme != "rediss" or not option.startswith("ssl_"):
            raise ConfigurationError(
                f"The Redis URL has an option {option!r}: it takes none but ssl_ca_certs and such after rediss://."
            )
    if find_spec("redis") is None:
        raise ConfigurationError("Sessions in Redis need the redis extra: pip install 'glassloop[redis]'.")
    return f"{parts.scheme}://{host}/{database}", host


def is_cut_off(error: Exception) -> bool:
    """Whether the connection failed, and the next may be better."""
    from redis import exceptions

    if isinstance(error, exceptions.AuthenticationError) or _certificate_of(error):
        return False
    return isinstance(error, exceptions.ConnectionError | exceptions.TimeoutError | OSError)


def explain(place: str, error: Exception) -> GlassloopError:
    """One sentence about what is wrong with the server at `place`, or its answer."""
    from redis import exceptions

    match error:
        case exceptions.AuthenticationError():
            return ConfigurationError(f"{place} refuses the user or the password: correct them in the URL.")
        case exceptions.InvalidResponse():
            return StoreError(f"What answers as {place} is none: correct the URL.")
        case exceptions.ConnectionError() | exceptions.TimeoutError() | OSError():
            return StoreError(f"{place} cannot be reached ({_reason(error)}): start it, or correct the URL.")
        case _:
            return _refusal(place, f"{type(error).__name__} {' '.join(str(error).split())}")


def _refusal(place: str, words: str) -> GlassloopError:
    """By what the server said; where a script failed, its error stands inside another."""
    if "NOPERM" in words or "NoPermissionError" in words:
        rules = "~glassloop:* &glassloop:* +@all -@admin -@dangerous"
        return ConfigurationError(f"{place} does not let its user do what sessions need: give it the rules {rules}.")
    if "READONLY" in words or "ReadOnlyError" in words:
        return ConfigurationError(f"{place} is a read-only replica: use the URL of the primary.")
    if "OOM" in words or "OutOfMemoryError" in words:
        return StoreError(f"{place} is out of memory and takes no more: raise its maxmemory.")
    return StoreError(f"{place} refused a command: {words[:200]}")


def _reason(error: Exception) -> str:
    """The operating system's words, without addresses."""
    if refused := _certificate_of(error):
        return refused
    for cause in _causes(error):
        if isinstance(cause, socket.gaierror):
            return "there is no such host"
        if isinstance(cause, OSError) and cause.errno and not isinstance(cause, ssl.SSLError):
            return os.strerror(cause.errno).lower()
    return "no answer in time" if "Timeout" in type(error).__name__ else "the connection broke"


def _certificate_of(error: Exception) -> str:
    """Why the server's certificate is not accepted, if that is what is wrong."""
    found = next((each for each in _causes(error) if isinstance(each, ssl.SSLCertVerificationError)), None)
    return f"its certificate: {found.verify_message}" if found else ""


def _causes(error: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__
