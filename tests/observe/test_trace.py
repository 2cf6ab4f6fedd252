"""The trace tells every thought, action, observation and the finish, one line each."""

from __future__ import annotations

import io
from typing import Any

import pytest

from glassloop.core.context import Identity
from glassloop.core.events import (
    AgentChanged,
    ApprovalAsked,
    ApprovalDecided,
    AttemptFailed,
    CancelRequested,
    DriverClaimed,
    Event,
    EventData,
    ModelReplied,
    ModelRequested,
    Nudged,
    ReplyRestarted,
    RunContinued,
    RunFinished,
    RunStarted,
    TextDelta,
    ToolFinished,
    ToolStarted,
)
from glassloop.core.limits import Limits
from glassloop.core.messages import Reply, Text, Thinking, ToolCall, ToolResult, UserMessage
from glassloop.core.result import RunResult
from glassloop.core.usage import Usage
from glassloop.observe.trace import TraceLines, TracePrinter


def started(text: str = "Which is hotter?") -> RunStarted:
    return RunStarted("minimal", "f", Identity(), UserMessage(text), Limits())


def asked(*view: tuple[int, int] | str, offered: int = 1, final: str | None = None) -> ModelRequested:
    return ModelRequested("openai:m", "i", "t", "s", view, "d", offered=offered, final=final)


def replied(*parts: Any, cost: float | None = 0.001, usage: Usage | None = None) -> ModelReplied:
    usage = Usage(input=1000, output=234, requests=1) if usage is None else usage
    return ModelReplied(Reply(parts, usage=usage), 12.0, cost)


def finished(content: str, status: Any = "ok", **fields: Any) -> ToolFinished:
    return ToolFinished("call_1", ToolResult("call_1", "get_weather", content, status), 1.25, **fields)


CALL = ToolCall("call_1", "get_weather", '{"city": "北京", "days": 2}')


def lines(*steps: tuple[int, EventData], width: int = 200) -> list[str]:
    trace = TraceLines(width)
    return [str(line) for step, data in steps for line in trace(Event("run_1", 0, step * 500, step, data))]


def of(data: EventData, step: int = 1) -> list[str]:
    return lines((step, data))


def test_a_whole_run() -> None:
    got = lines(
        (0, started()),
        (0, DriverClaimed(1, "me")),
        (1, asked((0, 1), offered=3)),
        (1, TextDelta("Looking")),
        (1, replied(Thinking("Two cities."), Text("Looking\nit up."), CALL)),
        (1, ToolStarted("call_1", "get_weather", CALL.arguments)),
        (1, finished('{"celsius": 29}', arguments=CALL.arguments)),
        (2, asked((0, 3), offered=3)),
        (2, replied(Text("北京。"))),
        (2, RunFinished("completed", "北京。")),
    )
    assert got == [
        "run                 minimal: Which is hotter?",
        "step 1  thinking    openai:m, 1 message in context, 3 tools on offer",
        "step 1  thought     Two cities.",
        "step 1  thought     Looking it up.",
        'step 1  action      get_weather(city="北京", days=2)',
        'step 1  observation get_weather 1.2 ms: {"celsius": 29}',
        "step 2  thinking    openai:m, 3 messages in context, 3 tools on offer",
        "run     finish      completed: 2 steps, 1 tool call, 2,468 tokens, $0.0020, 1.00 s",
    ]


def test_a_journal_has_no_started_events_but_all_actions() -> None:
    assert lines((1, replied(CALL)), (1, finished("29"))) == [
        'step 1  action      get_weather(city="北京", days=2)',
        "step 1  observation get_weather 1.2 ms: 29",
    ]


def test_only_what_was_thought_is_shown() -> None:
    assert of(replied(CALL)) == []
    assert of(replied(Text("The answer."))) == []


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [("", ""), ("{}", ""), ('{"a": [1, "x"]}', 'a=[1,"x"]'), ('{"a": ', '{"a": '), ("[1]", "[1]")],
)
def test_arguments_as_the_model_wrote_them(arguments: str, shown: str) -> None:
    assert of(ToolStarted("call_1", "f", arguments)) == [f"step 1  action      f({shown})"]


@pytest.mark.parametrize(
    ("result", "shown"),
    [
        (finished("No such city.", "error"), "failure     get_weather 1.2 ms: No such city."),
        (finished("Took too long.", "timeout"), "failure     get_weather [timeout] 1.2 ms: Took too long."),
        (finished("No.", "denied"), "failure     get_weather [denied] 1.2 ms: No."),
        (finished("29", replayed=True), "observation get_weather 1.2 ms (remembered): 29"),
    ],
)
def test_how_a_call_ended(result: ToolFinished, shown: str) -> None:
    assert of(result)[1:] == [f"step 1  {shown}"]


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (
            AttemptFailed("m", "rate_limit", "Slow down.", 429, 1.5),
            "failure     m rate_limit, again in 1.5 s: Slow down.",
        ),
        (AttemptFailed("m", "auth", "Wrong key.", 401, None), "failure     m auth, gave up: Wrong key."),
        (ReplyRestarted(), "failure     the reply broke off and is asked for again"),
        (Nudged(UserMessage("Say something."), "empty_reply"), "nudge       empty_reply: Say something."),
        (
            ApprovalAsked("appr_1", "call_1", "pay", "{}", "f", "pay(5)", role="supervisor"),
            "approval    waits for a human's yes by supervisor: pay(5) (appr_1)",
        ),
        (ApprovalDecided("appr_1", "deny", "ann", "too much"), "approval    denied by ann: too much"),
        (ApprovalDecided("appr_1", "approve"), "approval    approved"),
        (ApprovalDecided("appr_1", "edit"), "approval    approved with other arguments"),
        (
            asked((0, 2), "digest", offered=0, final="steps"),
            "thinking    openai:m, 3 messages in context, 0 tools on offer, the last answer: steps reached",
        ),
    ],
)
def test_what_else_happens_in_a_step(data: EventData, shown: str) -> None:
    assert of(data) == [f"step 1  {shown}"]


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (RunContinued(), "continued"),
        (AgentChanged("g"), "the agent is not the one the run began with"),
        (CancelRequested(reason="enough"), "to be cancelled: enough"),
    ],
)
def test_what_happens_to_the_run(data: EventData, shown: str) -> None:
    assert of(data) == [f"run                 {shown}"]


def test_a_run_that_did_not_complete_says_why() -> None:
    assert lines((0, started("x")), (0, RunFinished("limited", message="20 steps are used up.", limit="steps")))[
        1:
    ] == [
        "run     failure     20 steps are used up.",
        "run     finish      limited: 0 steps, 0 tool calls, 0 tokens, $0.0000, 0.00 s",
    ]


def test_an_unknown_price_is_unknown_and_a_missing_usage_a_lower_bound() -> None:
    unreported = replied(Text("x"), cost=None, usage=Usage(5, 5, requests=1, unreported=1))
    finish = lines((1, replied(CALL)), (2, unreported), (2, RunFinished("completed")))[-1]
    assert "1,244 tokens or more, cost unknown" in finish


def test_long_values_are_cut_and_control_characters_left_out() -> None:
    (line,) = lines((1, finished("x" * 500)))[1:]
    assert line.endswith("xxx…")
    assert len(line) == len("step 1  observation ") + 200
    assert "\x1b" not in "".join(of(finished("\x1b[31mred\x07 alert\n\nnow")))
    assert of(finished("\x1b[31mred\x07 alert\n\nnow"))[1].endswith("[31mred alert now")


def test_a_waiting_run_is_finished_by_its_result() -> None:
    result = RunResult("run_1", "waiting", None, steps=3, usage=Usage(10, 5, requests=3), cost_usd=0.5, seconds=2.0)
    assert str(TraceLines().finish(result)) == (
        "run     finish      waiting: 3 steps, 0 tool calls, 15 tokens, $0.5000, 2.00 s"
    )


def printed(*events: tuple[str, EventData]) -> list[str]:
    out = io.StringIO()
    printer = TracePrinter(out)
    for run_id, data in events:
        printer(Event(run_id, 0, 0, 1, data))
    return out.getvalue().splitlines()


@pytest.mark.parametrize(("cost", "told"), [(0.25, "$0.2500"), (None, "cost unknown")])
def test_the_end_of_a_tree_tells_what_all_of_it_has_taken(cost: float | None, told: str) -> None:
    done = RunFinished("completed", "x")
    lines = printed(
        ("run_1", started()), ("run_1.ab", replied(cost=cost)), ("run_1.ab", finished("29")), ("run_1", done)
    )
    assert lines[-2] == "run     finish      completed: 0 steps, 0 tool calls, 0 tokens, $0.0000, 0.00 s"
    assert lines[-1] == f"run     finish      with 1 run below: 1 step, 1 tool call, 1,234 tokens, {told}"
    assert "below" not in printed(("run_1", started()), ("run_1", done))[-1]


@pytest.mark.parametrize("colour", [True, False])
def test_printing(colour: bool) -> None:
    out = io.StringIO()
    printer = TracePrinter(out, colour=colour)
    for data in (asked((0, 1)), finished("29")):
        printer(Event("run_1", 0, 0, 1, data))
    assert out.getvalue().count("\n") == 3
    assert ("\x1b[32mstep 1  observation" in out.getvalue()) is colour


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("no_color", "coloured"), [("", True), ("1", False)])
def test_colours_on_a_terminal_unless_unwanted(monkeypatch: pytest.MonkeyPatch, no_color: str, coloured: bool) -> None:
    monkeypatch.setenv("NO_COLOR", no_color)
    assert TracePrinter(Terminal()).colour is coloured
    assert TracePrinter(io.StringIO()).colour is False
