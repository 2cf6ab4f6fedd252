"""Text in which nobody sees anything."""

from __future__ import annotations

import string

_INVISIBLE = string.whitespace + "\u00a0\u3000\u00ad\u180e\u200b\u200c\u200d\u2060\ufeff"
"""Beside blanks: soft hyphen, joiners, zero-width spaces and byte order mark, which are no blanks to Python, and which
Anthropic takes for blanks all the same."""


def is_blank(text: str) -> bool:
    """Whether a text says nothing: providers refuse it, and a user reads no answer in it."""
    return not text.strip() or not text.strip(_INVISIBLE)
