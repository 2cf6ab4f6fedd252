"""Schemas in Moonshot's flavour of JSON Schema, outside of which it refuses the whole request.

The rules are those of its own validator, MoonshotAI/walle: beside `anyOf` and `$ref` stands a description at most; an
enum is of one type, and says of which; references lead to `$defs`; what is required is among the properties.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from glassloop.core.schema import Schema, map_children, resolve
from glassloop.models.shapes import array, record

_DEFINITIONS = "#/$defs/"
_MAY_STAND_BESIDE = frozenset({"description", "title", "$defs"})
_OF_OBJECTS = frozenset({"properties", "required", "additionalProperties", "patternProperties", "propertyNames"})
_OF_ARRAYS = frozenset({"items", "prefixItems", "contains"})
_TYPES: Mapping[type, str] = {bool: "boolean", int: "integer", float: "number", str: "string", type(None): "null"}


def for_moonshot(schema: Schema) -> Schema:
    """A copy of a schema that says the same, as far as that can be said there."""
    return _flavoured(_with_definitions(schema))


def _with_definitions(root: Schema) -> Schema:
    """Whatever is referred to stands under a name of its own in `$defs`, and nothing else does."""
    kept: Schema = {}

    def visit(node: Any) -> Any:
        if not isinstance(node, Mapping):
            return node
        given = cast("Mapping[str, Any]", node)
        copy = map_children({key: value for key, value in given.items() if key not in ("$defs", "definitions")}, visit)
        reference = given.get("$ref")
        if isinstance(reference, str) and reference != "#":
            name = reference.removeprefix("#/").removeprefix("$defs/").removeprefix("definitions/").replace("/", "_")
            if name not in kept:
                kept[name] = {}  # it may refer to itself
                kept[name] = visit(resolve(given, root))
            copy["$ref"] = _DEFINITIONS + name
        return copy

    top = visit(root)
    return {**top, "$defs": kept} if kept else top


def _flavoured(node: Any) -> Any:
    if not isinstance(node, Mapping):
        return {} if node is True else node
    schema = map_children(cast("Mapping[str, Any]", node), _flavoured)
    if "const" in schema:
        schema["enum"] = [schema.pop("const")]
    if "oneOf" in schema and "anyOf" not in schema:
        schema["anyOf"] = schema.pop("oneOf")
    schema = _of_one_type(_told(schema))
    if "$ref" in schema:
        return _reference(schema)
    if "anyOf" in schema:
        return _alternatives(schema)
    return _demanding_what_there_is(schema)


def _told(schema: Schema) -> Schema:
    """An enum with the type of its values; values of several types become alternatives."""
    if isinstance(schema.get("type"), str) or not array(schema.get("enum")):
        return schema
    by_type: dict[str, list[Any]] = {}
    for value in array(schema["enum"]):
        kind = cast("type[Any]", type(value))
        by_type.setdefault(_TYPES.get(kind, "object"), []).append(value)
    rest = {key: value for key, value in schema.items() if key not in ("enum", "type")}
    told: list[Schema] = [{"type": kind, "enum": values} for kind, values in by_type.items()]
    return {**rest, **told[0]} if len(told) == 1 else {**rest, "anyOf": told}


def _of_one_type(schema: Schema) -> Schema:
    """A list of types as alternatives, unless there is nothing else to be said of them."""
    types = schema.get("type")
    if not isinstance(types, list) or "anyOf" in schema or schema.keys() <= _MAY_STAND_BESIDE | {"type"}:
        return schema
    kinds = cast("list[str]", types)
    beside = {key: value for key, value in schema.items() if key in _MAY_STAND_BESIDE}
    about = {key: value for key, value in schema.items() if key not in _MAY_STAND_BESIDE | {"type", "default"}}
    return {**beside, "anyOf": [{"type": kind, **_about(kind, about)} for kind in kinds]}


def _about(kind: str, keywords: Mapping[str, Any]) -> Schema:
    own = {"object": _OF_OBJECTS, "array": _OF_ARRAYS}.get(kind, frozenset[str]())
    others = (_OF_OBJECTS | _OF_ARRAYS) - own
    return {} if kind == "null" else {key: value for key, value in keywords.items() if key not in others}


def _reference(schema: Schema) -> Schema:
    alone = {"$ref": schema["$ref"]}
    beside = {key: value for key, value in schema.items() if key in _MAY_STAND_BESIDE}
    return {**beside, "anyOf": [alone]} if beside else alone


def _alternatives(schema: Schema) -> Schema:
    """What stands beside the alternatives goes into each of them."""
    beside = {key: value for key, value in schema.items() if key in _MAY_STAND_BESIDE}
    shared = {key: value for key, value in schema.items() if key not in {*beside, "anyOf", "default"}}
    return {**beside, "anyOf": [_joined(shared, record(one)) for one in cast("Sequence[Any]", schema["anyOf"])]}


def _joined(shared: Schema, one: Schema) -> Schema:
    if "$ref" in one or "anyOf" in one or not shared:
        return one
    joined = {**shared, **one}
    if "properties" in shared:
        joined["properties"] = {**record(shared["properties"]), **record(one.get("properties"))}
    if "required" in shared:
        joined["required"] = list(dict.fromkeys([*array(shared["required"]), *array(one.get("required"))]))
    return _demanding_what_there_is(_of_one_type(joined))


def _demanding_what_there_is(schema: Schema) -> Schema:
    if "required" not in schema:
        return schema
    properties = record(schema.get("properties"))
    required = [name for name in array(schema["required"]) if name in properties]
    rest = {key: value for key, value in schema.items() if key != "required"}
    return {**rest, "required": required} if required else rest
