"""Moonshot refuses a whole request over one schema that is not in its flavour; the rules are those of its validator."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, cast

import jsonschema_rs
import pytest
from pydantic import BaseModel, Field

from glassloop import tool
from glassloop.core.schema import map_children, resolve
from glassloop.models.fake_transport import FakeAnswer, FakeTransport
from glassloop.models.model import ModelRequest, ToolSpec, complete
from glassloop.models.openai_chat import OpenAIChat
from glassloop.models.profiles import profile_for

ANNOTATIONS = {"description", "title"}
TYPES: dict[str, Any] = {"string": str, "integer": int, "number": (int, float), "boolean": bool, "null": type(None)}


def refused(schema: Any, root: Mapping[str, Any], path: str = "root") -> Iterator[str]:
    """What MoonshotAI/walle says of a schema."""
    if not isinstance(schema, dict):
        yield f"{path}: schema must be an object"
        return
    node = cast("dict[str, Any]", schema)
    beside: set[str] = {*node} - ANNOTATIONS - ({"$defs"} if path == "root" else set())
    kinds: list[str] = [node["type"]] if isinstance(node.get("type"), str) else node.get("type", [])
    if "anyOf" in node and beside != {"anyOf"}:
        yield f"{path}: when using anyOf, type should be defined in anyOf items instead of the parent schema"
    if "$ref" in node:
        target = resolve(node, root)
        if beside != {"$ref"} or not node["$ref"].startswith("#/$defs/") or not target:
            yield f"{path}: references must start with #/$defs/"
        if {*node} & {*target}:
            yield f"{path}: conflicting keywords found after $ref expansion"
    if len(kinds) > 1 and beside != {"type"}:
        yield f"{path}: keyword is not allowed in combination with multiple types"
    if "enum" in node and len(kinds) != 1:
        yield f"{path}: type is not defined"
    if not all(isinstance(value, TYPES[kinds[0]]) for value in node.get("enum", [])):
        yield f"{path}: enum value does not match"
    if {*node.get("required", [])} - {*node.get("properties", {})}:
        yield f"{path}: required property is not defined in properties"
    if {"const", "oneOf", "definitions"} & {*node}:
        yield f"{path}: unsupported keywords"
    children: list[Any] = []
    map_children(node, children.append)
    for number, child in enumerate(children):
        yield from refused(child, root, f"{path}.{number}")


async def sent(spec: ToolSpec) -> dict[str, Any]:
    transport = FakeTransport(FakeAnswer.json({"choices": [{"message": {"content": "ok"}}]}))
    model = OpenAIChat("kimi-k3", base_url="https://api.moonshot.ai/v1", api_key="k", transport=transport)
    await complete(model, ModelRequest((), tools=(spec,)))
    return transport.posts[-1].json["tools"][0]["function"]["parameters"]


class Node(BaseModel):
    """A node of a tree."""

    value: int
    kind: Literal["a", "b"] | None = None
    children: list[Node] = []


def plant(
    root: Annotated[Node, Field(description="where it begins")],
    depth: Literal["all", 1, 2, None] = "all",
    at: tuple[int, str] = (0, ""),
    names: dict[str, int | None] = {},  # noqa: B006 - as users write it
    anything: Any = None,
) -> None:
    """Plant a tree."""


SCHEMAS: dict[str, dict[str, Any]] = {
    "a type beside alternatives": {
        "properties": {
            "x": {
                "type": "object",
                "description": "one of two",
                "properties": {"id": {"type": "integer"}},
                "required": ["id"],
                "anyOf": [{"required": ["name"], "properties": {"name": {"type": "string"}}}, {"required": ["id"]}],
            },
            "n": {"type": "array", "items": {"type": "object"}, "oneOf": [{"maxItems": 1}, {"minItems": 3}]},
        }
    },
    "an enum without a type": {"properties": {"mode": {"enum": ["START", "END"]}, "n": {"enum": [1, 2.5, None, "x"]}}},
    "a list of types": {
        "properties": {
            "n": {"type": ["integer", "null"], "minimum": 1, "description": "how many"},
            "x": {"type": ["object", "array", "string"], "properties": {"a": {}}, "items": {"type": "string"}},
            "e": {"type": ["string", "null"], "enum": ["a", None]},
            "plain": {"type": ["string", "integer"]},
        }
    },
    "old definitions": {
        "properties": {"a": {"$ref": "#/definitions/Leaf"}, "b": {"$ref": "#/properties/a"}},
        "definitions": {
            "Leaf": {
                "type": "object",
                "description": "a leaf",
                "properties": {"next": {"$ref": "#/definitions/Leaf", "description": "the next"}},
            }
        },
    },
    "demands what is not there": {"properties": {"a": {"type": "string"}}, "required": ["a", "b"]},
    "booleans": {"properties": {"a": True, "b": {"anyOf": [True, {"type": "string"}]}}},
}
SPECS = {name: ToolSpec("t", "", {"type": "object", **schema}) for name, schema in SCHEMAS.items()}


@pytest.mark.parametrize("spec", [tool(plant).spec, *SPECS.values()], ids=["a function's", *SPECS])
async def test_no_schema_makes_moonshot_refuse_the_request(spec: ToolSpec) -> None:
    """MoonshotAI/kimi-code#2661, vercel/ai#18921, MoonshotAI/kimi-cli#2030, can1357/oh-my-pi#5955."""
    given = copy.deepcopy(dict(spec.parameters))
    schema = await sent(spec)
    assert list(refused(schema, schema)) == []
    assert spec.parameters == given


SAMPLES: list[tuple[str, str, list[Any]]] = [
    ("a type beside alternatives", "x", [{"id": 1, "name": "n"}, {"id": 1}, {"name": "n"}, {"id": "1"}, [], {}]),
    ("an enum without a type", "mode", ["START", "x", None, 1]),
    ("an enum without a type", "n", [1, 2.5, None, "x", 3, True]),
    ("a list of types", "n", [1, None, 0, "1"]),
    ("a list of types", "e", ["a", None, "b"]),
    ("old definitions", "b", [{}, {"next": {"next": {}}}, {"next": {"next": 1}}, 1]),
]


@pytest.mark.parametrize(("name", "argument", "values"), SAMPLES)
async def test_the_flavour_says_the_same(name: str, argument: str, values: list[Any]) -> None:
    schema = await sent(SPECS[name])
    before, after = jsonschema_rs.validator_for(dict(SPECS[name].parameters)), jsonschema_rs.validator_for(schema)
    verdicts = [after.is_valid({argument: value}) for value in values]
    assert verdicts == [before.is_valid({argument: value}) for value in values]
    assert {True, False} == {*verdicts}


async def test_what_a_reference_is_for_is_still_told() -> None:
    schema = await sent(tool(plant).spec)
    assert schema["properties"]["root"] == {"description": "where it begins", "anyOf": [{"$ref": "#/$defs/Node"}]}
    assert schema["$defs"]["Node"]["description"] == "A node of a tree."


def test_whose_servers_want_it() -> None:
    hosts = ("api.moonshot.ai", "api.moonshot.cn", "api.kimi.com", "api.openai.com", "example.com")
    assert [profile_for(host).moonshot_schemas for host in hosts] == [True, True, True, False, False]
