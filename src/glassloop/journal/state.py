"""State is a fold over events: what a run knows, and nothing that its journal does not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from glassloop.core.context import Identity
from glassloop.core.estimate import text_tokens, written_tokens
from glassloop.core.events import (
    CUT_OFF,
    AgentChanged,
    ApprovalAsked,
    ApprovalDecided,
    AttemptFailed,
    CallSuspended,
    CancelRequested,
    DriverClaimed,
    DriverRested,
    EffectStarted,
    Event,
    EventData,
    HandedOff,
    ModelReplied,
    ModelRequested,
    Nudged,
    NudgeReason,
    RunContinued,
    RunFinished,
    RunKind,
    RunStarted,
    SessionTold,
    Summarized,
    ToolAborted,
    ToolFinished,
    UndoFinished,
    UndoStarted,
)
from glassloop.core.ids import without_ids
from glassloop.core.limits import Limits
from glassloop.core.messages import Message, Reply, Text, ToolCall, ToolResult
from glassloop.core.usage import Usage


class Round(NamedTuple):
    """The calls of one step, as far as the repetition limit looks at them.

    Args:
        told: tools and what they said.
        calls: tools, the arguments with which they ran, as JSON, and what they said.
    """

    told: frozenset[tuple[str, str]]
    calls: tuple[tuple[str, str, str], ...]


_BEGINS = frozenset({RunStarted, DriverClaimed, RunContinued})
_OTHERS_SAY = frozenset({CancelRequested, SessionTold})


@dataclass
class State:
    """A run, as its events tell it.

    Args:
        run_id: the run.
        seq: events folded so far.
        epoch: of the latest driver.
        conversation: history, input, replies, results and nudges, in the order a model may read them; results join
            when the last of their step is known.
        history_length: how many messages of the conversation came before this run.
        step: model calls asked for.
        unmetered: estimated tokens of the model calls of which the server has said no usage, or none.
        request: the last request for a step.
        answered: the request that the last reply answered.
        summaries: of the older part of the conversation, in the order they were made, with those that failed.
        open_calls: calls of the last reply that have no result yet, in request order.
        results: results of the last reply's calls that are known while others are open.
        begun: writes that were started and have no result: in doubt unless they are running now.
        used: approvals whose call has been started since.
        executions: every finished call with its step, in the order the results became known.
        asked: approvals asked for, by call id.
        questions: what functions have asked a human, by call id, in that order.
        decided: decisions, by approval id.
        edits: what humans made of a call's arguments, by call id: the fingerprint of what was asked, and the arguments.
        tool_counts: finished calls by tool.
        rounds: tools, arguments and results of each step's calls, for the repetition limit.
        nudges: why the model was told again, in order.
        fresh_nudges: reasons since the model last did something useful, with how often.
        failure: the last attempt of a model call failed for good.
        cut: the last reply that broke off with some of its text shown: its step, and that text.
        aborted: a tool asked for the run to stop.
        asking: the model call in flight.
        suspended: calls that wait for a run below, with its id.
        speaker: the agent that has the conversation.
        caller: the agent that had it when it made the latest calls, which are run with its tools.
        handoffs: steps in which it was handed on.
        rested: the driver has let go of the run.
        waits: it did so for want of a human's decision; None where an earlier version has not said so.
        undone: undos that were begun, by call id, with their end where it is known.
        fresh_epoch: of the first driver that can have gone on with the run since it last ended.
        active_ms: time spent working, without the time the run was parked or nobody drove it.
        raised: the run has got new limits since the last reply.
    """

    run_id: str = ""
    seq: int = 0
    epoch: int = 0
    kind: RunKind = "run"
    agent: str = ""
    fingerprint: str = ""
    identity: Identity = field(default_factory=Identity)
    limits: Limits = field(default_factory=Limits)
    conversation: list[Message] = field(default_factory=list[Message])
    history_length: int = 0
    step: int = 0
    usage: Usage = field(default_factory=Usage)
    unmetered: int = 0
    cost_usd: float | None = 0.0
    request: ModelRequested | None = None
    answered: ModelRequested | None = None
    summaries: list[Summarized] = field(default_factory=list[Summarized])
    replies: list[Reply] = field(default_factory=list[Reply])
    open_calls: dict[str, ToolCall] = field(default_factory=dict[str, ToolCall])
    results: dict[str, ToolResult] = field(default_factory=dict[str, ToolResult])
    begun: dict[str, str] = field(default_factory=dict[str, str])
    used: set[str] = field(default_factory=set[str])
    executions: list[tuple[int, ToolFinished]] = field(default_factory=list[tuple[int, ToolFinished]])
    asked: dict[str, ApprovalAsked] = field(default_factory=dict[str, ApprovalAsked])
    questions: dict[str, list[ApprovalAsked]] = field(default_factory=dict[str, list[ApprovalAsked]])
    decided: dict[str, ApprovalDecided] = field(default_factory=dict[str, ApprovalDecided])
    edits: dict[str, list[tuple[str, str]]] = field(default_factory=dict[str, list[tuple[str, str]]])
    tool_counts: Counter[str] = field(default_factory=Counter[str])
    rounds: list[Round] = field(default_factory=list[Round])
    nudges: list[NudgeReason] = field(default_factory=list[NudgeReason])
    fresh_nudges: Counter[NudgeReason] = field(default_factory=Counter[NudgeReason])
    failure: AttemptFailed | None = None
    cut: tuple[int, str] | None = None
    aborted: ToolAborted | None = None
    undone: dict[str, UndoFinished | None] = field(default_factory=dict[str, UndoFinished | None])
    cancel: CancelRequested | None = None
    finished: RunFinished | None = None
    rested: bool = False
    waits: bool | None = False
    asking: ModelRequested | None = None
    suspended: dict[str, str] = field(default_factory=dict[str, str])
    speaker: str = ""
    caller: str = ""
    handoffs: list[int] = field(default_factory=list[int])
    fresh_epoch: int = 0
    started_at: int = 0
    last_at: int = 0
    active_ms: int = 0
    raised: bool = False

    @property
    def last_reply(self) -> Reply | None:
        """The reply that the conversation ends with, if it does."""
        last = self.conversation[-1] if self.conversation else None
        return last if isinstance(last, Reply) else None

    @property
    def said(self) -> str | None:
        """The latest text of the model, be it of a reply that broke off; None where there is none."""
        if self.cut is not None and self.cut[0] == self.step:
            return self.cut[1]
        return next((reply.text for reply in reversed(self.replies) if reply.text), None)

    @property
    def tokens(self) -> int:
        """What counts against the limit of tokens: an estimate where servers do not report their usage."""
        return self.usage.total + self.unmetered

    def held_by(self, call_id: str) -> ApprovalAsked | None:
        """What a human has yet to decide before the call can go on; None where nothing holds it here."""
        questions = self.questions.get(call_id)
        for asked in (self.asked.get(call_id), questions[-1] if questions else None):
            if asked is not None and asked.mode != "defer" and asked.approval_id not in self.decided:
                return asked
        return None

    def answers_to(self, call_id: str) -> list[tuple[str, str]]:
        """The questions of a call that have been answered, with the answers, as its function will ask them again.

        One that was asked in another's place has put an end to that and all that came after it.
        """
        asked: list[ApprovalAsked] = []
        for question in self.questions.get(call_id, ()):
            asked[question.place :] = [question]
        answers: list[tuple[str, str]] = []
        for question in asked:
            decided = self.decided.get(question.approval_id)
            if decided is None or decided.answer is None:
                break
            answers.append((question.summary, decided.answer))
        return answers

    def apply(self, event: Event) -> None:
        """Fold one event in."""
        self.seq += 1
        data = event.data
        self._pass(event)
        match data:
            case RunStarted():
                self._start(event, data)
            case ModelRequested():
                self.step += 1
                self.asking = data
                if data.purpose == "step":
                    self.request = data
                self.failure = None
            case ModelReplied():
                self._reply(data)
            case ToolFinished():
                self._finish_call(data)
            case Nudged():
                self.conversation.append(data.message)
                self.nudges.append(data.reason)
                self.fresh_nudges[data.reason] += 1
                self.failure = None
            case Summarized():
                self._spend(data.usage, data.cost_usd)
                self.summaries.append(data)
            case EffectStarted():
                self.begun[data.call_id] = data.key
                if (asked := self.asked.get(data.call_id)) is not None:
                    self.used.add(asked.approval_id)
            case AttemptFailed():
                self._fail(data)
            case DriverClaimed():
                self.epoch = data.epoch
                self.rested = False
                self._cut_off()
                self.suspended.clear()
            case DriverRested():
                self.rested, self.waits = True, data.waiting
            case ApprovalAsked():
                self._ask(data)
            case ApprovalDecided():
                self._decide(data)
            case CancelRequested():
                self.cancel = data
            case RunContinued():
                self.limits = data.limits or self.limits
                self.finished = self.failure = self.cancel = self.aborted = None
                self.fresh_nudges.clear()
                self.raised = data.limits is not None
                if data.limits is not None:
                    self.rounds.clear()
            case RunFinished():
                self._finish(data)
            case _:
                self._apply_rare(data)

    def _apply_rare(self, data: EventData) -> None:
        match data:
            case ToolAborted():
                self.aborted = data
            case UndoStarted():
                self.undone[data.call_id] = None
            case UndoFinished():
                self.undone[data.call_id] = data
            case CallSuspended():
                self.suspended[data.call_id] = data.below
            case HandedOff():
                self.speaker = data.agent
                self.handoffs.append(self.step)
            case AgentChanged():
                self.fingerprint = data.fingerprint
            case _:
                pass

    def _pass(self, event: Event) -> None:
        """Count the time up to `event`: what passed between two events of one driver, which stamps with one clock.

        A driver begins anew with its claim, since its clock is another than the last one's. The time until a decision
        is the human's. Who cancels has a clock of its own.
        """
        kind = type(event.data)
        if kind in _BEGINS:
            self.last_at = event.at
        elif kind not in _OTHERS_SAY and event.at > self.last_at:
            if kind is not ApprovalDecided:
                self.active_ms += event.at - self.last_at
            self.last_at = event.at

    def _start(self, event: Event, data: RunStarted) -> None:
        self.run_id, self.agent, self.fingerprint = event.run_id, data.agent, data.fingerprint
        self.speaker = self.caller = data.speaker or data.agent
        self.kind = data.kind
        self.identity, self.limits = data.identity, data.limits
        self.conversation += data.history
        self.history_length = len(self.conversation)
        if data.input is not None:
            self.conversation.append(data.input)
        if data.call is not None:
            self.replies.append(Reply((data.call,)))
            self.conversation.append(self.replies[0])
            self.open_calls = {data.call.id: data.call}
        self.started_at = event.at

    def _finish(self, data: RunFinished) -> None:
        self.finished = data
        self.fresh_epoch = self.epoch + 1
        self._cut_off()
        if data.output and self.request is None and not self.replies:  # a flow says nothing itself but what it comes to
            self.conversation.append(Reply((Text(data.output),)))

    def _ask(self, data: ApprovalAsked) -> None:
        if data.kind == "question":
            self.questions.setdefault(data.call_id, []).append(data)
            self.begun.pop(data.call_id, None)  # it has left by itself: nothing of it is in doubt
        else:
            self.asked[data.call_id] = data

    def _decide(self, data: ApprovalDecided) -> None:
        if data.approval_id in self.decided:
            return
        self.decided[data.approval_id] = data
        self.waits = False
        if data.decision == "edit" and data.arguments is not None:
            for asked in self.asked.values():
                if asked.approval_id == data.approval_id:
                    self.edits.setdefault(asked.call_id, []).append((asked.fingerprint, data.arguments))

    def _reply(self, data: ModelReplied) -> None:
        reply = data.reply
        self._spend(reply.usage, data.cost_usd, said=reply)
        self.answered = self.request
        self.replies.append(reply)
        self.raised = False
        self.conversation.append(reply)
        calls = reply.calls
        if calls:
            self.open_calls = {call.id: call for call in calls}
            self.caller = self.speaker
            self.fresh_nudges.clear()

    def _fail(self, data: AttemptFailed) -> None:
        self.failure = data if data.wait is None and data.kind != CUT_OFF else None
        if data.partial:
            self.cut = (self.step, data.partial)
            self._cut_off(data.partial)
        elif data.wait is None:
            self.asking = None  # refused, as a rule, and nothing was read

    def _cut_off(self, said: str = "") -> None:
        """The model call in flight will have no usage, but its server has read the request."""
        if self.asking is not None:
            self.unmetered += self.asking.reserved - self.asking.max_tokens + (text_tokens(said) if said else 0)
            self.asking = None

    def _spend(self, usage: Usage, cost_usd: float | None, said: Reply | None = None) -> None:
        if self.asking is not None and not usage.input:
            self.unmetered += self.asking.reserved - self.asking.max_tokens
        if said is not None and not usage.output:
            self.unmetered += written_tokens(said)
        self.asking = None
        self.usage += usage
        unknown = cost_usd is None or self.cost_usd is None
        self.cost_usd = None if unknown else (self.cost_usd or 0.0) + (cost_usd or 0.0)

    def _finish_call(self, data: ToolFinished) -> None:
        if self.open_calls.pop(data.call_id, None) is None:
            return
        self.results[data.call_id] = data.result
        self.executions.append((self.step, data))
        self.tool_counts[data.result.name] += 1
        self.begun.pop(data.call_id, None)
        if not self.open_calls:
            self._close_round()

    def _close_round(self) -> None:
        calls = self.replies[-1].calls
        ordered = [self.results[call.id] for call in calls]
        self.conversation += ordered
        ran = {done.call_id: done.arguments for _, done in self.executions[-len(calls) :]}
        self.rounds.append(_round(calls, ordered, ran))
        self.results = {}


def _round(calls: tuple[ToolCall, ...], results: list[ToolResult], ran: Mapping[str, str | None]) -> Round:
    pairs = zip(calls, results, strict=True)
    made = tuple((call.name, ran.get(call.id) or call.arguments.strip(), _told(result)) for call, result in pairs)
    return Round(frozenset((name, told) for name, _, told in made), made)


def _told(result: ToolResult) -> str:
    """What a result says; the reference of a failure and the id of a confirmation are new each time and say nothing."""
    return result.content if result.status == "ok" else without_ids(result.content)


def fold(events: Iterable[Event], history: Iterable[Message] = ()) -> State:
    """The state after `events`; `history` is the session's part of the conversation, where there is one."""
    state = State(conversation=list(history))
    for event in events:
        state.apply(event)
    return state
