"""What a run adds to its session: a projection of its events.

A run hands its messages over when it ends. Where it waits for a human and the session's next run begins, it hands over
what there is, with a placeholder for each open call; what becomes of the call is then told by a later message, since
the placeholder has been read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from glassloop.core.events import Event, RunFinished, SessionTold
from glassloop.core.ids import root_of
from glassloop.core.messages import Message, Reply, Text, ToolCall, ToolResult, UserMessage
from glassloop.journal.journal import Turn
from glassloop.journal.moves import is_held
from glassloop.journal.state import State
from glassloop.tools.results import capped, change_note

_MOST_OF_TOO_MUCH = 4_000  # characters of a text
_DECIDED = "[A human decided on the held call of "
_LOOKS = "A human looks into it "


@dataclass(frozen=True)
class HandedOver:
    """What the session has of a run.

    Args:
        length: messages of the run's conversation that it has.
        held: calls of the last of them that it has placeholders for.
    """

    length: int
    held: Mapping[str, ToolCall] = field(default_factory=dict[str, ToolCall])


def turn_of(state: State, before: HandedOver | None) -> Turn | None:
    """What a run that has ended, or waits, adds to its session now; None where it has no session, or goes on.

    Args:
        state: the run.
        before: what it has added so far.
    """
    session = state.identity.session
    if session is None or root_of(state.run_id) != state.run_id or not _rests(state):
        return None
    if state.kind == "call":
        assert state.finished is not None
        return Turn(session, state.run_id, [_lone_call(state, state.finished.output or "")])
    if before is None:
        key, messages = state.run_id, [*state.conversation[state.history_length :], *_open_round(state)]
    else:
        key, messages = f"{state.run_id}.{state.epoch}", [*_since(state, before)]
    return Turn(session, key, [*map(_shortened, messages)] if _overflowed(state) else messages)


def handed_over(events: Sequence[Event], history: Sequence[Message]) -> HandedOver | None:
    """What a session has of a run after these events; `history` is the session before the run."""
    return next((after for _, after in reversed(list(_rests_of(events, history)))), None)


def turns_of(events: Sequence[Event], history: Sequence[Message]) -> list[Turn]:
    """Everything that a run has added to its session, in order: adding it again changes nothing."""
    return [turn for turn, _ in _rests_of(events, history)]


def _rests_of(events: Sequence[Event], history: Sequence[Message]) -> Iterator[tuple[Turn, HandedOver]]:
    state, before = State(conversation=list(history)), None
    for event in events:
        state.apply(event)
        if isinstance(event.data, SessionTold | RunFinished):
            turn = turn_of(state, before)
            if turn is not None:
                before = HandedOver(len(state.conversation), dict(state.open_calls))
                yield turn, before


def _rests(state: State) -> bool:
    return state.finished is not None or (state.rested and bool(state.open_calls) and _waits(state))


def _waits(state: State) -> bool:
    if state.kind == "call" or state.waits is False:
        return False
    return state.waits or all(is_held(state, call) for call in state.open_calls.values())


def _overflowed(state: State) -> bool:
    return state.finished is not None and state.finished.error_kind == "context_length"


def _shortened(message: Message) -> Message:
    """A long text of a run that was too long for its model by head and tail: whole, it would be too long in each later
    turn of the session, too. The journal has all of it."""
    match message:
        case UserMessage(content=str(text)):
            return replace(message, content=capped(text, _MOST_OF_TOO_MUCH))
        case UserMessage(content=parts):
            shown = [Text(capped(one.text, _MOST_OF_TOO_MUCH)) if isinstance(one, Text) else one for one in parts]
            return replace(message, content=tuple(shown))
        case ToolResult():
            return replace(message, content=capped(message.content, _MOST_OF_TOO_MUCH))
        case _:
            return message


def _open_round(state: State) -> Iterator[ToolResult]:
    """Results of the last reply while some of its calls are open: those that are known, and placeholders."""
    if state.open_calls:
        for call in state.replies[-1].calls:
            yield state.results.get(call.id) or _placeholder(state, call)


def _placeholder(state: State, call: ToolCall) -> ToolResult:
    if call.id in state.suspended:
        text = f"Not finished: {call.name} waits for a human. What becomes of it is told in a later message."
        return ToolResult(call.id, call.name, text, "held")
    asked = state.held_by(call.id)
    if asked is None:
        text = f"Not run yet: {call.name} waits for the calls beside it. What becomes of it is told in a later message."
        return ToolResult(call.id, call.name, text, "held")
    if asked.kind == "question":
        text = (
            f"Not finished: {call.name} has asked a human (approval {asked.approval_id}): {asked.summary} "
            "Do not call it again; what becomes of it is told in a later message."
        )
        return ToolResult(call.id, call.name, text, "held")
    if asked.kind == "doubt":
        text = (
            f"Outcome unknown: {call.name} was begun and cut off, and may have happened. {_LOOKS}"
            f"(approval {asked.approval_id}). Do not call it again."
        )
        return ToolResult(call.id, call.name, text, "unknown")
    text = (
        f"Held for approval {asked.approval_id}: {call.name} has not been run. Do not call it again; what becomes of "
        "it is told in a later message."
    )
    return ToolResult(call.id, call.name, text, "held")


def _since(state: State, before: HandedOver) -> Iterator[Message]:
    """What is new since the session was told last."""
    results = dict(state.results)
    rest = state.conversation[before.length :]
    if before.held and rest:
        closed = len(_reply_before(state, before).calls)
        results |= {each.call_id: each for each in rest[:closed] if isinstance(each, ToolResult)}
        rest = rest[closed:]
    for call in before.held.values():
        if call.id in results:
            yield _decided(call, results[call.id].content)
    yield from rest
    if state.open_calls.keys().isdisjoint(before.held):
        yield from _open_round(state)


def _reply_before(state: State, before: HandedOver) -> Reply:
    reply = state.conversation[before.length - 1]
    assert isinstance(reply, Reply)
    return reply


def _lone_call(state: State, said: str) -> UserMessage:
    """What became of a deferred call."""
    call = state.replies[0].calls[0]
    ran = state.executions[-1][1].arguments if state.edits and state.executions else None
    return _decided(call, said if ran in (None, call.arguments) else said + change_note(ran))


def _decided(call: ToolCall, said: str) -> UserMessage:
    return UserMessage(f"{_DECIDED}{call.name}. {said}]", origin="note")


def is_awaited(result: ToolResult) -> bool:
    """Whether a human has yet to decide on the call, as far as this result tells."""
    return result.status == "held" or (result.status == "unknown" and _LOOKS in result.content)


def is_told(result: ToolResult, message: Message) -> bool:
    """Whether `message` tells what became of the call that this result held."""
    if not isinstance(message, UserMessage) or message.origin != "note":
        return False
    return message.text.startswith(f"{_DECIDED}{result.name}. ")
