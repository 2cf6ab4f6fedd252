"""The gate of answers: what fits becomes a value, what does not goes back in words."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Annotated, Any, Literal
from uuid import UUID

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, TypeAdapter, field_validator, model_validator
from typing_extensions import TypedDict

from glassloop import ConfigurationError, Output
from glassloop.core.encoding import dumps
from glassloop.core.messages import Reply, Text, ToolCall
from glassloop.tools.output import Answer, BadAnswer


class Weather(BaseModel):
    """How it is outside."""

    city: str = Field(description="Where.")
    degrees: float = Field(ge=-90, le=60)
    wind: Literal["calm", "windy"] = "calm"
    note: str | None = None

    @field_validator("city")
    @classmethod
    def _exists(cls, city: str) -> str:
        if city == "Atlantis":
            raise ValueError("there is no such place; name one that is on a map")
        return city


class Node(BaseModel):
    name: str
    children: list[Node] = []


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Point:
    x: int
    y: int = 0
    tags: list[str] = field(default_factory=list[str])


class Movie(TypedDict, total=False):
    title: str
    year: int


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int


class Dog(BaseModel):
    kind: Literal["dog"]
    name: str


Pet = Annotated[Cat | Dog, Field(discriminator="kind")]


def said(*texts: str) -> Reply:
    return Reply(tuple(map(Text, texts)))


def accepted(type_: Any, *texts: str) -> Answer:
    judged = Output(type_).judge(said(*texts))
    assert isinstance(judged, Answer), judged
    return judged


def reason(type_: Any, *texts: str) -> str:
    judged = Output(type_).judge(said(*texts))
    assert isinstance(judged, BadAnswer), judged
    return judged.reason


def lines(reason: str) -> list[str]:
    return [line for line in reason.splitlines() if line.startswith("- ")]


# Types

VALUES: list[tuple[Any, str, Any]] = [
    (Weather, '{"city":"Oslo","degrees":3.5}', Weather(city="Oslo", degrees=3.5)),
    (Point, '{"x":1}', Point(1)),
    (Movie, '{"title":"Alien"}', {"title": "Alien"}),
    (Node, '{"name":"a","children":[{"name":"b"}]}', Node(name="a", children=[Node(name="b")])),
    (list[Weather], '[{"city":"Oslo","degrees":1}]', [Weather(city="Oslo", degrees=1)]),
    (dict[str, int], '{"result":3}', {"result": 3}),
    (Weather | Point, '{"x":1,"y":2}', Point(1, 2)),
    (Pet, '{"kind":"dog","name":"Rex"}', Dog(kind="dog", name="Rex")),
    (Weather | None, "null", None),
    (Literal["yes", "no"], '"yes"', "yes"),
    (Colour, '"blue"', Colour.BLUE),
    (int, "42", 42),
    (bool, "true", True),
    (str, '"word"', "word"),
    (float, "1.5", 1.5),
    (int | str, '"x"', "x"),
    (date, '"2026-02-28"', date(2026, 2, 28)),
    (datetime, '"2026-02-28T10:00:00Z"', datetime(2026, 2, 28, 10, tzinfo=UTC)),
    (Decimal, "0.1000000000000000000000001", Decimal("0.1000000000000000000000001")),
    (UUID, '"12345678-1234-5678-1234-567812345678"', UUID("12345678-1234-5678-1234-567812345678")),
    (tuple[int, str], '[1,"a"]', (1, "a")),
    (set[int], "[1,2]", {1, 2}),
]
BARE = (Weather, Point, Movie)


@pytest.mark.parametrize(("type_", "text", "value"), VALUES)
def test_a_value_of_any_type_with_a_json_form_comes_out_of_its_wire_form(type_: Any, text: str, value: Any) -> None:
    wire = text if type_ in BARE else f'{{"result":{text}}}'
    answer = accepted(type_, wire)
    assert (answer.value, answer.text) == (value, text)
    assert type(answer.value) is type(value)
    assert Output(type_).value(answer.text) == value
    schema = Output(type_).spec.schema
    assert schema["type"] == "object"
    assert jsonschema_rs.validator_for(dict(schema)).is_valid(TypeAdapter[Any](Any).validate_json(wire))


def test_a_schema_is_lean_and_says_what_the_type_says() -> None:
    assert Output(Weather).spec.schema == {
        "type": "object",
        "description": "How it is outside.",
        "properties": {
            "city": {"type": "string", "description": "Where."},
            "degrees": {"type": "number", "minimum": -90, "maximum": 60},
            "wind": {"enum": ["calm", "windy"], "type": "string", "default": "calm"},
            "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        },
        "required": ["city", "degrees"],
    }


def test_a_type_that_has_no_json_form_cannot_be_asked_for() -> None:
    class Engine:
        pass

    with pytest.raises(ConfigurationError, match=r"of type .*Engine \(it has no JSON form\)\. Use a type"):
        Output(Engine)


# What is repaired, and what is not


@pytest.mark.parametrize(
    "text",
    [
        '```json\n{"city":"Oslo","degrees":3}\n```',
        'Here it is:\n\n{"city":"Oslo","degrees":3}\n\nAnything else?',
        '{"city":"Oslo","degrees":"3"}',
        '{"city":"Oslo","degrees":3,}',
        "{'city': 'Oslo', 'degrees': 3}",
        '"{\\"city\\":\\"Oslo\\",\\"degrees\\":3}"',
        '{"city":"Oslo","degrees":3,"wind":null}',
    ],
)
def test_faults_of_spelling_are_repaired(text: str) -> None:
    assert accepted(Weather, text).value == Weather(city="Oslo", degrees=3)


def test_the_text_of_an_answer_is_what_was_accepted() -> None:
    assert accepted(Weather, '{"city":"Oslo","degrees":3,"wind":null}').text == '{"city":"Oslo","degrees":3}'
    assert accepted(list[int], '{"result": 1, "result": [2]}').text == "[2]"
    assert accepted(Weather, ' {"city": "Oslo", "degrees": 3} ').text == '{"city": "Oslo", "degrees": 3}'


def test_code_fences_around_a_list_are_taken_off() -> None:
    assert accepted(list[int], "```\n[1, 2]\n```").value == [1, 2]


def test_a_list_without_its_wrapping_is_taken_too() -> None:
    assert accepted(list[int], "[1, 2]").text == "[1, 2]"


def test_a_datetime_without_offset_is_in_utc() -> None:
    answer = accepted(datetime, '{"result": "2026-02-28T10:00:00"}')
    assert answer.value == datetime(2026, 2, 28, 10, tzinfo=UTC)
    assert Output(datetime).value(answer.text) == answer.value


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"city":"Oslo"}', ["- degrees: missing, and required (number)"]),
        ('{"city":"Oslo","degrees":99}', ["- degrees: should be less than or equal to 60 (you sent an integer)"]),
        (
            '{"city":"Atlantis","degrees":3}',
            ["- city: there is no such place; name one that is on a map (you sent a string of 8 characters)"],
        ),
        ("[1]", ["- should be an object (you sent an array of 1 items)"]),
        ('{"city":"Oslo","degrees":3', ["- the answer ends in the middle: a string or a bracket is never closed"]),
        ("It is mild.", ["- the answer is not valid JSON (expected value at line 1 column 1)"]),
        ('{"city":"Oslo","degrees":NaN}', ["- the answer is not valid JSON (expected value at line 1 column 26)"]),
    ],
)
def test_what_does_not_fit_goes_back_with_the_reason(text: str, told: list[str]) -> None:
    found = lines(reason(Weather, text))
    assert [line[: len(start)] for line, start in zip(found, told, strict=True)] == told


def test_words_about_a_wrapped_answer_name_its_place_on_the_wire() -> None:
    assert lines(reason(list[int], '{"result":[1,"x"]}')) == [
        "- result.1: should be a valid integer (you sent a string of 1 characters)"
    ]


def test_a_field_that_there_is_not_is_called_a_field() -> None:
    class Closed(BaseModel, extra="forbid"):
        city: str

    assert lines(reason(Closed, '{"city":"Oslo","town":"x"}')) == ["- town: there is no such field; there are: city"]


def test_a_rule_about_the_whole_answer_is_told_in_its_own_words() -> None:
    long = "the end must not be before the start, " * 10

    class Range(BaseModel):
        start: int
        end: int

        @model_validator(mode="after")
        def _forward(self) -> Range:
            if self.end < self.start:
                raise ValueError(long.strip())
            return self

    assert lines(reason(Range, '{"start":2,"end":1}')) == [f"- {long.strip()} (you sent an object of 2 fields)"]


def test_the_schema_is_shown_with_the_reason_unless_it_is_long() -> None:
    class Long(BaseModel):
        one: str = Field(description="x" * 3_000)

    assert '{"type":"object","properties":{"x"' in reason(Point, "{}")
    assert "JSON Schema" not in reason(Long, "{}")


# Several answers in one reply


def test_the_first_answer_that_fits_counts() -> None:
    both = accepted(Point, "Let me see.", '{"x":"one"}', '{"x":1}', '{"x":2}')
    assert both.value == Point(1)


def test_an_answer_in_pieces_is_read_as_one() -> None:
    assert accepted(Point, '{"x":', "1}").value == Point(1)


def test_calls_beside_an_answer_are_no_part_of_it() -> None:
    reply = Reply((Text('{"x":1}'), ToolCall("c", "add", "{}")))
    assert isinstance(Output(Point).judge(reply), Answer)


# While it comes


def test_a_part_of_an_answer_can_be_read() -> None:
    output = Output(Weather)
    assert output.partial("") is None
    assert output.partial("The weather") is None
    assert output.partial('{"city":"Os') == {"city": "Os"}
    assert output.partial('{"city":"Oslo","deg') == {"city": "Oslo"}
    assert Output(list[int]).partial('{"result":[1,2') == [1, 2]
    assert Output(list[int]).partial('{"res') is None


# Round trips

TEXTS = st.text(alphabet=st.characters(codec="utf-8"), max_size=20)
ANY: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (int, st.integers()),
    (str, TEXTS),
    (bool, st.booleans()),
    (float, st.floats(allow_nan=False, allow_infinity=False)),
    (list[int], st.lists(st.integers(), max_size=4)),
    (dict[str, int], st.dictionaries(st.one_of(st.just("result"), TEXTS), st.integers(), max_size=3)),
    (int | None, st.one_of(st.none(), st.integers())),
    (Point, st.builds(Point, st.integers(), st.integers(), st.lists(TEXTS, max_size=2))),
    (Weather, st.builds(Weather, city=TEXTS, degrees=st.floats(-90, 60), note=st.one_of(st.none(), TEXTS))),
    (list[Weather | None], st.lists(st.one_of(st.none(), st.builds(Weather, city=TEXTS, degrees=st.just(1.0))))),
]


@given(st.sampled_from(ANY).flatmap(lambda one: st.tuples(st.just(one[0]), one[1])), st.booleans())
def test_a_value_survives_the_wire_and_the_journal(typed: tuple[Any, Any], fenced: bool) -> None:
    type_, value = typed
    output = Output(type_)
    text = dumps(value).decode()
    wire = text if type_ in BARE else f'{{"result": {text}}}'
    answer = output.judge(said(f"```json\n{wire}\n```" if fenced else wire))
    assert isinstance(answer, Answer), answer
    assert answer.value == value
    assert output.value(answer.text) == value
