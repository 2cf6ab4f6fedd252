from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassloop.core.names import wire_name
from glassloop.tools.names import cleaned, name_problem, snake_case

ODD = ["21st_magic", "_x", "-", "docs.open", "docs/open", "docs_open", "查询天气", "x" * 90, "x" * 89 + "y", "a b", "é"]


@given(st.text(min_size=1, max_size=120))
def test_wire_names_are_legal_and_legal_names_stay(name: str) -> None:
    sent = wire_name(name)
    assert 1 <= len(sent) <= 64
    assert all(letter.isascii() and (letter.isalnum() or letter in "_-") for letter in sent)
    assert sent[0].isalpha()
    assert wire_name(sent) == sent


def test_a_wire_name_begins_with_a_letter() -> None:
    """MoonshotAI/kimi-cli#1773, cline/cline#7339: "must start with a letter", over one tool of one MCP server."""
    sent = [wire_name(name) for name in ("21st_magic", "_private", "-x", "٣d", "add", "Add-2")]
    assert [name[:-8] for name in sent[:4]] == ["tool_21st_magic_", "private_", "x_", "d_"]
    assert sent[4:] == ["add", "Add-2"]


@given(st.sets(st.text(min_size=1, max_size=80), min_size=2, max_size=20))
def test_different_names_stay_different(names: set[str]) -> None:
    assert len({wire_name(name) for name in names}) == len(names)


def test_wire_names_are_the_same_in_another_process() -> None:
    code = f"from glassloop.core.names import wire_name\nprint([wire_name(name) for name in {ODD!r}])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == repr([wire_name(name) for name in ODD])


@pytest.mark.parametrize(
    ("written", "meant"),
    [("add", "add"), (" add\n\n", "add"), ("add<|channel|>commentary", "add"), ("add <|end|>", "add"), ("<|x|>", "")],
)
def test_what_leaks_into_a_name_is_cut_off(written: str, meant: str) -> None:
    assert cleaned(written) == meant


@pytest.mark.parametrize(
    ("class_name", "name"), [("CityWeather", "city_weather"), ("HTTPClient", "http_client"), ("Adder", "adder")]
)
def test_snake_case(class_name: str, name: str) -> None:
    assert snake_case(class_name) == name


@pytest.mark.parametrize("name", ["", " add", "add\n", "a<|b", "a\x00b"])
def test_names_that_cannot_be(name: str) -> None:
    assert name_problem(name)


def test_names_that_providers_refuse_are_no_problem() -> None:
    assert [name_problem(name) for name in ODD] == [None] * len(ODD)
