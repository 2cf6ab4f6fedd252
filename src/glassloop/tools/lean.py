"""JSON Schema made lean: what a model reads, and pays for, with every request."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

from glassloop.core.encoding import dumps
from glassloop.core.schema import Schema, map_children

_LARGE = 2_000  # bytes; a larger definition that is used more than once is sent once
_PREFIX = "#/$defs/"


def lean(schema: Mapping[str, Any]) -> Schema:
    """A generated schema without what tells a model nothing.

    Definitions stand where they are used; only recursive ones, and large ones that are used more than once, stay in
    `$defs`. Class names as titles, `default: null`, `additionalProperties: false` (the gate turns unknown arguments
    back with better words) and OpenAPI's `discriminator` go. The given schema is not changed.
    """
    definitions: dict[str, Any] = {name: _untitled(node) for name, node in schema.get("$defs", {}).items()}
    root = {key: value for key, value in schema.items() if key not in ("$defs", "title")}
    inliner = _Inliner(definitions, root)
    result = inliner.expand(root)
    kept = inliner.kept_definitions()
    return {**result, "$defs": kept} if kept else result


def may_hold_floats(node: Any) -> bool:
    """Whether some value that a schema allows may be, or hold, a number with a fraction."""
    if not isinstance(node, Mapping):
        return True
    schema = cast("Mapping[str, Any]", node)
    found: list[bool] = []

    def visit(child: Any) -> Any:
        found.append(may_hold_floats(child))
        return child

    map_children(schema, visit)
    type_ = schema.get("type")
    holds_own = type_ not in ("string", "integer", "boolean", "null", "array", "object") and not found
    is_open = (type_ == "array" and "items" not in schema) or schema.get("additionalProperties") is True
    return (holds_own and "$ref" not in schema) or is_open or any(found)


class _Inliner:
    def __init__(self, definitions: dict[str, Any], root: Schema) -> None:
        self._definitions = definitions
        self._uses: dict[str, int] = {}
        self._inner = {name: set(self._count(node)) for name, node in definitions.items()}
        self._count(root)
        self._recursive = {name for name in definitions if name in self._reachable(name)}
        self._expanded: dict[str, Schema] = {}
        self._kept: set[str] = set()

    def expand(self, node: Any) -> Any:
        if not isinstance(node, Mapping):
            return node
        node = cast("Mapping[str, Any]", node)
        name = str(node.get("$ref", "")).removeprefix(_PREFIX)
        if name not in self._definitions:
            return map_children(_stripped(node), self.expand)
        beside = {key: value for key, value in _stripped(node).items() if key != "$ref"}
        if self._stays(name):
            self._kept.add(name)
            return {"$ref": _PREFIX + name, **beside}
        return {**self._definition(name), **beside}

    def kept_definitions(self) -> dict[str, Any]:
        kept: dict[str, Any] = {}
        while missing := sorted(self._kept - kept.keys()):
            kept |= {name: self._definition(name) for name in missing}
        return kept

    def _stays(self, name: str) -> bool:
        if name in self._recursive:
            return True
        return self._uses[name] > 1 and len(dumps(self._definition(name))) > _LARGE

    def _definition(self, name: str) -> Schema:
        if name not in self._expanded:
            self._expanded[name] = map_children(_stripped(self._definitions[name]), self.expand)
        return self._expanded[name]

    def _count(self, node: Any) -> list[str]:
        names = [name for name in _references(node) if name in self._definitions]
        for name in names:
            self._uses[name] = self._uses.get(name, 0) + 1
        return names

    def _reachable(self, start: str) -> set[str]:
        seen: set[str] = set()
        waiting = list(self._inner[start])
        while waiting:
            name = waiting.pop()
            if name not in seen:
                seen.add(name)
                waiting += self._inner[name]
        return seen


def _references(node: Any) -> Iterator[str]:
    found: list[str] = []

    def visit(child: Any) -> Any:
        found.extend(_references(child))
        return child

    if isinstance(node, Mapping):
        node = cast("Mapping[str, Any]", node)
        map_children(node, visit)
        if "$ref" in node:
            found.append(str(node["$ref"]).removeprefix(_PREFIX))
    yield from found


def _stripped(node: Mapping[str, Any]) -> Schema:
    exclusive = "discriminator" in node  # the branches are told apart by a field, so `anyOf`, which more servers take
    return {
        "anyOf" if exclusive and key == "oneOf" else key: value
        for key, value in node.items()
        if not (
            key == "discriminator"
            or (key == "default" and value is None)
            or (key == "additionalProperties" and value is False)
        )
    }


def _untitled(node: Mapping[str, Any]) -> Schema:
    return {key: value for key, value in node.items() if key != "title"}
