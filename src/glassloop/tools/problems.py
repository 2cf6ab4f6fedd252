"""What is wrong with a call's arguments, said so that a model can put it right, and without repeating what it sent."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from pydantic_core import ErrorDetails, ValidationError

from glassloop.core.encoding import dumps
from glassloop.core.errors import ToolError
from glassloop.core.schema import resolve
from glassloop.tools.repair import branches_for, type_name

if TYPE_CHECKING:
    import jsonschema_rs

_MOST_PROBLEMS = 8
_MOST_CHARACTERS = 1_500
_MOST_EACH = 300
_MOST_SAID = 1_000  # by a validator in its own words
_MOST_ALTERNATIVES = 3
_SHOWN_NAME = 60
_ECHO = 12  # characters of an input that, found again in a validator's own message, are taken out of it

_ARTICLES = {"integer": "an integer", "object": "an object", "array": "an array", "null": "null"}
_HINTS = {
    "date": "such as 2026-02-28",
    "datetime": "such as 2026-02-28T10:00:00+02:00",
    "time": "such as 10:00:00",
    "time_delta": "such as PT1H30M",
    "uuid": "such as 12345678-1234-5678-1234-567812345678",
    "bytes": "as base64",
}


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong.

    Args:
        path: where, such as `steps.1.n`; empty for the arguments as a whole.
        text: what was expected, or what is allowed.
    """

    path: str
    text: str


class ArgumentsError(ToolError):
    """Arguments that do not fit; the message tells the model what to change. Values that it sent are not repeated."""

    def __init__(self, tool: str, problems: Sequence[Problem]) -> None:
        super().__init__(_message(tool, problems))
        self.tool = tool
        self.problems = tuple(problems)


def _message(tool: str, problems: Sequence[Problem]) -> str:
    whole = any(not problem.path for problem in problems)
    how = "all of them in one JSON object" if whole else "these corrected and the rest as before"
    return listed(f"{tool} was not run: its arguments are not valid.", problems, f"Call {tool} again with {how}.")


def listed(head: str, problems: Sequence[Problem], tail: str, each: int = _MOST_EACH) -> str:
    """The problems, a line of at most `each` characters for each and not too many, between two sentences."""
    room = _MOST_CHARACTERS - len(head) - len(tail) - 40
    lines: list[str] = []
    for problem in problems[:_MOST_PROBLEMS]:
        line = _cut(f"- {problem.path}: {problem.text}" if problem.path else f"- {problem.text}", each)
        room -= len(line) + 1
        if room < 0:
            break
        lines.append(line)
    if len(lines) < len(problems):
        lines.append(f"- and {len(problems) - len(lines)} more")
    return "\n".join((head, *lines, tail))


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


# Names that are not there, and names that are missing


def unknown_argument(name: str, known: Sequence[str], given: Iterable[str], path: str = "") -> Problem:
    """A name that is no argument: with what was probably meant, or else what there is."""
    from difflib import get_close_matches

    shown = _cut(name, _SHOWN_NAME)
    free = [one for one in known if one not in given]
    close = get_close_matches(name.lower(), free, n=1, cutoff=0.6)
    if close:
        return Problem(_joined(path, shown), f"there is no such argument; did you mean {close[0]}?")
    there_are = f"there are: {', '.join(known)}" if known else "it takes none, so send {}"
    return Problem(_joined(path, shown), f"there is no such argument; {there_are}")


def missing_argument(path: str, schema: Any, root: Mapping[str, Any]) -> Problem:
    """A required argument that was not given."""
    expected = expectation(schema, root)
    return Problem(path, f"missing, and required{f' ({expected})' if expected else ''}")


def expectation(schema: Any, root: Mapping[str, Any]) -> str:
    """A few words for what a schema wants: `one of "a", "b"`, `integer`, `array`."""
    schema = resolve(schema, root)
    if not isinstance(schema, Mapping):
        return ""
    schema = cast("Mapping[str, Any]", schema)
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    if values:
        return _allowed(values)
    if "type" in schema:
        types = [schema["type"]] if isinstance(schema["type"], str) else list(schema["type"])
        return " or ".join(types)
    alternatives = [expectation(one, root) for key in ("anyOf", "oneOf") for one in schema.get(key, ())]
    return " or ".join(dict.fromkeys(filter(None, alternatives)))


def _allowed(values: Sequence[Any]) -> str:
    spelled = [_cut(dumps(value).decode(), _SHOWN_NAME) for value in values]
    return spelled[0] if len(spelled) == 1 else f"one of {', '.join(spelled)}"


def _joined(*parts: Any) -> str:
    return ".".join(str(part) for part in parts if part != "")


# From pydantic


def from_pydantic(error: ValidationError, arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> list[Problem]:
    """The problems in a validation error, those of a union's alternatives joined."""
    by_path: dict[tuple[Any, ...], list[str]] = {}
    problems: dict[tuple[Any, ...], Problem] = {}
    for detail in error.errors(include_url=False):
        path = _path_in(detail["loc"], arguments, detail["type"])
        if detail["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
            problems[path] = _unknown_at(path, arguments, schema)
        elif detail["type"] in ("missing", "missing_argument", "missing_keyword_only_argument"):
            problems[path] = missing_argument(_joined(*path), _schema_at(path, arguments, schema), schema)
        else:
            by_path.setdefault(path, []).append(_worded(detail))
    for path, texts in by_path.items():
        text = " or ".join(dict.fromkeys(texts[:_MOST_ALTERNATIVES]))
        problems[path] = Problem(_joined(*path), f"{text} ({_got(path, arguments)})")
    return list(problems.values())


def _path_in(location: tuple[Any, ...], arguments: Any, kind: str) -> tuple[Any, ...]:
    """The location without pydantic's names for the alternatives of a union, which are not in the data."""
    path: list[Any] = []
    node = arguments
    for number, part in enumerate(location):
        is_last = number == len(location) - 1
        if isinstance(node, dict) and part in node:
            node = cast("dict[Any, Any]", node)[part]
        elif isinstance(node, list) and isinstance(part, int) and part < len(cast("list[Any]", node)):
            node = cast("list[Any]", node)[part]
        elif not (is_last and kind.startswith("missing")):
            continue
        path.append(part)
    return tuple(path)


def _unknown_at(path: tuple[Any, ...], arguments: Any, schema: Mapping[str, Any]) -> Problem:
    *above, name = path
    parent = _schema_at(tuple(above), arguments, schema)
    known = [one for branch in branches_for(parent, "object", schema) for one in branch.get("properties", {})]
    return unknown_argument(str(name), known, _at(tuple(above), arguments), _joined(*above))


def _worded(detail: ErrorDetails) -> str:
    kind, text = detail["type"], detail["msg"]
    if kind == "union_tag_invalid":
        context = detail.get("ctx", {})
        return f"{str(context.get('discriminator', '')).strip(chr(39))} should be one of {context.get('expected_tags')}"
    if kind in ("value_error", "assertion_error"):
        return _without_echo(text.removeprefix("Value error, ").removeprefix("Assertion failed, "), detail["input"])
    if kind in ("int_parsing", "float_parsing", "bool_parsing"):
        text = text.partition(",")[0]
    if kind == "date_from_datetime_inexact":
        text = "should be a date"
    text = text.removeprefix("Input ")
    hint = _HINTS.get(kind.rpartition("_")[0]) or next((_HINTS[key] for key in _HINTS if kind.startswith(key)), "")
    return f"{text[:1].lower()}{text[1:]}{f', {hint}' if hint else ''}"


def _without_echo(text: str, value: Any) -> str:
    """A validator's own words, less the input that it may have put into them."""
    spelled = value if isinstance(value, str) else ""
    if len(spelled) >= _ECHO and spelled in text:
        text = text.replace(spelled, "(the value)")
    return _cut(text, _MOST_SAID) or "is not valid"


def _got(path: tuple[Any, ...], arguments: Any) -> str:
    value = _at(path, arguments)
    name = type_name(value)
    size = f" of {len(value):,}" if name in ("string", "array", "object") else ""
    unit = {"string": " characters", "array": " items", "object": " fields"}.get(name, "")
    return f"you sent {_ARTICLES.get(name, f'a {name}')}{size}{unit}"


def _at(path: tuple[Any, ...], arguments: Any) -> Any:
    for part in path:
        arguments = arguments[part]
    return arguments


def _schema_at(path: tuple[Any, ...], arguments: Any, root: Mapping[str, Any]) -> Any:
    """The schema of a place in the arguments, or `{}` where several could describe it."""
    schema: Any = root
    node: Any = arguments
    for part in path:
        kind = type_name(node)
        branches = branches_for(schema, kind, root)
        if len(branches) != 1:
            return {}
        schema = _child(branches[0], part)
        node = _held(node, part)
    return schema


def _held(node: Any, part: Any) -> Any:
    """What an object or array holds at a place; None where that is missing."""
    if isinstance(node, dict):
        return cast("dict[Any, Any]", node).get(part)
    items = cast("list[Any]", node) if isinstance(node, list) else []
    return items[part] if isinstance(part, int) and part < len(items) else None


def _child(schema: Mapping[str, Any], part: Any) -> Any:
    if isinstance(part, str):
        return schema.get("properties", {}).get(part, schema.get("additionalProperties", {}))
    first = schema.get("prefixItems", [])
    return first[part] if part < len(first) else schema.get("items", {})


# From jsonschema-rs


def from_jsonschema(
    errors: Iterable[jsonschema_rs.ValidationError], arguments: Mapping[str, Any], schema: Mapping[str, Any]
) -> list[Problem]:
    """The problems in a list of schema errors."""
    return [problem for error in errors for problem in _problems(error, arguments, schema)]


def _problems(
    error: jsonschema_rs.ValidationError, arguments: Mapping[str, Any], schema: Mapping[str, Any]
) -> Iterator[Problem]:
    path = tuple(error.instance_path)
    facts = error.kind.as_dict()
    match error.kind.name:
        case "required":
            where = (*path, facts["property"])
            yield missing_argument(_joined(*where), _schema_at(where, arguments, schema), schema)
        case "additionalProperties" | "unevaluatedProperties":
            for name in facts["unexpected"]:
                yield _unknown_at((*path, name), arguments, schema)
        case name:
            yield Problem(_joined(*path), f"{_rule(name, facts, path)} ({_got(path, arguments)})")


def _wanted(error: jsonschema_rs.ValidationError, above: int) -> str:
    path = tuple(error.instance_path)
    return _joined(*path[above:]) + " " * (len(path) > above) + _rule(error.kind.name, error.kind.as_dict(), path)


def _rule(name: str, facts: Mapping[str, Any], path: Sequence[Any]) -> str:
    match name:
        case "type":
            return f"should be {' or '.join(_ARTICLES.get(one, f'a {one}') for one in facts['types'])}"
        case "enum":
            return f"should be {_allowed(facts['options'])}"
        case "const":
            return f"should be {_allowed([facts['expected_value']])}"
        case "pattern":
            return f"should match the pattern {facts['pattern']}"
        case "format":
            return f"should have the format {facts['format']}"
        case "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" | "multipleOf":
            return f"should have {_spaced(name)} {next(iter(facts.values()), '')}"
        case "minLength" | "maxLength" | "minItems" | "maxItems" | "minProperties" | "maxProperties":
            return f"should have {_spaced(name)} {facts['limit']}"
        case "uniqueItems":
            return "should have no item twice"
        case "falseSchema" | "not":
            return "is not allowed here"
        case "required":
            return f"should have the field {_allowed([facts['property']])}"
        case "additionalProperties" | "unevaluatedProperties":
            return f"should not have the field {_allowed([facts['unexpected'][0]])}"
        case "additionalItems" | "unevaluatedItems":
            return "should have fewer items"
        case "anyOf" | "oneOf":
            return _alternatives(facts.get("context", []), path)
        case _:
            return f"breaks the rule {name!r} of its schema"


def _spaced(name: str) -> str:
    return "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in name)


def _alternatives(context: Sequence[Sequence[jsonschema_rs.ValidationError]], path: Sequence[Any]) -> str:
    """What each alternative wants, from the first error of each."""
    wanted = [_wanted(errors[0], len(path)) for errors in context if errors]
    return " or ".join(dict.fromkeys(wanted[:_MOST_ALTERNATIVES])) or "should match exactly one of its alternatives"
