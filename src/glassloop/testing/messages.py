"""Anthropic's Messages API, as a server speaks it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import cycle
from typing import Any

from glassloop.core.encoding import loads
from glassloop.core.ids import new_id
from glassloop.core.messages import StopReason, ToolCall
from glassloop.core.usage import Usage
from glassloop.testing.answer import Answer, Failure, pieces
from glassloop.testing.conversation import Conversation, read_messages
from glassloop.testing.messages_rules import messages_violations
from glassloop.testing.seals import Seals
from glassloop.testing.wire import message_of, sse, usage_of

_STOP: dict[StopReason, str] = {
    "stop": "end_turn",
    "length": "max_tokens",
    "refusal": "refusal",
    "content_filter": "refusal",
    "paused": "pause_turn",
    "no_calls": "tool_use",
    "unknown": "other",
}
_ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}


class MessagesWire:
    """Requests and answers of `POST /v1/messages`."""

    def __init__(self) -> None:
        self._seals = Seals()
        self._thought: set[str] = set()

    def violations(self, body: object, headers: Mapping[str, str]) -> list[str]:
        """See `Wire.violations`."""
        return messages_violations(body, headers, self._seals, self._thought)

    def read(self, body: Mapping[str, Any], headers: Mapping[str, str]) -> Conversation:
        """See `Wire.read`."""
        return read_messages(body, headers)

    def prepared(self, answer: Answer, conversation: Conversation) -> Answer:
        """See `Wire.prepared`."""
        return answer

    def whole(self, answer: Answer, conversation: Conversation) -> dict[str, Any]:
        """See `Wire.whole`."""
        blocks = self._blocks(answer)
        message = _message(conversation, blocks, _stop(answer))
        return message | ({"usage": _usage(usage_of(answer, conversation))} if answer.report_usage else {})

    def events(self, answer: Answer, conversation: Conversation) -> Iterator[bytes]:
        """See `Wire.events`."""
        usage = usage_of(answer, conversation)
        start = _message(conversation, [], None) | {
            "usage": _usage(Usage(usage.input, 1, usage.cached, usage.cache_write))
        }
        if not answer.report_usage:
            del start["usage"]
        yield _event("message_start", message=start)
        yield _event("ping")
        raws = iter([call.arguments for call in answer.calls])
        for index, block in enumerate(self._blocks(answer)):
            yield _event("content_block_start", index=index, content_block=_opening(block))
            for delta in _deltas(block, answer, raws):
                yield _event("content_block_delta", index=index, delta=delta)
            if answer.failure and index == len(answer.thoughts):
                break
            yield _event("content_block_stop", index=index)
        if answer.failure:
            yield sse(self.error(answer.failure), "error")
            return
        ending: dict[str, Any] = {"delta": {"stop_reason": _stop(answer), "stop_sequence": None}}
        yield _event("message_delta", **ending, usage=_usage(usage) if answer.report_usage else {})
        yield _event("message_stop")

    def error(self, failure: Failure) -> dict[str, Any]:
        """See `Wire.error`."""
        kind = _ERROR_TYPES.get(failure.status, "api_error")
        return {
            "type": "error",
            "error": {"type": kind, "message": message_of(failure)},
            "request_id": new_id("req"),
        }

    def _blocks(self, answer: Answer) -> list[dict[str, Any]]:
        blocks = [self._seals.seal(thought) for thought in answer.thoughts]
        if answer.text:
            blocks.append({"type": "text", "text": answer.text})
        for call in answer.calls:
            call_id = call.id or new_id("toolu")
            if answer.thoughts:
                self._thought.add(call_id)
            blocks.append({"type": "tool_use", "id": call_id, "name": call.name, "input": _input(call)})
        return blocks


def _message(conversation: Conversation, blocks: list[dict[str, Any]], stop: str | None) -> dict[str, Any]:
    return {
        "id": new_id("msg"),
        "type": "message",
        "role": "assistant",
        "model": conversation.model,
        "content": blocks,
        "stop_reason": stop,
        "stop_sequence": None,
    }


def _stop(answer: Answer) -> str:
    if answer.stop is None:
        return "tool_use" if answer.calls else "end_turn"
    return _STOP[answer.stop]


def _input(call: ToolCall) -> Any:
    try:
        return loads(call.arguments)
    except ValueError:
        return call.arguments


def _event(kind: str, **fields: Any) -> bytes:
    return sse({"type": kind, **fields}, kind)


def _opening(block: dict[str, Any]) -> dict[str, Any]:
    """The block as it begins, before its deltas."""
    match block["type"]:
        case "text":
            return block | {"text": ""}
        case "thinking":
            return block | {"thinking": "", "signature": ""}
        case "tool_use":
            return block | {"input": {}}
        case _:
            return block


def _deltas(block: dict[str, Any], answer: Answer, raws: Iterator[str]) -> Iterator[dict[str, Any]]:
    match block["type"]:
        case "text":
            words = pieces(block["text"], answer.piece)
            yield from ({"type": "text_delta", "text": word} for word in (cycle(words) if answer.endless else words))
        case "thinking":
            for piece in pieces(block["thinking"], answer.piece):
                yield {"type": "thinking_delta", "thinking": piece}
            yield {"type": "signature_delta", "signature": block["signature"]}
        case "tool_use":
            raw = next(raws)
            for piece in ("", *pieces("" if raw == "{}" else raw, answer.piece)):
                yield {"type": "input_json_delta", "partial_json": piece}
        case _:
            pass


def _usage(usage: Usage) -> dict[str, Any]:
    """Anthropic counts cached input apart from `input_tokens`."""
    return {
        "input_tokens": usage.input - usage.cached - usage.cache_write,
        "output_tokens": usage.output,
        "cache_read_input_tokens": usage.cached,
        "cache_creation_input_tokens": usage.cache_write,
    }
