"""What bytes are: told by the bytes themselves, since names and headers are often wrong."""

from __future__ import annotations

import struct

UNKNOWN = "application/octet-stream"

_MAGIC = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"%PDF-", "application/pdf"),
    (b"PK\x03\x04", "application/zip"),
    (b"\x1f\x8b", "application/gzip"),
    (b"OggS", "audio/ogg"),
    (b"ID3", "audio/mpeg"),
    (b"fLaC", "audio/flac"),
)
_OTHER_NAMES = {"image/jpg": "image/jpeg", "image/pjpeg": "image/jpeg", "image/x-png": "image/png"}
_LOOKED_AT = 1_024
_MOST_MARKERS = 10_000  # before the size; a photo has some ten, and nothing bounds what a file says
_MARKERS_OF_SIZE = frozenset({*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC})  # SOF0 to SOF15 (ITU-T T.81, B.1.1.3)


def sniffed(data: bytes) -> str | None:
    """The media type that the first bytes tell (images, PDF, sound, archives), or None."""
    for magic, media_type in _MAGIC:
        if data.startswith(magic):
            return media_type
    match data[:4], data[8:12]:
        case (b"RIFF", b"WEBP"):
            return "image/webp"
        case (b"RIFF", b"WAVE"):
            return "audio/wav"
        case _ if data.startswith(b"BM") and data[6:10] == bytes(4):
            return "image/bmp"
        case _:
            return "video/mp4" if data[4:8] == b"ftyp" else None


def corrected(media_type: str, data: bytes) -> str:
    """The media type of bytes that are said to be an image, or of which nothing is known: as they tell themselves.

    A photo whose name ends in `.png`, a drawing or an error page that was saved as one: providers answer 400 to each
    request that shows it as what it is not.
    """
    media_type = _OTHER_NAMES.get(media_type, media_type)
    if media_type == UNKNOWN:
        return sniffed(data) or UNKNOWN
    if not media_type.startswith("image/") or media_type == "image/svg+xml":
        return media_type
    return sniffed(data) or _markup(data[:_LOOKED_AT]) or media_type


def _markup(head: bytes) -> str | None:
    head = head.removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    if not head.startswith(b"<"):
        return None
    return "image/svg+xml" if b"<svg" in head else "text/html" if b"<html" in head else "text/xml"


def pixels(data: bytes) -> tuple[int, int] | None:
    """Width and height of a PNG, JPEG, GIF or WebP, read from its head; None of anything else."""
    try:
        match sniffed(data):
            case "image/png" if data[12:16] == b"IHDR":
                return struct.unpack_from(">II", data, 16)
            case "image/gif" if data.endswith(b";"):
                return struct.unpack_from("<HH", data, 6)
            case "image/webp":
                return _webp(data)
            case "image/jpeg":
                return _jpeg(data)
            case _:
                return None
    except struct.error:
        return None  # cut off


def _webp(data: bytes) -> tuple[int, int] | None:
    """RFC 9649, sections 2.5 to 2.7."""
    if int.from_bytes(data[4:8], "little") > len(data):
        return None
    match data[12:16]:
        case b"VP8X":
            return 1 + int.from_bytes(data[24:27], "little"), 1 + int.from_bytes(data[27:30], "little")
        case b"VP8L":
            (bits,) = struct.unpack_from("<I", data, 21)
            return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
        case b"VP8 ":
            width, height = struct.unpack_from("<HH", data, 26)
            return width & 0x3FFF, height & 0x3FFF
        case _:
            return None


def _jpeg(data: bytes) -> tuple[int, int] | None:
    place = 2
    for _ in range(_MOST_MARKERS):
        mark, kind, length = struct.unpack_from(">BBH", data, place)
        if mark != 0xFF:
            return None
        if kind in _MARKERS_OF_SIZE:
            height, width = struct.unpack_from(">HH", data, place + 5)
            return width, height
        place += 1 if kind == 0xFF else 2 + length  # a mark may have any number of 0xFF before it
    return None
