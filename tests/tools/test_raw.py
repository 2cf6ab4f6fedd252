from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from glassloop.core.context import RunContext
from glassloop.core.errors import ToolDefinitionError
from glassloop.tools.arguments import ArgumentsError
from glassloop.tools.tool import Tool

SCHEMA: dict[str, Any] = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object",
    "properties": {
        "city": {"type": "string", "minLength": 2, "maxLength": 20},
        "days": {"type": "integer", "minimum": 1, "default": 3},
        "unit": {"enum": ["c", "f"]},
        "stops": {"type": "array", "items": {"$ref": "#/definitions/stop"}},
        "when": {"anyOf": [{"type": "integer"}, {"type": "array", "items": {"type": "integer"}}]},
    },
    "required": ["city"],
    "additionalProperties": False,
    "definitions": {"stop": {"type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]}},
}


def everything(**arguments: Any) -> dict[str, Any]:
    return arguments


def made(schema: dict[str, Any] = SCHEMA, function: Any = everything) -> Tool:
    return Tool.from_schema("trip", "Plan a trip.", schema, function)


def refusal(arguments: object, schema: dict[str, Any] = SCHEMA) -> str:
    with pytest.raises(ArgumentsError) as caught:
        made(schema).validate(json.dumps(arguments))
    return str(caught.value)


async def test_the_function_gets_the_arguments_by_keyword_and_defaults_are_not_made_up() -> None:
    trip = made()
    checked = trip.validate('{"city": "Oslo"}')
    assert await trip.invoke(checked.kwargs, RunContext(None)) == {"city": "Oslo"}
    assert trip.with_defaults(checked.arguments) == {"city": "Oslo", "days": 3}


async def test_the_context_is_injected_and_may_share_a_name_with_an_argument() -> None:
    def with_context(context: RunContext[str], /, **arguments: Any) -> str:
        return f"{context.deps} {arguments}"

    trip = Tool.from_schema("t", "", {"properties": {"context": {"type": "integer"}}}, with_context)
    assert await trip.invoke(trip.validate('{"context": 1}').kwargs, RunContext("deps")) == "deps {'context': 1}"


def test_the_given_schema_is_copied_and_never_changed() -> None:
    given = copy.deepcopy(SCHEMA)
    trip = made(given)
    assert given == SCHEMA
    given["properties"].clear()
    assert "city" in trip.parameters["properties"]
    assert "$schema" not in trip.parameters


def test_what_is_put_right() -> None:
    checked = made().validate('{"city": ["Oslo"], "days": "2", "unit": null, "stops": "[{\\"at\\": 5}]", "when": "7"}')
    assert checked.kwargs == {"city": '["Oslo"]', "days": 2, "stops": [{"at": "5"}], "when": 7}
    assert checked.repaired


def test_what_is_turned_back() -> None:
    wrong = {"city": "x" * 21, "days": 0, "unit": "k", "stops": [{"at": "a"}, {}], "when": {"a": 1}, "dayz": 1}
    text = refusal(wrong)
    assert "- city: should have max length 20 (you sent a string of 21 characters)" in text
    assert "- days: should have minimum 1 (you sent an integer)" in text
    assert '- unit: should be one of "c", "f" (you sent a string of 1 characters)' in text
    assert "- stops.1.at: missing, and required (string)" in text
    assert "- when: should be an integer or should be an array" in text
    assert "- dayz: there is no such argument" in text
    assert "did you mean days?" in refusal({"city": "Oslo", "dayz": 1})
    assert "- city: missing, and required (string)" in refusal({})
    assert "xxx" not in text


@pytest.mark.parametrize(
    ("rule", "value", "said"),
    [
        ({"const": 1}, 2, "should be 1"),
        ({"pattern": "^a"}, "b", "should match the pattern ^a"),
        ({"multipleOf": 2}, 3, "should have multiple of 2"),
        ({"uniqueItems": True}, [1, 1], "should have no item twice"),
        ({"not": {"type": "string"}}, "x", "is not allowed here"),
        ({"enum": []}, 1, "should be one of"),
        ({"contains": {"type": "integer"}}, ["x"], "breaks the rule 'contains'"),
        ({"oneOf": [{"minimum": 1}, {"minimum": 2}]}, 3, "should match exactly one"),
    ],
)
def test_every_rule_has_its_words(rule: dict[str, Any], value: Any, said: str) -> None:
    assert f"- v: {said}" in refusal({"v": value}, {"properties": {"v": rule}})


def test_unknown_arguments_reach_a_function_only_if_schema_and_function_allow_them() -> None:
    def only_city(city: str) -> str:
        return city

    open_schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    assert made(open_schema).validate('{"city": "Oslo", "x": 1}').kwargs == {"city": "Oslo", "x": 1}
    with pytest.raises(ArgumentsError, match="x: there is no such argument"):
        made(open_schema, only_city).validate('{"city": "Oslo", "x": 1}')


def test_a_reference_to_the_root_is_followed() -> None:
    tree = {"type": "object", "properties": {"child": {"$ref": "#"}, "n": {"type": "integer"}}}
    assert made(tree).validate('{"child": {"child": {"n": "1"}}}').kwargs == {"child": {"child": {"n": 1}}}


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array"},
        {"type": "nonsense"},
        {"properties": {"a": {"type": "nonsense"}}},
        {"properties": {"a": {"$ref": "#/nowhere"}}},
        {"properties": {"a": {"$ref": "http://localhost:1/remote.json"}}},
        True,
    ],
)
def test_schemas_that_cannot_be(schema: Any) -> None:
    with pytest.raises(ToolDefinitionError, match="everything"):
        made(schema)


def test_a_function_that_does_not_fit_its_schema() -> None:
    def named(city: str, days: int) -> None: ...
    def context_named_like_an_argument(city: RunContext, **rest: Any) -> None: ...

    with pytest.raises(ToolDefinitionError, match="'unit'"):
        made(function=lambda city, days, stops, when: None)  # pyright: ignore[reportUnknownLambdaType] - as users write it
    with pytest.raises(ToolDefinitionError, match="'days' has no default"):
        made({"properties": {"city": {}, "days": {}}, "required": ["city"]}, named)
    with pytest.raises(ToolDefinitionError, match="positional-only"):
        made(function=context_named_like_an_argument)


def test_a_type_list_that_has_object_is_an_object() -> None:
    assert made({"type": ["object", "null"]}).parameters == {"type": "object", "properties": {}}
