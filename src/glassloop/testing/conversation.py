"""A request as a stand-in model reads it, whatever wire format it came in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from glassloop.core.encoding import dumps, loads
from glassloop.core.messages import (
    Message,
    Part,
    Reply,
    SystemMessage,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    UserMessage,
)
from glassloop.models.model import FINAL_ANSWER
from glassloop.testing.shapes import array, record, string, texts

WireName = Literal["openai", "anthropic"]


@dataclass(frozen=True, slots=True)
class OfferedTool:
    """A tool on offer in a request."""

    name: str
    description: str
    schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """A tool call of this turn, and what came back.

    Args:
        name: the tool that was called.
        arguments: as they stand in the request.
        text: the result as the model reads it.
        is_error: the wire's own error mark; OpenAI's has none, so there it is always False.
    """

    name: str
    arguments: Mapping[str, Any]
    text: str
    is_error: bool = False

    @property
    def value(self) -> Any:
        """The result as JSON, where it is JSON or has one JSON value inside; else its text."""
        for opening, closing in (("", ""), ("{", "}"), ("[", "]")):
            start = self.text.find(opening)
            end = self.text.rfind(closing) + len(closing) if closing else len(self.text)
            try:
                return loads(self.text[max(start, 0) : end])
            except ValueError:
                continue
        return self.text

    @property
    def fields(self) -> dict[str, Any]:
        """The result's fields where it is a JSON object; else none."""
        return record(self.value)


@dataclass(frozen=True)
class Conversation:
    """What a stand-in model is asked.

    Args:
        wire: the format it came in.
        model: the model that was asked for.
        system: the instructions.
        messages: the conversation in nobody's format, without the instructions; images and files are left out.
        tools: the tools on offer, in order.
        stream: whether the answer will be streamed.
        body: the request as it came.
        headers: its HTTP headers, names in lower case.
    """

    wire: WireName
    model: str
    system: str
    messages: tuple[Message, ...]
    tools: tuple[OfferedTool, ...]
    stream: bool
    body: Mapping[str, Any] = field(repr=False)
    headers: Mapping[str, str] = field(repr=False, default_factory=dict[str, str])

    @cached_property
    def schema(self) -> Mapping[str, Any] | None:
        """The JSON Schema that the reply is to fit (`response_format`, `output_config.format`); None where none is."""
        wanted = record(record(self.body.get("response_format")).get("json_schema"))
        if self.wire == "anthropic":
            wanted = record(record(self.body.get("output_config")).get("format"))
        return record(wanted.get("schema")) or None

    @cached_property
    def _turn(self) -> int:
        """Where the last user message stands."""
        found = (index for index in range(len(self.messages) - 1, -1, -1) if self.messages[index].role == "user")
        return next(found, 0)

    @cached_property
    def user(self) -> str:
        """The last user text."""
        message = self.messages[self._turn] if self.messages else None
        return message.text if isinstance(message, UserMessage) else ""

    @cached_property
    def results(self) -> tuple[ToolOutcome, ...]:
        """What the tools returned since the last user text, in order."""
        return self._outcomes(self.messages[self._turn :])

    @cached_property
    def earlier(self) -> tuple[ToolOutcome, ...]:
        """What the tools returned before the last user text, in order."""
        return self._outcomes(self.messages[: self._turn])

    def _outcomes(self, messages: Sequence[Message]) -> tuple[ToolOutcome, ...]:
        calls = {call.id: call for reply in self.messages if isinstance(reply, Reply) for call in reply.calls}
        results = (message for message in messages if isinstance(message, ToolResult))
        return tuple(_outcome(calls.get(result.call_id), result) for result in results)

    def results_of(self, tool: str) -> tuple[ToolOutcome, ...]:
        """The results of one tool since the last user text."""
        return tuple(result for result in self.results if result.name == tool)

    def offers(self, tool: str) -> bool:
        """Whether the tool is on offer."""
        return any(offered.name == tool for offered in self.tools)

    @cached_property
    def wanted(self) -> Mapping[str, Any] | None:
        """The JSON Schema that the answer must fit (`Agent(output=...)`), however it is asked for; None for a text."""
        format_ = self.body.get("response_format") or record(self.body.get("output_config")).get("format")
        constraint = record(format_)
        schema = record(constraint.get("json_schema")).get("schema") or constraint.get("schema")
        by_tool = (offered.schema for offered in self.tools if offered.name == FINAL_ANSWER)
        return record(schema) or next(by_tool, None)

    def answer(self, **fields: Any) -> str | ToolCall:
        """The answer that is wanted, to be returned by a brain: JSON, or a call of the tool that takes the answer."""
        if self.offers(FINAL_ANSWER):
            return ToolCall("", FINAL_ANSWER, _json(fields))
        return _json(fields)


def _outcome(call: ToolCall | None, result: ToolResult) -> ToolOutcome:
    arguments = _arguments(call.arguments) if call else {}
    return ToolOutcome(call.name if call else result.name, arguments, result.content, result.is_error)


def _arguments(raw: str) -> dict[str, Any]:
    try:
        return record(loads(raw))
    except ValueError:
        return {}


def read_chat(body: Mapping[str, Any], headers: Mapping[str, str]) -> Conversation:
    """A request of OpenAI's Chat Completions, already found to be in order."""
    messages = [_chat_message(record(message)) for message in array(body.get("messages"))]
    system = "\n\n".join(message.text for message in messages if isinstance(message, SystemMessage))
    functions = [record(record(tool).get("function")) for tool in array(body.get("tools"))]
    return Conversation(
        wire="openai",
        model=string(body.get("model")),
        system=system,
        messages=tuple(message for message in messages if not isinstance(message, SystemMessage)),
        tools=tuple(_offered(function, "parameters") for function in functions),
        stream=body.get("stream") is True,
        body=body,
        headers=headers,
    )


def _chat_message(message: dict[str, Any]) -> Message:
    text = texts(message.get("content"))
    match message.get("role"):
        case "system" | "developer":
            return SystemMessage(text)
        case "tool":
            return ToolResult(string(message.get("tool_call_id")), "", text)
        case "assistant":
            thinking = string(message.get("reasoning_content"))
            parts: list[Part] = [Thinking(thinking)] if thinking else []
            parts += [Text(text)] if text else []
            return Reply((*parts, *(_chat_call(record(call)) for call in array(message.get("tool_calls")))))
        case _:
            return UserMessage(text)


def _chat_call(call: dict[str, Any]) -> ToolCall:
    function = record(call.get("function"))
    return ToolCall(string(call.get("id")), string(function.get("name")), string(function.get("arguments")))


def read_messages(body: Mapping[str, Any], headers: Mapping[str, str]) -> Conversation:
    """A request of Anthropic's Messages API, already found to be in order."""
    messages = [part for message in array(body.get("messages")) for part in _anthropic_message(record(message))]
    return Conversation(
        wire="anthropic",
        model=string(body.get("model")),
        system=texts(body.get("system")),
        messages=tuple(messages),
        tools=tuple(_offered(record(tool), "input_schema") for tool in array(body.get("tools"))),
        stream=body.get("stream") is True,
        body=body,
        headers=headers,
    )


def _anthropic_message(message: dict[str, Any]) -> list[Message]:
    content = message.get("content")
    blocks = [record(block) for block in array(content)] or [{"type": "text", "text": content}]
    if message.get("role") == "assistant":
        return [Reply(tuple(part for block in blocks if (part := _anthropic_part(block)) is not None))]
    results: list[Message] = [_anthropic_result(block) for block in blocks if block.get("type") == "tool_result"]
    text = "".join(string(block.get("text")) for block in blocks if block.get("type") == "text")
    return results if results and not text else [*results, UserMessage(text)]


def _anthropic_part(block: dict[str, Any]) -> Part | None:
    match block.get("type"):
        case "text":
            return Text(string(block.get("text")))
        case "thinking":
            return Thinking(string(block.get("thinking")), block.get("signature"))
        case "tool_use":
            return ToolCall(string(block.get("id")), string(block.get("name")), _json(block.get("input")))
        case _:
            return None


def _anthropic_result(block: dict[str, Any]) -> ToolResult:
    status = "error" if block.get("is_error") is True else "ok"
    return ToolResult(string(block.get("tool_use_id")), "", texts(block.get("content")), status)


def _json(value: object) -> str:
    return dumps(value).decode()


def _offered(tool: dict[str, Any], schema: str) -> OfferedTool:
    return OfferedTool(string(tool.get("name")), string(tool.get("description")), record(tool.get(schema)))
