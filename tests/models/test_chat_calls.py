from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassloop.models.chat_calls import AMBIGUOUS, CallAssembler

KNOWN = ("add", "get_weather", "go", "gogo")


def entry(
    arguments: Any = None, name: str | None = None, id: Any = None, index: Any = None, **more: Any
) -> dict[str, Any]:
    """One `tool_calls` entry of a stream; what is None is left out."""
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    head = {key: value for key, value in (("id", id), ("index", index)) if value is not None}
    return {**head, "function": function, **more}


def assembled(*entries: Any, whole: bool = False) -> list[tuple[str, str, str]]:
    """Provider id, name and arguments of each call."""
    assembler = CallAssembler(KNOWN)
    for one in entries:
        assembler.add(one, whole=whole)
    return [(call.provider_id, call.name, call.arguments) for call in assembler.calls({})]


A, B = ("c1", "add", '{"a":2,"b":3}'), ("c2", "add", '{"a":4}')

STREAMS: dict[str, tuple[list[Any], list[tuple[str, str, str]]]] = {
    "by the book": ([entry("", "add", "c1", 0), entry('{"a":2,', index=0), entry('"b":3}', index=0)], [A]),
    "without index": ([entry("", "add", "c1"), entry('{"a":2,'), entry('"b":3}')], [A]),
    "two without index": (
        [entry('{"a":2,', "add", "c1"), entry('"b":3}'), entry("", "add", "c2"), entry('{"a":4}')],
        [A, B],
    ),
    "name and id in every fragment": (
        [entry("", "add", "c1", 0), entry('{"a":2,', "add", "c1", 0), entry('"b":3}', "add", "c1", 0)],
        [A],
    ),
    "name in every fragment, no id": (
        [entry("", "add", index=0), entry('{"a":2,', "add", index=0), entry('"b":3}', "add", index=0)],
        [("", *A[1:])],
    ),
    "a new id in every fragment": (
        [entry('{"a":2,', "add", "c1", 0), entry('"b":3}', id="x", index=0)],
        [A],
    ),
    "a new id and the name in every fragment": (
        [entry("", "add", "c1", 0), entry('{"a":2,', "add", "x", 0), entry('"b":3}', "add", "y", 0)],
        [A],
    ),
    "a new id and the name in every fragment, which may begin with a bracket": (
        [entry('{"a":', "add", "c1", 0), entry('{"b":3}}', "add", "x", 0)],
        [("c1", "add", '{"a":{"b":3}}')],
    ),
    "interleaved by index": (
        [
            entry("", "add", "c1", 0),
            entry("", "add", "c2", 1),
            entry('{"a":2,', index=0),
            entry('{"a":', index=1),
            entry('"b":3}', index=0),
            entry("4}", index=1),
        ],
        [A, B],
    ),
    "every call has index 0": ([entry(A[2], "add", "c1", 0), entry(B[2], "add", "c2", 0)], [A, B]),
    "every call has index 0, in fragments": (
        [
            entry("", "add", "c1", 0),
            entry('{"a":2,"b":3}', index=0),
            entry("", "add", "c2", 0),
            entry('{"a":4}', index=0),
        ],
        [A, B],
    ),
    "every call has index 0 and no id": (
        [entry(A[2], "add", index=0), entry(B[2], "add", index=0)],
        [("", *A[1:]), ("", *B[1:])],
    ),
    "calls without index and id": ([entry(A[2], "add"), entry(B[2], "add")], [("", *A[1:]), ("", *B[1:])]),
    "orphans under a growing index": (
        [entry('{"a":2,', "add", "c1", 0), entry('"b":', index=1), entry("3}", index=2)],
        [A],
    ),
    "an orphan after a call that is complete": (
        [entry(B[2], "add", "c2", 0), entry('{"a":2,', "add", "c1", 1), entry('"b":3}', index=7)],
        [B, A],
    ),
    "a growing index with the same id": ([entry('{"a":2,', "add", "c1", 0), entry('"b":3}', id="c1", index=1)], [A]),
    "one id for several calls": (
        [
            entry("", "add", "c1", 0),
            entry('{"a":2,"b":3}', id="c1", index=0),
            entry("", "add", "c1", 1),
            entry('{"a":4}', index=1),
            entry("{}", "go", "c1", 2),
        ],
        [A, ("c1", *B[1:]), ("c1", "go", "{}")],  # public: HKUDS/nanobot#3943
    ),
    "one id and one index for several calls": (
        [entry(A[2], "add", "c1", 0), entry("", "go", "c1", 0), entry("{}", index=0)],
        [A, ("c1", "go", "{}")],  # public: skye-harris/hass_local_openai_llm#92
    ),
    "a call again under another index": ([entry(A[2], "add", "c1", 0), entry(A[2], "add", "c1", 1)], [A]),
    "an empty end under another index": ([entry(A[2], "add", "c1", 0), entry("", "add", "c1", 1)], [A]),
    "empty orphans": ([entry("", index=3), entry(A[2], "add", "c1", 0), entry("", index=4), entry(" ", index=5)], [A]),
    "arguments as an object": ([entry({"a": 2, "b": 3}, "add", index=0)], [("", *A[1:])]),
    "an object that comes twice": (
        [entry({"a": 2, "b": 3}, "add", "c1", 0), entry({"a": 2, "b": 3}, "add", "c1", 0)],
        [A],
    ),
    "pieces that hold everything so far": (
        [entry('{"a":', "add", "c1", 0), entry('{"a":2,', index=0), entry('{"a":2,"b":3}', index=0)],
        [A],
    ),
    "the whole again at the end": (
        [entry('{"a":2,', "add", "c1", 0), entry('"b":3}', index=0), entry(A[2], "add", "c1", 0), entry(A[2], index=0)],
        [A],
    ),
    "the whole again, without an id": (
        [entry(A[2], "add", index=0), entry(A[2], "add", index=0)],
        [("", *A[1:])],
    ),
    "the same call twice, without index and id": ([entry("{}", "add"), entry("{}", "add")], [("", "add", "{}")] * 2),
    "a name under an index that is taken, its arguments after it": (
        [entry(A[2], "add", index=0), entry("", "get_weather", index=0), entry(B[2], index=0)],
        [("", *A[1:]), ("", "get_weather", B[2])],
    ),
    "an index in quotes": (
        [entry("", "add", "c1", "0"), entry("", "add", "c2", "1"), entry(A[2], index="0"), entry(B[2], index="1")],
        [A, B],
    ),
    "a call without a function object": ([{"index": 0, "id": "c1", "name": "add", "arguments": A[2]}], [A]),
    "a number as id": ([entry(A[2], "add", 7, 0)], [("7", *A[1:])]),
    "null everywhere": (
        [{"index": None, "id": None, "function": None}, entry(A[2], "add", "c1"), {"function": {"arguments": None}}],
        [A],
    ),
    "not an object": (["x", None, entry(A[2], "add", "c1", 0)], [A]),
}


@pytest.mark.parametrize(("entries", "expected"), STREAMS.values(), ids=STREAMS)
def test_fragments_find_their_calls(entries: list[Any], expected: list[tuple[str, str, str]]) -> None:
    assert assembled(*entries) == expected


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        (["get_", "weather"], "get_weather"),
        (["add", "add"], "add"),
        (["get_", "get_weather"], "get_weather"),
        (["go", "go"], "gogo"),
        (["un", "known"], "unknown"),
        (["add", "\n"], "add\n"),
    ],
)
@pytest.mark.parametrize("index", [0, None])
def test_names_are_joined_unless_they_are_repeated(pieces: list[str], expected: str, index: int | None) -> None:
    first, *rest = pieces
    entries = [entry("", first, "c1", index), *(entry("", piece, index=index) for piece in rest)]
    assert [call[1] for call in assembled(*entries, entry("{}", index=index))] == [expected]


@pytest.mark.parametrize(
    "entries",
    [
        [entry('{"a":', "add", "c1", 0), entry('{"a":', "add", "c2", 1), entry("2}", index=9)],
        [entry("", "add", "c1", 0), entry("", "add", "c2", 1), entry('{"a":2}', index=9)],
        [entry("{}", "add", "c1", 0), entry("{}", "add", "c2", 1), entry('"b":3}', index=9)],
    ],
    ids=["both unfinished", "both empty", "both complete"],
)
def test_fragments_that_fit_several_calls_are_not_guessed(entries: list[Any]) -> None:
    assembler = CallAssembler(KNOWN)
    for one in entries:
        assembler.add(one)
    assert [call.problem for call in assembler.calls({})] == [AMBIGUOUS, AMBIGUOUS]


def test_a_call_whose_arguments_may_be_those_without_a_name_is_not_run() -> None:
    assembler = CallAssembler(KNOWN)
    for one in (entry("", "add", "c1", 0), entry('{"a":2}', id="x", index=1)):
        assembler.add(one)
    assert [(call.name, call.problem) for call in assembler.calls({})] == [("add", AMBIGUOUS), ("", None)]


def test_in_a_whole_answer_each_entry_is_a_call() -> None:
    entries = [entry("{}", "add", ""), entry("{}", "add", ""), entry(None, "add"), entry("{}", "add", "c", 0)]
    assert assembled(*entries, whole=True) == [
        ("", "add", "{}"),
        ("", "add", "{}"),
        ("", "add", ""),
        ("c", "add", "{}"),
    ]


def test_names_are_mapped_back_and_what_is_not_ours_is_kept() -> None:
    assembler = CallAssembler(KNOWN)
    assembler.add(entry("{}", "docs_open_1", "c1", 0, type="function", extra_content={"google": {"thought": "S"}}))
    (call,) = assembler.calls({"docs_open_1": "docs.open"})
    assert (call.name, call.extra) == ("docs.open", {"extra_content": {"google": {"thought": "S"}}})
    assert call.id.startswith("call_")


@given(st.data(), st.dictionaries(st.text(max_size=4), st.text(max_size=9), max_size=4))
def test_arguments_are_what_was_cut_up(data: st.DataObject, value: dict[str, str]) -> None:
    raw = json.dumps(value, ensure_ascii=False)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)))))
    pieces = [raw[start:end] for start, end in zip([0, *cuts], [*cuts, len(raw)], strict=True)]
    entries = [entry("", "add", "c1", 0), *(entry(piece, index=0) for piece in pieces)]
    assert assembled(*entries) == [("c1", "add", raw)]


def test_thousands_of_calls_take_no_time() -> None:
    entries = [entry("{}", "add", f"c{number}", number) for number in range(5000)]
    assert len(assembled(*entries)) == 5000


@pytest.mark.parametrize(
    "always",
    [{"index": 0}, {}, {"index": 0, "name": "add"}, {"index": 0, "name": "add", "id": "c1"}],
    ids=["by the book", "without index", "name in every fragment", "name and id in every fragment"],
)
def test_long_arguments_in_small_pieces_take_time_in_proportion(always: dict[str, Any]) -> None:
    """Public: earendil-works/pi#9062."""

    def seconds(items: int) -> float:
        raw = json.dumps({"items": [{"at": at, "of": {"a": {}}} for at in range(items)]})
        entries = [entry("", "add", "c1", 0), *(entry(piece, **always) for piece in raw)]
        began = time.process_time()
        assert assembled(*entries)[0][2] == raw
        return time.process_time() - began

    # four times as long, were it not for noise; quadratic would be 16 times
    assert min(seconds(2_400) for _ in range(3)) < 9 * seconds(600)
