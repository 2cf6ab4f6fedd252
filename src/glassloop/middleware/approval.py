"""A human decides on one exact call before it runs."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any

from glassloop.core.encoding import canonical, digest, dumps, loads
from glassloop.core.events import ApprovalAsked, ApprovalDecided
from glassloop.core.ids import new_id
from glassloop.core.result import Decision, PendingApproval
from glassloop.middleware.call import Call, CallStopped, Next, Pending
from glassloop.tools.tool import Tool

Approver = Callable[[PendingApproval], Decision | bool | Awaitable[Decision | bool | None] | None]
"""Asks a human; True approves, False denies, None or no answer in time denies."""

When = Callable[[Tool, dict[str, Any]], bool | str]
"""Whether a call needs a human; a string names the role that must decide."""


def by_risk(tool: Tool, arguments: dict[str, Any]) -> bool | str:
    """The default: what the tool itself says, else everything of high risk."""
    if tool.approval is None:
        return tool.risk == "high"
    return tool.approval(arguments) if callable(tool.approval) else bool(tool.approval)


class Approval:
    """Holds calls that need a human.

    With an approver the call waits for its answer; without one it parks: the run rests with the outcome `waiting`, and
    the decision comes through `Agent.resume`. The decision binds the tool and the exact arguments; edited arguments
    are validated again.

    Args:
        when: which calls need a human.
        approver: asks a human now; None parks the run.
        seconds: how long the approver may take before the call is denied.
    """

    def __init__(self, when: When = by_risk, approver: Approver | None = None, seconds: float = 60.0) -> None:
        self.when = when
        self.approver = approver
        self.seconds = seconds

    async def __call__(self, call: Call, next: Next, /) -> Any:
        """See `ToolMiddleware`.

        Raises:
            CallStopped: denied; the text gives the reason to the model.
        """
        state = call.recorder.state
        asked = state.asked.get(call.call.id)
        decided = state.decided.get(asked.approval_id) if asked else None
        if asked is not None and decided is not None and asked.fingerprint == self._fingerprint(call):
            return await self._follow(call, decided, next)
        need = self.when(call.found, call.arguments or {})
        if not need:
            return await next(call)
        question = self._question(call, need)
        call.recorder.record(question)
        await call.recorder.commit()
        if self.approver is None:
            return Pending(question.approval_id)
        decision = await self._ask(self.approver, pending_of(question, call.call.provider_id))
        call.recorder.record(decision)
        return await self._follow(call, decision, next)

    async def _follow(self, call: Call, decision: ApprovalDecided, next: Next) -> Any:
        if decision.decision == "deny":
            reason = f" Reason: {decision.reason}" if decision.reason else ""
            raise CallStopped(f"Denied: {call.found.name} was not run.{reason} Do not try it again.", "denied")
        if decision.decision == "edit" and decision.arguments is not None:
            checked = call.found.validate(decision.arguments)
            call.kwargs, call.arguments = checked.kwargs, checked.arguments
        return await next(call)

    async def _ask(self, approver: Approver, pending: PendingApproval) -> ApprovalDecided:
        try:
            async with asyncio.timeout(self.seconds):
                answer = approver(pending)
                answer = await answer if inspect.isawaitable(answer) else answer
        except TimeoutError:
            answer = Decision("deny", reason=f"nobody answered within {self.seconds:g} s")
        return decided(pending.approval_id, answer or False)

    def _question(self, call: Call, need: bool | str) -> ApprovalAsked:
        tool, arguments = call.found, dumps(call.arguments).decode()
        return ApprovalAsked(
            approval_id=new_id("appr"),
            call_id=call.call.id,
            tool=tool.name,
            arguments=arguments,
            fingerprint=self._fingerprint(call),
            summary=f"{tool.name}({arguments[1:-1]})"[:300],
            risk=tool.risk,
            role=need if isinstance(need, str) else None,
        )

    def _fingerprint(self, call: Call) -> str:
        return digest(canonical([call.found.name, call.found.origin, call.arguments]).encode())


def decided(approval_id: str, answer: Decision | bool) -> ApprovalDecided:
    """What a human said, as an event."""
    if isinstance(answer, bool):
        answer = Decision("approve" if answer else "deny")
    edited = None if answer.arguments is None else dumps(answer.arguments).decode()
    return ApprovalDecided(approval_id, answer.decision, answer.by, answer.reason, edited)


def pending_of(asked: ApprovalAsked, provider_id: str = "") -> PendingApproval:
    """What a human is shown."""
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
    )
