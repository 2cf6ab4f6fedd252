"""What a run does next: a pure function of its state, the heart of the loop.

The loop never remembers, it looks: a fresh run, one continued after a crash, after an approval or after a fork all
take the same path through `next_move`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from glassloop.core.encoding import canonical, loads
from glassloop.core.events import NudgeReason, Outcome, ToolFinished
from glassloop.core.ids import root_of
from glassloop.core.messages import Reply, ToolCall, UserMessage
from glassloop.journal.budget import Budget, Terms, budget_of, over_limit, summary_budget
from glassloop.journal.state import Round, State
from glassloop.journal.verdict import announces, is_empty, promises
from glassloop.journal.view import SummaryWanted
from glassloop.journal.written import call_as_text
from glassloop.tools.output import Answer, BadAnswer

_LONGEST_CYCLE = 5  # rounds; what comes round again more slowly is left to the other limits
NUDGES: dict[NudgeReason, str] = {
    "empty_reply": "Your reply was empty. Answer the user, or call a tool.",
    "promised": "You said what you would do but called no tool. Call the tool now, or give your final answer.",
    "call_as_text": (
        "You wrote a tool call as text, and it was not run. Use the tool-calling interface, or answer in plain words."
    ),
    "bad_tool_call": (
        "Your last tool call could not be parsed and was not run. Call the tool again with arguments that are one "
        "valid JSON object, or answer in plain words."
    ),
    "bad_output": "Your answer does not fit what was asked for. Give the whole answer again, corrected.",
    "schema_mode": (
        "You wrote a tool call as text, and it was not run. From now on you call tools and answer by the JSON object "
        "that your instructions describe."
    ),
    "limit_raised": "The limit that stopped you has been raised. Go on with the task.",
    "repetition": (
        "You have made the same tool calls with the same results several times. Do not repeat them: use what you "
        "have, try something else, or say plainly what is missing."
    ),
}


@dataclass(frozen=True, slots=True)
class AskModel:
    """Ask the model; `final` names the limit that makes it the last call, without tools."""

    max_tokens: int
    reserved: int
    final: str | None = None


@dataclass(frozen=True, slots=True)
class Summarize:
    """Have the older part of the conversation summarised, or record why it is left out without: `problem`."""

    wanted: SummaryWanted
    max_tokens: int = 0
    reserved: int = 0
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class RunCalls:
    """Run these calls, which have no result."""

    calls: tuple[ToolCall, ...]


@dataclass(frozen=True, slots=True)
class Nudge:
    """Tell the model, once, to do what it said; `text` takes the place of the usual words."""

    reason: NudgeReason
    text: str | None = None

    @property
    def message(self) -> UserMessage:
        """What the model is told."""
        return UserMessage(self.text or NUDGES[self.reason], origin="nudge")


@dataclass(frozen=True, slots=True)
class Undo:
    """Undo this finished write, since the run has failed."""

    execution: ToolFinished


@dataclass(frozen=True, slots=True)
class Finish:
    """The run rests for good."""

    outcome: Outcome
    output: str | None = None
    message: str | None = None
    limit: str | None = None
    error_kind: str | None = None


@dataclass(frozen=True, slots=True)
class Wait:
    """The run rests until a human has decided on these calls, or on those that the others wait for."""

    calls: tuple[ToolCall, ...]


@dataclass(frozen=True, slots=True)
class Rest:
    """Nothing to do: the run has finished."""


Move = AskModel | Summarize | RunCalls | Nudge | Undo | Finish | Wait | Rest


def next_move(state: State, terms: Terms) -> Move:
    """What is missing, and so what to do now."""
    if state.finished is not None:
        return Rest()
    if state.cancel is not None:
        return Finish("cancelled", output=state.said, message=state.cancel.reason or "The run was cancelled.")
    if state.aborted is not None:
        return _fail(state, terms, Finish("failed", message=state.aborted.message, error_kind=state.aborted.kind))
    reply = state.last_reply
    if state.open_calls:
        return _stopped(reply) or _run_or_wait(state, terms)
    if state.kind == "call":
        return _after_lone_call(state)
    if state.failure is not None:
        return _after_failure(state, terms)
    if reply is not None and len(state.conversation) > state.history_length:
        return _after_reply(state, terms, reply)
    return _ask(state, terms)


def _run_or_wait(state: State, terms: Terms) -> Move:
    if state.request is not None and state.request.final:
        return _limited(state, state.request.final)
    for name, most in state.limits.calls_per_tool.items():
        called = sum(call.name == name for call in state.open_calls.values())
        if called and state.tool_counts[name] + called > most:
            return _limited(state, "calls_per_tool", f"The tool {name} may be called {most} times in a run.")
    runnable = tuple(_whose_turn_it_is(state, terms))
    return RunCalls(runnable) if runnable else Wait(tuple(state.open_calls.values()))


def _whose_turn_it_is(state: State, terms: Terms) -> Iterator[ToolCall]:
    """The open calls that may run now. They run side by side; a sequential one is a barrier, also while it is held."""
    for place, call in enumerate(state.open_calls.values()):
        if call.name in terms.sequential:
            if place == 0 and not is_held(state, call):
                yield call
            return
        if not is_held(state, call):
            yield call


def is_held(state: State, call: ToolCall) -> bool:
    """Whether the call waits for a decision that has not come, on itself or in a run that it has begun."""
    return call.id in state.suspended or state.held_by(call.id) is not None


def _after_lone_call(state: State) -> Finish:
    """A held call that was approved later has run: its result is the run's."""
    result = state.executions[-1][1].result
    if result.status == "ok":
        return Finish("completed", output=result.content)
    return Finish("failed", output=result.content, message=result.content, error_kind=result.status)


def _after_failure(state: State, terms: Terms) -> Move:
    failure = state.failure
    assert failure is not None
    if failure.kind == "bad_tool_call" and "bad_tool_call" not in state.fresh_nudges:
        return Nudge("bad_tool_call")
    if failure.kind == "content_filter":
        return Finish("filtered", message=failure.message)
    end = Finish("failed", output=failure.partial or None, message=failure.message, error_kind=failure.kind)
    return _fail(state, terms, end)


def _fail(state: State, terms: Terms, end: Finish) -> Move:
    """Undo the run's writes in reverse, then end; what could not be undone is listed."""
    writes = [done for _, done in reversed(state.executions) if _is_to_undo(done, terms)]
    for done in writes:
        if done.call_id not in state.undone:
            return Undo(done)
    left = [_shown(done) for done in writes if not _is_undone(state, done)]
    left += [f"{_shown(done)} (outcome unknown)" for done in _in_doubt(state, terms)]
    left += [f"{call.name} (outcome unknown)" for call in state.open_calls.values() if call.id in state.begun]
    if not left:
        return end
    message = f"{end.message} Not undone: {', '.join(left)}."
    return Finish("partly_rolled_back", output=end.output, message=message, error_kind=end.error_kind)


def _shown(done: ToolFinished) -> str:
    from glassloop.core.rendering import render_written_call

    return render_written_call(done.result.name, done.arguments or "")


def _is_to_undo(done: ToolFinished, terms: Terms) -> bool:
    return done.result.name in terms.undoable and done.result.status == "ok" and not done.replayed


def _in_doubt(state: State, terms: Terms) -> list[ToolFinished]:
    return [
        done for _, done in state.executions if done.result.name in terms.undoable and done.result.status == "unknown"
    ]


def _is_undone(state: State, done: ToolFinished) -> bool:
    ended = state.undone.get(done.call_id)
    return ended is not None and ended.error is None


def _after_reply(state: State, terms: Terms, reply: Reply) -> Move:
    text = reply.text
    if state.request is not None and state.request.final:
        if state.raised:
            return Nudge("limit_raised")
        answer = terms.output.judge(reply) if terms.output is not None else None
        return _limited(state, state.request.final, output=answer.text if isinstance(answer, Answer) else text or None)
    stopped = _stopped(reply)
    if stopped is not None:
        return stopped
    if reply.stop == "paused":
        return _ask(state, terms)
    if reply.stop == "length":
        return Finish("truncated", output=text, message="The reply was cut off by its limit of output tokens.")
    if is_empty(reply):
        if "empty_reply" not in state.fresh_nudges:
            return Nudge("empty_reply")
        end = Finish("failed", message="The model gave an empty reply twice.", error_kind="empty_reply")
        return _fail(state, terms, end)
    answer = terms.output.judge(reply) if terms.output is not None else Answer(None, text)
    reason = None if terms.output is not None and isinstance(answer, Answer) else _did_not_act(state, terms, reply)
    if reason == "schema_mode":
        return Nudge(reason)
    if reason is not None and any(state.fresh_nudges[one] for one in ("promised", "call_as_text")):
        return Finish("unanswered", output=text, message="The model said what it would do and did not do it.")
    if reason is not None:
        return Nudge(reason)
    if isinstance(answer, Answer):
        return Finish("completed", output=answer.text)
    return _after_bad_answer(state, terms, answer, text)


def _stopped(reply: Reply | None) -> Finish | None:
    """The end of a run whose reply was refused or filtered: its calls were never meant, or may be half of what was."""
    if reply is None:
        return None
    text = reply.text
    if reply.refusal is not None or reply.stop == "refusal":
        return Finish("refused", output=text or None, message=reply.refusal or text or "The model refused to answer.")
    if reply.stop == "content_filter":
        return Finish("filtered", output=text or None, message="The provider's content filter stopped the reply.")
    return None


def _after_bad_answer(state: State, terms: Terms, answer: BadAnswer, text: str) -> Move:
    assert terms.output is not None
    if state.fresh_nudges["bad_output"] < terms.output.retries:
        return Nudge("bad_output", answer.reason)
    times = f", {terms.output.retries + 1} times in a row" if terms.output.retries else ""
    message = f"The model's answer does not fit the agent's output type{times}."
    return _fail(state, terms, Finish("failed", output=text, message=message, error_kind="output"))


def _did_not_act(state: State, terms: Terms, reply: Reply) -> NudgeReason | None:
    text = reply.text
    if state.request is None or not state.request.offered:
        return None
    if call_as_text(text, terms.tools, json_wanted=terms.output is not None):
        return "schema_mode" if terms.switches and "schema_mode" not in state.nudges else "call_as_text"
    if terms.output is not None and text.lstrip().startswith(("{", "[", "`")):
        return None  # an answer that does not fit, whatever its words say
    return "promised" if promises(text) or (reply.stop == "no_calls" and announces(text)) else None


def _ask(state: State, terms: Terms) -> Move:
    budget = budget_of(state, terms)
    if _cycle(state) and "repetition" not in state.fresh_nudges:
        if "repetition" in state.nudges:
            return _limit(state, terms, budget, "repetition", "The model repeats the same calls with the same results.")
        return Nudge("repetition")
    if _passed_on(state):
        text = f"The conversation was handed on {state.limits.handoffs} times without an answer."
        return _limit(state, terms, budget, "handoffs", text)
    over = over_limit(state, terms, budget)
    if over is not None:
        return _limit(state, terms, budget, *over)
    if terms.view is not None and terms.view.too_big is not None:
        return _limited(state, "window", terms.view.too_big)
    if terms.view is not None and terms.view.wanted is not None:
        return _summarize(state, terms, terms.view.wanted)
    return _ask_within(budget)


def _summarize(state: State, terms: Terms, wanted: SummaryWanted) -> Summarize:
    budget = summary_budget(state, terms, wanted)
    if budget is None:
        return Summarize(wanted, problem="A summary does not fit into what is left of the run's limits.")
    return Summarize(wanted, budget.max_tokens, budget.needed + budget.max_tokens)


def _cycle(state: State) -> bool:
    """Whether the last rounds are one round n times over (A-A-A), or a few in turn (A-B-A-B, A-B-C-A-B-C-A-B-C)."""
    often, rounds = state.limits.repetition, state.rounds
    if often is None or len(rounds) < min(often, 2):
        return False
    told = [each.told for each in rounds[-_LONGEST_CYCLE * often :]]
    for period in range(1, _LONGEST_CYCLE + 1):
        size = period * (max(2, often - 1) if period == 2 else often)
        if _comes_round(told, size, period) and _comes_round([*map(_spelled_out, rounds[-size:])], size, period):
            return True
    return False


def _comes_round(rounds: Sequence[object], size: int, period: int) -> bool:
    return len(rounds) >= size and rounds[-size:] == [*rounds[-period:]] * (size // period)


def _spelled_out(round: Round) -> frozenset[tuple[str, str, str]]:
    """A round in which arguments are the same in whatever order, and with whatever blanks, they were written."""
    return frozenset((name, _spelled(arguments), told) for name, arguments, told in round.calls)


def _spelled(arguments: str) -> str:
    try:
        return canonical(loads(arguments))
    except ValueError:
        return arguments


def _passed_on(state: State) -> bool:
    """Whether the conversation has been handed on more often than it may be."""
    return state.limits.handoffs is not None and len(state.handoffs) > state.limits.handoffs


def _limit(state: State, terms: Terms, budget: Budget, limit: str, message: str) -> Move:
    if state.limits.on_limit == "answer" and limit != "seconds" and budget.fits and _may_answer(state, terms):
        return _ask_within(budget, final=limit)
    return _limited(state, limit, message)


def _may_answer(state: State, terms: Terms) -> bool:
    """Whether there is a call left to answer with: one beyond the steps of a whole tree is for its root."""
    steps = terms.left.steps if terms.left is not None else None
    return steps is None or steps > 0 or root_of(state.run_id) == state.run_id


def _ask_within(budget: Budget, final: str | None = None) -> AskModel:
    return AskModel(budget.max_tokens, budget.needed + budget.max_tokens, final)


def _limited(state: State, limit: str, message: str = "", output: str | None = None) -> Finish:
    partial = output if output is not None else state.said
    return Finish("limited", output=partial, limit=limit, message=message or f"The run reached its limit: {limit}.")
