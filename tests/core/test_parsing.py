from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassloop.core.encoding import dumps
from glassloop.core.parsing import Unreadable, read_object

FENCE = "`" * 3
LEAVES = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)
VALUES = st.recursive(
    LEAVES | TEXTS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4), max_leaves=12
)
OBJECTS = st.dictionaries(TEXTS, VALUES, max_size=5)


@given(OBJECTS)
def test_valid_json_is_never_changed(value: dict[str, Any]) -> None:
    assert read_object(dumps(value).decode()) == (value, False)


@given(OBJECTS)
def test_a_python_literal_is_the_object_that_it_spells(value: dict[str, Any]) -> None:
    read, _ = read_object(python_literal(value))
    assert dumps(read) == dumps(value)


@given(OBJECTS.filter(bool), st.integers(1, 400))
def test_what_was_cut_off_is_never_closed(value: dict[str, Any], kept: int) -> None:
    text = dumps(value).decode()
    cut = text[: min(kept, len(text) - 1)]
    with pytest.raises(Unreadable):
        read_object(cut)


@given(st.text(max_size=60))
def test_any_text_is_an_object_or_unreadable(text: str) -> None:
    with suppress(Unreadable):
        assert isinstance(read_object(text)[0], dict)


@pytest.mark.parametrize(
    ("raw", "meant"),
    [
        ("", {}),
        (" \n\t", {}),
        ("null", {}),
        ('"null"', {}),
        ('""', {}),
        ('"{\\"a\\": 2}"', {"a": 2}),
        (json.dumps(json.dumps('{"a": 2}')), {"a": 2}),
        ('{"a": 1,}', {"a": 1}),
        ('{"a": [1, 2,], }', {"a": [1, 2]}),
        ("{'dark': True, 'label': None}", {"dark": True, "label": None}),
        ("{'a': \"it's\", 'b': 'say \"x\"', 'c': 'd\\'e'}", {"a": "it's", "b": 'say "x"', "c": "d'e"}),
        (f'{FENCE}json\n{{"a": 1}}\n{FENCE}', {"a": 1}),
        ('Here it is: {"a": 1}. Done!', {"a": 1}),
        ('{"a": 1}<|end|>', {"a": 1}),
        ('{"a": 1}}', {"a": 1}),
        ('\ufeff{"a": 1}', {"a": 1}),
        ('{"a": "x\ny"}', {"a": "x\ny"}),
        ('{}{"a": 1}', {"a": 1}),
        ('{"a": 1}{"a": 1}', {"a": 1}),
        ('{"a": 1 "b": 2}', {"a": 1, "b": 2}),
        ("{a: 1}", {"a": 1}),
        ("{a:2,b:[3]}", {"a": 2, "b": [3]}),
        ("None", {}),
        ("undefined", {}),
        ('{"a": 1, "a": 2}', {"a": 2}),
    ],
)
def test_what_can_be_read(raw: str, meant: dict[str, Any]) -> None:
    assert read_object(raw)[0] == meant


@pytest.mark.parametrize(
    "raw",
    [
        '{"a": "x',
        '{"a": {"b": 1}',
        '{"a": 1} {',
        '{"a": [1, 2}',
        '{"a": , "b": 2}',
        '{"a": 1,000}',
        '{"a", "b"}',
        '{"a" "b"}',
        '{"a": hello}',
        '{"a": NaN}',
        "{'a': NaN}",
        '{"a": Infinity}',
        '{"a": "he said "hi" to me"}',
        '{"a": 1}{"a": 2}',
        "[{'a': 1}]",
        "nonsense",
        "5",
        "0",
        "false",
        '"text"',
        '[{"a": 1}]',
        "[]",
    ],
)
def test_what_would_have_to_be_guessed_is_refused(raw: str) -> None:
    with pytest.raises(Unreadable):
        read_object(raw)


def test_an_empty_array_is_no_arguments_only_where_there_are_none() -> None:
    assert read_object("[]", bare=True) == ({}, True)


@pytest.mark.parametrize("raw", ["", "{'a': 1}", '{"a": 1,}', '{"a": "half'])
def test_nothing_is_repaired_in_a_reply_that_was_cut_off(raw: str) -> None:
    with pytest.raises(Unreadable, match="cut off"):
        read_object(raw, complete=False)


def test_strict_json_of_a_reply_that_was_cut_off_counts() -> None:
    assert read_object('{"a": "ok"}', complete=False) == ({"a": "ok"}, False)


@pytest.mark.parametrize("raw", ["[" * 100_000, '{"a":' * 5_000 + "1" + "}" * 5_000, "{" * 5_000 + "'"])
def test_huge_nesting_is_refused_and_nothing_overflows(raw: str) -> None:
    with pytest.raises(Unreadable):
        read_object(raw)


def python_literal(value: Any) -> str:
    """Python's own spelling, with JSON's escapes where the two languages differ."""
    match value:
        case dict():
            pairs = value.items()  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType] - any JSON value
            inside = (f"{python_literal(key)}: {python_literal(child)}" for key, child in pairs)  # pyright: ignore[reportUnknownVariableType] - the same
            return "{" + ", ".join(inside) + "}"
        case list():
            return "[" + ", ".join(map(python_literal, value)) + "]"  # pyright: ignore[reportUnknownArgumentType] - any JSON value
        case str():
            inner = json.dumps(value)[1:-1].replace("'", "\\'").replace('\\"', '"')
            return f"'{inner}'"
        case _:
            return repr(value)
