from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassloop.models.sse import SSEEvent, SSEParser


def events(*pieces: bytes) -> list[tuple[bytes, bytes]]:
    parser = SSEParser()
    found = [event for piece in pieces for event in parser.feed(piece)] + parser.close()
    return [(event.name, event.data) for event in found]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_line_ends(end: bytes) -> None:
    stream = end.join([b"event: a", b"data: one", b"data: two", b"", b"data:three", b"", b""])
    assert events(stream) == [(b"a", b"one\ntwo"), (b"", b"three")]


def test_comments_ids_and_unknown_fields_are_passed_over() -> None:
    assert events(b": ping\n\nid: 7\nretry: 10\nwhat: x\ndata: {}\n\n:\n\n") == [(b"", b"{}")]


def test_an_event_without_data_is_none() -> None:
    assert events(b"event: ping\n\n", b"data\n\n") == [(b"", b"")]


def test_only_one_blank_after_the_colon_is_taken() -> None:
    assert events(b"data:  two\n\n") == [(b"", b" two")]


def test_an_event_is_given_as_soon_as_its_blank_line_is_there() -> None:
    parser = SSEParser()
    assert parser.feed(b"data: 1\r") == []
    assert parser.feed(b"\r") == [SSEEvent(b"", b"1")]
    assert parser.feed(b"\ndata: 2\n") == []
    assert parser.feed(b"\n") == [SSEEvent(b"", b"2")]


@pytest.mark.parametrize("pieces", [[b"\xef\xbb\xbfdata: x\n\n"], [b"\xef", b"\xbb", b"\xbfdata: x\n\n"]])
def test_byte_order_mark_at_the_start_is_dropped(pieces: list[bytes]) -> None:
    assert events(*pieces) == [(b"", b"x")]


def test_byte_order_mark_elsewhere_is_data() -> None:
    assert events(b"data: a\n\n", b"data: \xef\xbb\xbf\n\n") == [(b"", b"a"), (b"", b"\xef\xbb\xbf")]


@pytest.mark.parametrize("end", [b"", b"\n"])
def test_last_event_without_a_blank_line_is_given_at_the_end(end: bytes) -> None:
    parser = SSEParser()
    assert parser.feed(b"data: a\n\ndata: [DONE]" + end) == [SSEEvent(b"", b"a")]
    assert parser.close() == [SSEEvent(b"", b"[DONE]")]
    assert parser.close() == []


LINES = st.sampled_from(
    [b"data: {}", b"data: \xe4\xbd\xa0\xf0\x9f\x8c\x8d", b"data:", b"data", b"event: error", b": c", b"id: 1", b""]
)
ENDS = st.sampled_from([b"\n", b"\r\n", b"\r"])


@given(
    st.booleans(),
    st.lists(st.tuples(LINES, ENDS), max_size=20).map(lambda lines: b"".join(b"".join(line) for line in lines)),
    st.lists(st.integers(0, 200)),
)
def test_where_the_bytes_are_cut_makes_no_difference(mark: bool, body: bytes, cuts: list[int]) -> None:
    stream = (b"\xef\xbb\xbf" if mark else b"") + body
    places = sorted({min(cut, len(stream)) for cut in cuts})
    pieces = [stream[start:end] for start, end in zip([0, *places], [*places, len(stream)], strict=True)]
    assert events(*pieces) == events(stream)
    assert events(*[bytes([byte]) for byte in stream]) == events(stream)
