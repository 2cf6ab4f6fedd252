"""The travel planner as a team: a planner, two budget checkers side by side, a writer who books with a human's yes."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

import pytest

from glassloop.core.result import RunResult
from glassloop.testing import ModelServer

Example = Callable[..., Any]
Answer = Callable[[str, str], RunResult]
QUESTION = "I am in Shanghai, 4 days off in October, I like nature and quiet towns"
BOOKED = re.compile(r"Booked, number TR-\w{8}\.")


def below(printed: str) -> dict[str, list[str]]:
    """The lines of the runs below the root in a trace, by the end of their ids."""
    found: dict[str, list[str]] = {}
    for run, line in re.findall(r"^  \[(\w+)\] (.*)$", printed, re.M):
        found.setdefault(run, []).append(line)
    return found


def actions(lines: list[str]) -> list[str]:
    """The tools that were called, in order."""
    return [match[1] for line in lines if (match := re.match(r"step \d+  action      (\w+)\(", line))]


def test_each_does_its_part_and_recovers_from_a_tool_that_does_not_exist(example: Example) -> None:
    ended = example("-m", "examples.travel", "--team", "--trace", QUESTION)
    assert ended.code == 0, ended.err
    assert ended.err.count("Model: stand-in on ") == 1
    planner, *checkers, writer = runs = list(below(ended.out).values())
    agents = [lines[0].split()[1] for lines in runs]
    assert agents == ["planner:", "budget-checker:", "budget-checker:", "writer:"]
    looked_up = ["search_destinations", *["get_weather"] * 2, *["get_attractions", "get_transport"] * 2]
    assert actions(planner) == looked_up
    for lines, place in zip(checkers, ("Wuyuan", "Dali"), strict=True):
        assert f'Route: {{"destination":"{place}"' in lines[0]
        assert actions(lines) == ["search_hotels_v2", "search_hotels", "estimate_budget"]
        assert any("There is no tool 'search_hotels_v2'. Closest: search_hotels. " in line for line in lines)
    assert actions(writer) == []
    _, _, second_begins = re.split("budget-checker: ", ended.out)
    assert second_begins.count("finish      completed: 4 steps, 3 tool calls") == 2  # side by side
    assert "with 4 runs below: 13 steps, 13 tool calls, " in ended.out
    assert "I suggest Wuyuan: 13–24 °C, about 7 rainy days. Dali has about 9" in ended.answer
    assert "In all about 2240 yuan for one traveller" in ended.answer
    assert "Dali would be about 4190 yuan in all." in ended.answer


def test_the_recorded_tree_is_one_run_in_the_list_and_one_trace(example: Example) -> None:
    example("-m", "glassloop", "run", "examples/travel:team", "我在上海，十月有四天假，喜欢自然和安静的小镇")
    listed = example("-m", "glassloop", "runs", "list").out.splitlines()[1:]
    assert len(listed) == 1
    shown = example("-m", "glassloop", "runs", "show", listed[0].split()[0])
    assert [lines[0].split()[1] for lines in below(shown.out).values()] == [
        "planner:",
        "budget-checker:",
        "budget-checker:",
        "writer:",
    ]
    assert "推荐婺源" in shown.answer
    assert "1人总共约2240元" in shown.answer
    assert "去大理的话总共约4190元。" in shown.answer


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("3 days in Dali in December, from Chengdu", ["I suggest Dali: 2–16 °C", "In all about 2360 yuan"]),
        ("I'm in Berlin, 3 days in May, I love beaches", ["No connection from 'Berlin' is known", "See Laoshan"]),
        ("我们两个人从广州出发，想去大理玩5天，7月，预算3000", ["住古城青年旅舍", "2人总共约5480元", "超出3000元预算"]),
        ("I like history, 5 days in July, from Beijing, two people, budget 5000. Book it", ["so it was not booked"]),
        ("I like pyramids, 4 days in March, from Shanghai", ["No destination is known for 'pyramids'"]),
        ("我想去火星玩4天，6月", ["查不到：Unknown destination"]),
        ("Plan a holiday", ["in which month", "for how many days", "what you like"]),
    ],
)
def test_another_wish_is_another_plan(answer: Answer, question: str, expected: list[str]) -> None:
    result = answer("travel:team", question)
    assert result.outcome == "completed"
    for words in expected:
        assert words in (result.output or "")


def test_two_prices_find_what_the_driest_place_is_too_dear_for(answer: Answer) -> None:
    question = "I am in Shanghai, I like nature and quiet towns, 4 days in January, budget 2500"
    assert "I suggest Dali" in (answer("travel", question).output or "")
    told = answer("travel:team", question).output or ""
    assert "I suggest Wuyuan" in told
    assert "That is within your budget of 2500 yuan. Dali would be about 3260 yuan in all." in told


def test_a_wrong_key_stops_the_whole_tree_at_once(example: Example) -> None:
    with ModelServer(lambda _: "never", api_key="sk-right") as server:
        ended = example(
            "-m",
            "examples.travel",
            "--team",
            "--trace",
            QUESTION,
            OPENAI_API_KEY="sk-wrong",
            OPENAI_BASE_URL=server.url,
        )
    assert ended.code == 1
    assert [request.status for request in server.requests] == [401]
    (error,) = [line for line in ended.err.splitlines() if line.startswith("Error: ")]
    assert error.startswith("Error: routes did not complete: failed. ")
    assert "OPENAI_API_KEY" in error
    assert "sk-wrong" not in ended.out + ended.err
    assert "failed: " in ended.traced("finish")[0]
    assert "Traceback" not in ended.err


@pytest.mark.parametrize(("answered", "told"), [("--approve", BOOKED), ("--deny", re.compile("Not booked. Denied"))])
def test_a_booking_below_parks_the_tree_until_a_human_decides(
    example: Example, answered: str, told: re.Pattern[str]
) -> None:
    waiting = example("-m", "examples.travel", "--team", f"{QUESTION}. Book it.")
    assert waiting.code == 4
    assert "1 call waits for a human's decision:" in waiting.err
    assert "book_trip" in waiting.err
    assert "Booked" not in waiting.out
    match = re.search(r"glassloop (runs resume \S+ examples/travel:team) --approve (\S+)", waiting.err)
    assert match is not None
    decided = example("-m", "glassloop", *match[1].split(), "--trace", answered, match[2])
    assert decided.code == 0, decided.err
    assert told.search(decided.answer)
    assert [actions(lines) for lines in below(decided.out).values()] == [["book_trip"]]


def test_at_a_terminal_it_asks(terminal: Callable[..., Any]) -> None:
    screen = terminal("-m", "examples.travel", "--team", f"{QUESTION}. Book it.")
    screen.expect("book_trip needs your yes")
    screen.type("y\n")
    assert BOOKED.search(screen.rest())
    assert screen.process.returncode == 0


def test_at_a_terminal_a_resumed_run_asks_for_what_waits_below(example: Example, terminal: Callable[..., Any]) -> None:
    waiting = example("-m", "examples.travel", "--team", f"{QUESTION}. Book it.")
    match = re.search(r"(runs resume \S+ \S+) --approve", waiting.err)
    assert match is not None
    screen = terminal("-m", "glassloop", *match[1].split())
    screen.expect("book_trip needs your yes")
    screen.type("n\n")
    screen.type("too dear\n")
    assert "Not booked. Denied: book_trip was not run. Reason: too dear" in screen.rest()


def completed(server: Any, run_id: str) -> Any:
    """A run over HTTP, once it has completed; a decision below its root takes a moment to reach the root."""
    end = time.monotonic() + 30
    while (run := server.get(f"/v1/runs/{run_id}"))["status"] != "completed":
        assert time.monotonic() < end, run
        time.sleep(0.02)
    return run


def test_over_http_the_owner_decides(served: Callable[..., Any]) -> None:
    server = served("examples/travel:team", "--demo")
    assert any(line.startswith("Serving travel-team at ") for line in server.said)
    assert sum(line.startswith("Model: stand-in") for line in server.said) == 1
    with server.open("/v1/runs", {"input": f"{QUESTION}. Book it.", "stream": True, "background": True}) as stream:
        run_id = stream.headers["Location"].rpartition("/")[2]
        assert '"status":"waiting"' in stream.read().decode().replace(" ", "")
    (held,) = server.get(f"/v1/runs/{run_id}")["pending_approvals"]
    assert held["tool"] == "book_trip"
    assert server.post(f"/v1/approvals/{held['approval_id']}", {"decision": "approve"}, "demo-bob")[0] == 404
    assert server.post(f"/v1/approvals/{held['approval_id']}", {"decision": "approve"})[0] == 200
    assert BOOKED.search(completed(server, run_id)["output"])
