"""The whole stack, in one list, outermost first.

    error -> allow -> reasons -> validate -> (yours) -> approval -> idempotency -> start -> hooks -> retry
    -> timeout -> transaction -> tool

Your own middleware stands where the tool is found and its arguments are valid, before anybody is asked. An instance of
one of the kinds below takes that kind's place.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, cast

from glassloop.core.context import RunContext
from glassloop.core.errors import ConfigurationError
from glassloop.core.events import CUT_OFF, AttemptFailed, TextDelta, ThinkingDelta
from glassloop.core.ids import new_id
from glassloop.core.messages import Reply, ToolCall
from glassloop.journal.journal import MemoryJournal
from glassloop.journal.recorder import Recorder
from glassloop.journal.state import State
from glassloop.middleware.allow import Allow
from glassloop.middleware.approval import Approval
from glassloop.middleware.call import Call, ModelCall, ModelMiddleware, ModelNext, Next, Pending, ToolMiddleware
from glassloop.middleware.error import Errors
from glassloop.middleware.hooks import ToolHooks
from glassloop.middleware.idempotency import Idempotency
from glassloop.middleware.reasons import Reasons
from glassloop.middleware.retry import ModelRetry, Retry
from glassloop.middleware.start import Start
from glassloop.middleware.timeout import Timeout
from glassloop.middleware.transaction import Transaction
from glassloop.middleware.validate import Validate
from glassloop.models.model import FailedPart, ReplyPart, TextPart, ThinkingPart
from glassloop.tools.asking import Answers
from glassloop.tools.tool import as_tool
from glassloop.tools.toolset import index_tools

Middleware = ToolMiddleware | ModelMiddleware

TOOL_STACK: tuple[type[ToolMiddleware] | None, ...] = (
    Errors,
    Allow,
    Reasons,
    Validate,
    None,  # yours
    Approval,
    Idempotency,
    Start,
    ToolHooks,
    Retry,
    Timeout,
    Transaction,
)
ONLY_WHEN_GIVEN = (Reasons, ToolHooks)

_CUT_OFF = "The reply was cut off: its run was cancelled, or let go of, or had used its seconds."


def tool_layers(given: Iterable[Middleware]) -> list[ToolMiddleware]:
    """The layers of a tool call, outermost first, with what is given in its place."""
    mine = [cast("ToolMiddleware", one) for one in given if not _is_model(one)]
    layers: list[ToolMiddleware] = []
    for kind in TOOL_STACK:
        if kind is None:
            layers += [one for one in mine if type(one) not in TOOL_STACK]
            continue
        own = [one for one in mine if type(one) is kind]
        if len(own) > 1:
            raise ConfigurationError(f"middleware: {kind.__name__} is given {len(own)} times; one is enough.")
        layers += own or ([] if kind in ONLY_WHEN_GIVEN else [kind()])
    return layers


def tool_stack(layers: Sequence[ToolMiddleware]) -> Next:
    """One handler for a tool call."""
    handler: Next = _invoke
    for layer in reversed(layers):
        handler = partial(_through, layer, handler)
    return handler


def model_stack(given: Iterable[Middleware]) -> ModelNext:
    """One handler for a model call: yours outside, then retry, then the model."""
    mine = [cast("ModelMiddleware", one) for one in given if _is_model(one)]
    if not any(isinstance(one, ModelRetry) for one in mine):
        mine.append(ModelRetry())
    handler: ModelNext = _ask
    for layer in reversed(mine):
        handler = partial(_through, layer, handler)
    return handler


def guard(function: Callable[..., Any], *layers: ToolMiddleware) -> Callable[..., Any]:
    """A plain function behind some of the layers, outside any agent.

    Returns an async function with the same keyword arguments. It returns what the function returns; or `Pending`, where
    that waits for a human and none of the layers asks one.

    Raises:
        ToolDefinitionError: the function cannot be a tool.
        ConfigurationError: one of the layers is none.
    """
    from glassloop.middleware.shape import check_layer

    tool = as_tool(function)
    for layer in layers:
        check_layer(layer, "guard(...)")
    handler = tool_stack(layers)

    async def guarded(**arguments: Any) -> Any:
        run_id, asked = new_id("run"), ToolCall(new_id("call"), tool.name)
        recorder = Recorder(MemoryJournal(), State(run_id=run_id), epoch=1)
        while True:
            context = RunContext(None, run_id).for_call(1, asked.id, None)
            call = Call(
                asked, index_tools([tool]), context, recorder, tool=tool, arguments=arguments, kwargs=dict(arguments)
            )
            value = await handler(call)
            if not isinstance(value, Pending) or value.approval_id not in recorder.state.decided:
                return value

    return guarded


def _through(layer: Any, inner: Any, call: Any) -> Any:
    return layer(call, inner)


async def _invoke(call: Call) -> Any:
    with Answers(call.answers) as answers:
        value = await call.found.invoke(call.kwargs, call.context)
        if answers.question is None:
            return value
    return Pending("", question=answers.question)


async def _ask(call: ModelCall) -> Reply:
    """Innermost: one attempt; parts are streamed on, the last is the whole reply."""
    try:
        async with aclosing(cast("Any", call.model.stream(call.request))) as parts:
            async for part in parts:
                match part:
                    case TextPart(text):
                        call.shown.append(text)
                        call.emit(TextDelta(text))
                    case ThinkingPart(text):
                        call.emit(ThinkingDelta(text))
                    case FailedPart(model, error):
                        call.recorder.record(AttemptFailed(model, error.kind, str(error), error.status, 0.0))
                    case ReplyPart(reply):
                        return reply
                    case _:
                        pass
    except asyncio.CancelledError:
        if call.shown and not call.aside:  # what somebody has read is kept, whoever cut it off
            call.recorder.record(AttemptFailed(call.model.name, CUT_OFF, _CUT_OFF, None, None, call.text))
        raise
    raise ConfigurationError(f"{call.model.name}: the stream ended without a reply; a model must end with a ReplyPart.")


def _is_model(one: Middleware) -> bool:
    return getattr(one, "around_model", False)
