"""Replies of Anthropic's Messages, whole or streamed, as ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from glassloop.core.encoding import dumps, loads
from glassloop.core.ids import new_id
from glassloop.core.messages import Opaque, Part, Reply, Text, Thinking, ToolCall
from glassloop.core.usage import Usage
from glassloop.models.decoding import decoded, mended
from glassloop.models.failures import Peer, error_failure, no_reply, not_a_reply
from glassloop.models.model import FINAL_ANSWER, ModelPart, TextPart, ThinkingPart
from glassloop.models.shapes import array, count, record
from glassloop.models.sse import SSEEvent
from glassloop.models.stops import graver, is_end, stop_reason
from glassloop.models.think_tags import ThinkTags

_BLOCK_OF_DELTA = {
    "text_delta": "text",
    "citations_delta": "text",
    "thinking_delta": "thinking",
    "signature_delta": "thinking",
    "input_json_delta": "tool_use",
}
_CALL_FIELDS = frozenset({"type", "id", "name", "input"})
_NOTHING: tuple[ModelPart, ...] = ()


class _Block:
    """A content block and the pieces that have come for it."""

    __slots__ = ("fields", "json", "text")

    def __init__(self, fields: dict[str, Any]) -> None:
        self.fields = fields
        self.text: list[str] = []
        self.json: list[str] = []

    @property
    def kind(self) -> str:
        return str(self.fields.get("type") or "")


class MessagesReplyReader:
    """Folds the events of one reply, or takes it whole.

    Args:
        peer: who answers, for error messages.
        provider: the identity under which the reply is kept.
        names: wire names of the tools on offer, with ours.
        keys: by our names, of tools whose arguments have other names on the wire: those, with ours.
        answering: whether one of them is that of the answer, whose arguments are shown as text as they come.
    """

    def __init__(
        self,
        peer: Peer,
        provider: str,
        names: Mapping[str, str],
        keys: Mapping[str, Mapping[str, str]],
        *,
        answering: bool = False,
    ) -> None:
        self.done = False
        self._keys = keys
        self._answering = answering
        self._peer = peer
        self._provider = provider
        self._names = names
        self._blocks: list[_Block] = []
        self._by_index: dict[Any, _Block] = {}
        self._tags: ThinkTags | None = ThinkTags()
        self._tagged: _Block | None = None
        self._thoughts: list[str] = []
        self._answered = False
        self._said_instead: Mapping[str, Any] = {}
        self._usage: dict[str, int] = {}
        self._stop = ""
        self._refusal: str | None = None
        self._model = ""

    @property
    def begun(self) -> bool:
        """Whether anything of the reply has come."""
        return bool(self._blocks)

    @property
    def complete(self) -> bool:
        """Whether the reply has ended by the protocol: a stop reason, `message_stop`, or a gateway's `[DONE]`."""
        return self.done or self._stop != ""

    @property
    def text(self) -> str:
        """Visible text so far."""
        return mended("".join(piece for block in self._blocks if block.kind == "text" for piece in block.text))

    def feed(self, event: SSEEvent) -> Sequence[ModelPart]:
        """Take one event of a stream and return what it shows; events of unknown types are passed over.

        Raises:
            ModelError: the event reports an error, or is not JSON.
        """
        text = event.data.lstrip()
        if not text.startswith(b"{"):
            if event.name == b"error":
                raise error_failure(self._peer, text.decode("utf-8", "replace"))
            self.done = self.done or text.strip() == b"[DONE]"
            return self._rest() if self.done else _NOTHING
        try:
            data = decoded(text)
        except ValueError:
            if self.complete:
                return _NOTHING
            raise not_a_reply(self._peer, "an event that is not JSON") from None
        match data.get("type") or event.name.decode("utf-8", "replace"):
            case "content_block_delta":
                return self._delta(data.get("index"), record(data.get("delta")))
            case "content_block_start":
                return self._start(data.get("index"), record(data.get("content_block")))
            case "message_start":
                self._head(record(data.get("message")))
            case "content_block_stop":
                return self._rest()
            case "message_delta":
                self._head({**record(data.get("delta")), "usage": data.get("usage")})
                return self._rest()
            case "message_stop":
                self.done = True
                return self._rest()
            case "error":
                raise error_failure(self._peer, data.get("error") or data)
            case _:
                if data.get("error"):
                    raise error_failure(self._peer, data["error"])
                self._said_instead = data
        return _NOTHING

    def whole(self, body: Any) -> Sequence[ModelPart]:
        """Take a whole answer, as it comes when it is not streamed, and return what it shows.

        Raises:
            ModelError: the body holds an error, or no content.
        """
        answer = record(body)
        if answer.get("error") or answer.get("type") == "error":
            raise error_failure(self._peer, answer.get("error") or answer)
        if "content" not in answer:
            raise no_reply(self._peer, body, "no content")
        self._head(answer)
        self.done = True
        content = answer["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else array(content)
        shown = [part for index, block in enumerate(blocks) for part in self._start(index, record(block))]
        return [*shown, *self._rest()]

    def reply(self) -> Reply:
        """The reply, once it is complete.

        Raises:
            ModelError: there was none, or the stop reason says that the server failed.
        """
        if not self._answered:
            raise no_reply(self._peer, self._said_instead, "no message")
        parts = tuple(part for block in self._blocks if (part := self._part(block)) is not None)
        if self._thoughts:
            parts = (Thinking(mended("".join(self._thoughts))), *parts)
        called = any(isinstance(part, ToolCall) for part in parts)
        return Reply(
            parts=parts,
            stop=stop_reason(self._stop, self._peer, called=called, offered=bool(self._names)),
            usage=messages_usage(self._usage),
            model=self._model,
            provider=self._provider,
            refusal=self._refusal,
        )

    def _head(self, message: Mapping[str, Any]) -> None:
        self._answered = True
        self._model = self._model or str(message.get("model") or "")
        if is_end(stop := message.get("stop_reason")):
            self._stop = graver(self._stop, str(stop))
        details = record(message.get("stop_details"))
        if details.get("type") == "refusal" and details.get("explanation"):
            self._refusal = str(details["explanation"])
        usage = record(message.get("usage"))
        thought = record(usage.get("output_tokens_details")).get("thinking_tokens")
        for key, value in (*usage.items(), ("thinking_tokens", thought)):
            if isinstance(value, int):  # cumulative in a stream; some gateways repeat a zero at the end
                self._usage[key] = max(self._usage.get(key, 0), value)

    def _start(self, index: Any, fields: dict[str, Any]) -> Sequence[ModelPart]:
        block = _Block(fields)
        self._answered = True
        self._blocks.append(block)
        self._by_index[index] = block
        for kind in ("text", "thinking"):
            if block.kind == kind and isinstance(text := fields.get(kind), str):
                return self._say(block, text)
        return _NOTHING

    def _delta(self, index: Any, delta: dict[str, Any]) -> Sequence[ModelPart]:
        kind = str(delta.get("type") or "")
        block = self._by_index.get(index)
        if block is None:  # a gateway that leaves out the start of a block
            self._answered = True
            block = _Block({"type": _BLOCK_OF_DELTA.get(kind, "")})
            self._blocks.append(block)
            self._by_index[index] = block
        match kind:
            case "text_delta":
                return self._say(block, str(delta.get("text") or ""))
            case "thinking_delta":
                return self._say(block, str(delta.get("thinking") or ""))
            case "signature_delta":
                block.fields["signature"] = str(block.fields.get("signature") or "") + str(delta.get("signature") or "")
            case "input_json_delta":
                piece = delta.get("partial_json") or ""
                piece = piece if isinstance(piece, str) else dumps(piece).decode()
                block.json.append(piece)
                if piece and self._answering and block.fields.get("name") == FINAL_ANSWER:
                    return (TextPart(piece),)
            case _:
                pass
        return _NOTHING

    def _say(self, block: _Block, text: str) -> Sequence[ModelPart]:
        if not text:
            return _NOTHING
        if block.kind == "text" and self._tags is not None and not self._tags.over:
            self._tagged = block
            return self._sorted_out(block, *self._tags.feed(text))
        block.text.append(text)
        return (TextPart(text) if block.kind == "text" else ThinkingPart(text),)

    def _sorted_out(self, block: _Block, thought: str, text: str) -> Sequence[ModelPart]:
        """Show what of the first text is thinking, as servers leave it there that only resemble Anthropic's."""
        shown: list[ModelPart] = []
        if thought:
            self._thoughts.append(thought)
            shown.append(ThinkingPart(thought))
        if text:
            block.text.append(text)
            shown.append(TextPart(text))
        return shown

    def _rest(self) -> Sequence[ModelPart]:
        """What was held back of the first text because a tag might have begun there; after it none is looked for."""
        if self._tags is None or self._tagged is None:
            return _NOTHING
        tags, self._tags = self._tags, None
        return self._sorted_out(self._tagged, *tags.close())

    def _part(self, block: _Block) -> Part | None:
        fields, text, json = block.fields, mended("".join(block.text)), mended("".join(block.json))
        match block.kind:
            case "text":
                return Text(text) if text else None
            case "thinking":
                return Thinking(text, str(fields.get("signature") or "") or None)
            case "redacted_thinking":
                return Thinking(redacted=str(fields.get("data") or ""))
            case "tool_use":
                name = str(fields.get("name") or "")
                name = self._names.get(name, name)
                arguments = json or _arguments(fields.get("input"))
                return ToolCall(
                    id=new_id("call"),
                    name=name,
                    arguments=_renamed(arguments, self._keys[name]) if name in self._keys else arguments,
                    provider_id=str(fields.get("id") or ""),
                    extra={key: value for key, value in fields.items() if key not in _CALL_FIELDS},
                )
            case "":
                return None
            case _:
                return Opaque({**fields, "input": _parsed(json)} if json else fields)


def messages_usage(usage: Mapping[str, int]) -> Usage:
    """Usage as Messages reports it: what was read from the cache, or written to it, stands beside `input_tokens`."""
    if not usage:
        return Usage(requests=1, unreported=1)
    cached, written = count(usage.get("cache_read_input_tokens")), count(usage.get("cache_creation_input_tokens"))
    output = count(usage.get("output_tokens"))
    return Usage(
        input=count(usage.get("input_tokens")) + cached + written,
        output=output,
        cached=cached,
        cache_write=written,
        reasoning=min(count(usage.get("thinking_tokens")), output),
        requests=1,
    )


def _arguments(value: Any) -> str:
    return value if isinstance(value, str) else dumps({} if value is None else value).decode()


def _renamed(arguments: str, names: Mapping[str, str]) -> str:
    """Arguments under their own names; a text that is no object is left as it is, for the gate to say so."""
    try:
        given = loads(arguments)
    except ValueError:
        return arguments
    if not isinstance(given, dict):
        return arguments
    return dumps({names.get(key, key): value for key, value in cast("dict[str, Any]", given).items()}).decode()


def _parsed(json: str) -> Any:
    try:
        return decoded(json.encode())
    except ValueError:
        return {}
