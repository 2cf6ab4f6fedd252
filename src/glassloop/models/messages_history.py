"""Conversations in Anthropic's format, as ours."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterable, Mapping
from typing import Any, cast

from glassloop.core.encoding import digest, dumps
from glassloop.core.errors import ConfigurationError
from glassloop.core.messages import (
    Content,
    Media,
    Message,
    Opaque,
    Part,
    Reply,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    UserMessage,
)
from glassloop.models.shapes import array, record


def from_anthropic(messages: Iterable[Mapping[str, Any]], *, provider: str = "") -> list[Message]:
    """Read a conversation in the format of Anthropic's Messages, e.g. to pass it as `history=`.

    Ids of calls follow from the conversation, as in `from_openai`. Signed thinking is kept and sent again.

    Args:
        messages: dictionaries with `role` and `content` (without the system prompt, which is no message there).
        provider: whose replies these are (`Anthropic.provider`).

    Raises:
        ConfigurationError: a message is not one of Anthropic's; the error names its position and what is wrong.
    """
    reader = _Reader(provider)
    for position, message in enumerate(messages):
        reader.take(position, message)
    return reader.messages


class _Reader:
    def __init__(self, provider: str) -> None:
        self.messages: list[Message] = []
        self._provider = provider
        self._chain = ""
        self._calls: dict[str, ToolCall] = {}

    def take(self, position: int, message: Any) -> None:
        """Read one message."""
        if not isinstance(message, Mapping):
            raise ConfigurationError(f"history[{position}] is not a message: it must be an object with a role.")
        fields = cast("Mapping[str, Any]", message)
        self._chain = digest(self._chain.encode() + dumps(dict(fields)))
        content = fields.get("content")
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else [*map(record, array(content))]
        match fields.get("role"):
            case "user":
                self._user(blocks)
            case "assistant":
                parts = tuple(self._part(number, block) for number, block in enumerate(blocks))
                self.messages.append(Reply(parts, provider=self._provider))
            case role:
                raise ConfigurationError(f"history[{position}] has the role {role!r}; it must be user or assistant.")

    def _user(self, blocks: list[dict[str, Any]]) -> None:
        """Results first, then what the user said."""
        said: list[Content] = []
        for block in blocks:
            if block.get("type") == "tool_result":
                self.messages.append(self._result(block))
            else:
                said.append(_content(block))
        if len(said) == 1 and isinstance(said[0], Text):
            self.messages.append(UserMessage(said[0].text))
        elif said:
            self.messages.append(UserMessage(tuple(said)))

    def _result(self, block: dict[str, Any]) -> ToolResult:
        wire_id = str(block.get("tool_use_id") or "")
        call = self._calls.get(wire_id)
        content = block.get("content")
        inner = [Text(content)] if isinstance(content, str) else [*map(_content, map(record, array(content)))]
        return ToolResult(
            call_id=call.id if call else wire_id,
            name=call.name if call else "",
            content="".join(part.text for part in inner if isinstance(part, Text)),
            status="error" if block.get("is_error") else "ok",
            media=tuple(part for part in inner if isinstance(part, Media)),
        )

    def _part(self, number: int, block: dict[str, Any]) -> Part:
        match block.get("type"):
            case "text":
                return Text(str(block.get("text") or ""))
            case "thinking":
                return Thinking(str(block.get("thinking") or ""), block.get("signature") or None)
            case "redacted_thinking":
                return Thinking(redacted=str(block.get("data") or ""))
            case "tool_use":
                call = ToolCall(
                    id=f"call_{digest(f'{self._chain}:{number}'.encode())[:24]}",
                    name=str(block.get("name") or ""),
                    arguments=dumps(block.get("input") or {}).decode(),
                    provider_id=str(block.get("id") or ""),
                )
                self._calls[call.provider_id] = call
                return call
            case _:
                return Opaque(block)


def _content(block: dict[str, Any]) -> Content:
    source = record(block.get("source"))
    match block.get("type"):
        case "text":
            return Text(str(block.get("text") or ""))
        case "document" if source.get("type") == "text":
            return Text(str(source.get("data") or ""))
        case "image" | "document" if source.get("type") == "base64":
            media_type = str(source.get("media_type") or "application/octet-stream")
            try:
                return Media.of(b64decode(str(source.get("data") or ""), validate=True), media_type, block.get("title"))
            except ValueError:
                return Text(f"[{media_type}]")
        case kind:
            return Text(f"[{kind or 'unknown block'}]")
