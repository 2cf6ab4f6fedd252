"""What OpenAI and Anthropic refuse in the schema of a tool's arguments, in the words of their 400 answers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, cast

from glassloop.core.schema import map_children
from glassloop.testing.shapes import record

_AT_TOP = ("oneOf", "anyOf", "allOf", "enum", "not")
_KEY = re.compile(r"[a-zA-Z0-9_.-]{1,64}")


def chat_schema_violations(name: object, parameters: object) -> list[str]:
    """What OpenAI's Chat Completions says of a function's parameters."""
    head, schema = f"Invalid schema for function {name!r}:", record(parameters)
    if schema.get("type") != "object":
        return [f"{head} the schema must be a JSON Schema of 'type: \"object\"'."]
    found = [] if "properties" in schema else [f"{head} In context=(), object schema missing properties."]
    if any(keyword in schema for keyword in _AT_TOP):
        keywords = "/".join(map(repr, _AT_TOP))
        found.append(f"{head} schema must have type 'object' and not have {keywords} at the top level.")
    return found + [f"{head} array schema missing items." for _ in _arrays_of_nothing(schema)]


def messages_schema_violations(where: str, input_schema: object) -> list[str]:
    """What Anthropic's Messages says of a tool's `input_schema`."""
    import jsonschema_rs

    schema = record(input_schema)
    found: list[str] = []
    if schema.get("type") != "object":
        found.append(f"{where}.type: Input should be 'object'")
    if any(keyword in schema for keyword in ("oneOf", "allOf", "anyOf")):
        found.append(f"{where}: input_schema does not support oneOf, allOf, or anyOf at the top level")
    if not all(_KEY.fullmatch(key) for key in record(schema.get("properties"))):
        found.append(f"{where}.properties: Property keys should match pattern '^[a-zA-Z0-9_.-]{{1,64}}$'")
    if not jsonschema_rs.meta.is_valid({**schema, "$schema": "https://json-schema.org/draft/2020-12/schema"}):
        found.append(f"{where}: JSON schema is invalid. It must match JSON Schema draft 2020-12")
    return found


def _arrays_of_nothing(node: Any) -> Iterator[None]:
    """Once for each array in a schema that does not say what it holds."""
    if not isinstance(node, Mapping):
        return
    schema = cast("Mapping[str, Any]", node)
    inner: list[Any] = []
    map_children(schema, inner.append)
    for child in inner:
        yield from _arrays_of_nothing(child)
    types = schema.get("type", ())
    if "array" in ([types] if isinstance(types, str) else types) and "items" not in schema:
        yield None
