"""JSON Schema as a tree: the places where one schema holds others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

Schema = dict[str, Any]

_MOST_REFERENCES = 32  # a longer chain of `$ref` is a circle

VALUE = "result"
"""The name of a value that stands alone, where there must be an object."""

_ONE = frozenset(
    {"items", "additionalProperties", "additionalItems", "contains", "propertyNames", "not", "if", "then", "else"}
    | {"unevaluatedItems", "unevaluatedProperties"}
)
_LISTS = frozenset({"anyOf", "oneOf", "allOf", "prefixItems", "items"})
_MAPS = frozenset({"properties", "patternProperties", "dependentSchemas", "$defs", "definitions"})


def map_children(node: Mapping[str, Any], visit: Callable[[Any], Any]) -> Schema:
    """A copy of a schema with each of its direct subschemas replaced by what `visit` makes of it."""
    return {key: _visited(key, value, visit) for key, value in node.items()}


def moved(schema: Any, place: str) -> Any:
    """A copy of a schema whose references into itself hold once it stands at `place` in another, e.g. `#/$defs/one`."""
    if not isinstance(schema, Mapping):
        return schema
    node = map_children(cast("Mapping[str, Any]", schema), lambda child: moved(child, place))
    reference = node.get("$ref")
    if isinstance(reference, str) and reference.startswith("#"):
        node["$ref"] = place + reference[1:]
    return node


def refers(schema: Any) -> bool:
    """Whether a schema has references."""
    found = False

    def visit(child: Any) -> Any:
        nonlocal found
        found = found or refers(child)
        return child

    if isinstance(schema, Mapping):
        node = cast("Mapping[str, Any]", schema)
        map_children(node, visit)
        return found or isinstance(node.get("$ref"), str)
    return False


def resolve(schema: Any, root: Mapping[str, Any]) -> Any:
    """`schema`, or what its `$ref` into `root` (`#/...`, RFC 6901) points to; `{}` for any other reference."""
    for _ in range(_MOST_REFERENCES):
        if not isinstance(schema, Mapping) or "$ref" not in schema:
            return cast("Any", schema)
        schema = _pointed_to(str(cast("Mapping[str, Any]", schema)["$ref"]), root)
    return {}


def without_unused_definitions(schema: Schema) -> Schema:
    """The schema without definitions where it refers to none."""
    bare = {key: value for key, value in schema.items() if key not in ("$defs", "definitions")}
    return schema if refers(bare) else bare


def _visited(key: str, value: Any, visit: Callable[[Any], Any]) -> Any:
    if key in _MAPS and isinstance(value, Mapping):
        return {name: visit(child) for name, child in cast("Mapping[str, Any]", value).items()}
    if key in _LISTS and isinstance(value, list):
        return [visit(child) for child in cast("list[Any]", value)]
    return visit(value) if key in _ONE and isinstance(value, Mapping) else value


def _pointed_to(reference: str, root: Mapping[str, Any]) -> Any:
    node: Any = root
    if reference != "#" and not reference.startswith("#/"):
        return {}
    for part in reference.removeprefix("#").split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(node, list):
            node = (
                cast("list[Any]", node)[int(name)]
                if name.isdigit() and int(name) < len(cast("list[Any]", node))
                else {}
            )
        else:
            node = cast("Mapping[str, Any]", node).get(name, {}) if isinstance(node, Mapping) else {}
    return node
