"""The final answer inside a constrained reply, taken out of it while it comes."""

from __future__ import annotations

import json
import re
from typing import Any

from pydantic_core import from_json

from glassloop.core.encoding import dumps, loads

_FENCED = re.compile(r"\s*```(?:json)?\s*\n(.*?)\n?\s*```\s*", re.DOTALL)
_WHOLE_CHARACTERS = re.compile(
    r"""(?:[^"\\]|\\["\\/bfnrt]|\\u(?:[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F]|(?![dD][89a-fA-F])[0-9a-fA-F]{2})"""
    r"""[0-9a-fA-F]{2})*"""
)


class AnswerReader:
    """Reads `{"next": {"action": "final_answer", "answer": ...}}` piece by piece.

    A text is shown unquoted, anything else as the JSON that it is. What comes in another order is shown at its end.

    Args:
        action: the action that gives the answer.
    """

    def __init__(self, action: str) -> None:
        name = re.escape(action)
        self._opening = re.compile(rf'\s*\{{\s*"next"\s*:\s*\{{\s*"action"\s*:\s*"{name}"\s*,\s*"answer"\s*:\s*')
        self._said = ""
        self._start: int | None = None
        self._read = 0
        self.shown = ""

    def feed(self, text: str) -> str:
        """Take a piece of the reply and return what it adds to the answer."""
        self._said += text
        if self._start is None:
            found = self._opening.match(self._said)
            if found is None or found.end() == len(self._said):
                return ""
            self._start, self._read = found.end(), found.end() + 1
        if self._said[self._start] == '"':
            return self._more_of_text()
        return self.rest(self._said[self._start :].rstrip(" \t\r\n}"))  # brackets at the end may be those around it

    def see(self, said: str) -> None:
        """Take the whole reply, as it comes when it is not streamed."""
        found = self._opening.match(said)
        self._said, self._start = said, None if found is None else found.end()

    def rest(self, text: str) -> str:
        """What is to be shown yet of an answer that is, or begins with, `text`."""
        if not text.startswith(self.shown):
            return ""
        news = text[len(self.shown) :]
        self.shown = text
        return news

    def answer(self, value: Any, *, complete: bool) -> str:
        """The whole answer, or all that has come of it, spelled as it was shown."""
        if isinstance(value, str):
            return value
        spelled = self._said[self._start :].rstrip() if self._start is not None else ""
        if not complete:
            return spelled
        for _ in range(2):
            spelled = spelled.removesuffix("}").rstrip()
        try:
            if spelled and loads(spelled) == value:
                return spelled
        except ValueError:
            pass
        return dumps(value).decode()

    def _more_of_text(self) -> str:
        """Decode what has come of a text since, up to an escape or half a character of which the rest is missing."""
        found = _WHOLE_CHARACTERS.match(self._said, self._read)
        assert found is not None  # it may be empty
        if not found[0]:
            return ""
        self._read = found.end()
        news: str = json.loads(f'"{found[0]}"', strict=False)
        self.shown += news
        return news


def plainly(text: str, *, complete: bool) -> Any:
    """What a reply says that should be one JSON object; None where it is words.

    Args:
        text: the reply.
        complete: False where it was cut off; then what can be read of it counts.
    """
    fenced = _FENCED.fullmatch(text)
    text = (fenced[1] if fenced else text).strip()
    if not text.startswith("{"):
        return None
    try:
        return loads(text)
    except ValueError:
        pass
    try:
        return {} if complete else from_json(text, allow_partial="trailing-strings", allow_inf_nan=False)
    except ValueError:
        return {}
