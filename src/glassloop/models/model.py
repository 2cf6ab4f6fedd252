"""The model seam: a request in, a stream of typed parts out."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

from glassloop.core.errors import ModelError
from glassloop.core.messages import Message, Reply

FINAL_ANSWER = "final_answer"
"""The tool whose arguments are the answer, and the action that gives it: no tool of an agent that has a typed output
may have this name."""

ToolMode = Literal["native", "schema", "auto"]
OutputMode = Literal["auto", "native", "tool"]


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """What a model is told about a tool.

    Args:
        name: our name of it; the renderer maps it to a name the provider accepts (`wire_name`).
        description: for the model.
        parameters: JSON Schema of the arguments, an object. Never mutated by anybody.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class OutputSpec:
    """What the final answer of a model must be.

    Args:
        schema: JSON Schema of the answer, an object. Never mutated by anybody.
        mode: `native` where the server constrains its reply to the schema, `tool` where the answer is the arguments of
            the tool `final_answer`; `auto` lets what is known of the server decide.
        description: what the answer is, for the model.
        told: whether the instructions say already what the answer must be.
    """

    schema: Mapping[str, Any]
    mode: OutputMode = "auto"
    description: str = ""
    told: bool = False


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """How to sample; None leaves a setting to the provider.

    Args:
        max_tokens: room for the reply, reasoning included.
        temperature: 0 to 2.
        top_p: 0 to 1.
        stop: sequences that end the reply.
        seed: for repeatability, where the provider has it.
        parallel_tool_calls: whether one reply may hold several calls.
        tool_choice: `auto`, `none`, `required`, or the name of a tool. Of an agent's run, a choice that forces a call
            holds until one has been made, unless the answer is a call itself (an agent's `output`).
        thinking: tokens to think with (Anthropic), or an effort (`low`, `medium`, `high`) where the provider has it.
        extra: fields put into the request body as they are.
        timeout: seconds for one attempt.
        idle_timeout: seconds in which nothing at all may come of a streamed reply, once it has begun; None for any.
            What a server sends to keep the line alive counts as something.
        price: USD per million tokens (input, output), where the price list does not know the model.
        tool_mode: how tools travel: `native`; `schema`, as a reply that a JSON Schema constrains, for models and
            servers that call tools badly or not at all (`glassloop.models.schema_mode`); `auto`, native until the model
            writes a call as text.
    """

    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    stop: tuple[str, ...] = ()
    seed: int | None = None
    parallel_tool_calls: bool | None = None
    tool_choice: str | None = None
    thinking: int | str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])
    timeout: float = 300.0
    idle_timeout: float | None = 120.0
    price: tuple[float, float] | None = None
    tool_mode: ToolMode = "native"


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One model call, in nobody's format.

    Args:
        messages: the view of the conversation; always sendable (`glassloop.models.sendable`).
        instructions: the agent's instructions, sent as the system message.
        tools: the tools on offer; sent with every call.
        settings: how to sample.
        stream: whether parts are wanted as they come; a provider may then answer in one piece all the same.
        output: what the final answer must be; None for a text. A model may give it as text or as a call of the tool
            `final_answer`.
    """

    messages: Sequence[Message]
    instructions: str = ""
    tools: Sequence[ToolSpec] = ()
    settings: ModelSettings = ModelSettings()
    stream: bool = False
    output: OutputSpec | None = None


@dataclass(frozen=True, slots=True)
class TextPart:
    """A piece of visible text."""

    text: str


@dataclass(frozen=True, slots=True)
class ThinkingPart:
    """A piece of thinking."""

    text: str


@dataclass(frozen=True, slots=True)
class ReplyPart:
    """The whole reply; the last part of every stream, exactly once."""

    reply: Reply


@dataclass(frozen=True, slots=True)
class FailedPart:
    """One of several models failed, and the next is asked."""

    model: str
    error: ModelError


ModelPart = TextPart | ThinkingPart | FailedPart | ReplyPart


@runtime_checkable
class Model(Protocol):
    """Anything that answers a request.

    `name` is what the journal and the price list call it, e.g. `openai:gpt-5`. `stream` makes exactly one attempt and
    raises `ModelError` when it fails; call ids in the reply are given by `glassloop.core.ids.new_id("call")`.
    Closing the iterator closes the connection.
    """

    @property
    def name(self) -> str:
        """What the journal calls it."""
        ...

    def stream(self, request: ModelRequest) -> AsyncIterator[ModelPart]:
        """Ask once."""
        ...


async def complete(model: Model, request: ModelRequest) -> Reply:
    """Ask once and return the whole reply: a fold of `stream`."""
    reply: Reply | None = None
    async for part in model.stream(request):  # to its end: a generator left before it is closed by a task of its own
        if isinstance(part, ReplyPart):
            reply = part.reply
    if reply is not None:
        return reply
    raise AssertionError(f"{model.name}: the stream ended without a ReplyPart; a model must end with one.")
