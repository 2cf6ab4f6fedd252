from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassloop.core.names import wire_name

NAMES = ["docs.open", "docs/open", "docs_open", "查询天气", "x" * 90, "x" * 89 + "y", "", "\ud800", "add<|channel|>x"]


@pytest.mark.parametrize("name", ["add", "get_weather-2", "A" * 64])
def test_a_legal_name_is_its_own_wire_name(name: str) -> None:
    assert wire_name(name) == name


def test_names_that_differ_stay_different() -> None:
    assert len({wire_name(name) for name in NAMES}) == len(NAMES)


def test_a_wire_name_is_the_same_in_every_process() -> None:
    assert wire_name("docs.open") == "docs_open_5f6c51f0"


@given(st.text())
def test_wire_names_are_legal_and_stable(name: str) -> None:
    wire = wire_name(name)
    assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", wire)
    assert wire_name(wire) == wire
