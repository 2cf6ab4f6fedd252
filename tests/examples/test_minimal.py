"""A1: one tool, and the model decides how often to call it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from glassloop.core.result import RunResult
from glassloop.testing import ModelServer, call

Example = Callable[..., Any]
Answer = Callable[[str, str], RunResult]
QUESTION = "Which is hotter, Beijing or Shanghai?"


def test_the_trace_shows_every_thought_action_observation_and_the_finish(example: Example) -> None:
    ended = example("examples/minimal.py", "--trace", QUESTION)
    assert ended.code == 0
    assert ended.traced("action") == ['1 get_weather(city="Beijing")', '2 get_weather(city="Shanghai")']
    assert len(ended.traced("thought")) == 2
    assert [line.split(": ", 1)[1] for line in ended.traced("observation")] == [
        '{"city":"Beijing","celsius":29,"sky":"sunny"}',
        '{"city":"Shanghai","celsius":31,"sky":"cloudy"}',
    ]
    assert [line.split(", ", 1)[1] for line in ended.traced("thinking")] == [
        "1 message in context, 1 tool on offer",
        "3 messages in context, 1 tool on offer",
        "5 messages in context, 1 tool on offer",
    ]
    assert "completed: 3 steps, 2 tool calls, " in ended.traced("finish")[0]
    assert ended.answer == "Shanghai is hotter: 31 °C today, while Beijing has 29 °C."


def test_it_says_in_one_line_which_model_is_at_work(example: Example) -> None:
    ended = example("examples/minimal.py", QUESTION)
    assert ended.err.startswith("Model: stand-in on http://127.0.0.1:")
    assert ended.err.endswith(" (set MODEL or a provider key for a real one)\n")
    assert ended.err.count("\n") == 1


def test_it_is_about_forty_lines(root: Path) -> None:
    assert len((root / "examples/minimal.py").read_text("utf-8").splitlines()) <= 45


@pytest.mark.parametrize(
    ("question", "calls", "told"),
    [
        ("北京和上海哪个更热？", ["北京", "上海"], "上海更热：今天31°C；北京29°C。"),
        ("How is the weather in new york?", ["New York"], "New York has 24 °C today, cloudy."),
        (
            "Which is the coldest: Harbin, London or Guangzhou?",
            ["Harbin", "London", "Guangzhou"],
            "London is coolest: 16 °C today, while Harbin has 18 °C, Guangzhou has 33 °C.",
        ),
        ("哈尔滨今天天气怎么样", ["哈尔滨"], "哈尔滨今天18°C，晴。"),
        ("Is it hot in Atlantis?", ["Atlantis"], "No weather for 'Atlantis'. Known cities: Beijing, Shanghai,"),
        ("What is the weather?", [], "Which city's weather would you like to know?"),
    ],
)
def test_another_question_is_another_run(answer: Answer, question: str, calls: list[str], told: str) -> None:
    result = answer("minimal.py", question)
    assert (result.outcome, result.steps) == ("completed", len(calls) + 1)
    assert [dict(execution.arguments or {}) for execution in result.tool_executions] == [{"city": c} for c in calls]
    assert told in (result.output or "")


def test_without_a_question_it_asks_its_own(example: Example) -> None:
    assert "Shanghai is hotter" in example("examples/minimal.py").answer
    assert "Shanghai is hotter" in example("-m", "examples.minimal", "").answer


def test_a_wrong_command_line_is_usage(example: Example) -> None:
    ended = example("examples/minimal.py", "--trance")
    assert (ended.code, ended.out) == (2, "")
    assert "unrecognized arguments: --trance" in ended.err


def test_with_a_key_the_provider_is_asked(example: Example) -> None:
    with ModelServer(script=[call("get_weather", city="London"), "It rains."], api_key="sk-right") as server:
        ended = example("examples/minimal.py", "?", OPENAI_API_KEY="sk-right", OPENAI_BASE_URL=server.url)
    assert (ended.code, ended.answer) == (0, "It rains.")
    model = server.requests[0].body["model"]
    assert ended.err == f"Model: openai:{model}\n"
    assert server.violations == []


def test_the_command_line_runs_it_too(example: Example) -> None:
    ended = example("-m", "glassloop", "run", "examples/minimal.py:agent", "--trace", QUESTION)
    assert ended.code == 0
    assert "Model: stand-in on" in ended.err
    assert "Shanghai is hotter" in ended.answer


def test_importing_it_does_nothing(example: Example) -> None:
    code = "import threading, examples.minimal as m; print(m.agent.name, m.STAND_IN.wire, threading.active_count())"
    assert example("-c", code).out == "minimal openai 1\n"
