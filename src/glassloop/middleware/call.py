"""What travels through the stacks, and the one shape that every middleware has: `await mw(call, next)`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

from glassloop.core.context import RunContext
from glassloop.core.encoding import canonical, digest, dumps
from glassloop.core.errors import ToolError
from glassloop.core.events import ApprovalAsked, ApprovalMode, LiveData
from glassloop.core.ids import new_id
from glassloop.core.messages import Reply, ResultStatus, ToolCall
from glassloop.journal.recorder import Recorder, now_ms
from glassloop.models.model import Model, ModelRequest
from glassloop.tools.asking import Question
from glassloop.tools.tool import Tool
from glassloop.tools.toolset import ToolIndex


@dataclass(slots=True)
class Call:
    """One tool call on its way to the function; each layer fills in what it finds out.

    Args:
        call: what the model asked for.
        index: the tools of this run.
        context: what the function may know.
        recorder: the run's journal.
        raw: the arguments as text; `reasons` takes its own out.
        tool: set by `allow`.
        arguments: the arguments that will run, as plain JSON values; set by `validate`.
        kwargs: the same, converted for the function.
        reason: the model's stated reason.
        confidence: the model's stated confidence, 0 to 1.
        replayed: answered from an earlier identical call.
        claim: the key under which the ledger knows this effect; set by `idempotency`.
        recorded: a transaction has recorded the result, and settled the claim, together with the effect.
    """

    call: ToolCall
    index: ToolIndex
    context: RunContext[Any]
    recorder: Recorder
    raw: str = ""
    tool: Tool | None = None
    arguments: dict[str, Any] | None = None
    kwargs: dict[str, Any] = field(default_factory=dict[str, Any])
    reason: str | None = None
    confidence: float | None = None
    replayed: bool = False
    claim: str | None = None
    recorded: bool = False

    @property
    def owner(self) -> tuple[str, str]:
        """Who claims: run and call."""
        return self.context.run_id, self.call.id

    @property
    def fingerprint(self) -> str:
        """Binds a decision to the tool, with its signature, and to exactly these arguments."""
        return fingerprint_of(self.found, self.arguments)

    @property
    def answers(self) -> Sequence[tuple[str, str]]:
        """What humans have answered to the questions of this call, with these, in order."""
        state = self.recorder.state
        return state.answers_to(self.call.id) if self.call.id in state.questions else ()

    @property
    def found(self) -> Tool:
        """The tool; only for layers inside `allow`."""
        assert self.tool is not None
        return self.tool


def fingerprint_of(tool: Tool, arguments: Mapping[str, Any] | None) -> str:
    """Binds a decision to a tool and to exactly these arguments, as the gate gives them."""
    spec = tool.spec  # with another signature the same arguments may mean something else
    return digest(canonical([spec.name, tool.origin, spec.parameters, arguments]).encode())


@dataclass(frozen=True, slots=True)
class Done:
    """The function ran and returned `value`."""

    value: Any


@dataclass(frozen=True, slots=True)
class Failed:
    """The call ended without a value; `message` is for the model, `private` for the operator."""

    message: str
    status: ResultStatus = "error"
    private: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Pending:
    """The call waits for a human, itself or in the run `below` that it has begun: the run rests.

    Inside `approval`, which puts it to a human, `question` is what the function asks.
    """

    approval_id: str
    below: str | None = None
    question: Question | None = None


Ended = Done | Failed | Pending


class CallStopped(ToolError):
    """A layer ended the call; its text is for the model."""

    def __init__(self, message: str, status: ResultStatus) -> None:
        super().__init__(message)
        self.status: ResultStatus = status


def question(
    call: Call,
    *,
    mode: ApprovalMode,
    kind: Literal["call", "doubt"] = "call",
    role: str | None = None,
    expires: float | None = None,
) -> ApprovalAsked:
    """The event that asks a human about a call; `expires` in seconds from now.

    A function with an attribute `approval_summary` says by it, from the arguments, what is asked.
    """
    from glassloop.core.rendering import render_call, shortened

    words = getattr(call.found.function, "approval_summary", None)
    asks = render_call(call.found.name, call.arguments or {}) if words is None else words(call.arguments)
    doubt = "this may have happened already: " if kind == "doubt" else ""
    return _asked(call, shortened(f"{doubt}{asks}"), mode=mode, kind=kind, role=role, expires=expires)


def asked_by(call: Call, question: Question, *, mode: ApprovalMode, expires: float | None = None) -> ApprovalAsked:
    """The event that puts a function's question to a human; `expires` in seconds from now."""
    asked = _asked(call, question.text, mode=mode, kind="question", expires=expires)
    return replace(asked, choices=question.choices, place=question.place)


def _asked(
    call: Call,
    summary: str,
    *,
    mode: ApprovalMode,
    kind: Literal["call", "doubt", "question"],
    role: str | None = None,
    expires: float | None = None,
) -> ApprovalAsked:
    return ApprovalAsked(
        approval_id=new_id("appr"),
        call_id=call.call.id,
        tool=call.found.name,
        arguments=dumps(call.arguments).decode(),
        fingerprint=call.fingerprint,
        summary=summary,
        risk=call.found.risk,
        role=role,
        expires_at=None if expires is None else now_ms() + int(expires * 1000),
        kind=kind,
        mode=mode,
    )


Next = Callable[[Call], Awaitable[Any]]


class ToolMiddleware(Protocol):
    """Wraps a tool call. Inside `error` a layer returns what the function returned, or `Pending`."""

    async def __call__(self, call: Call, next: Next, /) -> Any:
        """Do something before, instead of, or after `await next(call)`."""
        ...


@dataclass(slots=True)
class ModelCall:
    """One model call on its way out.

    Args:
        model: who is asked.
        request: what is asked.
        recorder: the run's journal; failed attempts are recorded there.
        shown: visible text that has been streamed; with any, the call is not repeated.
        parts_shown: parts streamed of the present attempt.
        aside: whether the reply is none of the run's, so that nobody watches it.
    """

    model: Model
    request: ModelRequest
    recorder: Recorder
    shown: list[str] = field(default_factory=list[str])
    parts_shown: int = 0
    aside: bool = False

    @property
    def text(self) -> str:
        """The visible text streamed so far."""
        return "".join(self.shown)

    def emit(self, data: LiveData) -> None:
        """Stream a part to those who watch."""
        if not self.aside:
            self.parts_shown += 1
            self.recorder.emit(data)


ModelNext = Callable[[ModelCall], Awaitable[Reply]]


class ModelMiddleware(Protocol):
    """Wraps a model call; returns the folded reply."""

    around_model: bool

    async def __call__(self, call: ModelCall, next: ModelNext, /) -> Reply:
        """Do something before, instead of, or after `await next(call)`."""
        ...
