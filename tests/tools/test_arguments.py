"""The validation gate: what gets through, what is put right on the way, and what a model is told of the rest."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable
from decimal import Decimal
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import AfterValidator, AwareDatetime, BaseModel, Field, NaiveDatetime, field_validator

from glassloop.core.encoding import dumps
from glassloop.core.errors import ToolError
from glassloop.tools.arguments import ArgumentsError, parse_arguments
from glassloop.tools.tool import as_tool

SECRET = "SECRET-" + "x" * 300


class Step(BaseModel):
    n: int
    note: str = "none"


def now() -> str: ...


def add(a: int, b: int) -> int: ...


def search(q: str, limit: int = 10, lang: str | None = None, exact: bool = False) -> str: ...


def set_tags(tags: list[str]) -> str: ...


def send_note(to: str, body: str) -> str: ...


def set_mode(dark: bool, label: str | None = None) -> str: ...


def plan(
    steps: list[Step], blob: Annotated[str, Field(max_length=100)], when: Literal["now", "later"] = "now"
) -> str: ...


def kwargs(function: Callable[..., Any], raw: str) -> dict[str, Any]:
    return as_tool(function).validate(raw).kwargs


def refusal(function: Callable[..., Any], raw: str) -> str:
    with pytest.raises(ArgumentsError) as caught:
        as_tool(function).validate(raw)
    return str(caught.value)


# What gets through


@given(
    st.fixed_dictionaries(
        {"q": st.text(st.characters(exclude_categories=("Cs",)))},
        optional={"limit": st.integers(-(2**60), 2**60), "lang": st.none() | st.just("de"), "exact": st.booleans()},
    )
)
def test_valid_arguments_pass_unchanged(arguments: dict[str, Any]) -> None:
    checked = as_tool(search).validate(dumps(arguments).decode())
    assert checked == (arguments, arguments, False)


def test_missing_null_and_falsy_arguments() -> None:
    assert kwargs(search, '{"q": "x"}') == {"q": "x"}
    assert kwargs(search, '{"q": "x", "limit": null, "lang": null}') == {"q": "x", "lang": None}
    assert kwargs(search, '{"q": "", "limit": 0, "exact": false}') == {"q": "", "limit": 0, "exact": False}
    assert kwargs(set_mode, '{"dark": false}') == {"dark": False}
    assert kwargs(set_tags, '{"tags": []}') == {"tags": []}


@pytest.mark.parametrize("raw", ["", " \n", "null", "{}", '"{}"', "[]"])
def test_no_arguments(raw: str) -> None:
    checked = as_tool(now).validate(raw)
    assert (checked.kwargs, checked.arguments) == ({}, {})


def test_arguments_may_come_as_an_object_already() -> None:
    assert as_tool(add).validate({"a": 1, "b": 2}).kwargs == {"a": 1, "b": 2}
    assert as_tool(now).validate(None).kwargs == {}


def test_unambiguous_spellings() -> None:
    def go(n: int, f: float, b: bool, day: datetime.date, lit: Literal[1, 2] = 1) -> None: ...

    given_ = kwargs(go, '{"n": "5", "f": "2.5", "b": "true", "day": "2026-02-28", "lit": "2"}')
    assert given_ == {"n": 5, "f": 2.5, "b": True, "day": datetime.date(2026, 2, 28), "lit": 2}


# Instants

UTC = datetime.UTC
NOON = datetime.datetime(2026, 3, 8, 12, tzinfo=UTC)


class Slot(BaseModel):
    at: datetime.datetime
    day: datetime.date = datetime.date(2026, 1, 1)


def test_a_datetime_without_an_offset_is_in_utc_for_the_function_and_in_the_arguments() -> None:
    def book(at: datetime.datetime) -> None: ...

    checked = as_tool(book).validate('{"at": "2026-03-08T12:00:00"}')
    assert checked == ({"at": NOON}, {"at": "2026-03-08T12:00:00Z"}, True)
    assert as_tool(book).validate(checked.arguments) == (checked.kwargs, checked.arguments, False)
    with_offset = as_tool(book).validate('{"at": "2026-03-08T17:30:00+05:30"}')
    assert with_offset.arguments == {"at": "2026-03-08T17:30:00+05:30"}
    assert with_offset.kwargs["at"] == NOON


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("2026-03-08", NOON.replace(hour=0)),
        ("2026-03-08 12:00", NOON),
        ("2026-03-08t12:00:00.5", NOON.replace(microsecond=500_000)),
        ("2026-03-08T12:00:00Z", NOON),
        ("1772971200", NOON),
    ],
)
def test_whatever_a_datetime_is_written_as_it_is_an_instant(text: str, instant: datetime.datetime) -> None:
    def book(at: datetime.datetime) -> None: ...

    assert kwargs(book, dumps({"at": text}).decode()) == {"at": instant}


def test_a_naive_datetime_is_read_as_utc_wherever_it_stands() -> None:
    def book(
        slots: list[Slot], by_name: dict[str, datetime.datetime | None], pair: tuple[int, datetime.datetime]
    ) -> None: ...

    naive = "2026-03-08T12:00:00"
    given_ = kwargs(
        book,
        json.dumps(
            {"slots": [{"at": naive, "day": "2026-03-08"}], "by_name": {"a": naive, "b": None}, "pair": [1, naive]}
        ),
    )
    assert given_["slots"] == [Slot(at=NOON, day=NOON.date())]
    assert given_["by_name"] == {"a": NOON, "b": None}
    assert given_["pair"] == (1, NOON)


def test_only_a_datetime_is_given_an_offset() -> None:
    def note(
        text: str, day: datetime.date, either: datetime.datetime | str, when: datetime.datetime | datetime.date
    ) -> None: ...

    naive = "2026-03-08T12:00:00"
    arguments = {"text": naive, "day": "2026-03-08", "either": naive, "when": "2026-03-08"}
    assert as_tool(note).validate(arguments).arguments == arguments
    assert kwargs(note, json.dumps(arguments | {"when": naive}))["when"] == NOON


def test_a_parameter_may_ask_for_an_offset_or_have_none() -> None:
    def book(at: AwareDatetime, local: NaiveDatetime, then: datetime.datetime) -> None: ...

    naive = "2026-03-08T12:00:00"
    told = refusal(book, json.dumps({"at": naive, "local": naive, "then": naive}))
    assert "at: " in told
    assert "local: " not in told
    given_ = kwargs(book, json.dumps({"at": f"{naive}Z", "local": naive, "then": naive}))
    assert given_ == {"at": NOON, "local": NOON.replace(tzinfo=None), "then": NOON}
    local = as_tool(book).parameters["properties"]["local"]
    assert "format" not in local  # a `date-time` has an offset
    assert "without offset" in local["description"]


def test_a_type_that_takes_no_offset_is_given_none() -> None:
    def naive_only(value: datetime.datetime) -> datetime.datetime:
        if value.tzinfo is not None:
            raise ValueError("no offset, please")
        return value

    def book(at: Annotated[datetime.datetime, AfterValidator(naive_only)]) -> None: ...

    assert kwargs(book, '{"at": "2026-03-08T12:00:00"}') == {"at": NOON.replace(tzinfo=None)}


# What is put right


def test_what_was_repaired_is_told_and_can_be_sent_again() -> None:
    checked = as_tool(add).validate('"{\\"a\\": 2, \\"b\\": 3}"')
    assert (checked.kwargs, checked.arguments, checked.repaired) == ({"a": 2, "b": 3}, {"a": 2, "b": 3}, True)
    assert as_tool(add).validate(json.dumps(checked.arguments)) == (checked.kwargs, checked.arguments, False)


def test_a_nested_text_is_unwrapped_only_where_no_text_is_allowed() -> None:
    assert kwargs(set_tags, '{"tags": "[\\"x\\",\\"y\\"]"}') == {"tags": ["x", "y"]}
    assert kwargs(set_tags, "{\"tags\": \"['x', 'y']\"}") == {"tags": ["x", "y"]}
    assert kwargs(send_note, '{"to": "me", "body": "[\\"keep\\"]"}') == {"to": "me", "body": '["keep"]'}

    def either(value: list[str] | str) -> None: ...

    assert kwargs(either, '{"value": "[1]"}') == {"value": "[1]"}

    def anything(value: Any) -> None: ...

    assert kwargs(anything, '{"value": "{}"}') == {"value": "{}"}


def test_deep_inside_too() -> None:
    raw = json.dumps(
        {"steps": json.dumps([{"n": "1", "note": {"a": 1}}, json.dumps({"n": 2, "note": None})]), "blob": 5}
    )
    assert kwargs(plan, raw) == {"steps": [Step(n=1, note='{"a":1}'), Step(n=2)], "blob": "5"}


@pytest.mark.parametrize("wrapper", ["arguments", "parameters", "properties", "input", "args", "kwargs"])
def test_arguments_in_a_wrapper_are_taken_out(wrapper: str) -> None:
    """Public: cloudwego/eino#385, artokun/comfyui-mcp#1825."""
    inner = {"a": 2, "b": 3}
    for wrapped in (inner, json.dumps(inner), {wrapper: inner}):
        checked = as_tool(add).validate(json.dumps({wrapper: wrapped}))
        assert (checked.kwargs, checked.arguments, checked.repaired) == ({"a": 2, "b": 3}, {"a": 2, "b": 3}, True)


@pytest.mark.parametrize(
    "wrapped",
    [
        {"add": {"a": 2, "b": 3}},
        {"name": "add", "arguments": {"a": 2, "b": 3}},
        {"arguments": '{"a": 2, "b": 3}', "function": "add"},
        {"arguments": {"tool": "add", "input": {"a": "2", "b": 3}}},
    ],
)
def test_the_whole_call_in_its_own_arguments_is_taken_apart(wrapped: dict[str, Any]) -> None:
    """Public: openclaw/openclaw#142304, open-reaction-database/ord-schema#1020."""
    assert kwargs(add, json.dumps(wrapped)) == {"a": 2, "b": 3}


def test_a_wrapper_is_left_where_it_may_be_meant() -> None:
    def go(input: str, limit: int = 1) -> None: ...

    assert kwargs(go, '{"input": {"limit": 5}}') == {"input": '{"limit":5}'}
    for raw in (
        '{"arguments": {"a": 2}}',
        '{"arguments": {"a": 2, "b": 3}, "a": 2}',
        '{"it": {"a": 2, "b": 3}}',
        '{"name": "now", "arguments": {"a": 2, "b": 3}}',
    ):
        assert "there is no such argument" in refusal(add, raw)


def test_an_empty_text_where_no_text_is_allowed_is_not_given() -> None:
    """Public: can1357/oh-my-pi#2981."""

    def go(name: str = "x", limit: int = 10, tags: list[str] | None = None) -> None: ...

    assert kwargs(go, '{"name": "", "limit": "", "tags": " "}') == {"name": ""}
    assert "- b: should be a valid integer" in refusal(add, '{"a": 1, "b": ""}')


def test_a_value_where_only_text_is_allowed_becomes_its_json() -> None:
    assert kwargs(send_note, '{"to": 5, "body": {"a": [1, "é"]}}') == {"to": "5", "body": '{"a":[1,"é"]}'}
    assert kwargs(send_note, '{"to": true, "body": 1.5}') == {"to": "true", "body": "1.5"}


def test_python_literals_stay_what_they_are_in_python() -> None:
    assert kwargs(set_mode, "{'dark': True, 'label': None}") == {"dark": True, "label": None}


def test_backslashes_that_were_not_escaped_are_kept_where_none_may_be_an_escape() -> None:
    """Public: NousResearch/hermes-agent#110436, openclaw/openclaw#88918, anthropics/claude-code#87251."""
    assert kwargs(send_note, r'{"to": "C:\Users\x", "body": "\d+\.\w \\ \"q\""}') == {
        "to": r"C:\Users\x",
        "body": r'\d+\.\w \ "q"',
    }
    assert kwargs(set_tags, r'{"tags": "[\"C:\\Dev\"]"}') == {"tags": [r"C:\Dev"]}
    assert kwargs(send_note, '{"to": "me", "body": "a \\\n b"}') == {"to": "me", "body": "a \\\n b"}
    for raw in (
        r'{"to": "C:\data\new", "body": "x"}',
        r'{"to": "C:\data", "body": "\new"}',
        r'{"to": "\d\u0041", "body": ""}',
    ):
        assert "a backslash in a string is written as two" in refusal(send_note, raw)


def test_line_breaks_that_were_escaped_between_the_strings_are_blanks() -> None:
    """Public: OpenHands/software-agent-sdk#2488."""
    assert kwargs(send_note, r'{\n  "to": \n"me",\t"body": "a\nb"\n\n}') == {"to": "me", "body": "a\nb"}
    assert kwargs(add, r'{"a": 1\n, "b": \r\n2}') == {"a": 1, "b": 2}
    refusal(send_note, r'{"to": \name, "body": "x"}')


def test_chinese_punctuation_around_strings_is_that_of_json() -> None:
    """Public: Graphify-Labs/graphify#2286."""
    assert kwargs(send_note, '{“to”：“我”，”body“: “她说\\"好\\"，{”}') == {"to": "我", "body": '她说"好"，{'}
    assert kwargs(send_note, '{"to": “我”, "body": "“好”，"}') == {"to": "我", "body": "“好”，"}
    refusal(send_note, "{“to”: “我”, “body”: “不仅有“咖啡”还有”}")


def test_comments_between_the_strings_are_nothing() -> None:
    """Public: jataware/archytas#35, FoundationAgents/MetaGPT#799."""
    assert kwargs(add, '{"a": 1, // the first }\n"b": 2 /* {the second} */} # done') == {"a": 1, "b": 2}
    assert kwargs(send_note, '{"to": "#me", # whom\n"body": "http://x/*y*/"}') == {"to": "#me", "body": "http://x/*y*/"}
    refusal(send_note, '{"to": http://x, "body": "x"}')
    for noise in ("//" * 50_000, "#" * 100_000, "/*" * 50_000, "/**/" * 20_000):
        refusal(send_note, f'{{"to": "me", {noise}')


def test_quotes_that_were_escaped_where_none_needs_to_be_are_quotes() -> None:
    """Public: digitalocean/langchain-gradient#31."""
    assert kwargs(send_note, r'{"to": \"me\", "body": "x"}') == {"to": "me", "body": "x"}
    assert kwargs(send_note, r"{\"to\": \"me\", \"body\": \"x\"}") == {"to": "me", "body": "x"}
    refusal(send_note, r'{\"to\": \"me\", \"body\": \"a \\"b\\"\"}')


def test_the_same_object_twice_counts_once_however_it_is_spelled() -> None:
    """Sibling of simonw/llm#1680: a server streams the arguments, then sends them whole in its own spelling."""
    assert kwargs(add, '{"a":1,"b":2}{"b": 2, "a": 1}') == {"a": 1, "b": 2}
    assert "you sent 2" in refusal(add, '{"a":1,"b":2}{"a":1,"b":3}')


def test_only_what_was_refused_is_touched() -> None:
    def go(exact: Annotated[str, Field(pattern="^[0-9]+$")] | int, tags: list[str]) -> None: ...

    checked = as_tool(go).validate('{"exact": "007", "tags": "[\\"a\\"]"}')
    assert checked.arguments == {"exact": "007", "tags": ["a"]}


# What is turned back


@pytest.mark.parametrize(
    "raw", ['{"a": 1, "b": 2', '{"a": 1, "b": "2', "5", "false", "0", "[]", '"x"', "{'a': 1, 'b': 2", '{"a": , "b": 1}']
)
def test_what_is_no_object(raw: str) -> None:
    text = refusal(add, raw)
    assert text.startswith("add was not run")
    assert text.endswith("Call add again with all of them in one JSON object.")


def test_numbers_that_are_none() -> None:
    def go(f: float, extra: dict[str, Any]) -> None: ...

    for raw in ('{"f": NaN, "extra": {}}', '{"f": 1e999, "extra": {}}', '{"f": 1, "extra": {"x": 1e999}}'):
        refusal(go, raw)
    assert "f: should be a finite number" in refusal(go, '{"f": "NaN", "extra": {}}')


def test_every_path_is_named_with_what_is_allowed_and_no_value_is_repeated() -> None:
    text = refusal(plan, json.dumps({"steps": [{"n": 1}, {"n": "two"}], "blob": SECRET, "when": SECRET}))
    assert "- steps.1.n: should be a valid integer" in text
    assert "- blob: string should have at most 100 characters (you sent a string of 307 characters)" in text
    assert "- when: should be 'now' or 'later'" in text
    assert "Call plan again" in text
    assert "SECRET" not in text
    assert "two" not in text


def test_missing_arguments_say_what_they_are() -> None:
    text = refusal(plan, "{}")
    assert "- steps: missing, and required (array)" in text
    assert "- blob: missing, and required (string)" in text
    assert "- steps.0.n: missing, and required (integer)" in refusal(plan, '{"steps": [{}], "blob": ""}')


def test_an_unknown_argument_is_never_dropped() -> None:
    assert "- limt: there is no such argument; did you mean limit?" in refusal(search, '{"q": "x", "limt": 5}')
    assert "- zzz: there is no such argument; there are: a, b" in refusal(add, '{"a": 1, "b": 2, "zzz": 3}')
    assert "it takes none, so send {}" in refusal(now, '{"dummy": ""}')


def test_alternatives_of_a_union_are_joined() -> None:
    def go(value: int | list[int]) -> None: ...

    assert "- value: should be a valid integer or should be a valid array" in refusal(go, '{"value": "x"}')


def test_formats_come_with_an_example() -> None:
    def go(day: datetime.date) -> None: ...

    assert "such as 2026-02-28" in refusal(go, '{"day": "tomorrow"}')


def test_the_words_of_a_validator_reach_the_model_without_the_value() -> None:
    class Order(BaseModel):
        number: str

        @field_validator("number")
        @classmethod
        def check(cls, value: str) -> str:
            raise ValueError(f"{value} must look like A-1024")

    def go(order: Order) -> None: ...

    text = refusal(go, json.dumps({"order": {"number": SECRET}}))
    assert "- order.number: (the value) must look like A-1024" in text
    assert "SECRET" not in text


def test_messages_stay_short() -> None:
    huge = [{"n": SECRET, "note": SECRET} for _ in range(10_000)]
    text = refusal(plan, json.dumps({"steps": huge, "blob": SECRET, **{f"{SECRET}{n}": 1 for n in range(100)}}))
    assert len(text) <= 1_500
    assert "more" in text


def test_an_error_is_meant_for_the_model() -> None:
    with pytest.raises(ToolError) as caught:
        as_tool(add).validate('{"a": 1}')
    assert isinstance(caught.value, ArgumentsError)
    assert [(problem.path, caught.value.tool) for problem in caught.value.problems] == [("b", "add")]


@pytest.mark.parametrize("depth", [150, 5_000])
def test_huge_nesting_does_not_overflow(depth: int) -> None:
    def go(value: Any) -> None: ...

    raw = '{"value": ' + "[" * depth + "]" * depth + "}"
    if depth < 200:
        assert kwargs(go, raw)
    else:
        assert "nested too deeply" in refusal(go, raw)


def test_a_cut_off_reply_is_never_repaired() -> None:
    with pytest.raises(ArgumentsError, match="cut off"):
        as_tool(now).validate("", complete=False)
    assert as_tool(add).validate('{"a": 1, "b": 2}', complete=False).kwargs == {"a": 1, "b": 2}


def test_parsing_alone() -> None:
    schema = as_tool(add).parameters
    parsed = parse_arguments("{'a': 1, 'reason': 'why'}", schema)
    assert parsed == {"a": 1, "reason": "why"}
    with pytest.raises(ArgumentsError):
        parse_arguments("[]", schema)


# What pydantic would take for something else


class Stay(BaseModel):
    since: datetime.date


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"at": 20260228}, "at: should be a date-time such as 2026"),
        ({"at": "20260228"}, "at: should be a date-time such as 2026"),
        ({"at": 2026}, "at: should be a date-time such as 2026"),
        ({"at": "202602281000"}, "at: should be a date-time such as 2026"),
        ({"at": 20260228100000}, "at: should be a date-time such as 2026"),
        ({"day": "0"}, "day: should be a date such as 2026"),
        ({"day": 20260228}, "day: should be a date, such as 2026"),
        ({"stays": [{"since": "2026-02-28"}, {"since": 0}]}, "stays.1.since: should be a date such as 2026"),
        ({"limit": True}, "limit: should be a number (you sent a boolean)"),
        ({"limits": [1, False]}, "limits.1: should be a number (you sent a boolean)"),
        ({"by_name": {"a": True}}, "by_name.a: should be a number (you sent a boolean)"),
    ],
)
def test_a_number_is_no_date_and_a_boolean_no_number(arguments: dict[str, Any], said: str) -> None:
    def find(
        at: datetime.datetime | None = None,
        day: datetime.date | None = None,
        stays: list[Stay] = [],  # noqa: B006 - as users write it
        limit: int = 1,
        limits: list[float] = [],  # noqa: B006 - the same
        by_name: dict[str, int | None] = {},  # noqa: B006 - the same
        any_of: int | bool = 1,
    ) -> None: ...

    assert said in refusal(find, json.dumps(arguments))
    fine = {"at": 1_772_971_200, "day": "2026-02-28", "any_of": True, "limit": "5", "by_name": {"a": None}}
    assert kwargs(find, json.dumps(fine))["any_of"] is True


def test_half_an_emoji_reaches_no_function() -> None:
    given = as_tool(send_note).validate('{"to": "a\\ud83d", "body": "\\ud83d\\ude00"}')
    assert given.kwargs == given.arguments == {"to": "a?", "body": "😀"}


def test_a_tuple_that_is_too_short_is_turned_back() -> None:
    def go(point: tuple[int, Literal["a", "b"]]) -> None: ...

    assert "- point.1: missing, and required" in refusal(go, '{"point": [1]}')
    assert "- point.0: missing, and required (integer)" in refusal(go, '{"point": []}')


def test_a_decimal_keeps_all_of_its_digits() -> None:
    """langchain4j/langchain4j#5754: by way of a double, an amount is silently another one."""

    class Line(BaseModel):
        price: Decimal

    def pay(amount: Decimal, lines: list[Line] = [], rate: float = 1, other: Any = None) -> None: ...  # noqa: B006 - as users write it

    raw = '{"amount": 1234567890.123456789, "lines": [{"price": 0.10000000000000000001}], "rate": 0.5, "other": 1.5}'
    given = as_tool(pay).validate(raw)
    assert given.kwargs == {
        "amount": Decimal("1234567890.123456789"),
        "lines": [Line(price=Decimal("0.10000000000000000001"))],
        "rate": 0.5,
        "other": 1.5,
    }
    assert as_tool(pay).validate(dumps(given.arguments).decode()).kwargs == given.kwargs
    long = as_tool(pay).validate(
        '{"amount": 19.99, "rate": 0.3333333333333333333333, "other": 0.3333333333333333333333}'
    )
    assert (long.kwargs["amount"], long.kwargs["rate"], long.kwargs["other"]) == (Decimal("19.99"), 1 / 3, 1 / 3)
    big = as_tool(pay).validate('{"amount": 9007199254740993, "rate": 9007199254740993}')
    assert big.kwargs["amount"] == 9007199254740993
    assert [given.repaired, big.repaired] == [False, False]  # the same numbers, spelled so that they stay the same
