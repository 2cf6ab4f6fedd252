"""How JSON lies in a store: as text that any of its tools shows, and deflated where it is big."""

from __future__ import annotations

import logging
import zlib
from functools import cache
from typing import Annotated

from pydantic import Discriminator, TypeAdapter

from glassloop.core.errors import StoreError
from glassloop.core.messages import Message

MESSAGE_VERSION = 1
"""Of the messages in a session; a newer one is refused."""

_log = logging.getLogger("glassloop.stores")

_BIG = 2048  # half a page: below, deflating saves no page and costs time


def pack(data: bytes) -> str | bytes:
    """JSON as it is stored: TEXT as it is, or a BLOB of zlib (RFC 1950) where that is smaller."""
    if len(data) > _BIG:
        deflated = zlib.compress(data, 1)
        if len(deflated) < len(data):
            return deflated
    return data.decode()


def unpack(stored: str | bytes) -> str | bytes:
    """The JSON that `pack` stored.

    Raises:
        ValueError: the stored bytes are damaged.
    """
    if isinstance(stored, str):
        return stored
    try:
        return zlib.decompress(stored)
    except zlib.error as error:
        raise ValueError(str(error)) from error


def storable(text: str) -> str:
    """`text` as UTF-8 can hold it: lone surrogates (half an emoji in a user's name) are spelled out."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "backslashreplace").decode()
    return text


def read_message(session: str, position: int, version: int, stored: str | bytes) -> Message | None:
    """A session's message that `pack` stored; None, and a warning, where it is damaged.

    Args:
        session: the session, and
        position: the place in it, for the warning.
        version: of the message.
        stored: what `pack` made of it.

    Raises:
        StoreError: a newer version of Glassloop wrote it.
    """
    if version > MESSAGE_VERSION:
        raise StoreError(
            f"A newer Glassloop wrote to session {session!r} (message version {version}): upgrade it here."
        )
    try:
        return _messages().validate_json(unpack(stored))
    except ValueError:
        _log.warning("Message %d of session %r is damaged and left out.", position, session)
        return None


@cache
def _messages() -> TypeAdapter[Message]:
    return TypeAdapter(Annotated[Message, Discriminator("role")])
