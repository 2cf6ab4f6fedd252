"""Thinking that a server leaves in the text, between `<think>` and `</think>` at its beginning."""

from __future__ import annotations

import re
from typing import Literal

OPEN, CLOSE = "<think>", "</think>"
_LONE_CLOSE = re.compile(rf"(?:\A|\n)[ \t]*{CLOSE}[ \t]*(?:\n|\Z)\s*")


def split_at_lone_close(text: str) -> tuple[str, str]:
    """Thinking and text of a whole reply in which the thinking ends and never began: the template had opened it.

    Only a closing tag on a line of its own counts, outside fences and with no opening one before it. While the reply is
    streamed nobody can tell such thinking from text, so it is shown as text.
    """
    found = _LONE_CLOSE.search(text) if CLOSE in text else None
    if found is None or OPEN in text[: found.start()] or text.count("```", 0, found.start()) % 2:
        return "", text
    return text[: found.start()], text[found.end() :]


class ThinkTags:
    """Splits thinking from the visible text of one reply, piece by piece.

    Servers without a parser for their model's template leave the tags in the text. Only a tag at the very beginning
    counts; one further on is something the model talks about.
    """

    def __init__(self) -> None:
        self._state: Literal["start", "thinking", "gap", "text"] = "start"
        self._held = ""

    @property
    def over(self) -> bool:
        """Whether all that comes now is text."""
        return self._state == "text"

    def feed(self, piece: str) -> tuple[str, str]:
        """Take a piece and return what is thinking in it and what is text; what may be part of a tag is held back."""
        piece, self._held = self._held + piece, ""
        if self._state == "start":
            begun = piece.lstrip()
            if OPEN.startswith(begun):
                self._held = piece
                if begun == OPEN:
                    self._state, self._held = "thinking", ""
                return "", ""
            if not begun.startswith(OPEN):
                self._state = "text"
                return "", piece
            self._state, piece = "thinking", begun.removeprefix(OPEN)
        if self._state == "thinking":
            return self._think(piece)
        if self._state == "gap":
            piece = piece.lstrip()
            self._state = "text" if piece else "gap"
        return "", piece

    def close(self) -> tuple[str, str]:
        """What was held back, when nothing more comes."""
        held, self._held = self._held, ""
        return (held, "") if self._state == "thinking" else ("", held)

    def _think(self, piece: str) -> tuple[str, str]:
        thought, tag, rest = piece.partition(CLOSE)
        if tag:
            self._state = "gap"
            return thought, self.feed(rest)[1]
        for length in range(min(len(CLOSE) - 1, len(piece)), 0, -1):
            if CLOSE.startswith(piece[-length:]):
                self._held = piece[-length:]
                return piece[:-length], ""
        return piece, ""
