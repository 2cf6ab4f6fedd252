from __future__ import annotations

import re
from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal
from uuid import UUID

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, TypeAdapter

from glassloop.models.patterns import matching
from glassloop.models.schema_values import example_of

SCHEMAS: list[dict[str, Any]] = [
    {"const": None},
    {"enum": ["a", "b"]},
    {"type": "object", "properties": {"a": {"type": "string"}, "b": {}}, "required": ["a"]},
    {"type": "object", "properties": {"a": {"type": "boolean"}}, "minProperties": 1},
    {"type": "object", "additionalProperties": {"type": "integer"}, "minProperties": 2},
    {"required": ["x"], "properties": {"x": {"type": ["null", "integer"]}}},
    {"type": "array", "items": {"type": "integer"}, "minItems": 3, "uniqueItems": True},
    {"type": "array", "items": {"enum": ["a", "b", "c"]}, "minItems": 2, "uniqueItems": True},
    {"type": "array", "items": {"type": "string"}, "minItems": 2, "uniqueItems": True},
    {
        "type": "array",
        "prefixItems": [{"type": "string"}, {"type": "integer"}],
        "minItems": 3,
        "items": {"type": "null"},
    },
    {"type": "string", "minLength": 9},
    {"type": "string", "maxLength": 2},
    {"type": "string", "pattern": "^A-[0-9]{4}$"},
    {"type": "string", "pattern": "^(red|green) [a-z]+$", "minLength": 12},
    {"type": "string", "format": "date-time"},
    {"type": "integer", "minimum": 7},
    {"type": "integer", "maximum": -3},
    {"type": "integer", "exclusiveMinimum": 7, "multipleOf": 5},
    {"type": "integer", "exclusiveMaximum": 1},
    {"type": "integer", "minimum": 1.5},
    {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 0.5},
    {"type": "number", "minimum": 0.3, "maximum": 0.3},
    {"type": "number", "multipleOf": 0.25, "minimum": 1.1},
    {"type": "null"},
    {"anyOf": [{"type": "integer", "minimum": 3}, {"type": "null"}]},
    {"oneOf": [{"type": "string", "minLength": 3}, {"type": "integer"}]},
    {
        "type": "object",
        "properties": {"kind": {"const": "x"}},
        "required": ["kind"],
        "anyOf": [{"properties": {"n": {"type": "integer"}}, "required": ["n"]}],
    },
    {"allOf": [{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}, {"required": ["a"]}]},
    {"$defs": {"n": {"type": "integer", "minimum": 4}}, "$ref": "#/$defs/n"},
    {"$defs": {"a/b": {"type": "string"}}, "type": "array", "minItems": 1, "items": {"$ref": "#/$defs/a~1b"}},
    {
        "$defs": {
            "node": {
                "type": "object",
                "properties": {"next": {"$ref": "#/$defs/node"}, "v": {"type": "integer"}},
                "required": ["v"],
            }
        },
        "$ref": "#/$defs/node",
    },
    {},
]


@pytest.mark.parametrize("schema", SCHEMAS, ids=str)
def test_examples_are_valid(schema: dict[str, Any]) -> None:
    value = example_of(schema)
    jsonschema_rs.validator_for(schema, validate_formats=True).validate(value)


def test_defaults_and_examples_are_taken() -> None:
    assert example_of({"type": "integer", "default": 0}) == 0
    assert example_of({"type": "string", "examples": ["A-1024"]}) == "A-1024"


@pytest.mark.parametrize("reference", ["#", "#anchor", "http://localhost/x.json", "#/$defs/a"])
def test_a_schema_that_is_part_of_itself_ends(reference: str) -> None:
    schema = {"type": "integer", "allOf": [{"$ref": reference}], "$defs": {"a": {"allOf": [{"$ref": "#/$defs/a"}]}}}
    assert example_of(schema) == 1


def test_a_schema_that_demands_itself_for_ever_ends() -> None:
    loop: dict[str, Any] = {"type": "object", "properties": {"next": {"$ref": "#"}}, "required": ["next"]}
    assert "next" in example_of(loop)
    assert example_of({"$ref": "#"}) in ("text", None)


class Color(Enum):
    RED = "red"


class Address(BaseModel):
    city: str
    zip: str | None = None


class Order(BaseModel):
    day: date
    at: datetime
    took: timedelta
    id: UUID
    price: Decimal
    color: Color
    mode: Literal["x", 1]
    tags: set[int] = Field(min_length=2)
    code: Annotated[str, Field(pattern=r"^[A-Z]{2}\d+$")]
    amount: Annotated[float, Field(gt=0, le=1)]
    homes: list[Address] = Field(min_length=1)
    by_name: dict[str, Address]
    either: int | str
    pair: tuple[int, str]


def test_what_pydantic_asks_for_it_gets() -> None:
    Order.model_validate(example_of(Order.model_json_schema()))


@given(st.sampled_from([int, str, bool, float, list[int], dict[str, bool], date, UUID, tuple[int, ...], int | None]))
def test_ordinary_types(kind: Any) -> None:
    adapter = TypeAdapter[Any](kind)
    adapter.validate_python(example_of(adapter.json_schema()))


PATTERNS = [
    r"^\d{3}-\d{4}$",
    r"^[A-Z][a-z]+( [A-Z][a-z]+)*$",
    r"^[^@\s]+@[^@\s]+\.\w{2,}$",
    r"^(?:GET|POST)$",
    r"^\S+$",
    r"^.{5}$",
    r"^[^a]$",
    r"^\W\D$",
    r"[0-9a-f]{8}(-[0-9a-f]{4}){3}",
    r"^#?[\w-]{2,4}?$",
    r"^\u4f60[\u4e00-\u9fff]$",
    r"^$",
    "",
]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_patterns(pattern: str) -> None:
    assert re.search(pattern, matching(pattern))


def test_patterns_with_a_length() -> None:
    assert len(matching(r"^[a-z]*$", 7)) >= 7
    assert matching("(", 3) == "ttt"
    assert len(matching(r"^a$", 3)) == 3
