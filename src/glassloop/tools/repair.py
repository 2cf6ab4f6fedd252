"""Values of the wrong JSON type, put right where the schema leaves one reading."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, cast

from glassloop.core.encoding import dumps, loads
from glassloop.core.parsing import Unreadable, read_object
from glassloop.core.schema import resolve

Types = frozenset[str] | None
"""JSON types that a schema allows; None where it allows any."""

_DEEPEST = 32  # unions inside unions; deeper ones refer to themselves
_INTEGER = re.compile(r"\s*([+-]?\d{1,1000})(?:\.0+)?\s*")
_NUMBER = re.compile(r"\s*[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,2})?\s*")
_WRAPPERS = frozenset({"args", "arguments", "input", "kwargs", "parameters", "properties"})
_CALLED = frozenset({"name", "tool", "tool_name", "function", "function_name"})
_BOOLEANS = {"true": True, "false": False}
_NULLS = ("null", "none", "undefined", "")
_CONTAINERS = frozenset({"object", "array"})


def repair(arguments: Mapping[str, Any], schema: Mapping[str, Any], only: Collection[str]) -> dict[str, Any]:
    """A copy of `arguments` with wrong types put right where that takes no guessing.

    A text that holds the JSON of an array, object, number, boolean or null becomes that where no text is allowed, and
    stays text where one is. An array, object, number or boolean becomes its JSON text where only a text is allowed.
    Null, or the word for it or an empty text where no such text is allowed, for something that need not be given and
    may not be null is left out, so that its default applies.

    Args:
        arguments: as the model sent them.
        schema: of the whole arguments; the root of its references.
        only: the arguments to look at: those that validation refused.
    """
    properties: Mapping[str, Any] = schema.get("properties", {})
    others: Any = schema.get("additionalProperties")
    required: Collection[str] = schema.get("required", ())
    repaired: dict[str, Any] = {}
    for name, value in arguments.items():
        own = properties.get(name, others)
        if name not in only or not isinstance(own, Mapping):
            repaired[name] = value
        elif name not in properties or not _may_be_dropped(value, name, own, required, schema):
            repaired[name] = _value(value, own, schema)
    return repaired


def with_whole_numbers(arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of valid arguments with `5.0` as `5` where only integers are allowed: JSON Schema tells them not apart,
    and Python does."""
    return repair(arguments, schema, [name for name, value in arguments.items() if _may_hold_floats(value)])


def _may_hold_floats(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_may_hold_floats, cast("dict[str, Any]", value).values()))
    return any(map(_may_hold_floats, cast("list[Any]", value))) if isinstance(value, list) else type(value) is float


def unwrapped(arguments: Mapping[str, Any], schema: Mapping[str, Any], tool: str) -> dict[str, Any] | None:
    """The arguments inside `{"arguments": {...}}` and the like, which models copy from the form of calls and schemas.

    Args:
        arguments: as the model sent them, and validation refused them.
        schema: of the whole arguments.
        tool: its name, which may stand beside that or in its place.

    Returns:
        None where that is not all there is, or the schema knows an argument of that name.
    """
    if not arguments.keys().isdisjoint(schema.get("properties", {})):
        return None
    wrapped = [(name, inner) for name, inner in arguments.items() if not (name in _CALLED and inner == tool)]
    if len(wrapped) != 1:
        return None
    ((name, inner),) = wrapped
    if name not in _WRAPPERS and name != tool:
        return None
    if isinstance(inner, str):
        inner = _container(inner)
    return cast("dict[str, Any]", inner) if isinstance(inner, dict) else None


def branches_for(schema: Any, kind: str, root: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The alternatives of a schema that may describe a value of JSON type `kind`, references resolved."""
    schema = resolve(schema, root)
    if not isinstance(schema, Mapping) or not _allows(allowed_types(schema, root), kind):
        return []
    schema = cast("Mapping[str, Any]", schema)
    inner = [one for key in ("anyOf", "oneOf", "allOf") for one in schema.get(key, ())]
    if not inner or "properties" in schema or "items" in schema:
        return [schema]
    return [branch for one in inner for branch in branches_for(one, kind, root)]


def allowed_types(schema: Any, root: Mapping[str, Any], depth: int = 0) -> Types:
    """The JSON types that a schema allows; `number` includes `integer`."""
    schema = resolve(schema, root)
    if schema is False:
        return frozenset()
    if not isinstance(schema, Mapping) or depth > _DEEPEST:
        return None
    schema = cast("Mapping[str, Any]", schema)
    types = _named_types(schema)
    for key in ("anyOf", "oneOf"):
        if key in schema:
            members = [allowed_types(one, root, depth + 1) for one in schema[key]]
            united = None if None in members else frozenset[str]().union(*(one for one in members if one is not None))
            types = _both(types, united)
    for one in schema.get("allOf", ()):
        types = _both(types, allowed_types(one, root, depth + 1))
    return types


def type_name(value: Any) -> str:
    """The JSON type of a plain value."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "integer" if value.is_integer() else "number"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"


def _named_types(schema: Mapping[str, Any]) -> Types:
    types: Types = None
    if "type" in schema:
        types = frozenset([schema["type"]] if isinstance(schema["type"], str) else schema["type"])
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    return types if values is None else _both(types, frozenset(type_name(value) for value in values))


def _both(one: Types, other: Types) -> Types:
    if one is None or other is None:
        return other if one is None else one
    return frozenset(kind for kind in one | other if _allows(one, kind) and _allows(other, kind))


def _allows(types: Types, kind: str) -> bool:
    return types is None or kind in types or (kind == "integer" and "number" in types)


def _may_be_dropped(value: Any, name: str, schema: Any, required: Collection[str], root: Mapping[str, Any]) -> bool:
    if name in required or not (value is None or (isinstance(value, str) and value.strip().lower() in _NULLS)):
        return False
    types = allowed_types(schema, root)
    if _allows(types, "null"):
        return False
    return value is None or not _allows(types, "string") or value not in _listed(schema, root, value)


def _listed(schema: Any, root: Mapping[str, Any], otherwise: Any) -> Collection[Any]:
    """The only values that a schema allows; `otherwise` among them where it lists none."""
    schema = resolve(schema, root)
    if not isinstance(schema, Mapping):
        return (otherwise,)
    schema = cast("Mapping[str, Any]", schema)
    return [schema["const"]] if "const" in schema else schema.get("enum", (otherwise,))


def _value(value: Any, schema: Any, root: Mapping[str, Any]) -> Any:
    types = allowed_types(schema, root)
    if types is not None and not _allows(types, type_name(value)):
        value = _from_text(value, types) if isinstance(value, str) else _to_text(value, types)
    elif isinstance(value, float) and value.is_integer() and types is not None and "number" not in types:
        value = int(value)
    if isinstance(value, dict):
        return _object(cast("dict[str, Any]", value), schema, root)
    if isinstance(value, list):
        return _array(cast("list[Any]", value), schema, root)
    return value


def _object(value: dict[str, Any], schema: Any, root: Mapping[str, Any]) -> dict[str, Any]:
    branches = branches_for(schema, "object", root)
    if len(branches) != 1:
        return value
    branch = branches[0]
    properties, others = branch.get("properties", {}), branch.get("additionalProperties", True)
    required = branch.get("required", ())
    repaired: dict[str, Any] = {}
    for name, child in value.items():
        own = properties.get(name, others)
        if name not in properties or not _may_be_dropped(child, name, own, required, root):
            repaired[name] = child if isinstance(own, bool) else _value(child, own, root)
    return repaired


def _array(value: list[Any], schema: Any, root: Mapping[str, Any]) -> list[Any]:
    branches = branches_for(schema, "array", root)
    if len(branches) != 1:
        return value
    first, others = branches[0].get("prefixItems", []), branches[0].get("items", True)
    if not isinstance(others, Mapping):
        others = True
    return [_value(child, first[n] if n < len(first) else others, root) for n, child in enumerate(value)]


def _to_text(value: Any, types: frozenset[str]) -> Any:
    if "string" not in types or value is None:
        return value
    if type_name(value) in _CONTAINERS and not types.isdisjoint(_CONTAINERS):
        return value  # the wrong one of these, rather than a text
    return dumps(value).decode()


def _from_text(text: str, types: frozenset[str]) -> Any:
    word = text.strip().lower()
    if "boolean" in types and word in _BOOLEANS:
        return _BOOLEANS[word]
    if "null" in types and word in _NULLS:
        return None
    if _allows(types, "integer") and (number := _INTEGER.fullmatch(text)):
        return int(number[1])
    if "number" in types and _NUMBER.fullmatch(text):
        return float(text)
    if "object" in types or "array" in types:
        value = _container(text)
        if value is not None and type_name(value) in types:
            return value
    return text


def _container(text: str) -> Any:
    """The array or object that `text` holds, whose own faults of syntax are repaired as those of arguments are."""
    try:
        return loads(text)
    except ValueError:
        pass
    try:
        return read_object(f'{{"it": {text}}}')[0]["it"]
    except Unreadable:
        return None
