"""Messages of a session, read back. Whoever has no session need not load what builds the validator."""

from __future__ import annotations

import logging
from functools import cache
from typing import Annotated

from pydantic import Discriminator, TypeAdapter

from glassloop.core.errors import StoreError
from glassloop.core.messages import Message
from glassloop.stores.codec import MESSAGE_VERSION, unpack

_log = logging.getLogger("glassloop.stores")


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
