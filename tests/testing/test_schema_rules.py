"""What the stand-in servers refuse in a tool's schema, as the real ones do."""

from __future__ import annotations

from typing import Any

import pytest

from glassloop.testing.schema_rules import chat_schema_violations, messages_schema_violations

FINE: dict[str, Any] = {
    "type": "object",
    "properties": {"a.b-c_1": {"type": "array", "items": {"anyOf": [{"type": "string"}]}}, "d": True},
}


def test_an_ordinary_schema_is_fine() -> None:
    assert chat_schema_violations("t", FINE) == messages_schema_violations("t", FINE) == []


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"properties": {}}, "must be a JSON Schema of 'type: \"object\"'"),
        ({"type": "object"}, "object schema missing properties"),
        ({**FINE, "anyOf": []}, "at the top level"),
        ({**FINE, "not": {}}, "at the top level"),
        ({"type": "object", "properties": {"a": {"items": {"type": ["array", "null"]}}}}, "array schema missing items"),
    ],
)
def test_what_openai_refuses(schema: Any, said: str) -> None:
    (problem,) = chat_schema_violations("t", schema)
    assert said in problem


ANTHROPIC_REFUSES: list[tuple[Any, str]] = [
    ({"properties": {}}, "Input should be 'object'"),
    ({**FINE, "oneOf": [{}]}, "does not support oneOf"),
    ({"type": "object", "properties": {"城市": {}}}, "Property keys should match pattern"),
    ({"type": "object", "properties": {"x" * 65: {}}}, "Property keys should match pattern"),
    ({"type": "object", "properties": {"a": {"items": [{}]}}}, "draft 2020-12"),
    ({"type": "object", "properties": {"a": {"exclusiveMinimum": True}}}, "draft 2020-12"),
]


@pytest.mark.parametrize(("schema", "said"), ANTHROPIC_REFUSES)
def test_what_anthropic_refuses(schema: Any, said: str) -> None:
    (problem,) = messages_schema_violations("t", schema)
    assert said in problem
