"""A3: the model picks the order of the tools, and nothing is booked without a human's yes."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from glassloop.core.result import RunResult
from glassloop.testing import ModelServer

Example = Callable[..., Any]
Answer = Callable[[str, str], RunResult]
QUESTION = "I am in Shanghai, 4 days off in October, I like nature and quiet towns"


def test_it_plans_and_recovers_from_a_tool_that_does_not_exist(example: Example) -> None:
    ended = example("-m", "examples.travel", "--trace", QUESTION)
    assert ended.code == 0
    assert [re.sub(r"\(.*", "", line) for line in ended.traced("action")] == [
        "1 search_destinations",
        "2 get_weather",
        "2 get_weather",
        "3 get_attractions",
        "3 get_transport",
        "4 search_hotels_v2",
        "5 search_hotels",
        "6 estimate_budget",
    ]
    (failure,) = ended.traced("failure")
    assert "There is no tool 'search_hotels_v2'. Closest: search_hotels, " in failure
    assert "completed: 7 steps, 8 tool calls" in ended.traced("finish")[0]
    assert "I suggest Wuyuan: 13–24 °C, about 7 rainy days. Dali has about 9" in ended.answer
    assert "Stay at Likeng Courtyard Inn, 320 yuan a night. In all about 2240 yuan for one traveller" in ended.answer


def test_chinese(example: Example) -> None:
    ended = example("-m", "examples.travel", "--trace", "我在上海，十月有四天假，喜欢自然和安静的小镇")
    assert ended.code == 0
    assert ended.traced("action")[0] == '1 search_destinations(month=10, preference="自然和安静的小镇")'
    assert len(ended.traced("failure")) == 1
    assert "推荐婺源" in ended.answer
    assert "住李坑小院，每晚320元。1人总共约2240元" in ended.answer


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("3 days in Dali in December, from Chengdu", ["I suggest Dali: 2–16 °C", "From Chengdu it takes 4.5 hours"]),
        (
            "I'm in Berlin, 3 days in May, I love beaches",
            ["No connection from 'Berlin' is known", "See Laoshan mountain"],
        ),
        ("我们两个人从广州出发，想去大理玩5天，7月，预算3000", ["住古城青年旅舍", "2人总共约5480元", "超出3000元预算"]),
        ("I like history, 5 days in July, from Beijing, two people, budget 5000. Book it", ["so it was not booked"]),
        ("I like pyramids, 4 days in March, from Shanghai", ["No destination is known for 'pyramids'"]),
        ("I want to go to Atlantis for 4 days in June", ["Unknown destination 'Atlantis'"]),
        ("Plan a holiday", ["in which month", "for how many days", "what you like"]),
        ("I like snow, 40 days in January, from Beijing", ["less than or equal to 30"]),
    ],
)
def test_another_wish_is_another_plan(answer: Answer, question: str, expected: list[str]) -> None:
    result = answer("travel", question)
    assert result.outcome == "completed"
    told = "\n".join([result.output or "", *(done.error or "" for done in result.tool_executions)])
    for words in expected:
        assert words in told


def test_a_wrong_key_stops_the_run_at_once(example: Example) -> None:
    with ModelServer(lambda _: "never", api_key="sk-right") as server:
        ended = example(
            "-m", "examples.travel", "--trace", QUESTION, OPENAI_API_KEY="sk-wrong", OPENAI_BASE_URL=server.url
        )
    assert ended.code == 1
    assert [request.status for request in server.requests] == [401]
    (error,) = [line for line in ended.err.splitlines() if line.startswith("Error: ")]
    assert "OPENAI_API_KEY" in error
    assert "sk-wrong" not in ended.out + ended.err
    assert "failed: " in ended.traced("finish")[0]
    assert "Traceback" not in ended.err


def test_without_a_terminal_a_booking_waits_and_can_be_approved_later(example: Example) -> None:
    waiting = example("-m", "examples.travel", f"{QUESTION}. Book it.")
    assert waiting.code == 4
    assert "book_trip" in waiting.err
    assert "Booked" not in waiting.out
    match = re.search(r"glassloop (runs resume \S+ \S+ --approve \S+)", waiting.err)
    assert match is not None
    approved = example("-m", "glassloop", *match[1].split())
    assert approved.code == 0, approved.err
    assert re.search(r"Booked, number TR-\w{8}\.", approved.answer)


def test_a_denied_booking_is_not_made(example: Example) -> None:
    waiting = example("-m", "examples.travel", "我在上海，十月四天，喜欢自然，帮我预订")
    match = re.search(r"glassloop (runs resume \S+ \S+) --approve (\S+)", waiting.err)
    assert match is not None
    denied = example("-m", "glassloop", *match[1].split(), "--deny", match[2], "--reason", "太贵了")
    assert denied.code == 0
    assert "没有预订。Denied: book_trip was not run. Reason: 太贵了" in denied.answer


@pytest.mark.parametrize(("typed", "told"), [("y\n", "Booked, number TR-"), ("n\n\n", "Not booked. Denied")])
def test_at_a_terminal_it_asks(
    root: Path, clean_environment: dict[str, str], tmp_path: Path, typed: str, told: str
) -> None:
    environment = {**clean_environment, "STORE": f"sqlite:///{tmp_path}/runs.db", "TERM": "dumb"}
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "examples.travel", f"{QUESTION}. Book it."],
        cwd=root,
        env=environment,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    os.write(ours, typed.encode())
    shown = read_all(ours)
    os.close(ours)
    assert process.wait(30) == 0, shown
    assert "book_trip needs your yes" in shown
    assert told in shown


def read_all(terminal: int) -> str:
    """What was written to a terminal until its last writer has gone (Linux tells that by EIO)."""
    shown = b""
    try:
        while piece := os.read(terminal, 4096):
            shown += piece
    except OSError:
        pass
    return shown.decode("utf-8", "replace")
