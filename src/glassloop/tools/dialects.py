"""JSON Schemas as they are found, in the spelling of 2020-12 and without the titles that generators put in.

Anthropic and xAI check tools against 2020-12 and refuse the whole request over one that is older; what reads schemas
here needs one spelling, too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast

from glassloop.core.schema import Schema, map_children

_TUPLE = re.compile(r"/items/(?=\d+(?:/|$))")  # into a list of items: no schema stands at a number anywhere else
_BOUNDS = (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum"))
_NAMED = ("properties", "$defs", "definitions")
_NOT_A_LETTER = re.compile(r"[\W_]+")


def modern(schema: Any) -> Any:
    """A copy of a schema of any draft in the spelling of 2020-12.

    `items` as a list (draft 7 and before) becomes `prefixItems`, `exclusiveMinimum: true` (draft 4) a number, and
    `nullable` (OpenAPI 3.0) an alternative.
    """
    if not isinstance(schema, Mapping):
        return schema
    node = map_children(cast("Mapping[str, Any]", schema), modern)
    if isinstance(node.get("items"), list):
        first, others = node.pop("items"), node.pop("additionalItems", None)
        node |= {"prefixItems": first} if first else {}
        node |= {} if others is None else {"items": others}
    for bound, exclusive in _BOUNDS:
        if isinstance(node.get(exclusive), bool) and node.pop(exclusive) and bound in node:
            node[exclusive] = node.pop(bound)
    if isinstance(node.get("$ref"), str):
        node["$ref"] = _TUPLE.sub("/prefixItems/", node["$ref"])
    return _nullable(node) if isinstance(node.get("nullable"), bool) else node


def untitled(schema: Any, name: str = "") -> Any:
    """A copy of a schema without titles that only repeat the name of what they stand at, as pydantic makes them."""
    if not isinstance(schema, Mapping):
        return schema
    given = cast("Mapping[str, Any]", schema)
    node = map_children(given, untitled)
    for key in _NAMED:
        if isinstance(named := given.get(key), Mapping):
            children = cast("Mapping[str, Any]", named)
            node[key] = {child_name: untitled(child, child_name) for child_name, child in children.items()}
    title = node.get("title")
    if isinstance(title, str) and _letters(title) == _letters(name):
        del node["title"]
    return node


def _letters(text: str) -> str:
    return _NOT_A_LETTER.sub("", text).casefold()


def _nullable(node: Schema) -> Schema:
    if not node.pop("nullable"):
        return node
    if "type" not in node:
        return {"anyOf": [node, {"type": "null"}]}
    types = [node["type"]] if isinstance(node["type"], str) else list(node["type"])
    node["type"] = types if "null" in types else [*types, "null"]
    if "enum" in node and None not in node["enum"]:
        node["enum"] = [*node["enum"], None]
    return node
