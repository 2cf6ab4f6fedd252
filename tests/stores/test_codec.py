"""JSON goes into the file and comes out again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassloop.core.encoding import dumps, loads
from glassloop.stores.codec import pack, storable, unpack


@given(st.text(st.characters(exclude_categories=["Cs"])), st.integers(1, 400))
def test_what_is_packed_is_unpacked(text: str, times: int) -> None:
    assert loads(unpack(pack(dumps(text * times)))) == text * times


def test_small_json_can_be_read_with_any_tool() -> None:
    assert pack(dumps({"city": "北京"})) == '{"city":"北京"}'


def test_big_json_takes_less_room() -> None:
    data = dumps(["row"] * 10_000)
    assert len(pack(data)) < len(data) / 10


@given(st.binary(min_size=1))
def test_damage_is_a_value_error(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        unpack(b"\xff" + data)


@given(st.text(), st.text())
def test_any_text_can_be_stored_and_stays_itself(one: str, two: str) -> None:
    storable(one).encode()
    assert storable("\ud83d") != storable("\ud83e")
    if not any("\ud800" <= character <= "\udfff" or character == "\\" for character in one + two):
        assert (storable(one) == storable(two)) == (one == two)
