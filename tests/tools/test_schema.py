"""What a model is told about a function's parameters, and what the function then receives."""

from __future__ import annotations

import datetime
import functools
import json
import os
import subprocess
import sys
import types
import typing
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field
from typing_extensions import Doc, TypeAliasType, TypedDict

from glassloop.core.context import RunContext
from glassloop.core.errors import ToolDefinitionError
from glassloop.tools.tool import Tool, as_tool, tool

if TYPE_CHECKING:
    from somewhere import Deps, Nowhere  # pyright: ignore[reportMissingImports, reportUnknownVariableType] - as users do


class Address(BaseModel):
    city: str = Field(description="its city")
    zip: str | None = None


class Person(BaseModel):
    name: str
    homes: list[Address]


class Node(BaseModel):
    value: int
    children: list[Node] = []


class Color(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Point:
    x: int
    y: int = 0


ORIGIN = Point(1)


class Modern(TypedDict):
    key: str


class Classic(typing.TypedDict, total=False):
    number: typing.Required[int]
    text: str


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int


class Dog(BaseModel):
    kind: Literal["dog"]
    age: int


def properties(function: Callable[..., Any] | Tool) -> dict[str, Any]:
    return as_tool(function).parameters["properties"]


def kwargs(function: Callable[..., Any] | Tool, **arguments: Any) -> dict[str, Any]:
    return as_tool(function).validate(json.dumps(arguments)).kwargs


def keywords_of(node: object) -> Iterator[str]:
    match node:
        case dict():
            for key, child in typing.cast("dict[str, Any]", node).items():
                yield key
                yield from keywords_of(child)
        case list():
            for child in typing.cast("list[Any]", node):
                yield from keywords_of(child)
        case _:
            return


# Lean


def test_plain_parameters() -> None:
    def search(q: str, limit: int = 10, lang: str | None = None, exact: bool = False) -> str: ...

    assert as_tool(search).parameters == {
        "type": "object",
        "properties": {
            "q": {"type": "string"},
            "limit": {"type": "integer", "default": 10},
            "lang": {"type": "string"},
            "exact": {"type": "boolean", "default": False},
        },
        "required": ["q"],
    }


def test_no_parameters_is_still_an_object() -> None:
    def now() -> str: ...

    assert as_tool(now).parameters == {"type": "object", "properties": {}}


def test_nested_models_stand_where_they_are_used_without_titles() -> None:
    def save(p: Person, tags: dict[str, Address]) -> int: ...

    schema = as_tool(save).parameters
    assert not {"$ref", "$defs", "title"} & set(keywords_of(schema))
    city = {"description": "its city", "type": "string"}
    assert schema["properties"]["p"]["properties"]["homes"]["items"]["properties"]["city"] == city
    assert schema["properties"]["tags"]["additionalProperties"]["properties"]["city"] == city
    given = kwargs(save, p={"name": "n", "homes": [{"city": "c"}]}, tags={"k": {"city": "d"}})
    assert given == {"p": Person(name="n", homes=[Address(city="c")]), "tags": {"k": Address(city="d")}}


def test_a_recursive_model_keeps_its_definition() -> None:
    def total(root: Node) -> int: ...

    schema = as_tool(total).parameters
    assert schema["properties"]["root"] == {"$ref": "#/$defs/Node"}
    assert schema["$defs"]["Node"]["properties"]["children"]["items"] == {"$ref": "#/$defs/Node"}
    assert kwargs(total, root={"value": 1, "children": [{"value": 2}]})["root"].children[0].value == 2


def test_large_definitions_used_often_are_sent_once() -> None:
    values = [f"a long value number {number}" for number in range(200)]
    big: Any = Enum("Big", {f"MEMBER_{number}": value for number, value in enumerate(values)})
    namespace = {"Big": big}
    exec("def pick(a: Big, b: Big, c: Big): ...", namespace)
    made = as_tool(namespace["pick"])
    assert len(json.dumps(made.parameters)) < 2 * len(json.dumps(values))
    assert kwargs(made, a=values[1], b=values[2], c=values[3])["c"] is big.MEMBER_3


def test_free_form_objects_stay_free() -> None:
    def store(fields: dict[str, Any], counts: dict[str, int]) -> int: ...

    assert properties(store)["fields"] == {"type": "object", "additionalProperties": True}
    assert properties(store)["counts"]["additionalProperties"] == {"type": "integer"}
    assert kwargs(store, fields={"a": [1, {"b": None}]}, counts={"x": 1})["fields"] == {"a": [1, {"b": None}]}


def test_discriminated_unions_have_no_dangling_mapping() -> None:
    def feed(pet: Annotated[Cat | Dog, Field(discriminator="kind")]) -> None: ...

    assert set(properties(feed)["pet"]) == {"anyOf"}
    assert kwargs(feed, pet={"kind": "dog", "age": 3})["pet"] == Dog(kind="dog", age=3)


def test_a_nested_field_that_may_be_null_says_so() -> None:
    def go(home: Address) -> None: ...

    assert properties(go)["home"]["properties"]["zip"] == {"anyOf": [{"type": "string"}, {"type": "null"}]}


def test_the_schema_that_a_caller_changes_is_his_own() -> None:
    def save(p: Person) -> None: ...

    tool_ = as_tool(save)
    tool_.parameters["properties"]["p"]["properties"].clear()
    assert "name" in tool_.parameters["properties"]["p"]["properties"]
    assert as_tool(save).parameters == tool_.parameters


# Types


def test_rich_types_arrive_converted() -> None:
    def book(
        day: datetime.date,
        at: datetime.datetime,
        id: uuid.UUID,
        c: Color,
        raw: bytes,
        mode: Literal["x", 1],
        s: set[int],
        amount: Decimal,
        pause: datetime.timedelta,
        pair: tuple[int, str],
    ) -> None: ...

    given = kwargs(
        book,
        day="2026-02-28",
        at="2026-02-28T10:00:00+02:00",
        id="12345678-1234-5678-1234-567812345678",
        c="red",
        raw="aGk=",
        mode=1,
        s=[1, 1, 2],
        amount=1.10,
        pause="PT1H",
        pair=[1, "a"],
    )
    names = [type(value).__name__ for value in given.values()]
    assert names == ["date", "datetime", "UUID", "Color", "bytes", "int", "set", "Decimal", "timedelta", "tuple"]
    assert given["raw"] == b"hi"
    assert properties(book)["raw"] == {"type": "string", "contentEncoding": "base64"}
    assert properties(book)["amount"] == {"type": "number"}


def test_dataclasses_and_typed_dicts_of_both_kinds() -> None:
    def draw(p: Point, m: Modern, c: Classic, many: list[Classic], maybe: Classic | None = None) -> None: ...

    assert properties(draw)["c"] == {
        "type": "object",
        "properties": {"number": {"type": "integer"}, "text": {"type": "string"}},
        "required": ["number"],
    }
    given = kwargs(draw, p={"x": 1}, m={"key": "k"}, c={"number": 1}, many=[{"number": "2"}], maybe=None)
    assert given == {"p": Point(1), "m": {"key": "k"}, "c": {"number": 1}, "many": [{"number": 2}], "maybe": None}


def test_defaults_are_shown_where_they_have_a_json_form() -> None:
    marker = object()

    def go(c: Color = Color.RED, p: Point = ORIGIN, d: Decimal = Decimal("1.5"), o: Any = marker) -> None: ...

    assert properties(go)["c"]["default"] == "red"
    assert properties(go)["p"]["default"] == {"x": 1, "y": 0}
    assert properties(go)["d"]["default"] == 1.5
    assert properties(go)["o"] == {}


def test_defaults_are_the_same_in_each_process() -> None:
    """QwenLM/qwen-code#6338: a prompt cache that no other process hits; here also an approval that none would know."""
    code = """
from dataclasses import dataclass
from pydantic import BaseModel
from glassloop import tool
from glassloop.middleware.call import fingerprint_of

class Filter(BaseModel, frozen=True):
    tags: frozenset[str] = frozenset({"alpha", "beta", "gamma", "delta"})

@dataclass
class Sort:
    keys: frozenset[str] = frozenset({"alpha", "beta", "gamma", "delta"})

@tool(effect="write", risk="high")
def send(to: set[str] = {"alpha", "beta", "gamma"}, by: dict[str, frozenset[str]] = {"x": frozenset("abc")},
         only: Filter | None = None, keys: set[bytes] = {b"a", b"b", b"c"}, some: Filter = Filter(),
         sort: Sort = Sort(), sets: set[frozenset[str]] = {frozenset("abc")},
         filters: set[Filter] = {Filter(), Filter(tags={*"abc"})},
         pair: tuple[set[str], int] = ({*"abc"}, 1)) -> None: ...

print(fingerprint_of(send, {}))
"""
    told = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in "1234"
    }
    assert len(told) == 1


def test_a_field_as_default_value_is_applied() -> None:
    def go(a: int = Field(5, ge=1, description="how many"), b: int = Field(description="required")) -> None: ...

    assert properties(go)["a"] == {"type": "integer", "default": 5, "minimum": 1, "description": "how many"}
    assert as_tool(go).parameters["required"] == ["b"]
    assert kwargs(go, b=2) == {"a": 5, "b": 2}


@pytest.mark.parametrize(
    "name", ["_private", "__dunder", "schema", "json", "copy", "model_x", "model_config", "class_", "cls", "validate"]
)
def test_names_that_other_libraries_keep_for_themselves(name: str) -> None:
    namespace: dict[str, Any] = {}
    exec(f"def go({name}: int, self: int = 1): return {name}", namespace)
    assert kwargs(namespace["go"], **{name: "3"}) == {name: 3}


# Descriptions


def test_explicit_descriptions_win_over_the_docstring() -> None:
    def go(
        a: Annotated[int, Field(ge=1, description="explicit")],
        b: Annotated[int, "bare text"],
        c: Annotated[int, Doc("documented")],
        d: Address,
        e: int | None = None,
    ) -> None:
        """Go.

        Args:
            a: from the docstring
            b: from the docstring
            c: from the docstring
            d: where to
            e: maybe
        """

    described = {name: schema["description"] for name, schema in properties(go).items()}
    assert described == {"a": "explicit", "b": "bare text", "c": "documented", "d": "where to", "e": "maybe"}
    assert properties(go)["a"]["minimum"] == 1


# The context


def test_the_context_is_found_wherever_it_stands_and_never_shown() -> None:
    def first(ctx: RunContext, a: int) -> None: ...
    def later(a: int, ctx: RunContext[int]) -> None: ...
    def keyword(*, ctx: RunContext | None = None, a: int) -> None: ...
    def annotated(a: int, ctx: Annotated[RunContext[Any], "who"]) -> None: ...
    def hidden_type(a: int, ctx: RunContext[Deps]) -> None: ...  # pyright: ignore[reportUnknownParameterType] - unknown on purpose

    class Own(RunContext[int]): ...

    def subclass(a: int, ctx: Own) -> None: ...

    for function in (first, later, keyword, annotated, hidden_type, subclass):  # pyright: ignore[reportUnknownVariableType] - the same
        assert list(properties(function)) == ["a"]  # pyright: ignore[reportUnknownArgumentType] - the same


def test_the_model_cannot_forge_the_context() -> None:
    def go(ctx: RunContext, a: int) -> None: ...

    with pytest.raises(Exception, match="no such argument"):
        kwargs(go, a=1, ctx={"user": "admin"})


# Annotations


def test_classes_of_the_enclosing_scope_resolve() -> None:
    class Local(BaseModel):
        n: int

    def go(a: Local, b: list[Local]) -> None: ...

    assert kwargs(go, a={"n": 1}, b=[]) == {"a": Local(n=1), "b": []}


def test_a_return_type_that_cannot_be_resolved_matters_to_nobody() -> None:
    def go(a: int) -> Nowhere: ...  # pyright: ignore[reportUnknownParameterType] - unknown on purpose

    assert list(properties(go)) == ["a"]  # pyright: ignore[reportUnknownArgumentType] - the same


def test_missing_annotations_allow_anything() -> None:
    namespace: dict[str, Any] = {}
    exec("def go(a, b=5): ...", namespace)
    assert properties(namespace["go"]) == {"a": {}, "b": {"default": 5}}


# Definition errors


class Opaque:
    pass


@pytest.mark.parametrize("annotation", ["Opaque", "list[Opaque]", "Callable[[int], int]", "Nowhere", "5 +", "Deps"])
def test_a_bad_type_names_function_and_parameter(annotation: str) -> None:
    namespace: dict[str, Any] = {"Opaque": Opaque, "Callable": Callable, "__name__": "mine"}
    exec(f"def go(fine: int, bad: {annotation!r}): ...", namespace)
    with pytest.raises(ToolDefinitionError, match=r"mine:go, parameter 'bad'"):
        as_tool(namespace["go"])


LATE = ["from __future__ import annotations", ""][: 1 + (sys.version_info >= (3, 14))]
"""What a file begins with whose annotations are not evaluated where they stand."""


@pytest.mark.parametrize("beginning", LATE)
def test_a_type_may_be_defined_after_the_function_that_takes_it(beginning: str) -> None:
    text = f"{beginning}\ndef go(weights: list[Weight], times: Times | None = None): ...\nWeight = float\nTimes = int"
    namespace: dict[str, Any] = {}
    exec(compile(text, "late.py", "exec", dont_inherit=True), namespace)
    weights = {"type": "array", "items": {"type": "number"}}
    assert properties(namespace["go"]) == {"weights": weights, "times": {"type": "integer"}}


@pytest.mark.parametrize("beginning", LATE)
@pytest.mark.parametrize("annotation", ["Nowhere", "'Nowhere'", "Optional['Nowhere']", "list[Nowhere]"])
def test_a_type_that_is_missing_is_named_as_it_was_written(beginning: str, annotation: str) -> None:
    namespace: dict[str, Any] = {"Optional": typing.Optional}
    exec(compile(f"{beginning}\ndef go(bad: {annotation}): ...", "late.py", "exec", dont_inherit=True), namespace)
    with pytest.raises(ToolDefinitionError, match=r"the annotation [^()]*\bNowhere\b[^()]* cannot be resolved"):
        as_tool(namespace["go"])


@pytest.mark.parametrize("thing", [int, Point, 5, "text", None])
def test_things_that_are_no_functions(thing: Any) -> None:
    with pytest.raises(ToolDefinitionError):
        as_tool(thing)


def test_partials_hide_what_they_bind() -> None:
    def base(x: int, y: int, z: str = "m", *, w: int = 0) -> str:
        """Add.

        Args:
            x: the first
        """
        return f"{x} {y} {z} {w}"

    made = tool(functools.partial(functools.partial(base, z="k"), y=5))
    assert (made.name, made.description) == ("base", "Add.")
    assert made.parameters["properties"] == {
        "x": {"type": "integer", "description": "the first"},
        "w": {"type": "integer", "default": 0},
    }
    assert list(properties(tool(functools.partial(base, 1)))) == ["y", "z", "w"]


# What is easily told wrong


class Spot(typing.NamedTuple):
    lat: float
    lon: float = 0.0


def test_a_named_tuple_tells_the_names_of_its_fields() -> None:
    def go(spot: Spot, spots: list[Spot]) -> None: ...

    fields = {"lat": {"type": "number"}, "lon": {"type": "number", "default": 0.0}}
    assert properties(go)["spot"] == {"type": "object", "properties": fields, "required": ["lat"]}
    assert kwargs(go, spot={"lat": 1}, spots=[[1, 2]]) == {"spot": Spot(1), "spots": [Spot(1, 2)]}


def test_an_iterable_is_checked_before_the_call() -> None:
    def go(ids: Iterable[int], more: Iterable[str] | None = None) -> None: ...  # pyright: ignore[reportUnknownParameterType] - checked

    assert properties(go)["ids"] == {"type": "array", "items": {"type": "integer"}}
    assert kwargs(go, ids=["1"]) == {"ids": [1]}
    with pytest.raises(Exception, match=r"ids\.0"):
        kwargs(go, ids=["x"])


def test_a_default_is_told_as_the_model_would_write_it() -> None:
    def go(a: bytes = b"hi", b: float = float("inf"), c: float = float("nan")) -> None: ...

    assert properties(go) == {
        "a": {"type": "string", "contentEncoding": "base64", "default": "aGk="},
        "b": {"type": "number"},
        "c": {"type": "number"},
    }
    assert kwargs(go, a=properties(go)["a"]["default"]) == {"a": b"hi"}


@pytest.mark.parametrize(("pattern", "why"), [("(?=x)x", "look-around"), ("[", "unclosed")])
def test_a_pattern_that_cannot_be_checked_names_the_parameter(pattern: str, why: str) -> None:
    def go(a: Annotated[str, Field(pattern=pattern)]) -> None: ...

    with pytest.raises(ToolDefinitionError, match=f"parameter 'a': .*{why}"):
        as_tool(go)


Aliased = TypeAliasType("Aliased", RunContext[int])
Renamed = typing.NewType("Renamed", RunContext)
Bound = typing.TypeVar("Bound", bound=RunContext[Any])


@pytest.mark.parametrize("annotation", [Aliased, Renamed, Bound, Aliased | None])
def test_the_context_is_known_under_other_names(annotation: Any) -> None:
    def go(ctx: Any, a: int) -> None: ...

    go.__annotations__["ctx"] = annotation
    assert list(properties(go)) == ["a"]


class Desk:
    @classmethod
    @tool
    def open(cls, a: int) -> str:
        return f"{cls.__name__} {a}"


async def test_a_class_method_does_not_show_its_class() -> None:
    bound: Any = Desk.open
    from_313 = types.MethodType(vars(Desk)["open"].__func__, Desk)  # what `Desk.open` is from Python 3.13 on
    for given in (bound, from_313):
        made = as_tool(given)
        assert list(properties(made)) == ["a"]
        assert await made.invoke(made.validate('{"a": 1}').kwargs, RunContext(None)) == "Desk 1"


def test_an_alias_is_told_with_its_default() -> None:
    def go(
        start: Annotated[int, Field(alias="from")] = 1, end: Annotated[int | None, Field(alias="to")] = None
    ) -> None: ...

    assert properties(go) == {"from": {"type": "integer", "default": 1}, "to": {"type": "integer"}}
    assert kwargs(go, **{"from": 2, "to": None}) == {"start": 2, "end": None}


class Finder:
    """Finds things."""

    def __call__(self, q: str, most: int = 5) -> None:
        """Find.

        Args:
            q: what
            most: at most
        """


def test_a_callable_object_describes_its_arguments_where_it_is_called() -> None:
    described = {name: schema["description"] for name, schema in properties(Finder()).items()}
    assert (as_tool(Finder()).description, described) == ("Finds things.", {"q": "what", "most": "at most"})
