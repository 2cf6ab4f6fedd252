from __future__ import annotations

import copy
import json
import types
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
        {"$ref": "#/$defs/a", "$defs": {"a": {"type": "string"}}},
        {"$ref": "#/nowhere"},
        {"type": ["string"]},
        True,
        None,
        [],
        int,
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


# As schemas are found in the wild


def test_older_drafts_are_read_and_told_in_the_spelling_of_today() -> None:
    """kintone/mcp-server#553, NousResearch/hermes-agent#20976: a tuple of draft 7 is a 400 for the whole request."""
    pair = {"type": "array", "items": [{"type": "string"}, {"type": "integer"}], "additionalItems": False}
    second = {"$ref": "#/properties/pair/items/1"}
    old: dict[str, Any] = {
        "type": "object",
        "properties": {
            "pair": pair,
            "rest": {"type": "array", "items": [{"type": "string"}], "additionalItems": second},
            "over": {"type": "number", "minimum": 0, "exclusiveMinimum": True},
            "under": {"type": "number", "maximum": 9, "exclusiveMaximum": False},
            "maybe": {"type": "string", "enum": ["a"], "nullable": True},
            "both": {"$ref": "#/properties/over", "nullable": True},
        },
        "required": ["maybe"],
    }
    seen = made(old).parameters["properties"]
    assert seen["pair"] == {"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}], "items": False}
    assert seen["rest"]["items"] == {"$ref": "#/properties/pair/prefixItems/1"}
    assert seen["over"] == {"type": "number", "exclusiveMinimum": 0}
    assert seen["under"] == {"type": "number", "maximum": 9}
    assert seen["maybe"] == {"type": ["string", "null"], "enum": ["a", None]}
    assert seen["both"] == {"anyOf": [{"$ref": "#/properties/over"}, {"type": "null"}]}
    given = {"pair": ["a", "1"], "rest": ["a", "2"], "maybe": None, "both": None}
    assert made(old).validate(json.dumps(given)).kwargs == {**given, "pair": ["a", 1], "rest": ["a", 2]}
    for wrong in ({"over": 0}, {"pair": ["a", 1, 2]}, {"maybe": "b"}):
        assert next(iter(wrong)) in refusal({"maybe": None, **wrong}, old)


def test_a_schema_that_is_a_reference_shows_what_that_points_to() -> None:
    """StefanTerdell/zod-to-json-schema names the root so; without properties no model can call the tool."""
    point = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}
    named = {"$ref": "#/definitions/Point", "definitions": {"Point": point}, "$schema": SCHEMA["$schema"]}
    assert made(named).parameters == point
    assert made(named).validate('{"x": "1"}').kwargs == {"x": 1}
    node = {"type": "object", "properties": {"in": {"$ref": "#/$defs/Node"}}}
    tree: dict[str, Any] = {"$ref": "#/$defs/Node", "$defs": {"Node": node}}
    assert made(tree).parameters == {**node, "$defs": {"Node": node}}


def test_titles_that_repeat_a_name_are_left_out_and_names_are_not() -> None:
    """simonw/llm#1680, PrefectHQ/fastmcp#3576: a property named `title` is no title."""
    title = {"title": "Title", "type": "string"}
    due = {"title": "Until when", "type": "string"}
    titled = {"title": "TripArguments", "properties": {"title": title, "due_on": {"title": "Due On"}, "due": due}}
    assert made(titled).parameters["properties"] == {"title": {"type": "string"}, "due_on": {}, "due": due}
    assert "title" not in made(titled).parameters
    assert made({"title": "Plan of a trip"}).parameters["title"] == "Plan of a trip"


@pytest.mark.parametrize("broken", [{"properties": None}, {"properties": []}, {"required": None}])
def test_a_schema_that_is_broken_is_named_and_does_not_crash(broken: Any) -> None:
    with pytest.raises(ToolDefinitionError, match="is not valid"):
        made({"type": "object", **broken})


def test_a_schema_that_cannot_be_written_to_is_read() -> None:
    inner: Any = types.MappingProxyType({"type": "integer", "enum": [1, 2]})
    outer: Any = types.MappingProxyType({"type": "object", "properties": types.MappingProxyType({"n": inner})})
    trip = made(outer)
    assert trip.validate('{"n": "1"}').kwargs == {"n": 1}


def test_properties_that_allow_anything() -> None:
    trip = made({"properties": {"a": True, "b": {"default": 1}}})
    assert trip.validate('{"a": 1}').kwargs == {"a": 1}
    assert trip.with_defaults({"a": 1}) == {"a": 1, "b": 1}


def test_a_whole_number_is_an_integer_in_python_too() -> None:
    """JSON Schema takes 5.0 for an integer, `range` does not."""
    schema = {"properties": {"n": {"type": "integer"}, "x": {"type": "number"}, "l": {"items": {"type": "integer"}}}}
    given = made(schema).validate('{"n": 5.0, "x": 5.0, "l": [1.0], "y": 2.0}').kwargs
    assert [type(value) for value in (given["n"], given["x"], given["l"][0], given["y"])] == [int, float, int, float]


@pytest.mark.parametrize("word", ["null", "None", " NULL ", "undefined"])
def test_the_word_for_null_is_null_where_no_such_text_is_allowed(word: str) -> None:
    """mdegans/drama_llama#115, anthropics/claude-code#95239"""
    asked = {"city": {}, "days": {"type": "integer"}, "unit": {"enum": ["c", "f"]}, "note": {"type": "string"}}
    given = {"city": word, "days": word, "unit": word, "note": word}
    assert made({"properties": asked}).validate(json.dumps(given)).kwargs == {"city": word, "note": word}
    assert "days: should be an integer" in refusal({"days": word}, {"properties": asked, "required": ["days"]})


def test_arguments_of_any_name_are_put_right_like_others() -> None:
    assert made({"additionalProperties": {"type": "integer"}}).validate('{"x": "1"}').kwargs == {"x": 1}


def test_an_array_where_an_object_or_a_text_is_wanted_is_neither() -> None:
    schema = {"properties": {"p": {"anyOf": [{"type": "object"}, {"type": "string"}]}}}
    assert "- p: should be an object or should be a string" in refusal({"p": [1]}, schema)


def test_alternatives_name_what_they_miss() -> None:
    by_id = {"properties": {"id": {"type": "integer"}}, "required": ["id"], "additionalProperties": False}
    either = {"anyOf": [by_id, {"properties": {"name": {"type": "string"}}, "required": ["name"]}]}
    assert 'should have the field "id" or should have the field "name"' in refusal({}, either)
    assert 'id should be an integer or should have the field "name"' in refusal({"id": "x"}, either)
    assert 'should not have the field "z" or should have the field "name"' in refusal({"id": 1, "z": 1}, either)
