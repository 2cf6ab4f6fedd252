"""Conversations in OpenAI's format, as ours."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterable, Mapping
from typing import Any

from glassloop.core.encoding import dumps
from glassloop.core.messages import (
    Content,
    Media,
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
from glassloop.models.chat_reply import REASONING_DETAILS, REASONING_FIELDS
from glassloop.models.history import HistoryReader
from glassloop.models.shapes import array, record


def from_openai(messages: Iterable[Mapping[str, Any]], *, provider: str = "") -> list[Message]:
    """Read a conversation in the format of OpenAI's Chat Completions, e.g. to pass it as `history=`.

    Calls get ids of ours that follow from the conversation up to them: reading the same conversation again, or a longer
    one that begins with it, gives the same ids, so that a history that is both stored and passed is recognised.

    Args:
        messages: dictionaries with `role` and `content`.
        provider: whose replies these are (`OpenAIChat.provider`); without it reasoning is kept and never sent.

    Raises:
        ConfigurationError: a message is not one of OpenAI's; the error names its position and what is wrong.
    """
    return _Reader(provider).read(messages)


class _Reader(HistoryReader):
    roles = "system, developer, user, assistant or tool"

    def take(self, fields: Mapping[str, Any]) -> bool:
        """See `HistoryReader`."""
        match fields.get("role"):
            case "system" | "developer":
                self.messages.append(SystemMessage(_plain(fields.get("content"))))
            case "user":
                self.messages.append(UserMessage(_contents(fields.get("content"))))
            case "assistant":
                self.messages.append(self._reply(fields))
            case "tool" | "function":
                self.messages.append(self._result(fields))
            case _:
                return False
        return True

    def _reply(self, fields: Mapping[str, Any]) -> Reply:
        thinking = next((fields[key] for key in REASONING_FIELDS if isinstance(fields.get(key), str)), "")
        kept = (key for key in (*REASONING_FIELDS, REASONING_DETAILS) if fields.get(key))
        extra = {key: None if fields[key] == thinking else fields[key] for key in kept}
        text = _plain(fields.get("content"))
        parts: list[Part] = [Thinking(thinking)] if thinking else []
        parts += [Text(text)] if text else []
        parts += self._tool_calls(fields)
        return Reply(tuple(parts), provider=self.provider, refusal=fields.get("refusal") or None, extra=extra)

    def _tool_calls(self, fields: Mapping[str, Any]) -> list[ToolCall]:
        entries = [record(entry) for entry in array(fields.get("tool_calls"))]
        if (old := record(fields.get("function_call"))) and not entries:
            entries = [{"id": old.get("name"), "function": old}]
        calls: list[ToolCall] = []
        for number, entry in enumerate(entries):
            function = record(entry.get("function"))
            arguments = function.get("arguments")
            call = ToolCall(
                id=self.call_id(number),
                name=str(function.get("name") or ""),
                arguments=arguments if isinstance(arguments, str) else dumps(arguments or {}).decode(),
                provider_id=str(entry.get("id") or ""),
                extra={key: value for key, value in entry.items() if key not in ("id", "type", "function", "index")},
            )
            calls.append(call)
        self.open.add(calls)
        return calls

    def _result(self, fields: Mapping[str, Any]) -> ToolResult:
        """A result of no call keeps its id, and is left out when the conversation is sent."""
        wire_id, tool = str(fields.get("tool_call_id") or ""), str(fields.get("name") or fields.get("tool_name") or "")
        call = self.open.take(wire_id, tool)
        text, media = _result_content(fields.get("content"))
        return ToolResult(call.id if call else wire_id or tool, call.name if call else tool, text, media=media)


def _result_content(content: Any) -> tuple[str, tuple[Media, ...]]:
    if content is None or isinstance(content, str):
        return content or "", ()
    parts = [_content(record(part)) for part in array(content)]
    text = "".join(part.text for part in parts if isinstance(part, Text))
    return text, tuple(part for part in parts if isinstance(part, Media))


def _contents(content: Any) -> str | tuple[Content, ...]:
    if content is None or isinstance(content, str):
        return content or ""
    parts = tuple(_content(record(part)) for part in array(content))
    return parts if any(isinstance(part, Media) for part in parts) else "".join(map(_text_of, parts))


def _content(part: Mapping[str, Any]) -> Content:
    match part.get("type"):
        case "text" | "input_text" | "output_text":
            return Text(str(part.get("text") or ""))
        case "refusal":
            return Text(str(part.get("refusal") or ""))
        case "thinking" | "reasoning":
            return Text("")
        case "image_url":
            image = part.get("image_url")
            url = str(record(image).get("url") or image or "")
            return _media(url, None) or Text(f"[image: {url[:200]}]")
        case "file":
            file = record(part.get("file"))
            name = str(file.get("filename") or "file")
            return _media(str(file.get("file_data") or ""), name) or Text(f"[file: {name}]")
        case kind:
            return Text(f"[{kind or 'unknown part'}]")


def _media(url: str, name: str | None) -> Media | None:
    """The bytes of a base64 `data:` URL (RFC 2397); other URLs are not fetched."""
    head, comma, data = url.partition(",")
    if not (head.startswith("data:") and head.endswith(";base64") and comma):
        return None
    try:
        content = b64decode(data, validate=True)
    except ValueError:
        return None
    return Media.of(content, head[5:-7].partition(";")[0] or "application/octet-stream", name)


def _plain(content: Any) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    return "".join(_text_of(_content(record(part))) for part in array(content))


def _text_of(part: Content) -> str:
    return part.text if isinstance(part, Text) else f"[{part.media_type}]"
