"""What a run does next, as a pure function of its events."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from glassloop.core.context import Identity
from glassloop.core.events import (
    AttemptFailed,
    CancelRequested,
    Event,
    JournalData,
    ModelReplied,
    ModelRequested,
    Nudged,
    RunContinued,
    RunFinished,
    RunStarted,
    ToolFinished,
)
from glassloop.core.ids import new_id
from glassloop.core.limits import Limits
from glassloop.core.messages import Reply, ResultStatus, StopReason, Text, ToolCall, ToolResult, UserMessage
from glassloop.core.usage import Usage
from glassloop.journal.budget import Terms
from glassloop.journal.moves import NUDGES, AskModel, Finish, Move, Nudge, Rest, RunCalls, next_move
from glassloop.journal.state import State, fold

ASKED = ModelRequested("m", "i", "t", "s", ((0, 1),), "d", offered=1)


def started(limits: Limits | None = None) -> RunStarted:
    return RunStarted("agent", "f", Identity(), UserMessage("go"), limits or Limits())


def state_of(*data: JournalData) -> State:
    return fold(Event("run_1", number, number, 0, item) for number, item in enumerate(data, 1))


def says(text: str, *, stop: StopReason = "stop", refusal: str | None = None) -> ModelReplied:
    parts = (Text(text),) if text else ()
    return ModelReplied(Reply(parts, stop, refusal=refusal, usage=Usage(10, 5, requests=1)), 1.0)


def calls(*ids: str, name: str = "add") -> ModelReplied:
    return ModelReplied(Reply(tuple(ToolCall(one, name) for one in ids), usage=Usage(10, 5, requests=1)), 1.0)


def answered(call_id: str, content: str = "3", name: str = "add") -> ToolFinished:
    return ToolFinished(call_id, ToolResult(call_id, name, content), 1.0)


def move(data: Sequence[JournalData], terms: Terms | None = None) -> Move:
    return next_move(state_of(*data), terms or Terms(now=100))


def test_a_fresh_run_asks_the_model() -> None:
    assert isinstance(move([started()]), AskModel)


def test_calls_without_result_are_run_and_those_with_one_are_not() -> None:
    asked = [started(), ASKED, calls("c1", "c2"), answered("c2")]
    assert move(asked) == RunCalls((ToolCall("c1", "add"),))


def test_results_join_the_conversation_in_request_order() -> None:
    state = state_of(started(), ASKED, calls("c1", "c2"), answered("c2", "second"), answered("c1", "first"))
    assert [m.content for m in state.conversation if isinstance(m, ToolResult)] == ["first", "second"]
    assert isinstance(next_move(state, Terms(now=100)), AskModel)


def test_a_second_result_of_a_call_is_ignored() -> None:
    state = state_of(started(), ASKED, calls("c1"), answered("c1", "first"), answered("c1", "again"))
    assert [m.content for m in state.conversation if isinstance(m, ToolResult)] == ["first"]


@pytest.mark.parametrize(
    ("reply", "outcome"),
    [
        (says("42"), "completed"),
        (says("No.", stop="refusal"), "refused"),
        (says("", refusal="I can't help with that."), "refused"),
        (says("", stop="content_filter"), "filtered"),
        (says("half an ans", stop="length"), "truncated"),
    ],
)
def test_a_reply_without_calls_ends_the_run_with_its_own_outcome(reply: ModelReplied, outcome: str) -> None:
    end = move([started(), ASKED, reply])
    assert isinstance(end, Finish)
    assert end.outcome == outcome


@pytest.mark.parametrize(("stop", "outcome"), [("refusal", "refused"), ("content_filter", "filtered")])
def test_calls_of_a_reply_that_was_refused_or_filtered_are_not_run(stop: StopReason, outcome: str) -> None:
    """HKUDS/nanobot#3249: gateways add calls to replies that end as refused."""
    reply = Reply((ToolCall("c1", "add"),), stop, usage=Usage(10, 5, requests=1))
    end = move([started(), ASKED, ModelReplied(reply, 1.0)])
    assert isinstance(end, Finish)
    assert end.outcome == outcome


def test_a_paused_reply_goes_on() -> None:
    """anthropics/anthropic-sdk-python#1170: a turn that the provider pauses is taken for its end."""
    assert isinstance(move([started(), ASKED, says("Let me search.", stop="paused")]), AskModel)


def test_an_empty_reply_is_nudged_once_and_then_fails() -> None:
    nudged = [started(), ASKED, says("")]
    assert move(nudged) == Nudge("empty_reply")
    end = move([*nudged, Nudged(UserMessage(NUDGES["empty_reply"]), "empty_reply"), ASKED, says(" \u200b")])
    assert isinstance(end, Finish)
    assert (end.outcome, end.error_kind) == ("failed", "empty_reply")


def test_a_promise_is_nudged_once_and_then_is_an_outcome_of_its_own() -> None:
    promised = [started(), ASKED, says("I'll look that up.")]
    assert move(promised) == Nudge("promised")
    end = move([*promised, Nudged(UserMessage("n"), "promised"), ASKED, says("I'll look that up now.")])
    assert isinstance(end, Finish)
    assert end.outcome == "unanswered"


def test_a_promise_is_an_answer_where_no_tool_is_on_offer() -> None:
    without_tools = ModelRequested("m", "i", "t", "s", ((0, 1),), "d", offered=0)
    end = move([started(), without_tools, says("I'll look that up.")])
    assert isinstance(end, Finish)
    assert end.outcome == "completed"


def test_the_step_limit_stops_before_the_next_call_is_paid_for() -> None:
    end = move([started(Limits(steps=1)), ASKED, calls("c1"), answered("c1")])
    assert isinstance(end, Finish)
    assert (end.outcome, end.limit) == ("limited", "steps")


def test_on_limit_answer_asks_once_more_without_tools_and_then_ends_limited() -> None:
    limits = Limits(steps=1, on_limit="answer")
    done = [started(limits), ASKED, calls("c1"), answered("c1")]
    last = move(done)
    assert isinstance(last, AskModel)
    assert last.final == "steps"
    final = ModelRequested("m", "i", "t", "s", ((0, 3),), "d", final="steps")
    end = move([*done, final, says("As far as I got: 3.")])
    assert end == Finish("limited", "As far as I got: 3.", "The run reached its limit: steps.", "steps")


def test_no_call_starts_whose_reservation_does_not_fit() -> None:
    end = move([started(Limits(total_tokens=40)), ASKED, calls("c1"), answered("c1", "x" * 200)])
    assert isinstance(end, Finish)
    assert end.limit == "total_tokens"


def test_the_reply_is_clamped_to_the_tokens_that_are_left() -> None:
    ask = move([started(Limits(total_tokens=1_000))])
    assert isinstance(ask, AskModel)
    assert ask.reserved <= 1_000
    assert 0 < ask.max_tokens < 1_000


def test_a_money_limit_of_ones_own_stops_where_the_price_is_unknown() -> None:
    end = move([started(Limits(cost_usd=0.5))], Terms(now=1, model="openai:unknown"))
    assert isinstance(end, Finish)
    assert end.limit == "cost_usd"
    assert "openai:unknown" in (end.message or "")


def test_the_default_money_limit_does_not_mind_an_unknown_price() -> None:
    assert isinstance(move([started()]), AskModel)


def test_money_clamps_the_reply() -> None:
    ask = move([started(Limits(cost_usd=0.01))], Terms(now=1, rates=(0.00001, 0.0001)))
    assert isinstance(ask, AskModel)
    assert ask.max_tokens <= 100


def test_a_tool_may_be_called_only_so_often() -> None:
    limits = Limits(calls_per_tool={"add": 1})
    end = move([started(limits), ASKED, calls("c1"), answered("c1"), ASKED, calls("c2")])
    assert isinstance(end, Finish)
    assert (end.outcome, end.limit) == ("limited", "calls_per_tool")


def rounds(*contents: str) -> list[JournalData]:
    data: list[JournalData] = [started()]
    for number, content in enumerate(contents):
        data += [ASKED, calls(f"c{number}"), answered(f"c{number}", content)]
    return data


def test_repetition_is_told_once_then_stopped() -> None:
    told = rounds("same", "same", "same")
    assert move(told) == Nudge("repetition")
    again = [*told, Nudged(UserMessage("n"), "repetition"), ASKED, calls("c9"), answered("c9", "same")]
    end = move(again)
    assert isinstance(end, Finish)
    assert end.limit == "repetition"


def test_two_rounds_in_turn_are_repetition_too() -> None:
    assert move(rounds("a", "b", "a", "b")) == Nudge("repetition")


def test_a_few_rounds_in_turn_are_repetition_once_they_have_come_as_often() -> None:
    """superplanehq/superplane#4123: three listings of nothing, one after the other, for ever."""
    assert isinstance(move(rounds(*"abcabc")), AskModel)
    assert move(rounds(*"abcabcabc")) == Nudge("repetition")
    assert isinstance(move(rounds(*"abcabcabd")), AskModel)


@pytest.mark.parametrize("status", ["error", "held"])
def test_an_id_that_is_new_in_each_result_does_not_hide_repetition(status: ResultStatus) -> None:
    """openclaw/openclaw#130210, #89090: a random id around each failure made every result another one."""

    def told(content: str) -> list[JournalData]:
        result = ToolResult("c1", "add", content, status)
        return [ASKED, calls("c1"), ToolFinished("c1", result, 1.0)]

    failures = [item for _ in range(3) for item in told(f"Failed with ValueError (reference {new_id('err')}).")]
    assert move([started(), *failures]) == Nudge("repetition")
    other = [*told("Failed with A."), *told("Failed with B."), *told("Failed with C.")]
    assert isinstance(move([started(), *other]), AskModel)


def test_new_limits_let_a_run_that_had_repeated_itself_go_on() -> None:
    """openclaw/openclaw#77474: a run that a guard has stopped stays stopped, whatever it is given."""
    stopped = [
        *rounds("same", "same", "same"),
        Nudged(UserMessage("n"), "repetition"),
        *(ASKED, calls("c9"), answered("c9", "same")),
        RunFinished("limited", limit="repetition"),
    ]
    assert isinstance(move([*stopped, RunContinued()]), Finish)
    assert isinstance(move([*stopped, RunContinued(Limits(steps=40))]), AskModel)


def test_an_empty_last_answer_does_not_take_the_place_of_what_was_said_before() -> None:
    """openai/openai-agents-python#4160: at a limit, what had been done so far is lost."""
    last = replace(ASKED, final="steps", offered=0)
    so_far = ModelReplied(Reply((Text("So far: 3."), ToolCall("c1", "add")), usage=Usage(10, 5, requests=1)), 1.0)
    end = move([started(Limits(steps=1, on_limit="answer")), ASKED, so_far, answered("c1"), last, says("")])
    assert isinstance(end, Finish)
    assert (end.outcome, end.limit, end.output) == ("limited", "steps", "So far: 3.")


def test_a_request_that_the_provider_filters_is_an_outcome_of_its_own() -> None:
    """microsoft/autogen#5569: a prompt that Azure's filter refuses is an exception that nobody can tell from others."""
    failure = AttemptFailed("m", "content_filter", "The filter refused it.", 400, None)
    assert move([started(), ASKED, failure]) == Finish("filtered", message="The filter refused it.")


def test_the_same_call_with_other_results_is_progress() -> None:
    assert isinstance(move(rounds("pending 1", "pending 2", "pending 3", "pending 4")), AskModel)


def test_a_refused_tool_call_is_asked_for_again_once() -> None:
    failure = AttemptFailed("m", "bad_tool_call", "could not be parsed", 400, None)
    assert move([started(), ASKED, failure]) == Nudge("bad_tool_call")
    end = move([started(), ASKED, failure, Nudged(UserMessage("n"), "bad_tool_call"), ASKED, failure])
    assert isinstance(end, Finish)
    assert end.error_kind == "bad_tool_call"


def test_a_failure_of_the_infrastructure_ends_the_run() -> None:
    end = move([started(), ASKED, AttemptFailed("m", "auth", "401: wrong key", 401, None)])
    assert end == Finish("failed", message="401: wrong key", error_kind="auth")


def test_a_cancelled_run_does_nothing_more() -> None:
    end = move([started(), ASKED, calls("c1"), CancelRequested(reason="user left")])
    assert isinstance(end, Finish)
    assert end.outcome == "cancelled"


def test_a_finished_run_rests() -> None:
    assert move([started(), ASKED, says("42"), RunFinished("completed", "42")]) == Rest()


def test_time_that_nobody_worked_does_not_count() -> None:
    limits = Limits(seconds=1)
    state = state_of(started(limits), ASKED)
    assert state.active_ms <= 1
    end = next_move(state_of(started(limits)), Terms(now=5_000))
    assert isinstance(end, Finish)
    assert end.limit == "seconds"
