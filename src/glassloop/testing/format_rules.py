"""What the two services refuse in a schema that replies are to fit.

OpenAI: guide "Structured Outputs", supported schemas. Anthropic: guide "Structured outputs", JSON Schema limitations.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from glassloop.core.schema import map_children
from glassloop.testing.shapes import array, record

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_NOT_STRICT = (
    *("allOf", "oneOf", "not", "if", "dependentRequired", "dependentSchemas", "patternProperties", "default"),
    *("prefixItems", "uniqueItems", "contains"),
)
_NOT_AT_ANTHROPIC = (
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength"),
    *("maxItems", "oneOf", "not", "if", "patternProperties", "prefixItems"),
)


def chat_format_violations(request: Mapping[str, Any]) -> list[str]:
    """What OpenAI refuses in `response_format`."""
    wanted = record(request.get("response_format"))
    if wanted.get("type", "text") in ("text", "json_object"):
        return []
    if wanted.get("type") != "json_schema":
        return [f"Invalid value for 'response_format.type': {wanted.get('type')!r}."]
    format_ = record(wanted.get("json_schema"))
    name, schema = format_.get("name"), record(format_.get("schema"))
    if not (isinstance(name, str) and _NAME.fullmatch(name)):
        return ["Missing or invalid 'response_format.json_schema.name'."]
    if schema.get("type") != "object":
        return [f"Invalid schema for response_format {name!r}: schema must be a JSON Schema of 'type: \"object\"'."]
    found = [problem for node in _nodes(schema) for problem in _strict(node)] if format_.get("strict") is True else []
    return [f"Invalid schema for response_format {name!r}: {problem}" for problem in found]


def messages_format_violations(request: Mapping[str, Any]) -> list[str]:
    """What Anthropic refuses in `output_config.format`."""
    wanted = record(record(request.get("output_config")).get("format"))
    if not wanted:
        return []
    if wanted.get("type") != "json_schema" or not record(wanted.get("schema")):
        return ["output_config.format: must have type 'json_schema' and a schema"]
    nodes = list(_nodes(record(wanted["schema"])))
    found = ["For 'object' type, 'additionalProperties' must be false" for node in nodes if _open(node)]
    found += [f"property '{key}' is not supported" for node in nodes for key in _NOT_AT_ANTHROPIC if key in node]
    return [f"output_config.format.schema: {problem}" for problem in found]


def _strict(node: Mapping[str, Any]) -> Iterator[str]:
    if _open(node):
        yield "'additionalProperties' is required to be supplied and to be false."
    missing = record(node.get("properties")).keys() - set(array(node.get("required")))
    if missing:
        yield f"'required' is required to include every key in properties. Missing {', '.join(sorted(missing))!r}."
    yield from (f"{key!r} is not permitted." for key in _NOT_STRICT if key in node)
    if "$ref" in node and len(node) > 1 and "$defs" not in node:
        yield "$ref cannot have keywords beside it."
    if node.keys().isdisjoint(("type", "anyOf", "enum", "const", "$ref")):
        yield "schema must have a 'type' key."


def _open(node: Mapping[str, Any]) -> bool:
    return node.get("type") == "object" and node.get("additionalProperties") is not False


def _nodes(schema: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    found: list[Mapping[str, Any]] = []

    def visit(child: Any) -> Any:
        found.append(record(child))
        return map_children(found[-1], visit)

    visit(schema)
    yield from found
