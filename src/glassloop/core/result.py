"""What a run gives back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal

from typing_extensions import TypeVar

from glassloop.core.events import NudgeReason, Outcome
from glassloop.core.messages import Message, Reply, ResultStatus
from glassloop.core.usage import Spent, Usage


@dataclass(frozen=True)
class ToolExecution:
    """One tool call and how it ended.

    Args:
        call_id: our id of the call.
        step: the model call that asked for it, from 1.
        tool: the tool's name.
        arguments: the arguments that ran, after repair; None where the call never ran.
        status: how it ended.
        content: what the model was told.
        value: the whole result as plain JSON values, or None where there is none.
        ms: milliseconds from start to result.
        reason: the model's stated reason, where the agent asks for one.
        confidence: the model's stated confidence, 0 to 1.
        replayed: answered from an earlier identical call.
    """

    call_id: str
    step: int
    tool: str
    arguments: Mapping[str, Any] | None
    status: ResultStatus
    content: str
    value: Any
    ms: float
    reason: str | None = None
    confidence: float | None = None
    replayed: bool = False

    @property
    def error(self) -> str | None:
        """What went wrong, as the model was told; None where nothing did."""
        return None if self.status == "ok" else self.content


@dataclass(frozen=True)
class PendingApproval:
    """A call that waits for a human.

    Args:
        approval_id: names the decision.
        call_id: our id of the call.
        tool: the tool.
        arguments: exactly what will run.
        summary: one line for the human; the question, of one.
        risk: low, medium or high.
        role: who may decide, beside the owner; None for the owner alone.
        expires_at: UTC milliseconds, or None.
        provider_id: the provider's id of the call.
        kind: `call`, `doubt` for one that had begun before a crash and may have happened already, or `question` for one
            whose function asks something (`ask_human`).
        run_id: the run that asks; one below another begins with that one's id and a point.
        agent: which agent asks.
        choices: what may be answered to a question; empty for anything.
    """

    approval_id: str
    call_id: str
    tool: str
    arguments: Mapping[str, Any]
    summary: str
    risk: str = "high"
    role: str | None = None
    expires_at: int | None = None
    provider_id: str = ""
    kind: Literal["call", "doubt", "question"] = "call"
    run_id: str = ""
    agent: str = ""
    choices: tuple[str, ...] = ()


@dataclass(frozen=True)
class Decision:
    """What a human decided.

    Args:
        decision: approve as it is, deny, or approve with other arguments; or answer what a tool asks.
        reason: for the model, when denied.
        by: who decided.
        arguments: the arguments to run instead (`edit`); validated again.
        answer: what the tool is told (`answer`).
    """

    decision: Literal["approve", "deny", "edit", "answer"] = "approve"
    reason: str | None = None
    by: str | None = None
    arguments: Mapping[str, Any] | None = None
    answer: str | None = None


def misfit(decision: Decision | bool, kind: str, choices: Sequence[str]) -> str | None:
    """Why a decision cannot be taken on what was asked, in one sentence; None where it can.

    Args:
        decision: what a human said. A bool says nothing about a question: "no" may be its answer, or none.
        kind: of what was asked.
        choices: what may be answered; empty for anything.
    """
    if not isinstance(decision, Decision | bool):  # pyright: ignore[reportUnnecessaryIsInstance] - untyped code
        return f"A decision is True, False or a Decision, and this is a {type(decision).__name__}."
    said = decision.decision if isinstance(decision, Decision) else "approve"
    if kind != "question":
        return 'There is nothing to answer here: decide "approve", "deny" or "edit".' if said == "answer" else None
    if said == "deny":
        return None
    answer = decision.answer if isinstance(decision, Decision) and said == "answer" else None
    if answer is None or not answer.strip():
        return 'This is a question: decide "answer" and say what the answer is, or decide "deny".'
    if choices and answer not in choices:
        return f"The answer must be one of these: {', '.join(choices)}."
    return None


OutputT = TypeVar("OutputT", default=Any)


@dataclass(frozen=True)
class RunResult(Generic[OutputT]):
    """What a run gives back, whatever its outcome.

    Args:
        run_id: names the run in the journal.
        outcome: how it ended; only `completed` means that `output` is the answer.
        output: the answer, or the partial text that there is.
        messages: the whole conversation, history first; pass it as `history=` to go on.
        steps: model calls made.
        usage: tokens of all of them.
        cost_usd: money in US dollars; None where a price is unknown.
        replies: the reply of every step.
        tool_executions: every tool call, in request order.
        nudges: why the model had to be told again (`empty_reply`, `promised`, `call_as_text`, `bad_tool_call`,
            `repetition`, `bad_output`, `schema_mode`).
        pending: calls that wait for a human (outcome `waiting`).
        message: one sentence on why the run did not complete.
        limit: the limit that stopped it (outcome `limited`).
        refusal: the model's refusal (outcome `refused`).
        seconds: wall-clock time.
        value: the typed output, where the agent has an output type and the run came to an answer that fits; else None.
            `output` is the same as JSON.
        agent: who has the conversation at the end: the agent of the run, or the one it was handed to.
        spent: tokens, money and steps of this run and all below it.
    """

    run_id: str
    outcome: Outcome
    output: str | None
    messages: tuple[Message, ...] = ()
    steps: int = 0
    usage: Usage = Usage()
    cost_usd: float | None = None
    replies: tuple[Reply, ...] = ()
    tool_executions: tuple[ToolExecution, ...] = ()
    nudges: tuple[NudgeReason, ...] = ()
    pending: tuple[PendingApproval, ...] = ()
    message: str | None = None
    limit: str | None = None
    refusal: str | None = None
    seconds: float = 0.0
    value: OutputT = None  # pyright: ignore[reportAssignmentType] - nothing, of whatever type
    agent: str = ""
    spent: Spent = Spent()
    error_kind: str | None = field(default=None, repr=False)
