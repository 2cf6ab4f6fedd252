"""The final answer inside a constrained reply, taken out of it while it comes."""

from __future__ import annotations

import re
from typing import Any

from pydantic_core import from_json

from glassloop.core.encoding import dumps, loads

_FENCED = re.compile(r"\s*```(?:json)?\s*\n(.*?)\n?\s*```\s*", re.DOTALL)
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"?', re.DOTALL)
_CLOSING = re.compile(r"[\s}]*\Z")


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
        self.shown = ""

    def feed(self, text: str) -> str:
        """Take a piece of the reply and return what it adds to the answer."""
        self._said += text
        if self._start is None:
            found = self._opening.match(self._said)
            if found is None or found.end() == len(self._said):
                return ""
            self._start = found.end()
        return self.rest(self._so_far(self._said[self._start :]))

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

    def _so_far(self, said: str) -> str:
        text = _STRING.match(said)
        if text is None:
            return _CLOSING.sub("", said)  # brackets at the end may be those around the answer
        try:
            return str(from_json(text[0], allow_partial="trailing-strings"))
        except ValueError:
            return self.shown


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
