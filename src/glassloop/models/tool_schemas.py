"""Schemas of arguments as providers take them: over one that they do not, they refuse the whole request.

This changes what a model is told, never what is valid: the validation gate has the schema as it was given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from glassloop.core.names import wire_key
from glassloop.core.schema import Schema, map_children, resolve, without_unused_definitions
from glassloop.models.shapes import array, record

_UNIONS = ("allOf", "anyOf", "oneOf")
_NOTHING: tuple[Any, ...] = (False, {"not": {}})
_NOT_AT_TOP = frozenset({*_UNIONS, "enum", "not"})


def plain_schema(parameters: Mapping[str, Any]) -> Schema:
    """A schema that says that it is an object's and which properties that has, with no union at its top level.

    OpenAI refuses `oneOf`, `anyOf`, `allOf`, `enum` and `not` there, Anthropic the first three. The properties of the
    alternatives are offered side by side; which of them go together is for the validation gate to say.
    """
    schema = _plain(parameters, parameters, {})
    return schema if parameters.keys() == schema.keys() else without_unused_definitions(schema)


def for_chat(node: Any) -> Any:
    """A copy of a schema as OpenAI and the servers that speak its format read it.

    Every array says what it holds, which OpenAI demands ("array schema missing items"); beside `prefixItems` that is
    any of these, since some servers read only one of the two keywords. What is required is a property. Patterns are
    anchored and nothing is but forbidden, as llama.cpp demands where it makes a grammar of a schema; Ollama knows no
    schema that is a boolean.
    """
    if node is True:
        return {}
    if not isinstance(node, Mapping):
        return node
    schema = map_children(cast("Mapping[str, Any]", node), for_chat)
    types = [schema.get("type")] if isinstance(schema.get("type"), str) else schema.get("type", ())
    if "array" in types and not isinstance(schema.get("items"), dict):
        schema["items"] = _any_of(array(schema.get("prefixItems")))
    if isinstance(schema.get("pattern"), str):
        schema["pattern"] = _anchored(schema["pattern"])
    if "properties" in schema or ("object" in types and "required" in schema):
        properties = {**record(schema.get("properties")), **_demanded_alone(schema)}
        schema["properties"] = {name: child for name, child in properties.items() if child not in _NOTHING}
    return schema


def _demanded_alone(schema: Schema) -> Schema:
    """What an object must have and no property describes: Gemini and Moonshot refuse a name that is no property's."""
    others = schema.get("additionalProperties")
    described = record(schema.get("properties"))
    names = (name for name in array(schema.get("required")) if name not in described)
    return {name: others if isinstance(others, dict) else {} for name in names}


def _anchored(pattern: str) -> str:
    """The same pattern from the beginning of a text to its end, where that can be said without reading it."""
    begins, ends = pattern.startswith("^"), pattern.endswith("$") and not pattern.endswith("\\$")
    if "|" in pattern:
        return pattern if begins or ends else f"^.*({pattern}).*$"
    return f"{'' if begins else '^.*'}{pattern}{'' if ends else '.*$'}"


def wire_keys(parameters: Mapping[str, Any]) -> dict[str, str]:
    """Those arguments whose names Anthropic refuses: what they are called there, with their own names."""
    names = plain_schema(parameters)["properties"]
    return {wire_key(name): name for name in names if wire_key(name) != name}


def with_wire_keys(schema: Schema) -> Schema:
    """A copy of a schema whose arguments are named as Anthropic takes them, the real names as their titles."""
    if not wire_keys(schema):
        return schema
    properties = {wire_key(name): _titled(node, name) for name, node in schema["properties"].items()}
    required = {"required": list(map(wire_key, schema["required"]))} if "required" in schema else {}
    return {**schema, "properties": properties, **required}


def _titled(node: Any, name: str) -> Any:
    return node if wire_key(name) == name or node is False else {"title": name, **record(node)}


def _plain(node: Any, root: Mapping[str, Any], known: dict[str, Schema]) -> Schema:
    """One schema; `known` has what references came to, each looked up once, since they may lead back to themselves."""
    given = record(node)
    reference = given.get("$ref")
    if isinstance(reference, str):
        if reference not in known:
            known[reference] = {"properties": {}}
            known[reference] = _plain(resolve(given, root), root, known)
        given = {**known[reference], **{key: value for key, value in given.items() if key != "$ref"}}
    is_whole = given.get("type") == "object" and "properties" in given
    schema: Schema = given if is_whole else {"properties": {}, **given, "type": "object"}
    schema = {key: value for key, value in schema.items() if key not in _NOT_AT_TOP}
    for union in _UNIONS:
        choices = [_plain(one, root, known) for one in array(given.get(union))]
        if choices:
            schema["properties"] = {**_side_by_side(choices), **schema["properties"]}
            required = [*schema.get("required", ()), *_required(choices, every=union == "allOf")]
            schema |= {"required": list(dict.fromkeys(required))} if required else {}
    return schema


def _side_by_side(choices: Sequence[Schema]) -> Schema:
    nodes: dict[str, list[Any]] = {}
    for choice in choices:
        for name, node in record(choice["properties"]).items():
            nodes.setdefault(name, []).append(node)
    return {name: _any_of(alternatives) for name, alternatives in nodes.items()}


def _any_of(alternatives: Sequence[Any]) -> Any:
    different = [one for place, one in enumerate(alternatives) if one not in alternatives[:place]]
    if len(different) < 2:
        return different[0] if different else {}
    values = [record(one).get("const") for one in different if record(one).keys() <= {"const", "type"}]
    return {"enum": values} if len(values) == len(different) and None not in values else {"anyOf": different}


def _required(choices: Sequence[Schema], *, every: bool) -> list[str]:
    named = [array(choice.get("required")) for choice in choices]
    return [name for names in named for name in names if every or all(name in others for others in named)]
