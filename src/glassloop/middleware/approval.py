"""A human decides on one exact call before it runs."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Collection
from typing import Any, Literal

from glassloop.core.encoding import dumps, loads
from glassloop.core.errors import ConfigurationError, FatalToolError, StoreError, ToolError
from glassloop.core.events import ApprovalAsked, ApprovalDecided, ApprovalMode
from glassloop.core.insist import insist
from glassloop.core.result import Decision, PendingApproval, misfit
from glassloop.journal.recorder import now_ms
from glassloop.journal.state import State
from glassloop.middleware.call import Call, CallStopped, Next, Pending, asked_by, question
from glassloop.tools.asking import MOST_QUESTIONS, Question
from glassloop.tools.tool import Tool

_log = logging.getLogger("glassloop.approval")

DEFER_SECONDS = 15 * 60.0
_ENDS = (".", "!", "?", "。", "！", "？")

Answer = Decision | bool | Literal["park"] | None
Approver = Callable[[PendingApproval], Answer | Awaitable[Answer]]
"""Asks a human; True approves, False denies, None or no answer in time denies. `park` leaves the decision to another:
the run rests, as if there were no approver. So does what cannot be taken: an exception, say, or a bool where `kind` is
`question`. A `ToolError` denies, and its text is the reason."""

When = Callable[[Tool, dict[str, Any]], bool | str]
"""Whether a call needs a human; a string names the role that must decide, and what is neither counts as True."""


def by_risk(tool: Tool, arguments: dict[str, Any]) -> bool | str:
    """The default: what the tool itself says, else everything of high risk."""
    if tool.approval is None:
        return tool.risk == "high"
    return tool.approval(arguments) if callable(tool.approval) else bool(tool.approval)


class Approval:
    """Holds calls that need a human.

    The decision binds the tool and the exact arguments; edited arguments are validated again. Three ways to hold:

    * an approver is at hand: the call *waits* for its answer and is denied when none comes in time;
    * `park` (the default): the run rests with the outcome `waiting` until the decision comes, days later, on any
      worker;
    * `defer`: the model is told that the call is held, the run goes on, and the call runs later by itself.

    What a function asks (`ask_human`) is put to a human in the first two ways; the call runs again on the answer.

    Args:
        when: which calls need a human.
        approver: asks a human now.
        mode: how to hold where there is no approver.
        seconds: how long the approver may take before the call is denied.
        expires: seconds after which a decision comes too late; by default 15 minutes for `defer` and never for `park`.
        also: names of tools that ask whatever `when` says.
    """

    def __init__(
        self,
        when: When = by_risk,
        approver: Approver | None = None,
        *,
        mode: ApprovalMode = "park",
        seconds: float = 60.0,
        expires: float | None = None,
        also: Collection[str] = (),
    ) -> None:
        if inspect.iscoroutinefunction(when):
            raise ConfigurationError("Approval(when=...) must not be async: whatever it returns is true.")
        self.when = when
        self.approver = approver
        self.mode: ApprovalMode = mode
        self.seconds = seconds
        self.expires = DEFER_SECONDS if expires is None and mode == "defer" else expires
        self.also = frozenset(also)

    def bound(self, approver: Approver | None, mode: ApprovalMode | None, also: Collection[str]) -> Approval:
        """The same layer for one run: with who is asked, how calls are held, and what the environment adds."""
        return Approval(
            self.when,
            self.approver or approver,
            mode=mode or self.mode,
            seconds=self.seconds,
            expires=self.expires if mode in (None, self.mode) else None,
            also=self.also | set(also),
        )

    async def __call__(self, call: Call, next: Next, /) -> Any:
        """See `ToolMiddleware`.

        Raises:
            CallStopped: denied, or held for later; the text tells the model.
        """
        if call.call.id in call.recorder.state.questions:
            _stop_where_denied(call)
        value = await self._gate(call, next)
        if isinstance(value, Pending) and value.question is not None:
            return await self._put(call, value.question)
        return value

    async def _gate(self, call: Call, next: Next) -> Any:
        state = call.recorder.state
        asked = state.asked.get(call.call.id)
        decision = state.decided.get(asked.approval_id) if asked else None
        if asked is not None and asked.mode == "defer" and _is_bound(call, asked):
            raise _deferred(
                call, asked
            )  # cut off before the model was told; decided or not, it runs as a run of its own
        if asked is not None and decision is not None and _is_bound(call, asked):
            return await self._follow(call, asked, decision, next)
        need = self.need(call.found, call.arguments or {})
        if asked is not None:  # for another call than this has become: what was decided does not count
            need = need if isinstance(need, str) else asked.role or True
        if not need:
            return await next(call)
        return await self._hold(call, need, next)

    def need(self, tool: Tool, arguments: dict[str, Any]) -> bool | str:
        """Whether a call needs a human, or which role; only a False of `when` says that it needs none."""
        need: object = self.when(tool, arguments)
        if isinstance(need, str) and need:
            return need
        return need is not False or tool.name in self.also

    async def _hold(self, call: Call, need: bool | str, next: Next) -> Any:
        if (denied := _denied_already(call)) is not None:
            raise _denial(call, denied)
        mode: ApprovalMode = "wait" if self.approver else self.mode
        if mode == "defer" and (before := _held_already(call)) is not None:
            raise _deferred(call, before)
        role = need if isinstance(need, str) else None
        asked = question(call, mode=mode, role=role, expires=self.expires)
        call.recorder.record(asked)
        await call.recorder.commit()
        if self.approver is not None:
            decision = await self._ask_now(call, asked)
            if decision is not None:
                return await self._follow(call, asked, decision, next)
        if mode != "defer":
            return Pending(asked.approval_id)
        raise _deferred(call, asked)

    async def _put(self, call: Call, asks: Question) -> Pending:
        """Put what the function asks to a human; whoever drives the run calls it again once there is an answer."""
        expires = None if self.mode == "defer" else self.expires
        asked = asked_by(call, asks, mode="wait" if self.approver else "park", expires=expires)
        call.recorder.record(asked)
        await call.recorder.commit()
        if not call.context.cancelled.is_set():
            await self._ask_now(call, asked)
        return Pending(asked.approval_id)

    async def _ask_now(self, call: Call, asked: ApprovalAsked) -> ApprovalDecided | None:
        with call.recorder.stopwatch.standing():
            decision = await self.ask(pending_of(call.recorder.state, asked, call.call.provider_id))
        if decision is not None:
            call.recorder.record(decision)
        return decision

    async def _follow(self, call: Call, asked: ApprovalAsked, decision: ApprovalDecided, next: Next) -> Any:
        if decision.decision == "deny" and asked.kind == "doubt":
            raise CallStopped(
                f"Outcome unknown: {call.found.name} had begun before an interruption, and a human decided not to run "
                f"it again.{_because(decision.reason)}",
                "unknown",
            )
        if decision.decision == "deny":
            raise _denial(call, decision)
        if decision.decision == "edit" and decision.arguments is not None:
            _take(call, decision.arguments)
        elif call.raw:  # a guarded function has its values from its caller, who is no layer
            _take(call, call.arguments)
        return await next(call)

    async def ask(self, pending: PendingApproval) -> ApprovalDecided | None:
        """What the approver says; None where there is none, or it leaves the decision to another."""
        if self.approver is None:
            return None
        clock = asyncio.timeout(self.seconds)
        try:
            async with clock:
                answer = self.approver(pending)
                answer = await insist(_said(answer), "approve=") if inspect.isawaitable(answer) else answer
        except ToolError as said:
            answer = Decision("deny", reason=str(said))
        except (FatalToolError, StoreError):
            raise
        except Exception:  # noqa: BLE001 - whatever keeps it from asking is no answer of a human
            if not clock.expired():
                _log.exception("approve= failed on %s, %s", pending.tool, pending.approval_id)
                return None
            answer = Decision("deny", reason=f"nobody answered within {self.seconds:g} s")
        if answer == "park":
            return None
        answer = Decision("deny") if answer is None else answer
        if problem := misfit(answer, pending.kind, pending.choices):
            _log.warning("approve= did not decide on %s, %s: %s", pending.tool, pending.approval_id, problem)
            return None
        return decided(pending.approval_id, answer)


async def _said(answer: Awaitable[Answer]) -> Answer:
    try:
        return await answer
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise RuntimeError("what it waited for was cancelled, and not the run") from error


def _is_bound(call: Call, asked: ApprovalAsked) -> bool:
    """Whether a human was asked about exactly this call; one that was edited before it began is the edited one."""
    for fingerprint, arguments in call.recorder.state.edits.get(call.call.id, ()):
        if call.fingerprint == asked.fingerprint:
            return True
        if call.fingerprint == fingerprint:
            _take(call, arguments)
    return call.fingerprint == asked.fingerprint


def _held_already(call: Call) -> ApprovalAsked | None:
    """The same call, deferred earlier in the run and still undecided: a human is asked once about both."""
    state, now = call.recorder.state, now_ms()
    for asked in () if call.found.repeatable else state.asked.values():
        undecided = asked.approval_id not in state.decided and (asked.expires_at is None or asked.expires_at > now)
        if undecided and asked.mode == "defer" and asked.fingerprint == call.fingerprint:
            return asked
    return None


def _denied_already(call: Call) -> ApprovalDecided | None:
    """The decision on the same call earlier in the run, if it was no: a model that insists asks nobody twice."""
    state = call.recorder.state
    for asked in () if call.found.repeatable else state.asked.values():
        decision = state.decided.get(asked.approval_id)
        denied = decision is not None and decision.decision == "deny" and asked.kind == "call"
        if denied and asked.fingerprint == call.fingerprint:
            return decision
    return None


def _denial(call: Call, decision: ApprovalDecided) -> CallStopped:
    reason = _because(decision.reason)
    return CallStopped(f"Denied: {call.found.name} was not run.{reason} Do not try it again.", "denied")


def _take(call: Call, arguments: str | dict[str, Any] | None) -> None:
    """Let these arguments run, whatever other layers have made of them."""
    checked = call.found.validate(arguments)
    call.kwargs, call.arguments = checked.kwargs, checked.arguments


def _because(reason: str | None) -> str:
    """A human's reason as a sentence of its own."""
    said = (reason or "").strip()
    return f" Reason: {said}{'' if said.endswith(_ENDS) else '.'}" if said else ""


def _stop_where_denied(call: Call) -> None:
    """End a call whose question a human would not answer, or that asks without end."""
    state, name = call.recorder.state, call.found.name
    asked = state.questions[call.call.id]
    last = state.decided.get(asked[-1].approval_id)
    if last is not None and last.decision == "deny":
        reason = _because(last.reason)
        raise CallStopped(f"Denied: {name} asked a human and was stopped.{reason} Do not try it again.", "denied")
    if len(asked) >= MOST_QUESTIONS:
        raise CallStopped(f"{name} was stopped: it has asked a human {len(asked)} times and come to no end.", "error")


def _deferred(call: Call, asked: ApprovalAsked) -> CallStopped:
    return CallStopped(
        f"Held for approval, confirmation id {asked.approval_id}: {call.found.name} has not been run. It runs by "
        "itself once a human confirms it. Do not call it again; tell the user that it waits for confirmation.",
        "held",
    )


def decided(approval_id: str, answer: Decision | bool) -> ApprovalDecided:
    """What a human said, as an event.

    Raises:
        ConfigurationError: it is no decision; nothing but True approves.
    """
    if isinstance(answer, bool):
        answer = Decision("approve" if answer else "deny")
    if not isinstance(answer, Decision):  # pyright: ignore[reportUnnecessaryIsInstance] - untyped code
        raise ConfigurationError(f"A decision is True, False or a Decision, and not a {type(answer).__name__}.")
    edited = None if answer.arguments is None else dumps(answer.arguments).decode()
    return ApprovalDecided(approval_id, answer.decision, answer.by, answer.reason, edited, answer.answer)


def pending_of(state: State, asked: ApprovalAsked, provider_id: str) -> PendingApproval:
    """What a human is shown of a call of a run."""
    return PendingApproval(
        asked.approval_id,
        asked.call_id,
        asked.tool,
        loads(asked.arguments),
        asked.summary,
        asked.risk,
        asked.role,
        asked.expires_at,
        provider_id,
        asked.kind,
        state.run_id,
        state.caller,
        asked.choices,
    )
