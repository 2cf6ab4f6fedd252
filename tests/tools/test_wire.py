"""Schemas as other people write them, at servers that refuse what OpenAI and Anthropic refuse."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from glassloop import Agent, Tool
from glassloop.models.anthropic import Anthropic
from glassloop.models.model import Model
from glassloop.models.openai_chat import OpenAIChat
from glassloop.testing import Conversation, ModelServer, Reaction, call, say

WIRES = ["openai", "anthropic"]


def model_of(server: ModelServer, wire: str) -> Model:
    if wire == "anthropic":
        return Anthropic("stand-in", base_url=server.anthropic_url, api_key="k")
    return OpenAIChat("stand-in", base_url=server.url, api_key="k")


class Spot(NamedTuple):
    lat: float
    lon: float


def mark(spot: Spot, 城市: str, corners: tuple[int, int] = (0, 0), tags: list[Any] = []) -> str:  # noqa: B006
    """Mark a spot."""
    return f"{城市} {spot.lat} {corners} {tags}"


def find(**arguments: Any) -> dict[str, Any]:
    return arguments


BY_NAME = {"properties": {"filter[name]": {"type": "string"}}, "required": ["filter[name]"]}
SCHEMA: dict[str, Any] = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "$ref": "#/definitions/Query",
    "definitions": {
        "ById": {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]},
        "Query": {
            "type": "object",
            "properties": {
                "范围": {"type": "array", "items": [{"type": "integer"}, {"type": "integer"}]},
                "tags": {"type": "array"},
            },
            "anyOf": [{"$ref": "#/definitions/ById"}, BY_NAME],
        },
    },
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("wire", WIRES)
async def test_no_schema_makes_a_provider_refuse_the_request(wire: str, stream: bool) -> None:
    """The model calls by the names that it was told, and the functions are called by their own."""
    told: list[dict[str, str]] = []

    def brain(conversation: Conversation) -> Reaction:
        if conversation.results:
            return say("done")
        asked = [offered.schema["properties"] for offered in conversation.tools]
        told[:] = [{node.get("title", name): name for name, node in nodes.items()} for nodes in asked]
        first: dict[str, Any] = {told[0]["城市"]: "Oslo", "spot": {"lat": 1, "lon": 2}, "corners": [1, 2]}
        second: dict[str, Any] = {told[1]["范围"]: [1, 2], told[1]["filter[name]"]: "x"}
        return [call("mark", **first), call("find", **second)]

    async with ModelServer(brain) as server:
        agent = Agent(model_of(server, wire), [mark, Tool.from_schema("find", "Finds.", SCHEMA, find)])
        if stream:
            watched = agent.stream("go")
            assert [event async for event in watched]
            result = watched.result
        else:
            result = await agent.run("go")
    assert server.violations == []
    assert set(told[1]) == {"范围", "tags", "id", "filter[name]"}
    assert (told[0]["城市"] == "城市") is (wire == "openai")
    assert [done.value for done in result.tool_executions] == [
        "Oslo 1.0 (1, 2) []",
        {"范围": [1, 2], "filter[name]": "x"},
    ]
