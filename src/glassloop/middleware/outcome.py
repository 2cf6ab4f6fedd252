"""The end of a tool call as the event that records it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from glassloop.core.encoding import digest, dumps
from glassloop.core.events import ToolFinished
from glassloop.core.messages import ToolResult
from glassloop.middleware.call import Call, Done, Failed
from glassloop.tools.results import Rendered, change_note, render_result


class Outcome(NamedTuple):
    """How a call ended, ready to be recorded.

    Args:
        data: the event.
        blobs: contents that it names, by digest.
        values: the whole result by call id, where the model sees less of it.
    """

    data: ToolFinished
    blobs: Mapping[str, bytes]
    values: Mapping[str, Any]


def outcome_of(call: Call, ended: Done | Failed, ms: float) -> Outcome:
    """The event of a call that has ended. Pure: also called on a database's thread."""
    match ended:
        case Done(value):
            return _done(call, render_result(value), ms)
        case Failed(message, status):
            result = ToolResult(call.call.id, call.call.name, _noted(call, message), status)
            return Outcome(_event(call, result, ms), {}, {})


def _done(call: Call, shown: Rendered, ms: float) -> Outcome:
    content = _noted(call, shown.content)
    result = ToolResult(call.call.id, call.call.name, content, media=shown.media)
    blobs = {item.digest: item.content for item in shown.media if item.content is not None}
    if shown.complete and content == shown.content:
        return Outcome(_event(call, result, ms, form=shown.form), blobs, {})
    whole = dumps(shown.value)
    key = digest(whole)
    data = _event(call, result, ms, value=key, form=shown.form)
    return Outcome(data, {**blobs, key: whole}, {call.call.id: shown.value})


def _event(call: Call, result: ToolResult, ms: float, **more: Any) -> ToolFinished:
    return ToolFinished(
        call_id=call.call.id,
        result=result,
        ms=ms,
        arguments=None if call.arguments is None else dumps(call.arguments).decode(),
        reason=call.reason,
        confidence=call.confidence,
        replayed=call.replayed,
        **more,
    )


def _noted(call: Call, content: str) -> str:
    """What the model is told beside: how a human has changed the call, and what was cut of an oversized reply."""
    state = call.recorder.state
    edits, alone = state.edits.get(call.call.id), state.kind == "call"  # a lone call's result is first of all a user's
    if edits and not alone and call.arguments is not None and call.fingerprint != edits[0][0]:
        content += change_note(dumps(call.arguments).decode())
    reply = state.replies[-1]
    if not reply.dropped_calls or call.call.id != reply.calls[-1].id:
        return content
    most = state.limits.calls_per_step
    return f"{content}\n[{reply.dropped_calls} further calls were dropped: at most {most} are run in one step.]"
