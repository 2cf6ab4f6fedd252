"""History that every provider accepts: one result for every call, in its place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from glassloop.core.blank import is_blank
from glassloop.core.messages import (
    Message,
    Opaque,
    Part,
    Reply,
    SystemMessage,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    UserMessage,
)

INTERRUPTED = "Interrupted before a result was recorded; whether it had an effect is unknown."
_MEMO = "_sendable"
_LOOK_BACK = 70


def sendable(messages: Sequence[Message]) -> Sequence[Message]:
    """The conversation in the form that every provider demands, whatever happened to it before.

    Trimming, cancelling, crashing and merging leave histories that providers answer with 400. Here every call of a
    reply gets exactly one result, directly after the reply and in request order: a result that stands elsewhere moves
    to its call (the first one counts), a call without one is told that it was interrupted, results of no call go.
    Calls that appear a second time (their ids are ours, and unique) go, and so do replies that say nothing.

    Returns `messages` itself where nothing is wrong, which is the rule; messages that stay are the same objects. What
    was found in order is remembered on the last message, so that a conversation that has grown is checked from there.
    """
    start, seen = _checked_before(messages)
    if not _is_sendable(messages[start:], seen):
        return _repaired(messages)
    if messages:
        messages[-1].__dict__[_MEMO] = (tuple(messages[:-1]), seen)
    return messages


def call_ids(reply: Reply) -> tuple[str, ...]:
    """The ids of a reply's calls, in request order; found once per reply."""
    known: dict[str, Any] = reply.__dict__
    ids: tuple[str, ...] | None = known.get("_call_ids")
    if ids is None:
        ids = known["_call_ids"] = tuple(part.id for part in reply.parts if isinstance(part, ToolCall))
    return ids


def says_something(reply: Reply) -> bool:
    """Whether a reply has anything to send: a call, visible text, a refusal, or what only its provider can read."""
    return bool(call_ids(reply)) or _visible(reply)


def _checked_before(messages: Sequence[Message]) -> tuple[int, set[str]]:
    """How many messages need no second look, and the ids of their calls.

    The memo moves on to the new last message: left behind, each would keep a list of all before it.
    """
    for last in range(len(messages) - 1, max(-1, len(messages) - _LOOK_BACK), -1):
        known = messages[last].__dict__.get(_MEMO)
        if known is not None:
            if known[0] != tuple(messages[:last]):  # equal by identity, as a rule: half a microsecond
                break
            messages[last].__dict__.pop(_MEMO, None)
            return last + 1, known[1]
    return 0, set()


def _is_sendable(messages: Sequence[Message], seen: set[str]) -> bool:
    due: tuple[str, ...] = ()
    settled = 0
    for message in messages:  # 0.2 us each
        if type(message) is ToolResult:
            if settled == len(due) or message.call_id != due[settled]:
                return False
            settled += 1
        elif settled != len(due):
            return False
        elif type(message) is Reply:
            due, settled = message.__dict__.get("_call_ids") or call_ids(message), 0
            if due:
                if not seen.isdisjoint(due) or (len(due) > 1 and len(set(due)) != len(due)):
                    return False
                seen.update(due)
            elif not _visible(message):
                return False
    return settled == len(due)


def _repaired(messages: Sequence[Message]) -> list[Message]:
    results: dict[str, ToolResult] = {}
    for message in messages:
        if isinstance(message, ToolResult):
            results.setdefault(message.call_id, message)
    repaired: list[Message] = []
    seen: set[str] = set()
    for message in messages:
        match message:
            case ToolResult():
                pass  # stands after its call
            case Reply():
                reply = _without_repeated_calls(message, seen)
                if reply is not None:
                    repaired.append(reply)
                    repaired += [results.get(call.id) or _interrupted(call) for call in reply.calls]
            case UserMessage() | SystemMessage():
                repaired.append(message)
    return repaired


def _without_repeated_calls(reply: Reply, seen: set[str]) -> Reply | None:
    """The reply without calls that came before; None where nothing new is left of it."""
    parts: list[Part] = []
    for part in reply.parts:
        if isinstance(part, ToolCall):
            if part.id in seen:
                continue
            seen.add(part.id)
        parts.append(part)
    if len(parts) == len(reply.parts):
        return reply if says_something(reply) else None
    if not any(isinstance(part, ToolCall) for part in parts):
        return None  # the same reply again: its text was said, its thinking belongs to the calls
    return replace(reply, parts=tuple(parts))


def _interrupted(call: ToolCall) -> ToolResult:
    return ToolResult(call.id, call.name, INTERRUPTED, "unknown")


def _visible(reply: Reply) -> bool:
    known: dict[str, Any] = reply.__dict__
    visible: bool | None = known.get("_visible")
    if visible is None:
        visible = known["_visible"] = bool(reply.refusal) or any(map(_is_visible, reply.parts))
    return visible


def _is_visible(part: Part) -> bool:
    match part:
        case Text(text):
            return not is_blank(text)
        case Thinking():
            return bool(part.signature or part.redacted)
        case ToolCall() | Opaque():
            return True
