"""Text that is harmless to a terminal."""

from __future__ import annotations

_CONTROLS = {code: "\ufffd" for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"}


def printable(text: str) -> str:
    """`text` with each control character (ECMA-48, other than line breaks and tabs) as U+FFFD.

    What a model or a tool says could otherwise rewrite what a user sees, or answer in the user's place.
    """
    return text.translate(_CONTROLS)
