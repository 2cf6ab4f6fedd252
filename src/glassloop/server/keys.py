"""API keys in a file: one JSON object a line, with the key's hash and never the key."""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, StringConstraints, ValidationError

from glassloop.core.context import Identity
from glassloop.core.errors import ConfigurationError
from glassloop.server.scope import DEFAULT_TENANT

Name = Annotated[str, StringConstraints(min_length=1, max_length=200)]


class KeyLine(BaseModel):
    """A line of the file."""

    model_config = ConfigDict(extra="forbid", strict=True)

    hash: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
    user: Name
    tenant: Name = DEFAULT_TENANT
    roles: list[Name] = []


def hash_key(key: str) -> str:
    """SHA-256 of a key, in hexadecimal.

    A plain hash is enough because a key is 256 random bits: there is nothing to guess that a slow hash would slow down.
    """
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def read_keys(path: Path) -> dict[str, Identity]:
    """Who each key stands for, by its hash. Blank lines are skipped.

    Raises:
        ConfigurationError: the file cannot be read or a line is wrong; the message names it.
    """
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigurationError(
            f"The key file {path} cannot be read ({reason}): make one with `glassloop keys new --user NAME`."
        ) from None
    return dict(_parse(path, number, line) for number, line in enumerate(lines, 1) if line.strip())


def new_key(path: Path, user: str, tenant: str = DEFAULT_TENANT, roles: Sequence[str] = ()) -> str:
    """Make a key, append its hash to the file and return it; it cannot be shown again.

    A file that does not exist is made, readable by its owner alone.

    Raises:
        ConfigurationError: a name is empty or too long, or the file cannot be written.
    """
    key = f"gl_{secrets.token_urlsafe(32)}"
    try:
        line = KeyLine(hash=hash_key(key), user=user, tenant=tenant, roles=list(roles))
    except ValidationError as error:
        raise ConfigurationError(f"This key cannot be made: {_first(error)}.") from None
    try:
        _append(path, line.model_dump_json().encode())
    except OSError as error:
        raise ConfigurationError(f"The key file {path} cannot be written ({error.strerror}).") from None
    return key


def _append(path: Path, line: bytes) -> None:
    """Add a line of its own, also where the last one has no line break."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        end = os.lseek(file, 0, os.SEEK_END)
        broken = end > 0 and os.pread(file, 1, end - 1) != b"\n"
        os.write(file, (b"\n" if broken else b"") + line + b"\n")
    finally:
        os.close(file)


def _parse(path: Path, number: int, line: str) -> tuple[str, Identity]:
    try:
        found = KeyLine.model_validate_json(line)
    except ValidationError as error:
        raise ConfigurationError(f"Line {number} of the key file {path} is wrong: {_first(error)}.") from None
    return found.hash, Identity(found.user, found.tenant, tuple(found.roles))


def _first(error: ValidationError) -> str:
    """The first thing that is wrong, without the value: it may be a key in the wrong place."""
    problem = error.errors(include_url=False, include_input=False, include_context=False)[0]
    where = ".".join(map(str, problem["loc"]))
    return f"{where}: {problem['msg']}" if where else problem["msg"]
