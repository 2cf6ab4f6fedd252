"""Images and documents that a tool returns as text: base64, alone or in a `data:` URL (RFC 2397).

As text a screenshot is some thirty thousand tokens in which no model sees anything.
"""

from __future__ import annotations

import re
from base64 import b64decode

from glassloop.core.messages import Media

_SHORTEST = 1_000  # characters; what is shorter costs little
_MARKS = ("iVBORw0KGgo", "/9j/", "R0lGOD", "UklGR", "JVBERi0")  # PNG, JPEG, GIF, WebP, PDF
_BEGINNINGS = ("data:", *_MARKS)
_SIGNS = (";base64,", *(f'"{mark}' for mark in _MARKS))
# possessive, or blanks before something else would be tried again and again, in quadratic time
_WHOLE = re.compile(r"(?:data:[\w.+/;=-]{1,100};base64,)?([A-Za-z0-9+/\s]++={0,2}\s*)")
_IN_JSON = re.compile(rf'"(?:data:[^",]{{1,100}};base64,)?(?:{"|".join(_MARKS)})(?:[A-Za-z0-9+/]|\\[rn]){{900}}')
_BLANKS = re.compile(r"\s+")


def may_be_encoded(text: str) -> bool:
    """Whether a text is worth a look."""
    return len(text) >= _SHORTEST and text.startswith(_BEGINNINGS)


def holds_encoded(json: str) -> bool:
    """Whether some text in a JSON text is worth a look."""
    if len(json) < _SHORTEST or not any(sign in json for sign in _SIGNS):  # a tenth of the time of the pattern
        return False
    return _IN_JSON.search(json) is not None


def decoded(text: str) -> Media | None:
    """The image or PDF that a text is, and is nothing but; None of any other text."""
    whole = _WHOLE.fullmatch(text) if may_be_encoded(text) else None
    if whole is None:
        return None
    try:
        data = b64decode(_BLANKS.sub("", whole[1]), validate=True)
    except ValueError:
        return None
    from glassloop.core.media_types import sniffed

    media_type = sniffed(data) or ""
    return Media.of(data, media_type) if media_type == "application/pdf" or media_type.startswith("image/") else None
