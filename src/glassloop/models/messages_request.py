"""Requests in the format of Anthropic's Messages.

As in `chat_request`, each message is encoded once, here as the blocks it contributes to a turn, and joined as bytes
from then on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from glassloop.core.blank import is_blank
from glassloop.core.encoding import dumps
from glassloop.core.errors import ConfigurationError
from glassloop.core.messages import (
    Media,
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
from glassloop.core.names import wire_name
from glassloop.models.answers import ANTHROPIC, answer_tool, fitted
from glassloop.models.media import IMAGE_TYPES, PDF, Gallery, base64_of, placeholder
from glassloop.models.model import ModelRequest, ModelSettings, ToolSpec
from glassloop.models.replay import arguments_object, wire_ids
from glassloop.models.sendable import sendable
from glassloop.models.server_tools import paired
from glassloop.models.tool_schemas import plain_schema, with_wire_keys
from glassloop.models.toolbox import Packed, Toolbox
from glassloop.models.views import BEGINNING, EMPTY, GO_ON

DEFAULT_MAX_TOKENS = 8_192
"""The API demands a number."""

IMAGE_BYTES = 6_000_000
"""Base64 characters of images and files in one request; the newest are kept (a request may have 32 MB in all)."""

IMAGE_SIDES = (8_000, 2_000)
"""Pixels that an image may be wide or high, and where there are more than 20 of them; others fail the whole request."""

_SMALLEST_BUDGET = 1_024
_MARK = b',"cache_control":{"type":"ephemeral"}}'
_GO_ON = dumps({"type": "text", "text": GO_ON})
_EMPTY = dumps({"type": "text", "text": EMPTY})
_NO_THOUGHT = {"type": "thinking", "thinking": "", "signature": ""}
_SLOTS: dict[tuple[str, str], str] = {}
_SERVED: set[str] = set()
"""Slots of servers that have used tools of their own: only their conversations are looked through for those."""

Thoughts = Literal["signed", "unsigned", "demanded"]
"""What a server wants of its thinking back: what it has signed; also what it has not (Kimi); and for each reply with
calls some, be it empty (DeepSeek)."""

Turn = tuple[str, list[bytes]]
"""A role, and the blocks of its turn."""


class MessagesRenderer:
    """Renders requests for one server.

    Args:
        model: the model's name.
        provider: the identity under which replies of this server are kept.
        caching: whether to mark what should be cached.
        constrains: whether the server knows `output_config.format`.
        thoughts: what the server wants of its thinking back.
    """

    def __init__(
        self, model: str, provider: str, caching: bool, *, constrains: bool = False, thoughts: Thoughts = "signed"
    ) -> None:
        self._constrains = constrains
        self._thoughts = thoughts
        self._model = model
        self._provider = provider
        self._caching = caching
        self._slot = _SLOTS.setdefault((provider, thoughts), f"_messages_{len(_SLOTS)}")
        self._toolbox = Toolbox(_tool)

    def tools(self, request: ModelRequest) -> Packed:
        """The tools on offer, with what they and their arguments are called on the wire."""
        return self._toolbox.pack(self._offered(request, self._format(request)))

    def body(self, request: ModelRequest) -> bytes:
        """The request's body; always a history that the server accepts."""
        messages = sendable(request.messages)
        system = [text for text in (request.instructions, *_system_texts(messages)) if not is_blank(text)]
        turns = self._turns(messages)
        if self._slot in _SERVED and (whole := paired(messages)) is not messages:
            turns = self._turns(whole)
        format_ = self._format(request)
        tools = self._toolbox.pack(self._offered(request, format_), request.settings.extra.get("tools")).encoded
        stand_ins = b"" if tools else _stand_ins(messages)
        if self._caching:
            _mark_last_block(turns, -1)
            _mark_last_block(turns, -3)
            tools = tools if system or not tools else tools[:-1] + _MARK
        fields = self._settings(request, bool(tools), _may_think(turns))
        if format_ is not None:
            fields["output_config"] = {**fields.get("output_config", {}), "format": format_}
        if system:
            fields["system"] = _system_blocks(system) if self._caching else "\n\n".join(system)
        if stand_ins:
            fields["tool_choice"] = {"type": "none"}
        joined = b",".join(
            b'{"role":"' + role.encode() + b'","content":[' + b",".join(blocks) + b"]}" for role, blocks in turns
        )
        tools = tools or stand_ins
        head = [dumps(fields)[:-1], b',"tools":[', tools, b"]"] if tools else [dumps(fields)[:-1]]
        return b"".join([*head, b',"messages":[', joined, b"]}"])

    def _format(self, request: ModelRequest) -> dict[str, Any] | None:
        """What constrains the reply to the schema of the answer; None where nothing can, or is to."""
        output = request.output
        if output is None or output.mode == "tool" or (output.mode == "auto" and not self._constrains):
            return None
        schema = fitted(output.schema, ANTHROPIC)
        return None if schema is None else {"type": "json_schema", "schema": schema}

    def _offered(self, request: ModelRequest, format_: object) -> Sequence[ToolSpec]:
        """The tools on offer, that of the answer among them where nothing constrains the reply."""
        if request.output is None or format_ is not None:
            return request.tools
        return (*request.tools, answer_tool(request.output))

    def _settings(self, request: ModelRequest, with_tools: bool, may_think: bool) -> dict[str, Any]:
        asked = request.settings
        most = asked.max_tokens or DEFAULT_MAX_TOKENS
        fields: dict[str, Any] = {"model": self._model, "max_tokens": most}
        if request.stream:
            fields["stream"] = True
        optional = {
            "temperature": asked.temperature,
            "top_p": asked.top_p,
            "stop_sequences": [text for text in asked.stop if text.strip()] or None,
            "tool_choice": _choice(asked) if with_tools else None,
        }
        fields |= {key: value for key, value in optional.items() if value is not None}
        if (may_think or isinstance(asked.thinking, str)) and not (with_tools and _forces(asked)):
            fields |= _thinking(asked.thinking, most)
        if "messages" in asked.extra:
            raise ConfigurationError("ModelSettings(extra=...) must not hold 'messages'; pass history= to the run.")
        return {**fields, **{key: value for key, value in asked.extra.items() if key != "tools"}}

    def _turns(self, messages: Sequence[Message]) -> list[Turn]:
        """User and assistant by turns, the user first and last; results of one reply stand first in their turn."""
        slot, taken = self._slot, set[str]()
        turns: list[Turn] = []
        ids: tuple[str, ...] = ()
        settled = 0
        gallery: Gallery | None = None
        for message in messages:  # runs for every message of every request
            known = message.__dict__.get(slot)
            role = "user"
            if type(message) is ToolResult:
                wire_id = ids[settled]
                settled += 1
                if message.media:
                    gallery = gallery or _gallery(messages)
                    blocks = _result(message, wire_id, gallery)
                else:
                    if known is None or known[0] != wire_id:
                        known = message.__dict__[slot] = (wire_id, _result(message, wire_id, None))
                    blocks = known[1]
            elif type(message) is Reply:
                role = "assistant"
                if known is None:
                    known = message.__dict__[slot] = self._reply(message, ())
                blocks, ids = known
                settled = 0
                if not taken.isdisjoint(ids):
                    blocks, ids = self._reply(message, taken)
                taken.update(ids)
            elif isinstance(message, UserMessage):
                gallery = gallery or (None if isinstance(message.content, str) else _gallery(messages))
                blocks = known or self._user(message, gallery)
            else:
                continue
            if not blocks:
                continue
            if turns and turns[-1][0] == role:
                turns[-1][1].append(blocks)
            else:
                turns.append((role, [blocks]))
        if not turns or turns[0][0] != "user":
            turns.insert(0, ("user", [dumps(_text_block(BEGINNING))]))
        last = messages[-1] if messages else None
        if turns[-1][0] != "user" and not (isinstance(last, Reply) and last.stop == "paused"):
            turns.append(("user", [_GO_ON]))
        return turns

    def _user(self, message: UserMessage, gallery: Gallery | None) -> bytes:
        if isinstance(message.content, str):
            blocks = _EMPTY if is_blank(message.content) else dumps(_text_block(message.content))
            message.__dict__[self._slot] = blocks
            return blocks
        parts = (_content(part, gallery) for part in message.content)
        return b",".join(filter(None, parts)) or _EMPTY

    def _reply(self, reply: Reply, taken: set[str] | tuple[()]) -> tuple[bytes, tuple[str, ...]]:
        """The reply's blocks, in their order, and the ids of its calls.

        Thinking goes back unchanged, and only to where it came from: elsewhere, and as a rule without a signature, it
        is refused.
        """
        ids = wire_ids(reply.calls, taken)
        own = reply.provider in (self._provider, "")
        waiting = iter(ids)
        if own and any(isinstance(part, Opaque) for part in reply.parts):
            _SERVED.add(self._slot)
        unsigned = self._thoughts != "signed"
        blocks = [block for part in reply.parts if (block := _block(part, own, waiting, unsigned)) is not None]
        if ids and self._thoughts == "demanded" and not any("thinking" in block["type"] for block in blocks):
            blocks.insert(0, _NO_THOUGHT)
        if not blocks and reply.refusal:
            blocks = [_text_block(reply.refusal)]
        return b",".join(map(dumps, blocks)), ids


def _block(part: Part, own: bool, ids: Any, unsigned: bool) -> Mapping[str, Any] | None:
    match part:
        case Text(text):
            return None if is_blank(text) else _text_block(text)
        case ToolCall():
            name, arguments = wire_name(part.name), arguments_object(part.arguments)
            return {"type": "tool_use", "id": next(ids), "name": name, "input": arguments}
        case Thinking(redacted=str(data)) if own and data:
            return {"type": "redacted_thinking", "data": data}
        case Thinking(text, signature, None) if own and (signature or unsigned):
            return {"type": "thinking", "thinking": text, "signature": signature or ""}
        case Opaque(data) if own:
            return data
        case _:
            return None


def _result(result: ToolResult, wire_id: str, gallery: Gallery | None) -> bytes:
    """A `tool_result` block; one that reports a failure may hold nothing but text."""
    head: dict[str, Any] = {"type": "tool_result", "tool_use_id": wire_id}
    if result.is_error:
        head["is_error"] = True
    if gallery is None:
        if not is_blank(result.content):
            head["content"] = result.content
        return dumps(head)
    parts = [] if is_blank(result.content) else [dumps(_text_block(result.content))]
    for media in result.media:
        block = _content(media, gallery)
        parts.append(dumps(_text_block(placeholder(media, accepted=False))) if result.is_error else block)
    return dumps(head)[:-1] + b',"content":[' + b",".join(parts) + b"]}"


def _content(part: Text | Media, gallery: Gallery | None) -> bytes:
    """One block of a user's message; empty for text that is blank."""
    if isinstance(part, Text):
        return b"" if is_blank(part.text) else dumps(_text_block(part.text))
    hidden = gallery.take(part) if gallery else placeholder(part, accepted=False)
    if hidden is not None:
        return dumps(_text_block(hidden))
    kind = b"document" if part.media_type == PDF else b"image"
    source = b'{"type":"base64","media_type":"' + part.media_type.encode() + b'","data":"' + base64_of(part) + b'"}'
    return b'{"type":"' + kind + b'","source":' + source + b"}"


def _gallery(messages: Sequence[Message]) -> Gallery:
    return Gallery(messages, lambda kind: kind in IMAGE_TYPES or kind == PDF, IMAGE_BYTES, IMAGE_SIDES)


def _text_block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _system_texts(messages: Sequence[Message]) -> list[str]:
    """System messages of the conversation; the API has one place for all of them."""
    return [message.text for message in messages if type(message) is SystemMessage]


def _system_blocks(texts: Sequence[str]) -> list[dict[str, Any]]:
    """All of it, marked: tools come before it in the cache's order and are covered by the same mark."""
    blocks = [_text_block(text) for text in texts]
    blocks[-1]["cache_control"] = {"type": "ephemeral"}
    return blocks


def _mark_last_block(turns: Sequence[Turn], position: int) -> None:
    """Mark the end of a user's turn.

    Both the last turn and the one before it are marked: there the previous request wrote to the cache, and a step with
    many calls puts more than the 20 blocks between them that the API looks back by itself.
    """
    if -position <= len(turns) and turns[position][0] == "user":
        blocks = turns[position][1]
        blocks[-1] = blocks[-1][:-1] + _MARK


def _may_think(turns: Sequence[Turn]) -> bool:
    """Whether a budget can be given: the API refuses it while a call is answered that was made without thinking."""
    if len(turns) < 2 or not turns[-1][1][0].startswith(b'{"type":"tool_result"'):
        return True
    return turns[-2][1][0].startswith((b'{"type":"thinking"', b'{"type":"redacted_thinking"'))


def _thinking(asked: int | str | None, most: int) -> dict[str, Any]:
    """A budget (kept below `max_tokens`, as it must be), or an effort, with which the model decides by itself."""
    if asked is None:
        return {}
    if isinstance(asked, str):
        return {"thinking": {"type": "adaptive"}, "output_config": {"effort": asked}}
    budget = min(max(asked, _SMALLEST_BUDGET), most - _SMALLEST_BUDGET)
    return {"thinking": {"type": "enabled", "budget_tokens": budget}} if budget >= _SMALLEST_BUDGET else {}


def _forces(settings: ModelSettings) -> bool:
    """Whether a tool must be called; the API refuses that together with thinking."""
    return settings.tool_choice not in (None, "auto", "none")


def _choice(settings: ModelSettings) -> dict[str, Any] | None:
    match settings.tool_choice:
        case None:
            choice: dict[str, Any] = {"type": "auto"}
        case "none":
            return {"type": "none"}
        case "auto":
            choice = {"type": "auto"}
        case "required":
            choice = {"type": "any"}
        case name:
            choice = {"type": "tool", "name": wire_name(name)}
    if settings.parallel_tool_calls is False:
        return {**choice, "disable_parallel_tool_use": True}
    return None if settings.tool_choice is None else choice


def _tool(spec: ToolSpec) -> bytes:
    tool: dict[str, Any] = {"name": wire_name(spec.name)}
    if spec.description:
        tool["description"] = spec.description
    tool["input_schema"] = with_wire_keys(plain_schema(spec.parameters))
    return dumps(tool)


def _stand_ins(messages: Sequence[Message]) -> bytes:
    """Definitions of the tools that history mentions, where none are on offer: the API wants them defined."""
    called = {call.name for message in messages if isinstance(message, Reply) for call in message.calls}
    return b",".join(_tool(ToolSpec(name, "Not available now.", {})) for name in sorted(called))
