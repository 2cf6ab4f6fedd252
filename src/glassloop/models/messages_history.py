"""Conversations in Anthropic's format, as ours."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterable, Mapping
from typing import Any

from glassloop.core.encoding import dumps
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
from glassloop.models.history import HistoryReader
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
    return _Reader(provider).read(messages)


class _Reader(HistoryReader):
    roles = "user or assistant"

    def take(self, fields: Mapping[str, Any]) -> bool:
        """See `HistoryReader`."""
        content = fields.get("content")
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else [*map(record, array(content))]
        match fields.get("role"):
            case "user":
                self._user(blocks)
            case "assistant":
                parts = tuple(self._part(number, block) for number, block in enumerate(blocks))
                self.open.add([part for part in parts if isinstance(part, ToolCall)])
                self.messages.append(Reply(parts, provider=self.provider))
            case _:
                return False
        return True

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
        call = self.open.take(wire_id)
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
                return ToolCall(
                    id=self.call_id(number),
                    name=str(block.get("name") or ""),
                    arguments=dumps(block.get("input") or {}).decode(),
                    provider_id=str(block.get("id") or ""),
                )
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
        case "image" | "document" if source.get("type") == "url":
            return Text(f"[{block['type']}: {str(source.get('url') or '')[:200]}]")
        case "search_result" | "document" if texts := _texts(block.get("content") or source.get("content")):
            head = [str(block[key]) for key in ("title", "source") if isinstance(block.get(key), str)]
            return Text("".join(f"{line}\n" for line in (*head, *texts)))
        case kind:
            return Text(f"[{kind or 'unknown block'}]")


def _texts(content: Any) -> list[str]:
    """The texts of blocks in a block: what was searched, or a document in pieces."""
    if isinstance(content, str):
        return [content]
    return [text for block in map(record, array(content)) if isinstance(text := block.get("text"), str)]
