"""The smallest value that a JSON Schema accepts, or nearly: for stand-in models that call tools."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from glassloop.core.schema import resolve
from glassloop.models.patterns import matching
from glassloop.models.shapes import array, record

_FORMATS = {
    "date": "2026-01-31",
    "date-time": "2026-01-31T12:00:00Z",
    "time": "12:00:00Z",
    "duration": "PT1H",
    "email": "someone@example.com",
    "hostname": "example.com",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "uri": "https://example.com/",
    "url": "https://example.com/",
    "uuid": "00000000-0000-4000-8000-000000000000",
    "decimal": "1",
    "binary": "",
    "byte": "",
}
_DEEPEST = 12


def example_of(schema: Mapping[str, Any]) -> Any:
    """A small valid value for `schema`: required properties only, the first alternative, the least length and number.

    Honours const, enum, default, examples, `$ref` within the document, anyOf, oneOf, allOf, types with their bounds and
    formats, and ordinary patterns. What it does not know (`not`, `if`, `contains`) it ignores.
    """
    return _Examples(schema).of(schema, 0)


class _Examples:
    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document = document

    def of(self, schema: Any, depth: int) -> Any:
        rules = self._resolved(record(schema))
        for key in ("const", "default"):
            if key in rules:
                return rules[key]
        for key in ("enum", "examples"):
            if array(rules.get(key)):
                return rules[key][0]
        if depth > _DEEPEST:
            return None
        for key in ("anyOf", "oneOf"):
            if choices := array(rules.get(key)):
                rest = {name: value for name, value in rules.items() if name != key}
                return self.of(_merged(rest, self._resolved(record(choices[0]))), depth + 1)
        match _type(rules):
            case "object":
                return self._object(rules, depth)
            case "array":
                return self._array(rules, depth)
            case "string":
                return _string(rules)
            case "integer":
                return _number(rules, whole=True)
            case "number":
                return _number(rules, whole=False)
            case "boolean":
                return True
            case _:
                return None

    def _resolved(self, rules: dict[str, Any], depth: int = 0) -> dict[str, Any]:
        """The schema with `$ref` and `allOf` merged in."""
        for _ in range(_DEEPEST):
            reference = rules.get("$ref")
            if not isinstance(reference, str):
                break
            rest = {key: value for key, value in rules.items() if key != "$ref"}
            rules = _merged(rest, record(resolve({"$ref": reference}, self._document)))
        parts = array(rules.get("allOf")) if depth < _DEEPEST else []
        rules = {key: value for key, value in rules.items() if key != "allOf"}
        for part in parts:
            rules = _merged(rules, self._resolved(record(part), depth + 1))
        return rules

    def _object(self, rules: dict[str, Any], depth: int) -> dict[str, Any]:
        properties = record(rules.get("properties"))
        made = {name: self.of(properties.get(name), depth + 1) for name in array(rules.get("required"))}
        for name in properties:
            if len(made) >= int(rules.get("minProperties") or 0):
                break
            made.setdefault(name, self.of(properties[name], depth + 1))
        while len(made) < int(rules.get("minProperties") or 0):
            made[f"key{len(made)}"] = self.of(rules.get("additionalProperties"), depth + 1)
        return made

    def _array(self, rules: dict[str, Any], depth: int) -> list[Any]:
        least = int(rules.get("minItems") or 0)
        fixed = [self.of(item, depth + 1) for item in array(rules.get("prefixItems"))]
        items = [self.of(rules.get("items"), depth + 1) for _ in range(least - len(fixed))]
        if rules.get("uniqueItems") and len(items) > 1:
            items = self._distinct(record(rules.get("items")), items)
        return fixed + items

    def _distinct(self, item: dict[str, Any], items: list[Any]) -> list[Any]:
        rules = self._resolved(item)
        if len(choices := array(rules.get("enum"))) >= len(items):
            return choices[: len(items)]
        match items[0]:
            case bool():
                return [True, False][: len(items)]
            case int() | float() as first:
                step = rules.get("multipleOf") or 1
                return [first + number * step for number in range(len(items))]
            case str() as first:
                return [first + "a" * number for number in range(len(items))]
            case _:
                return items


def _type(rules: Mapping[str, Any]) -> str:
    kind = rules.get("type")
    if kinds := array(kind):
        kind = next((one for one in kinds if one != "null"), "null")
    if isinstance(kind, str):
        return kind
    if "properties" in rules or "required" in rules:
        return "object"
    if "items" in rules or "prefixItems" in rules:
        return "array"
    return "number" if "minimum" in rules or "maximum" in rules else "string"


def _merged(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Both schemas as one; properties and required names are united."""
    merged = {**other, **one}
    if "properties" in one and "properties" in other:
        merged["properties"] = {**record(other["properties"]), **record(one["properties"])}
    if "required" in one and "required" in other:
        merged["required"] = list(dict.fromkeys([*array(one["required"]), *array(other["required"])]))
    return merged


def _number(rules: Mapping[str, Any], *, whole: bool) -> int | float:
    low, high, step = rules.get("minimum"), rules.get("maximum"), rules.get("multipleOf")
    above, below = rules.get("exclusiveMinimum"), rules.get("exclusiveMaximum")
    unit = step or (1 if whole else 0.5)
    if isinstance(above, int | float) and not isinstance(above, bool) and (low is None or above >= low):
        value = (math.floor(above / unit) + 1) * unit if whole or step else above + _gap(above, below, high)
    elif low is not None:
        value = math.ceil(low / unit) * unit if whole or step else low
    else:
        value = unit if step else 1
        most = high if high is not None else below
        if most is not None and (value > most or (high is None and value >= most)):
            edge = math.floor(most / unit) * unit if whole or step else most
            value = edge if high is not None or edge < most else edge - unit
    return int(value) if whole or float(value).is_integer() else value


def _gap(above: float, below: Any, high: Any) -> float:
    """A step that stays between two bounds."""
    most = below if below is not None else high
    return min(1.0, (most - above) / 2) if most is not None else 1.0


def _string(rules: Mapping[str, Any]) -> str:
    least, most = int(rules.get("minLength") or 0), rules.get("maxLength")
    pattern = rules.get("pattern")
    if isinstance(pattern, str):
        return matching(pattern, least)
    text = _FORMATS.get(str(rules.get("format")), "text" if most is None or most >= 4 else "t" * int(most))
    return text.ljust(least, "t")
