"""The events of a run: what the journal is made of.

`{run_id, seq, type, v, at, step, data}`. State is a fold over them; every face reads them. A new kind of event is
one more dataclass in `JournalData`; a changed one raises its `v` and is upcast on read. An event of a type that this
version does not know is kept as `Unknown` and ignored by the fold.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, ClassVar, Literal, get_args

from pydantic import TypeAdapter

from glassloop.core.context import Identity
from glassloop.core.encoding import dumps, loads
from glassloop.core.limits import Limits
from glassloop.core.messages import Message, Reply, ToolCall, ToolResult, UserMessage
from glassloop.core.usage import Usage

Outcome = Literal[
    "completed",
    "limited",  # a limit stopped it
    "truncated",  # the reply was cut off by the output limit
    "refused",  # the model refused
    "filtered",  # the provider's content filter
    "unanswered",  # said that it would act, or wrote a call as text, and did neither after a nudge
    "waiting",  # for approvals
    "cancelled",
    "failed",
    "partly_rolled_back",
]
RunKind = Literal["run", "import", "call"]
ApprovalMode = Literal["wait", "park", "defer"]
NudgeReason = Literal[
    "empty_reply",
    "promised",
    "call_as_text",
    "bad_tool_call",
    "repetition",
    "bad_output",  # the answer does not fit the agent's output type
    "limit_raised",  # the run goes on with new limits from an answer that was to be its last
    "schema_mode",  # a call written as text: from here on tools travel as a JSON Schema
]


@dataclass(frozen=True)
class RunStarted:
    """The run exists. Its session's messages, or `history`, come before its input.

    A run of kind `call` has no model: it is one call, held and approved later, or a step of a plan. `parent` is the run
    that it belongs to, `speaker` the agent whose call it is, where the conversation had been handed to another.
    """

    type: ClassVar[str] = "run_started"
    agent: str
    fingerprint: str
    identity: Identity
    input: UserMessage | None
    limits: Limits
    kind: RunKind = "run"
    history: tuple[Message, ...] = ()
    parent: str | None = None
    call: ToolCall | None = None
    approvals: ApprovalMode | None = None
    speaker: str | None = None


@dataclass(frozen=True)
class DriverClaimed:
    """A driver took the run over; events of an older epoch are refused from here on.

    The first driver of a run says how many messages its session had then (`session_length`): they come before the run.
    """

    type: ClassVar[str] = "driver_claimed"
    epoch: int
    owner: str
    session_length: int | None = None


@dataclass(frozen=True)
class DriverRested:
    """The driver has let go of the run; any driver may claim it next.

    `waiting`: for a human, here or in a run below, until whose decision there is nothing to do; None, as earlier
    versions wrote it: where any approval is pending.
    """

    type: ClassVar[str] = "driver_rested"
    waiting: bool | None = None


@dataclass(frozen=True)
class AgentChanged:
    """The registered agent of that name is not the one the run began with."""

    type: ClassVar[str] = "agent_changed"
    fingerprint: str


@dataclass(frozen=True)
class ModelRequested:
    """A model call is about to be paid for.

    `instructions`, `tools` and `settings` are digests of blobs; `view` says which messages were sent, as
    `[start, stop)` ranges of the run's conversation or digests of messages put in their place, so that the exact
    request can be rebuilt. `view_digest` chains the digests of what was sent. `reserved` tokens are set aside for it,
    `max_tokens` of them for the reply. `offered` counts the tools on offer. `final` names the limit that makes this
    the last call, without tools. The answer to a request with the purpose `summary` is a `Summarized`. `output` is the
    digest of what the answer must be, where the agent has an output type.
    """

    type: ClassVar[str] = "model_requested"
    model: str
    instructions: str
    tools: str
    settings: str
    view: tuple[tuple[int, int] | str, ...]
    view_digest: str
    reserved: int = 0
    max_tokens: int = 0
    offered: int = 0
    stream: bool = False
    final: str | None = None
    purpose: Literal["step", "summary"] = "step"
    output: str | None = None


CUT_OFF = "cut_off"
"""The kind of an `AttemptFailed` whose run was stopped meanwhile."""


@dataclass(frozen=True)
class AttemptFailed:
    """One attempt of a model call failed; `wait` seconds later it is tried again, or never if None.

    `partial` is the text of it that was streamed. One of the kind `cut_off` did not fail: its run was stopped.
    """

    type: ClassVar[str] = "attempt_failed"
    model: str
    kind: str
    message: str
    status: int | None
    wait: float | None
    partial: str = ""


@dataclass(frozen=True)
class ModelReplied:
    """The model answered. `cost_usd` is None where the price is unknown."""

    type: ClassVar[str] = "model_replied"
    reply: Reply
    ms: float
    cost_usd: float | None = None


@dataclass(frozen=True)
class Nudged:
    """The model was told to do what it said, once."""

    type: ClassVar[str] = "nudged"
    message: UserMessage
    reason: NudgeReason


@dataclass(frozen=True)
class Summarized:
    """The older part of the conversation was summarised, or could not be and is left out from here on.

    `[start, stop)` of the run's conversation is what the summary stands for, `covered` the digest of those messages.
    `text` is None where there is no summary, and `error` says why. `model` was asked, if any was; `usage`, `cost_usd`
    and `ms` are of that call. A summary that is `carried` was made in an earlier run of the session.
    """

    type: ClassVar[str] = "summarized"
    start: int
    stop: int
    covered: str
    text: str | None = None
    error: str | None = None
    model: str = ""
    usage: Usage = Usage()
    cost_usd: float | None = 0.0
    ms: float = 0.0
    carried: bool = False

    @property
    def asked(self) -> bool:
        """Whether this run paid for a model call."""
        return bool(self.model) and not self.carried


@dataclass(frozen=True)
class EffectStarted:
    """A write has passed every gate and its function is about to run."""

    type: ClassVar[str] = "effect_started"
    call_id: str
    key: str


@dataclass(frozen=True)
class ToolAborted:
    """A tool asked for the run to stop, or an agent behind it failed in a way that ends this run, too (`kind`)."""

    type: ClassVar[str] = "tool_aborted"
    call_id: str
    message: str
    kind: str = "fatal_tool"


@dataclass(frozen=True)
class CallSuspended:
    """A call has begun the run `below`, which waits for a human; the next driver goes on with both."""

    type: ClassVar[str] = "call_suspended"
    call_id: str
    below: str


@dataclass(frozen=True)
class HandedOff:
    """A call has handed the conversation to another agent, whose model, instructions and tools apply from here on."""

    type: ClassVar[str] = "handed_off"
    call_id: str
    agent: str


@dataclass(frozen=True)
class UndoStarted:
    """The undo of a finished write is about to run."""

    type: ClassVar[str] = "undo_started"
    call_id: str
    key: str


@dataclass(frozen=True)
class UndoFinished:
    """The undo of a finished write is done, or failed for the reason given."""

    type: ClassVar[str] = "undo_finished"
    call_id: str
    error: str | None = None


@dataclass(frozen=True)
class ToolFinished:
    """A tool call has its result.

    `arguments` are those that ran, after repair (JSON; defaults are not filled in), or None where none did. `value` is
    the digest of the whole result where the model saw less of it; `form` tells whether that is text or JSON.
    """

    type: ClassVar[str] = "tool_finished"
    call_id: str
    result: ToolResult
    ms: float
    arguments: str | None = None
    value: str | None = None
    form: Literal["text", "json"] = "text"
    reason: str | None = None
    confidence: float | None = None
    replayed: bool = False


@dataclass(frozen=True)
class ApprovalAsked:
    """A human must decide on one exact call; `fingerprint` binds tool and arguments.

    `kind` tells a call that wants to run from one that had begun before a crash and may have happened (`doubt`), and
    from one whose function asks something (`question`): it has left by itself, and runs again with the answer. `mode`
    is how it is held: the call waits, the run parks, or the call is deferred and runs later by itself.

    Of a question `summary` is its text, `choices` what may be answered (empty: anything), and `place` how many
    questions of the call come before it.
    """

    type: ClassVar[str] = "approval_asked"
    approval_id: str
    call_id: str
    tool: str
    arguments: str
    fingerprint: str
    summary: str
    risk: str = "high"
    role: str | None = None
    expires_at: int | None = None
    kind: Literal["call", "doubt", "question"] = "call"
    mode: ApprovalMode = "park"
    choices: tuple[str, ...] = ()
    place: int = 0


@dataclass(frozen=True)
class ApprovalDecided:
    """A human decided, or answered a question (external event)."""

    type: ClassVar[str] = "approval_decided"
    approval_id: str
    decision: Literal["approve", "deny", "edit", "answer"]
    by: str | None = None
    reason: str | None = None
    arguments: str | None = None
    answer: str | None = None


@dataclass(frozen=True)
class CancelRequested:
    """Somebody wants the run stopped (external event)."""

    type: ClassVar[str] = "cancel_requested"
    by: str | None = None
    reason: str | None = None


@dataclass(frozen=True)
class SessionTold:
    """The run waits for a human, and the next run of its session begins (external event): what the run has said so far
    joined the session, with its open calls as held."""

    type: ClassVar[str] = "session_told"


@dataclass(frozen=True)
class RunContinued:
    """A rested run goes on, with new limits where given."""

    type: ClassVar[str] = "run_continued"
    limits: Limits | None = None


@dataclass(frozen=True)
class RunFinished:
    """The run rests for good. `limit` or `error_kind` say why where the outcome alone does not."""

    type: ClassVar[str] = "run_finished"
    outcome: Outcome
    output: str | None = None
    message: str | None = None
    limit: str | None = None
    error_kind: str | None = None


@dataclass(frozen=True)
class Unknown:
    """An event written by a newer version: kept as it is, ignored by the fold."""

    type: ClassVar[str] = "unknown"
    original_type: str
    data: Mapping[str, Any]


# Ephemeral: streamed while the run goes, never in the journal.


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of the reply's visible text."""

    type: ClassVar[str] = "text_delta"
    text: str


@dataclass(frozen=True, slots=True)
class ThinkingDelta:
    """A piece of the model's thinking."""

    type: ClassVar[str] = "thinking_delta"
    text: str


@dataclass(frozen=True, slots=True)
class ReplyRestarted:
    """What was streamed of this reply is void; it is being asked for again."""

    type: ClassVar[str] = "reply_restarted"


@dataclass(frozen=True, slots=True)
class ToolStarted:
    """A tool call is being worked on; exactly one `tool_finished` follows."""

    type: ClassVar[str] = "tool_started"
    call_id: str
    tool: str
    arguments: str


@dataclass(frozen=True, slots=True)
class ToolProgress:
    """A running tool reports progress."""

    type: ClassVar[str] = "tool_progress"
    call_id: str
    value: Any


JournalData = (
    RunStarted
    | DriverClaimed
    | DriverRested
    | AgentChanged
    | ModelRequested
    | AttemptFailed
    | ModelReplied
    | Nudged
    | Summarized
    | EffectStarted
    | ToolAborted
    | CallSuspended
    | HandedOff
    | ToolFinished
    | UndoStarted
    | UndoFinished
    | ApprovalAsked
    | ApprovalDecided
    | CancelRequested
    | SessionTold
    | RunContinued
    | RunFinished
    | Unknown
)
LiveData = TextDelta | ThinkingDelta | ReplyRestarted | ToolStarted | ToolProgress
EventData = JournalData | LiveData

EVENT_TYPES: dict[str, tuple[type[Any], int]] = {
    cls.type: (cls, 1) for cls in get_args(JournalData) if cls is not Unknown
}
"""Every event type that this version writes, with its class and current version."""


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened in a run.

    Args:
        run_id: the run.
        seq: position in the run's journal, from 1; 0 for what is only streamed. The journal has the last word: until an
            event is committed, external events may push it further back.
        at: UTC, milliseconds since the epoch.
        step: the model call it belongs to, from 1; 0 before the first.
        data: what happened.
        private: detail for the operator (stack, raw exception), kept apart; no face reads it by default.
    """

    run_id: str
    seq: int
    at: int
    step: int
    data: EventData
    private: Mapping[str, Any] | None = field(default=None, repr=False)

    @property
    def type(self) -> str:
        """The event's type, e.g. `tool_finished`."""
        return self.data.original_type if isinstance(self.data, Unknown) else self.data.type

    def as_dict(self) -> dict[str, Any]:
        """The public form of the event, plain JSON values (without `private`)."""
        head = {"run_id": self.run_id, "seq": self.seq, "type": self.type, "v": version_of(self.data)}
        data = dict(self.data.data) if isinstance(self.data, Unknown) else loads(encode_data(self.data))
        return {**head, "at": self.at, "step": self.step, "data": data}


def version_of(data: EventData) -> int:
    """The version under which this kind of event is written."""
    known = EVENT_TYPES.get(data.type)
    return known[1] if known else 1


def encode_data(data: EventData) -> bytes:
    """The JSON of an event's data; media go without their bytes, which stand in the blobs."""
    return dumps(data.data if isinstance(data, Unknown) else data)


def decode_data(type_: str, version: int, data: bytes | str) -> JournalData:
    """Read what `encode_data` wrote, whichever version of Glassloop wrote it.

    Unknown fields of a known type are ignored, unknown types and newer versions become `Unknown`.
    """
    known = EVENT_TYPES.get(type_)
    if known is None or version > known[1]:
        return Unknown(type_, loads(data))
    return _adapter(known[0]).validate_json(data)


@cache
def _adapter(cls: type[Any]) -> TypeAdapter[Any]:
    return TypeAdapter(cls)
