"""What is refused in the schemas that replies are to fit."""

from __future__ import annotations

from typing import Any

import pytest

from glassloop.testing.chat_rules import chat_violations
from glassloop.testing.format_rules import chat_format_violations, messages_format_violations

GOOD: dict[str, Any] = {
    "type": "object",
    "properties": {"a": {"anyOf": [{"type": "string"}, {"type": "null"}]}, "b": {"$ref": "#/$defs/b"}},
    "required": ["a", "b"],
    "additionalProperties": False,
    "$defs": {"b": {"type": "array", "items": {"type": "integer"}}},
}


def openai(schema: Any, **more: Any) -> list[str]:
    format_ = {"name": "a", "strict": True, "schema": schema, **more}
    return chat_format_violations({"response_format": {"type": "json_schema", "json_schema": format_}})


def claude(schema: Any) -> list[str]:
    return messages_format_violations({"output_config": {"format": {"type": "json_schema", "schema": schema}}})


def test_good_schemas_pass() -> None:
    assert openai(GOOD) == []
    assert claude(GOOD) == []
    assert openai({"type": "object", "properties": {"a": {}}}, strict=False) == []
    assert chat_format_violations({"response_format": {"type": "json_object"}}) == []
    assert chat_format_violations({}) == []
    assert messages_format_violations({"output_config": {"effort": "low"}}) == []


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"additionalProperties": True}, "'additionalProperties' is required"),
        ({"required": ["a"]}, "Missing 'b'"),
        ({"properties": {"a": {}}, "required": ["a"]}, "must have a 'type' key"),
        ({"properties": {"a": {"type": "string", "default": "x"}}, "required": ["a"]}, "'default' is not permitted"),
        ({"properties": {"a": {"$ref": "#/$defs/b", "description": "x"}}, "required": ["a"]}, "$ref cannot have"),
        ({"$defs": {"b": {"type": "array", "prefixItems": []}}}, "'prefixItems' is not permitted"),
        ({"type": "array"}, "must be a JSON Schema of 'type: \"object\"'"),
    ],
)
def test_openai_refuses(change: dict[str, Any], problem: str) -> None:
    assert any(problem in found for found in openai({**GOOD, **change}))


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"additionalProperties": True}, "'additionalProperties' must be false"),
        ({"properties": {"a": {"type": "integer", "minimum": 1}}}, "property 'minimum' is not supported"),
    ],
)
def test_anthropic_refuses(change: dict[str, Any], problem: str) -> None:
    assert any(problem in found for found in claude({**GOOD, **change}))


def test_a_format_must_be_complete() -> None:
    assert openai(GOOD, name="a b") == ["Missing or invalid 'response_format.json_schema.name'."]
    assert claude({}) == ["output_config.format: must have type 'json_schema' and a schema"]
    body = {"model": "m", "messages": [{"role": "user", "content": "q"}], "response_format": {"type": "xml"}}
    assert chat_violations(body) == ["Invalid value for 'response_format.type': 'xml'."]
