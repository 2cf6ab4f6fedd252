"""What pydantic reads into a value of the wrong JSON type where more than one meaning is possible.

It takes `true` for the number 1, and for a date or an instant any number, also one in a text: `20260228` would be a day
in August 1970. The schema that the model was shown allows neither, so it is asked again; only a number that can be
nothing but Unix time (10 digits, 13 in milliseconds: the years 2001 to 2286) is taken for that.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, cast

from glassloop.core.schema import map_children, refers
from glassloop.tools.instants import item_of, property_of
from glassloop.tools.problems import Problem
from glassloop.tools.repair import branches_for

_EXAMPLES = {"date-time": "2026-02-28T10:00:00Z", "date": "2026-02-28", "time": "10:00:00"}
_SCALARS = frozenset({str, int, float})
_NUMERIC = re.compile(r"\s*[+-]?\d+(?:\.\d*)?\s*")
_UNIX_TIME = re.compile(r"\d{10}(?:\d{3})?(?:\.\d*)?")


class Misreadings:
    """Looks at arguments that pydantic has accepted.

    Args:
        schema: of all of them, an object.
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._schema = schema
        self._nodes: Mapping[str, Any] = schema.get("properties", {})
        self._anywhere = _doubtful(schema)
        self._doubtful = {
            name: self._anywhere if refers(node) else _doubtful(node) for name, node in self._nodes.items()
        }

    def found(self, arguments: Mapping[str, Any]) -> list[Problem]:
        """What was accepted although the schema does not allow it, and could mean something else."""
        problems: list[Problem] = []
        for name, value in arguments.items():  # a fifth of a microsecond each, where there is no doubt
            numbers, times = self._doubtful.get(name, self._anywhere)
            kind = cast("type[Any]", type(value))
            if numbers if kind is bool else times if kind in _SCALARS else numbers or times:
                node = self._nodes.get(name, self._schema.get("additionalProperties"))
                problems += _misread(value, node, self._schema, name)
        return problems


def _doubtful(schema: Any) -> tuple[bool, bool]:
    """Whether some value that a schema allows may be, or hold, a number; and whether one may be a date or time."""
    if not isinstance(schema, Mapping):
        return False, False
    node = cast("Mapping[str, Any]", schema)
    types = node.get("type", ())
    numbers = "integer" in types or "number" in types or "enum" in node or "const" in node
    found = [(numbers, node.get("format") in _EXAMPLES)]

    def visit(child: Any) -> Any:
        found.append(_doubtful(child))
        return child

    map_children(node, visit)
    return any(numbers for numbers, _ in found), any(times for _, times in found)


def _misread(value: Any, schema: Any, root: Mapping[str, Any], path: str) -> Iterator[Problem]:
    match value:
        case bool():
            if not branches_for(schema, "boolean", root) and branches_for(schema, "integer", root):
                yield Problem(path, "should be a number (you sent a boolean)")
        case int() | float():
            if not branches_for(schema, "number", root) and not branches_for(schema, "integer", root):
                yield from _no_time(str(value), schema, root, path)
        case str() if _NUMERIC.fullmatch(value):
            yield from _no_time(value, schema, root, path)
        case dict():
            branches = branches_for(schema, "object", root)
            for name, child in cast("dict[str, Any]", value).items():
                yield from _misread(child, property_of(name, branches), root, f"{path}.{name}")
        case list():
            branches = branches_for(schema, "array", root)
            for place, child in enumerate(cast("list[Any]", value)):
                yield from _misread(child, item_of(place, branches), root, f"{path}.{place}")
        case _:
            return


def _no_time(number: str, schema: Any, root: Mapping[str, Any], path: str) -> Iterator[Problem]:
    formats = [branch.get("format") for branch in branches_for(schema, "string", root)]
    if formats and set(formats) <= _EXAMPLES.keys() and not _UNIX_TIME.fullmatch(number.strip()):
        yield Problem(path, f"should be a {formats[0]} such as {_EXAMPLES[str(formats[0])]} (you sent a number)")
