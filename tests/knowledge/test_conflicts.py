"""Sources that disagree, measured on pairs of statements that no rule was made for."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from glassloop.knowledge.conflicts import Conflict, find_conflicts
from glassloop.knowledge.documents import Passage
from glassloop.knowledge.quantities import number, quantities

PAIRS: list[Mapping[str, Any]] = [
    json.loads(line) for line in Path(__file__).with_name("conflicts.jsonl").read_text("utf-8").splitlines()
]
"""Two statements of different sources and whether they contradict each other. "dev": looked at while the rules were
made; "held": written before, and only counted."""


def passage(text: str, source: str = "a.md", title: str = "", *headings: str) -> Passage:
    return Passage(source, title or source, 0, text, headings)


def between(one: Passage, other: Passage) -> tuple[Conflict, ...]:
    return find_conflicts([one], [one, other]).get(0, ())


def marked(pair: Mapping[str, Any]) -> bool:
    first, second = pair.get("titles", ["A policy", "Questions"])
    above, below = pair.get("headings", [[], []])
    one = passage(pair["a"], "a.md", first, *above)
    other = passage(pair["b"], "b.md", second, *below)
    assert bool(between(one, other)) == bool(between(other, one))
    return bool(between(one, other))


def shares(split: str) -> tuple[float, float]:
    """Recall and false-positive rate."""
    pairs = [pair for pair in PAIRS if pair["split"] == split]
    real = [marked(pair) for pair in pairs if pair["conflict"]]
    none = [marked(pair) for pair in pairs if not pair["conflict"]]
    assert len(real) == len(none) > 15
    return sum(real) / len(real), sum(none) / len(none)


def test_pairs_that_were_looked_at() -> None:
    assert shares("dev") == (1.0, 0.0)


def test_pairs_that_were_not() -> None:
    recall, false = shares("held")
    assert recall >= 0.75
    assert false <= 0.06


def test_statements_about_different_things_are_no_contradiction() -> None:
    def strangers() -> Iterator[tuple[str, str]]:
        for one, other in combinations(PAIRS, 2):
            if one["split"] == other["split"]:
                yield one["a"], other["b"]

    found = [pair for pair in strangers() if between(passage(pair[0]), passage(pair[1], "b.md"))]
    assert found == []


def test_a_conflict_says_who_says_what_and_where() -> None:
    one = passage("Refunds take 48 hours. Ask at the desk.", "policy.md", "Refund policy")
    other = Passage("faq.html", "Questions", 7, "Fast! Refunds take just 1 day. Ask us.")
    [conflict] = between(one, other)
    assert conflict == Conflict(
        value="48 hours",
        source="faq.html",
        other="1 day",
        sentence="Refunds take just 1 day.",
        title="Questions",
        position=7,
    )


def test_the_same_source_does_not_contradict_itself() -> None:
    assert between(passage("Refunds take 48 hours."), passage("Refunds take 24 hours.")) == ()


def test_a_source_is_named_once_for_a_value() -> None:
    one = passage("Refunds take 48 hours.")
    others = [passage(f"Refunds take {hours} hours.", "b.md") for hours in (24, 12)]
    assert len(find_conflicts([one], others)[0]) == 1


def test_a_source_that_gives_both_values_does_not_contradict() -> None:
    both = passage("Refunds take 48 hours. Refunds now take 24 hours.", "b.md")
    assert between(passage("Refunds take 48 hours."), both) == ()


@pytest.mark.parametrize(
    ("text", "kind", "low", "high"),
    [
        ("48 hours", "hours", 48, 48),
        ("a 48-hour wait", "hours", 48, 48),
        ("48h", "hours", 48, 48),
        ("twenty-four hours", "hours", 24, 24),
        ("two days", "hours", 48, 48),
        ("二十四小时", "hours", 24, 24),
        ("两个小时", "hours", 2, 2),
        ("3个月", "hours", 2191.5, 2191.5),
        ("30 分钟", "hours", 0.5, 0.5),
        ("3-5 working days", "working days", 3, 5),
        ("三到五个工作日", "working days", 3, 5),
        ("12.5 %", "percent", 12.5, 12.5),
        ("百分之十二", "percent", 12, 12),
        ("$1,200.50", "USD", 1200.5, 1200.5),
        ("1.5万元", "CNY", 15000, 15000),
        ("¥300", "CNY", 300, 300),
        ("25 MB", "MB", 25, 25),
        ("12 books", "book", 12, 12),
        ("八本书", "本书", 8, 8),
    ],
)
def test_values_are_read(text: str, kind: str, low: float, high: float) -> None:
    [found] = quantities(text)
    assert (found.kind, found.low, found.high) == (kind, pytest.approx(low), pytest.approx(high))


@pytest.mark.parametrize(
    "text",
    ["第3条", "2023年", "5月3日", "version 3", "section 12", "at 9:30", "万一", "一个人", "no. 5 of", "A-1001", ""],
)
def test_numbers_that_measure_nothing(text: str) -> None:
    assert quantities(text) == []


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("二〇二五", 2025),
        ("一百零五", 105),
        ("三千二百", 3200),
        ("两万五千", 25000),
        ("一亿", 100_000_000),
        ("十二", 12),
        ("3万", 30_000),
        ("2 million", 2_000_000),
        ("ninety-nine", 99),
        ("1,234.5", 1234.5),
    ],
)
def test_numbers_are_read(text: str, value: float) -> None:
    assert number(text) == value


@pytest.mark.parametrize("text", ["1 day " * 4000, "1 day, " * 3000, "一天" * 5000, "9,999 " * 4000, "1-" * 9000])
def test_endless_rows_of_numbers_take_no_time(text: str) -> None:
    """The time-out of the test is the assertion: without bounds these take half a minute and more."""
    other = passage(text.replace("1", "2"), "b.md")
    for _ in range(20):
        between(passage(text), other)
