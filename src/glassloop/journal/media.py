"""The bytes of images and files: in the journal's blobs, beside messages that name them by digest."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from glassloop.core.messages import Media, Message
from glassloop.journal.journal import Journal
from glassloop.models.media import media_of

_MOST = 8_000_000
"""Bytes that are read back for one conversation, the newest first; a request shows less, whoever it is for."""


def contents(messages: Iterable[Message | None]) -> dict[str, bytes]:
    """The bytes of what stands in messages, by digest, as the journal keeps them."""
    shown = (media for message in messages if message is not None for media in media_of(message))
    return {media.digest: media.content for media in shown if media.content is not None}


async def recall(journal: Journal, messages: Sequence[Message]) -> None:
    """Give images and files of messages that were read from a store their bytes back, as far as they have been kept."""
    room = _MOST
    read: dict[str, bytes | None] = {}
    for message in reversed(messages):
        for media in reversed(media_of(message)):
            room -= media.size
            if room < 0:
                return
            if media.content is None:
                if media.digest not in read:
                    read[media.digest] = await _kept(journal, media)
                media.recall(read[media.digest])


async def _kept(journal: Journal, media: Media) -> bytes | None:
    try:
        return await journal.blob(media.digest)
    except KeyError:
        return None
