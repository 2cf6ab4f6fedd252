"""The answer inside a constrained reply, shown while it comes."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassloop.models.answer_reader import AnswerReader


def spoken(answer: object, *, ascii_only: bool = True) -> str:
    reply = {"next": {"action": "final_answer", "answer": answer}}
    return json.dumps(reply, ensure_ascii=ascii_only)


def shown(reply: str, size: int = 1) -> list[str]:
    reader = AnswerReader("final_answer")
    return [reader.feed(reply[at : at + size]) for at in range(0, len(reply), size)]


@given(st.text(), st.booleans(), st.integers(1, 5))
def test_a_text_is_shown_as_it_comes(text: str, ascii_only: bool, size: int) -> None:
    assert "".join(shown(spoken(text, ascii_only=ascii_only), size)) == text


def test_half_of_an_escape_or_of_a_character_is_held_back() -> None:
    pieces = shown(spoken('a"\\\n🌍é'))
    assert [piece for piece in pieces if piece] == ["a", '"', "\\", "\n", "🌍", "é"]


@pytest.mark.parametrize("answer", [5, True, None, [1, {"a": "}"}], {"a": [2]}])
def test_anything_else_is_shown_as_the_json_that_it_is(answer: object) -> None:
    assert json.loads("".join(shown(spoken(answer))) + ("}" if isinstance(answer, dict) else "")) == answer


def test_a_long_text_takes_time_in_proportion() -> None:
    def seconds(length: int) -> float:
        reply = spoken("word " * length)
        began = time.process_time()
        assert "".join(shown(reply, 2)) == "word " * length
        return time.process_time() - began

    # four times as long, were it not for noise; quadratic would be 16 times
    assert min(seconds(8_000) for _ in range(3)) < 9 * seconds(2_000)
