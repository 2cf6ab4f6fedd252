"""Thinking that a server leaves in the text, between `<think>` and `</think>` or the like at its beginning."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

OPEN, CLOSE = "<think>", "</think>"
_PAIRS: Mapping[str, str] = {
    OPEN: CLOSE,
    "<thinking>": "</thinking>",
    "<thought>": "</thought>",
    "<mm:think>": "</mm:think>",
    "<seed:think>": "</seed:think>",
    "[THINK]": "[/THINK]",
    "<|channel>thought": "<channel|>",
    "<|channel|>analysis<|message|>": "<|end|>",
}
"""What models of several makers put around their thinking: Gemma 4 and gpt-oss last."""

_ANSWERS = ("<|channel|>final<|message|>", "<|start|>assistant<|channel|>final<|message|>")
"""What gpt-oss puts before its answer, after thinking or at once."""

_MARKS = "<["  # with which all of these begin
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
        self._close = CLOSE

    @property
    def over(self) -> bool:
        """Whether all that comes now is text."""
        return self._state == "text"

    def feed(self, piece: str) -> tuple[str, str]:
        """Take a piece and return what is thinking in it and what is text; what may be part of a tag is held back."""
        piece, self._held = self._held + piece, ""
        if self._state == "thinking":
            return self._think(piece)
        if self._state == "text":
            return "", piece
        return self._begin(piece)

    def close(self) -> tuple[str, str]:
        """What was held back, when nothing more comes."""
        held, self._held = self._held, ""
        return (held, "") if self._state == "thinking" else ("", held)

    def _begin(self, piece: str) -> tuple[str, str]:
        """Look for a tag at the beginning, or for that of an answer where the thinking has ended."""
        begun = piece.lstrip()
        fresh = self._state == "start"
        tags = (*_PAIRS, *_ANSWERS) if fresh else _ANSWERS
        if not begun:
            self._held = piece if fresh else ""
            return "", ""
        if begun[0] in _MARKS:
            found = next((tag for tag in tags if begun.startswith(tag)), None)
            if found is not None and found in _PAIRS:
                self._state, self._close = "thinking", _PAIRS[found]
                return self._think(begun.removeprefix(found))
            if found is not None:
                self._state = "text"
                return "", begun.removeprefix(found)
            if any(tag.startswith(begun) for tag in tags):
                self._held = piece if fresh else begun
                return "", ""
        self._state = "text"
        return "", piece if fresh else begun

    def _think(self, piece: str) -> tuple[str, str]:
        thought, tag, rest = piece.partition(self._close)
        if tag:
            self._state = "gap"
            return thought, self._begin(rest)[1]
        for length in range(min(len(self._close) - 1, len(piece)), 0, -1):
            if self._close.startswith(piece[-length:]):
                self._held = piece[-length:]
                return piece[:-length], ""
        return piece, ""
