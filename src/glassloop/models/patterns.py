"""A string that matches a regular expression: for stand-in models that call tools."""

from __future__ import annotations

import importlib
import re
import string
from collections.abc import Iterable
from typing import Any

_ALPHABET = "a0A" + string.ascii_letters + string.digits + "-_ ." + string.punctuation + "\n"


def matching(pattern: str, least: int = 0) -> str:
    """A string of at least `least` characters that matches an ordinary pattern, found on Python's own parse tree of it.

    Look-arounds and back references are passed over; where nothing fits, a string of that length that does not match.
    """
    parser: Any = importlib.import_module("re._parser")
    try:
        tokens = parser.parse(pattern)
    except re.error:
        return "t" * least
    for repeat in range(least + 2):
        text = _written(tokens, repeat)
        if len(text) >= least and re.search(pattern, text):
            return text
    return "t" * least


def _written(tokens: Iterable[Any], repeat: int) -> str:
    """The text of parsed tokens; repetitions are made `repeat` times, or as often as they may be."""
    return "".join(_token(str(token[0]), token[1], repeat) for token in tokens)


def _token(name: str, value: Any, repeat: int) -> str:
    match name:
        case "LITERAL":
            return chr(value)
        case "ANY":
            return "a"
        case "NOT_LITERAL":
            return _first([("NEGATE", None), ("LITERAL", value)])
        case "IN":
            return _first([(str(kind), detail) for kind, detail in value])
        case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
            return _written(value[2], repeat) * min(max(value[0], repeat), int(value[1]))
        case "SUBPATTERN" | "ATOMIC_GROUP":
            return _written(value[-1] if name == "SUBPATTERN" else value, repeat)
        case "BRANCH":
            return _written(value[1][0], repeat)
        case _:
            return ""


def _first(members: list[tuple[str, Any]]) -> str:
    """The first character that a class holds."""
    negated = members[0][0] == "NEGATE"
    literal = "".join(chr(detail if kind == "LITERAL" else detail[0]) for kind, detail in members if kind in _CHARS)
    for char in _ALPHABET + literal:
        if any(_holds(kind, detail, char) for kind, detail in members) != negated:
            return char
    return ""


_CHARS = ("LITERAL", "RANGE")
_CATEGORIES = {"CATEGORY_DIGIT": r"\d", "CATEGORY_WORD": r"\w", "CATEGORY_SPACE": r"\s"}


def _holds(kind: str, detail: Any, char: str) -> bool:
    match kind:
        case "LITERAL":
            return ord(char) == detail
        case "RANGE":
            return detail[0] <= ord(char) <= detail[1]
        case "CATEGORY":
            name = str(detail)
            found = re.fullmatch(_CATEGORIES.get(name.replace("_NOT", ""), "$"), char) is not None
            return found != ("_NOT" in name)
        case _:
            return False
