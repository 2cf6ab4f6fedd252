"""A2: three tools, the Anthropic wire, several calls in one step."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from glassloop import ToolError
from glassloop.cli.target import Target
from glassloop.core.result import RunResult
from glassloop.models.anthropic import Anthropic
from glassloop.testing import Conversation, ModelServer, Reaction

Example = Callable[..., Any]
Answer = Callable[[str, str], RunResult]
Load = Callable[[str], Target]
QUESTION = "What time is it, what is (1024 + 768) * 2, and the weather in Beijing and Shanghai?"


def test_four_calls_in_one_step_side_by_side_and_the_answer_in_the_second(example: Example) -> None:
    ended = example("-m", "examples.mini", "--trace", QUESTION)
    assert ended.code == 0
    assert ended.traced("action") == [
        "1 get_current_time()",
        '1 calculate(expression="(1024 + 768) * 2")',
        '1 get_weather(city="Beijing")',
        '1 get_weather(city="Shanghai")',
    ]
    assert len(ended.traced("observation")) == 4
    first_result = ended.out.index(" observation ")
    assert ended.out.rindex(" action ") < first_result, "all four were begun before the first had its result"
    assert "completed: 2 steps, 4 tool calls, " in ended.traced("finish")[0]
    assert re.match(r"It is \d\d:\d\d \(.+\) on \w+day, \d{4}-\d\d-\d\d\. \(1024 \+ 768\) \* 2 = 3584\. ", ended.answer)
    assert ended.answer.endswith("Beijing has 29 °C, sunny. Shanghai has 31 °C, cloudy.")


def test_results_go_back_in_request_order(load: Load) -> None:
    seen: list[Conversation] = []
    think: Any = load("mini.py").stand_in.brain

    def brain(conversation: Conversation) -> Reaction:
        seen.append(conversation)
        return think(conversation)

    with ModelServer(brain) as server:
        model = Anthropic("m", base_url=server.anthropic_url, api_key="k")
        result = load("mini.py").agent.run_sync("Weather in Harbin, Beijing, Shenzhen, Paris?", model=model)
    assert [outcome.arguments["city"] for outcome in seen[1].results] == ["Harbin", "Beijing", "Shenzhen", "Paris"]
    assert [outcome.fields["celsius"] for outcome in seen[1].results] == [18, 29, 33, 21]
    assert seen[0].wire == "anthropic"
    assert (result.outcome, result.steps) == ("completed", 2)
    assert server.violations == []


def test_chinese(example: Example) -> None:
    ended = example("-m", "examples.mini", "--trace", "现在几点了？(3+4)*5 等于多少？")
    assert ended.code == 0
    assert ended.traced("action") == ["1 get_current_time()", '1 calculate(expression="(3+4)*5")']
    assert re.match(
        r"现在是.+（星期[一二三四五六日]）.+(3\+4)\*5 等于 35。$".replace("(3", r"\(3").replace("4)", r"4\)"),
        ended.answer,
    )


def test_code_is_refused_and_the_run_ends_with_an_answer_that_says_so(example: Example) -> None:
    ended = example("-m", "examples.mini", "--trace", "calculate __import__('os').system('id')")
    assert ended.code == 0
    assert ended.traced("action") == ["1 calculate(expression=\"__import__('os').system('id')\")"]
    (failure,) = ended.traced("failure")
    text = failure.split(": ", 1)[1]
    assert text.startswith("Cannot calculate")
    assert ended.answer == f"calculate refused: {text}"
    assert "uid=" not in ended.out


@pytest.mark.parametrize(
    ("question", "calls"),
    [
        ("what's 12 times 7?", [("calculate", "12 * 7")]),
        ("北京天气怎么样？再算一下（1+2）×3", [("calculate", "(1+2) * 3"), ("get_weather", "北京")]),
        ("What time is it in Asia/Tokyo?", [("get_current_time", "Asia/Tokyo")]),
        ("weather in paris, and 15% of 80", [("calculate", "15 / 100 * 80"), ("get_weather", "Paris")]),
        ("Who are you?", []),
    ],
)
def test_another_question_makes_other_calls(answer: Answer, question: str, calls: list[tuple[str, str]]) -> None:
    result = answer("mini.py", question)
    assert (result.outcome, result.steps) == ("completed", 2 if calls else 1)
    assert [(done.tool, *(done.arguments or {}).values()) for done in result.tool_executions] == calls


NO_SUMS = ["9**9**9", "1/0", "(1).__class__", "'a' * 9", "1 == 1", "10**400", "open('x')", "lambda: 1", "[1]*3", ""]


@pytest.mark.parametrize("expression", [*NO_SUMS, "sqrt(-1)", "1e400"])
def test_what_is_not_a_sum_is_a_tool_error(load: Load, expression: str) -> None:
    with pytest.raises(ToolError, match="Cannot calculate"):
        load("mini.py").module.calculate(expression)


@pytest.mark.parametrize(
    ("expression", "value"),
    [("(1024 + 768) * 2", 3584), ("2**10", 1024), ("7 // 2 + 7 % 4", 6), ("sqrt(16) + abs(-1)", 5.0), ("-3 + 5", 2)],
)
def test_sums(load: Load, expression: str, value: float) -> None:
    assert load("mini.py").module.calculate(expression) == value


@pytest.mark.parametrize("zone", ["Mars/Olympus", "../../etc/passwd"])
def test_an_unknown_time_zone_is_a_tool_error(load: Load, zone: str) -> None:
    with pytest.raises(ToolError, match="Unknown time zone"):
        load("mini.py").module.get_current_time(zone)
