"""apache/superset#42732: a name that no field of a class has is dropped, and the call succeeds without what it said."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pytest
from pydantic import (
    AliasChoices,
    AliasPath,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    RootModel,
    WrapValidator,
    field_validator,
    model_validator,
)
from pydantic.dataclasses import dataclass as pydantic_dataclass
from typing_extensions import TypedDict

from glassloop import tool
from glassloop.core.messages import Reply, Text
from glassloop.tools.arguments import ArgumentsError
from glassloop.tools.output import Answer, Output


class Page(BaseModel):
    limit: int = 10
    sort: Literal["up", "down"] = "up"


class Node(BaseModel):
    value: int
    page: Page = Page()
    children: list[Node] = []


class Other(BaseModel):
    kind: Literal["other"] = "other"
    depth: int = 0


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")


class Deaf(BaseModel):
    model_config = ConfigDict(extra="ignore")


class Old(BaseModel):
    """Reads what it was called before."""

    size: int = 0

    @model_validator(mode="before")
    @classmethod
    def renamed(cls, value: Any) -> Any:
        return {"size": value["length"]} if "length" in value else value


def renamed(value: Any) -> Any:
    """Read what `limit` was called before."""
    return {"limit": value["n"]} if "n" in value else value


class Renamed(BaseModel):
    page: Page = Page()

    @field_validator("page", mode="before")
    @classmethod
    def renamed(cls, value: Any) -> Any:
        return renamed(value)


class Named(BaseModel):
    model_config = ConfigDict(populate_by_name=True)
    first: int = Field(0, alias="One")
    second: int = Field(0, validation_alias=AliasChoices("Two", AliasPath("Pair", 1)))


class Alias(BaseModel):
    first: int = Field(0, alias="One")


@dataclass
class Holder:
    page: Page


@pydantic_dataclass
class Range:
    low: int = 0
    high: Annotated[int, Field(alias="High")] = 9


class Place(TypedDict, total=False):
    city: str


@dataclass
class Stay:
    nights: int = 1


class Trip(BaseModel):
    """What is no model reads other names as the model does that it is used in."""

    place: Place | None = None
    stay: Stay | None = None


class Town(TypedDict, total=False):
    name: str


class DeafTrip(BaseModel):
    model_config = ConfigDict(extra="ignore")
    town: Town


class Pages(RootModel[list[Page]]):
    pass


def look(
    node: Node | None = None,
    pages: dict[str, Page] | None = None,
    either: Page | Other | None = None,
    pair: tuple[Page, int] | None = None,
    free: Open | None = None,
    deaf: Deaf | None = None,
    old: Old | None = None,
    named: Named | None = None,
    alias: Annotated[Alias | None, Field(description="by alias alone")] = None,
    holder: Holder | None = None,
    listed: Pages | None = None,
    within: Range | None = None,
    trip: Trip | None = None,
    away: DeafTrip | None = None,
    before: Annotated[Page, BeforeValidator(renamed), Field(description="either way")] | None = None,
    around: list[Annotated[Page, WrapValidator(lambda value, read: read(renamed(value)))]] | None = None,
    outer: Renamed | None = None,
    anything: Any = None,
) -> None:
    """Look."""


LOOK = tool(look)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"node": {"value": 1, "valu": 2}}, "- node.valu: there is no such argument; there are: value, page, children"),
        (
            {"node": {"value": 1, "page": {"limt": 5}}},
            "- node.page.limt: there is no such argument; did you mean limit?",
        ),
        (
            {"node": {"value": 1, "children": [{"value": 2}, {"value": 3, "page": {"x": 1}}]}},
            "- node.children.1.page.x:",
        ),
        ({"pages": {"a": {"limit": 1}, "b": {"Limit": 1}}}, "- pages.b.Limit: there is no such argument; did you mean"),
        ({"either": {"lim": 1}}, "- either.lim:"),
        ({"pair": [{"top": 1}, 2]}, "- pair.0.top:"),
        ({"alias": {"first": 1}}, "- alias.first: there is no such argument; there are: One"),
        ({"holder": {"page": {"limt": 1}}}, "- holder.page.limt:"),
        ({"listed": [{"limt": 1}]}, "- listed.0.limt:"),
        ({"within": {"hgih": 1}}, "- within.hgih: there is no such argument; there are: low, High"),
        (
            {"trip": {"stay": {"night": 3}}},
            "- trip.stay.night: there is no such argument; did you mean nights?",
        ),
        ({"trip": {"place": {"town": "Bern"}}}, "- trip.place.town: there is no such argument; there are: city"),
        ({"pages": '{"a": {"limt": 1}}'}, "- pages.a.limt:"),
    ],
)
def test_a_name_that_no_field_has_goes_back_to_the_model(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(ArgumentsError) as raised:
        LOOK.validate(arguments)
    assert said in str(raised.value)


@pytest.mark.parametrize(
    "arguments",
    [
        {"node": {"value": 1, "page": {"limit": 5, "sort": "down"}, "children": [{"value": 2}]}},
        {"either": {"kind": "other", "depth": 2}},
        {"free": {"x": 1}, "deaf": {"x": 1}, "old": {"length": 3}, "anything": {"x": {"y": 1}}},
        {"named": {"One": 1, "Two": 2}},
        {"named": {"first": 1, "second": 2}},
        {"named": {"Pair": [1, 2]}},
        {"alias": {"One": 1}},
        {"within": {"low": 1, "High": 2}, "trip": {"stay": {"nights": 2}, "place": {"city": "Bern"}}},
        {"away": {"town": {"name": "Bern", "zip": 3011}, "x": 1}},
        {"before": {"n": 2}, "around": [{"n": 2}, {"limit": 2}], "outer": {"page": {"n": 2}}},
    ],
)
def test_what_a_model_reads_is_known_and_what_it_decides_itself_is_its_own(arguments: dict[str, Any]) -> None:
    checked = LOOK.validate(arguments)
    assert (checked.arguments, checked.repaired) == (arguments, False)


def test_values_arrive() -> None:
    kwargs = LOOK.validate({"old": {"length": 3}, "named": {"Pair": [1, 2]}, "before": {"n": 4}}).kwargs
    assert (kwargs["old"], kwargs["named"].second, kwargs["before"]) == (Old(size=3), 2, Page(limit=4))


def test_a_model_is_told_nothing_of_it() -> None:
    assert "x-names" not in str(LOOK.parameters)
    page, listed, outer = (LOOK.parameters["properties"][name] for name in ("before", "around", "outer"))
    assert page == {**listed["items"], "description": "either way"}
    assert outer["properties"]["page"]["properties"] == page["properties"]


def test_an_answer_may_say_more_than_was_asked() -> None:
    """Nothing is done by it that was meant otherwise."""
    assert Output(Node).judge(Reply((Text('{"value": 1, "why": "because"}'),))) == Answer(
        Node(value=1), '{"value": 1, "why": "because"}'
    )
