"""Images and files in a request: what is sent, what is only named."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Sequence

from glassloop.core.messages import Media, Message, ToolResult, UserMessage

PDF = "application/pdf"
IMAGE_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""What both OpenAI and Anthropic read."""

FEW_IMAGES = 20
"""Beyond so many in one request, Anthropic allows each of them fewer pixels."""

_MOST_IMAGES = 100  # Anthropic's limit for one request; OpenAI's is 500


def media_of(message: Message) -> Sequence[Media]:
    """The images and files of a message, in order."""
    match message:
        case ToolResult():
            return message.media
        case UserMessage(content=str()):
            return ()
        case UserMessage():
            return [part for part in message.content if isinstance(part, Media)]
        case _:
            return ()


class Gallery:
    """Which media of a conversation are sent in full: the newest of accepted types, as long as there is room.

    The same bytes in two messages count twice, for they are sent twice.

    Args:
        messages: the conversation.
        accepts: whether the server reads a media type.
        most: base64 characters in all.
        sides: the most pixels that an image may be wide or high, where there is a limit: whatever the number of images,
            and where more than `FEW_IMAGES` are sent.
    """

    def __init__(
        self,
        messages: Sequence[Message],
        accepts: Callable[[str], bool],
        most: int,
        sides: tuple[int, int] | None = None,
    ) -> None:
        self._accepts = accepts
        self._side = sides[0] if sides else None
        newest = [media for message in reversed(messages) for media in reversed(media_of(message))]
        self._shown = self._fitting(newest, most)
        if sides and sum(self._shown) > FEW_IMAGES:
            self._side = sides[1]
            self._shown = self._fitting(newest, most)

    def take(self, media: Media) -> str | None:
        """Ask once for each of the media, in order: None if it is sent, else what stands in its place."""
        return None if self._shown.pop() else placeholder(media, self._readable(media))

    def _fitting(self, newest: Sequence[Media], most: int) -> list[bool]:
        shown: list[bool] = []
        room = _MOST_IMAGES
        for media in newest:
            cost = (media.size + 2) // 3 * 4
            fits = cost <= most and room > 0 and media.content is not None and self._readable(media)
            most -= cost if fits else 0
            room -= fits
            shown.append(fits)
        return shown

    def _readable(self, media: Media) -> bool:
        """Whether the server reads it at all, however little else there is."""
        if media.size == 0 or not self._accepts(media.media_type):
            return False
        if self._side is None:
            return True
        from glassloop.core.media_types import pixels

        return max(pixels(media.content or b"") or (0,)) <= self._side


def base64_of(media: Media) -> bytes:
    """The bytes, in base64."""
    return b64encode(media.content or b"")


def data_url(media: Media) -> bytes:
    """The bytes, as a `data:` URL (RFC 2397)."""
    return b"data:" + media.media_type.encode("ascii", "replace") + b";base64," + base64_of(media)


def placeholder(media: Media, accepted: bool) -> str:
    """What stands for bytes that are not sent."""
    name = f"{media.name}: " if media.name else ""
    why = "not shown again" if accepted else "not shown"
    return f"[{name}{media.media_type}, {_size(media.size)}, {why}]"


def _size(count: int) -> str:
    if count >= 1_000_000:
        return f"{count / 1_000_000:.1f} MB"
    return f"{count / 1_000:.1f} kB" if count >= 1_000 else f"{count} bytes"
