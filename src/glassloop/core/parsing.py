"""From what a model wrote to one JSON object: faults of syntax are repaired, and nothing is ever made up."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, Literal, NoReturn, cast

from glassloop.core.encoding import dumps, loads

_FENCE = "`" * 3
_MOST_NOISY = 1_000_000  # characters of text that is not JSON at all and still looked at
_MOST_GUESSED = 50_000  # characters for the last resort, which is slow
_NOTHING = ("", "None", "undefined")  # as Python and JavaScript write that there are no arguments
_OPENERS = {"{": "}", "[": "]"}
_LITERALS: dict[str, bool | None] = {
    "true": True,
    "false": False,
    "null": None,
    "True": True,
    "False": False,
    "None": None,
}
_NAME = re.compile(r"[A-Za-z_$][\w$-]*")
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)|\"", re.DOTALL)
_ESCAPES = frozenset("bfnrt")
_ESCAPED_ANYWAY = frozenset("\"\\/'")
_ASCII = {"：": ":", "，": ","}
_TOKEN = re.compile(
    r"""(?:\s|\\[nrt]|//[^\n]*|/\*.*?\*/|\#[^\n]*)*+(?:
      (?P<string>"[^"\\]*(?:\\.[^"\\]*)*"|'[^'\\]*(?:\\.[^'\\]*)*'|[“”][^“”\\]*(?:\\.[^“”\\]*)*[“”])
    | \\"(?P<bare>[^"\\]*)\\"
    | (?P<mark>[{}\[\],:：，])
    | (?P<word>(?:[^\s"'“”{}\[\],:：，\\/\#]|\\(?![nrt])|/(?![/*]))+)
    )""",
    re.VERBOSE | re.DOTALL,
)


class Unreadable(ValueError):
    """The text is no JSON object, and cannot be made one without guessing; the message is for the model."""


@dataclass(frozen=True, slots=True)
class _Token:
    kind: Literal["string", "mark", "word"]
    text: str  # a string's content, a mark or a word


_COLON = _Token("mark", ":")


def read_object(raw: str, *, complete: bool = True, bare: bool = False) -> tuple[dict[str, Any], bool]:
    """Read the arguments of a tool call.

    Nothing at all, blanks and `null` (`None`, `undefined`) are no arguments. JSON that was encoded once or twice too
    often is unwrapped. Code fences and prose around one object, trailing and missing commas, keys without quotes,
    Python's quotes and literals, Chinese punctuation, escaped quotes, comments, raw line breaks in strings and escaped
    ones between them are repaired. Backslashes of a path or a pattern that were not escaped are kept where none in the
    same text may be an escape. A key that is given twice has its last value, as in every JSON parser of Python.

    Args:
        raw: what the model wrote.
        complete: False where the reply was cut off; then only strict JSON counts.
        bare: the tool has no parameters, so that `[]`, an empty object in PHP's spelling, can only mean none.

    Returns:
        The object, and whether anything had to be repaired.

    Raises:
        Unreadable: anything else: not an object, cut off, NaN or infinity, nested too deeply.
    """
    value, repaired = _read(raw, complete)
    for _ in range(2):
        if isinstance(value, str):
            value, repaired = _read(value, complete)[0], True
    if isinstance(value, dict):
        return cast("dict[str, Any]", value), repaired
    if value is None or (bare and value == []):
        return {}, True
    raise Unreadable(f"the arguments must be one JSON object, and you sent {_kind(value)}")


def _kind(value: Any) -> str:
    match value:
        case list():
            return "an array"
        case str():
            return "a string"
        case bool():
            return "a boolean"
        case _:
            return "a number"


def _read(raw: str, complete: bool) -> tuple[Any, bool]:
    try:
        return loads(raw), False
    except ValueError as error:
        if not complete:
            raise Unreadable("your reply was cut off in the middle of the arguments") from None
        if raw.strip() in _NOTHING:
            return None, True
        return _repaired(raw, _fault(str(error))), True


def _fault(message: str) -> str:
    if "recursion limit" in message:
        raise Unreadable("the arguments are nested too deeply")
    if "escape" in message:
        message += "; a backslash in a string is written as two"
    return "the arguments are not valid JSON" + ("" if "codec" in message else f" ({message})")


def _repaired(raw: str, fault: str) -> dict[str, Any]:
    if len(raw) > _MOST_NOISY:
        raise Unreadable(fault)
    text = _the_object(raw.strip("\ufeff \t\r\n"), fault)
    for read in (_with_control_characters, _normalised, _last_resort):
        try:
            value = read(text)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict) and is_finite(value):
            return loads(dumps(cast("dict[str, Any]", value)))  # half an emoji is no text
    raise Unreadable(fault)


def _the_object(text: str, fault: str) -> str:
    """The one object in `text`; around it may stand prose, fences and stray closing brackets, but no other brackets."""
    found: list[str] = []
    position = 0
    while (start := text.find("{", position)) >= 0:
        if "[" in text[position:start]:
            raise Unreadable(fault)
        end = _end_of(text, start)
        found.append(text[start:end])
        position = end
    if not found or "[" in text[position:]:
        raise Unreadable(fault)
    # some servers send `{}` and then the real arguments, or send the same twice
    real = [one for one in found if one.strip("{} \t\r\n")]
    if len({_spelled_alike(one) for one in real}) > 1:
        raise Unreadable(f"the arguments must be one JSON object, and you sent {len(found)}")
    return real[0] if real else "{}"


def _spelled_alike(text: str) -> str:
    """The same for all spellings of one object, where it is JSON."""
    try:
        return json.dumps(json.loads(text), sort_keys=True)
    except (ValueError, RecursionError):
        return text


def _end_of(text: str, start: int) -> int:
    """Where the bracket that opens at `start` is closed."""
    open_brackets: list[str] = []
    position = start
    while position < len(text):
        token = _TOKEN.match(text, position)
        if token is None:
            break
        position = token.end()
        mark = token["mark"]
        if mark in _OPENERS:
            open_brackets.append(_OPENERS[mark])
        elif mark in ("}", "]"):
            if open_brackets.pop() != mark:
                raise Unreadable("the brackets of the arguments do not match")
            if not open_brackets:
                return position
    raise Unreadable("the arguments end in the middle: a string or a bracket is never closed")


def _with_control_characters(text: str) -> Any:
    return json.loads(text, strict=False, parse_constant=_refuse)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)


def _normalised(text: str) -> Any:
    """Python's quotes and literals, keys without quotes, and trailing commas, spelled as JSON."""
    tokens = list(_tokens(text))
    parts: list[str] = []
    for token, following in zip_longest(tokens, tokens[1:]):
        if token.kind == "string" or (following == _COLON and token.kind == "word" and _NAME.fullmatch(token.text)):
            parts.append(json.dumps(token.text))
        elif token.kind == "word":
            parts.append(json.dumps(_LITERALS[token.text]) if token.text in _LITERALS else token.text)
        elif token.text != "," or following is None or following.kind != "mark" or following.text not in "}]":
            parts.append(token.text)
    return _with_control_characters(" ".join(parts))


def _last_resort(text: str) -> Any:
    """`json_repair`, believed only where all it did was to put in or take out commas and the quotes of keys."""
    if len(text) > _MOST_GUESSED:
        raise ValueError
    from json_repair import repair_json

    value: Any = repair_json(text, return_objects=True, skip_json_loads=True)
    source = list(_tokens(text))
    colons = sum(token == _Token("mark", ":") for token in source)
    words = [token for token in source if token not in (_Token("mark", ":"), _Token("mark", ","))]
    result = list(_flat(value))
    if colons != sum(kind == "key" for kind, _ in result):
        raise ValueError
    if not all(_same(*pair) for pair in zip_longest(words, result)):
        raise ValueError
    return value


def _flat(value: Any) -> Iterator[tuple[str, Any]]:
    """Brackets, keys and values in the order in which they are written."""
    if isinstance(value, dict):
        yield "mark", "{"
        for key, child in cast("dict[str, Any]", value).items():
            yield "key", key
            yield from _flat(child)
        yield "mark", "}"
    elif isinstance(value, list):
        yield "mark", "["
        for child in cast("list[Any]", value):
            yield from _flat(child)
        yield "mark", "]"
    else:
        yield "string" if isinstance(value, str) else "word", value


def _same(token: _Token | None, item: tuple[str, Any] | None) -> bool:
    if token is None or item is None:
        return False
    kind, value = item
    if kind == "key":
        return token.kind != "mark" and token.text == value
    if kind != token.kind:
        return False
    if kind != "word":
        return token.text == value
    if value is None or isinstance(value, bool):
        return token.text in _LITERALS and _LITERALS[token.text] is value
    return bool(_NUMBER.fullmatch(token.text)) and json.loads(token.text) == value


def _tokens(text: str) -> Iterator[_Token]:
    position, plain = 0, _escapes_nothing(text)
    while position < len(text):
        found = _TOKEN.match(text, position)
        if found is None:
            if text[position:].strip():
                raise ValueError
            return
        position = found.end()
        if (string := found["string"]) is not None:
            yield _Token("string", _unquoted(string, plain=plain))
        elif (bare := found["bare"]) is not None:
            yield _Token("string", bare)
        elif (mark := found["mark"]) is not None:
            yield _Token("mark", _ASCII.get(mark, mark))
        else:
            yield _Token("word", found["word"])


def _unquoted(string: str, *, plain: bool) -> str:
    """The content of a string in any kind of quotes, with JSON's escapes (and an escaped single quote).

    Args:
        string: with its quotes.
        plain: backslashes mean themselves, unless another or a quote follows.
    """

    def escaped(found: re.Match[str]) -> str:
        if found[0] == '"':
            return '\\"'
        if found[1] == "'":
            return "'"
        return "\\" + found[0] if plain and found[1] not in _ESCAPED_ANYWAY else found[0]

    return json.loads(f'"{_ESCAPE.sub(escaped, string[1:-1])}"', strict=False)


def _escapes_nothing(text: str) -> bool:
    """Whether the backslashes in a text may only mean themselves, as in `C:\\data` or `\\d+`.

    Beside one that is no escape of JSON's, `\\n` may be either: what `C:\\data\\new` means is for the model to say.
    """
    escapes = {found[1] for found in _ESCAPE.finditer(text) if found[1]} - _ESCAPED_ANYWAY
    return not any(one in _ESCAPES or len(one) > 1 for one in escapes)


def is_finite(value: Any) -> bool:
    """Whether no number in a JSON value is NaN or infinite (`1e999` is JSON)."""
    if isinstance(value, dict):
        return all(is_finite(child) for child in cast("dict[str, Any]", value).values())
    if isinstance(value, list):
        return all(is_finite(child) for child in cast("list[Any]", value))
    return not isinstance(value, float) or math.isfinite(value)
