"""The calls of a fresh reply, made fit to be run: known names, no more than allowed, none of a cut-off reply."""

from __future__ import annotations

from dataclasses import replace
from operator import is_

from glassloop.core.messages import Part, Reply, ToolCall
from glassloop.models.answers import with_answers_as_text
from glassloop.models.model import OutputSpec
from glassloop.tools.toolset import ToolIndex

CUT_OFF = (
    "Not run: your reply was cut off by the limit of output tokens, so this call may be incomplete. "
    "Make fewer or shorter calls, or split the work over several steps."
)
CUT_OFF_SHORT = "Not run: your reply was cut off by the limit of output tokens."


def prepare_calls(reply: Reply, index: ToolIndex, most: int, output: OutputSpec | None = None) -> Reply:
    """The reply as it is recorded: canonical tool names, at most `most` calls, an answer given by its tool as text.

    A reply that was cut off by its output limit has none of its calls run: the last one may be half-written, and the
    rest is half a plan.
    """
    if output is not None:
        reply = with_answers_as_text(reply)
    if not reply.calls:
        return reply
    parts: list[Part] = []
    kept = dropped = 0
    for part in reply.parts:
        if not isinstance(part, ToolCall):
            parts.append(part)
        elif kept < most:
            parts.append(_prepare(part, index, reply, first=kept == 0))
            kept += 1
        else:
            dropped += 1
    if not dropped and all(map(is_, parts, reply.parts)):
        return reply  # the rule
    return replace(reply, parts=tuple(parts), dropped_calls=dropped)


def _prepare(call: ToolCall, index: ToolIndex, reply: Reply, first: bool) -> ToolCall:
    problem = call.problem
    if problem is None and reply.stop == "length":
        problem = CUT_OFF if first else CUT_OFF_SHORT
    name = index.canonical(call.name)
    if name == call.name and problem == call.problem:
        return call
    return replace(call, name=name, problem=problem)
