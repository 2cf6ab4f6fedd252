"""What goes over the wire, in and out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, model_validator

from glassloop.core.result import ResultStatus
from glassloop.journal.projection import ApprovalStatus

Status = Literal[
    "running",
    "waiting",
    "cancelling",
    "completed",
    "limited",
    "truncated",
    "refused",
    "filtered",
    "unanswered",
    "cancelled",
    "failed",
    "partly_rolled_back",
]


def _session(name: str) -> str:
    if "/" in name or name in (".", "..") or not name.isprintable():
        raise ValueError("a session's name has no slash and no control characters")
    return name


SessionName = Annotated[str, StringConstraints(min_length=1, max_length=128), AfterValidator(_session)]
Reason = Annotated[str, StringConstraints(max_length=2_000)]


def _words(text: str) -> str:
    if not text.strip():
        raise ValueError("must not be blank")
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        raise ValueError("has half a character in it (a lone surrogate)")
    return text


Reply = Annotated[str, StringConstraints(max_length=20_000), AfterValidator(_words)]


class _In(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class LimitsIn(_In):
    """Limits for one run; each may be tighter than the agent's own, and not wider."""

    steps: int | None = Field(None, gt=0, description="Model calls.")
    total_tokens: int | None = Field(None, gt=0, description="Tokens in and out.")
    seconds: float | None = Field(None, gt=0, allow_inf_nan=False, description="Wall-clock time, without waiting.")
    cost_usd: float | None = Field(None, ge=0, allow_inf_nan=False, description="Money, in US dollars.")
    output_tokens: int | None = Field(None, gt=0, description="Room for each reply.")
    on_limit: Literal["answer", "return"] | None = Field(
        None, description="`answer` asks the model once more without tools, `return` ends with what there is."
    )


class RunIn(_In):
    """A run to start."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"input": "Which is hotter, Beijing or Shanghai?"},
                {"agent": "ticket", "input": "订单 2024001 一直没有发货", "session": "monday", "stream": True},
            ]
        }
    )

    agent: str | None = Field(None, description="Which agent; may be left out where there is one.")
    input: Annotated[str, AfterValidator(_words)] = Field(description="The user's text.")
    session: SessionName | None = Field(None, description="A conversation of yours that the run belongs to.")
    stream: bool | None = Field(
        None, description="Answer with the run's events. Default: what the Accept header asks for."
    )
    background: bool = Field(
        False, description="With `stream`: go on when nobody reads the stream any more. Without, it always does."
    )
    approvals: Literal["park", "defer"] = Field(
        "park",
        description="What a call does that needs a human: the run waits for the decision (`park`), or it ends without "
        "and the call runs by itself once it is approved (`defer`).",
    )
    limits: LimitsIn | None = None
    when_busy: Literal["queue", "refuse"] = Field(
        "queue",
        description="Where another run of the session goes on, or waits for a human: wait for the first and read the "
        "second as held (`queue`), or answer 409 and name the run and the approval (`refuse`).",
    )


class CancelIn(_In):
    """Why a run is cancelled."""

    reason: Reason | None = None


class DecisionIn(_In):
    """What a human decides about a call, or answers to its question."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"decision": "approve"},
                {"decision": "deny", "reason": "The customer has been refunded already."},
                {"decision": "edit", "args": {"order_id": "2024001", "amount": 120}},
                {"decision": "answer", "answer": "The blue one."},
            ]
        }
    )

    decision: Literal["approve", "deny", "edit", "answer"]
    reason: Reason | None = Field(None, description="For the model, when denied.")
    args: dict[str, Any] | None = Field(None, description="With `edit`: the arguments to run instead, all of them.")
    answer: Reply | None = Field(None, description="With `answer`: what the call that asks is told.")

    @model_validator(mode="after")
    def _complete(self) -> DecisionIn:
        if (self.decision == "edit") != (self.args is not None):
            raise ValueError("args belong to the decision `edit`, and only to it")
        if (self.decision == "answer") != (self.answer is not None):
            raise ValueError("an answer belongs to the decision `answer`, and only to it")
        return self


class RunLinks(BaseModel):
    """Where to go on."""

    self: str
    events: str
    cancel: str


class RunStartedOut(BaseModel):
    """A run that has been started."""

    run_id: str
    status: Status
    agent: str
    session: str | None
    links: RunLinks


class RunLine(BaseModel):
    """One line of a list of runs; times are UTC milliseconds, `cost_usd` is null where a price is unknown."""

    run_id: str
    status: Status
    agent: str
    session: str | None
    input: str
    started_at: int
    updated_at: int
    steps: int
    tokens: int
    cost_usd: float | None
    pending: int


class RunsOut(BaseModel):
    """Runs, newest first; `next` is the value of `before` for the next page, null on the last."""

    runs: Sequence[RunLine]
    next: str | None


class UsageOut(BaseModel):
    """Tokens; `cached` is part of `input` and `reasoning` of `output`."""

    input: int
    output: int
    cached: int
    reasoning: int
    total: int


class ToolCallOut(BaseModel):
    """A tool call of a run and how it ended."""

    call_id: str
    step: int
    tool: str
    arguments: Mapping[str, Any] | None
    status: ResultStatus
    content: str
    ms: float


class PendingOut(BaseModel):
    """A call that waits for a human: for a yes, or for the answer to the question that its `summary` is."""

    approval_id: str
    tool: str
    arguments: Mapping[str, Any]
    summary: str
    risk: str
    role: str | None
    expires_at: int | None
    kind: Literal["call", "doubt", "question"]
    choices: Sequence[str] = Field(description="What may be answered to a question; empty: anything.")


class RunOut(RunLine):
    """A run as far as it is now."""

    output: str | None
    message: str | None = Field(description="Why the run did not complete.")
    limit: str | None
    seconds: float
    usage: UsageOut
    tool_executions: Sequence[ToolCallOut]
    pending_approvals: Sequence[PendingOut]


class CancelOut(BaseModel):
    """A run that is being cancelled."""

    run_id: str
    status: Status


class MessageOut(BaseModel):
    """A message of a session; which fields are there depends on the role."""

    role: Literal["system", "user", "assistant", "tool"]
    text: str
    origin: str | None = None
    thinking: str | None = None
    tool_calls: Sequence[Mapping[str, str]] | None = None
    call_id: str | None = None
    tool: str | None = None
    status: ResultStatus | None = None
    media: Sequence[Mapping[str, Any]] | None = None


class SessionOut(BaseModel):
    """A session's messages, oldest first."""

    session: str
    messages: Sequence[MessageOut]


class ApprovalOut(BaseModel):
    """A call that a human decides on; times are UTC milliseconds."""

    approval_id: str
    run_id: str
    call_id: str
    tool: str
    arguments: Mapping[str, Any]
    summary: str
    risk: str
    role: str | None = Field(description="The role that decides; null: the run's owner.")
    kind: str = Field(
        description="`call`; `doubt` for one that had begun before a crash and may have happened; `question` for one "
        "that asks what its `summary` says, and takes the decisions `answer` and `deny`."
    )
    mode: str
    user: str | None
    session: str | None
    agent: str
    status: ApprovalStatus
    asked_at: int
    expires_at: int | None
    decided_by: str | None
    reason: str | None
    choices: Sequence[str] = Field(description="What may be answered to a question; empty: anything.")
    answer: str | None


class ApprovalsOut(BaseModel):
    """Approvals that the caller may see, newest first."""

    approvals: Sequence[ApprovalOut]
    next: str | None


class CallResultOut(BaseModel):
    """How a deferred call ended that was approved."""

    run_id: str
    outcome: str
    output: str | None
    message: str | None


class DecidedOut(BaseModel):
    """A decision that was taken; `result` is there where the call ran at once."""

    approval_id: str
    decision: Literal["approve", "deny", "edit", "answer"]
    result: CallResultOut | None


class ProblemOut(BaseModel):
    """An error, `application/problem+json` (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    code: str = Field(description="For programs.")
    request_id: str
    errors: Sequence[Mapping[str, str]] | None = Field(None, description="The fields that are wrong.")
