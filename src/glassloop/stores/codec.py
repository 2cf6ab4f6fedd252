"""How JSON lies in a store: as text that any of its tools shows, and deflated where it is big."""

from __future__ import annotations

import zlib

MESSAGE_VERSION = 1
"""Of the messages in a session; a newer one is refused."""

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
