"""How a tool call is shown to a person."""

from __future__ import annotations

import json

import pytest

from glassloop.core.rendering import render_call, render_json, render_written_call, shortened


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ({}, "pay()"),
        ({"to": "A-1", "amount": 5.5, "urgent": True}, 'pay(to="A-1", amount=5.5, urgent=true)'),
        ({"lines": [{"a": None}]}, 'pay(lines=[{"a":null}])'),
        ({"名": "订单"}, 'pay(名="订单")'),
        ({"amount=1, to": "x"}, 'pay("amount=1, to"="x")'),
        ({"note": 'x", amount=1'}, r'pay(note="x\", amount=1")'),
        ({"a\u202eb\n": 1}, r'pay("a\u202eb\n"=1)'),
        ({"to": "\x1b[2J\x9b1A\u202e\u2066\U000e0041"}, r'pay(to="\u001b[2J\u009b1A\u202e\u2066\udb40\udc41")'),
        ({"a\u3164": "\uffa0\u034f"}, r'pay("a\u3164"="\uffa0\u034f")'),
        ({"to": "👩‍👧 שלום می‌خواهم"}, 'pay(to="👩‍👧 שלום می‌خواهم")'),
    ],
)
def test_a_call_is_one_line_in_which_everything_is_seen(arguments: dict[str, object], shown: str) -> None:
    assert render_call("pay", arguments) == shown
    assert render_written_call("pay", json.dumps(arguments)) == shown


@pytest.mark.parametrize(
    ("written", "shown"),
    [("", "pay()"), ("[1]", "pay([1])"), ('{"to', 'pay({"to)'), ("\x9b2J", r"pay(\u009b2J)")],
)
def test_arguments_that_are_no_object_stand_as_they_were_written(written: str, shown: str) -> None:
    assert render_written_call("pay", written) == shown


def test_json_reads_back_as_what_it_was() -> None:
    value = {"a\u202e": ["\x7f\x85\u2028\ufeff\U000e0020\ud800", "é 订 👩‍👧"]}
    shown = render_json(value)
    assert json.loads(shown) == value
    assert all(char.isprintable() or char == "\u200d" for char in shown)


def test_what_is_cut_says_how_much() -> None:
    assert shortened("x" * 300) == "x" * 300
    assert shortened("x" * 301) == f"{'x' * 300}… (1 more character)"
    assert shortened("x" * 2300, 10) == "xxxxxxxxxx… (2,290 more characters)"
