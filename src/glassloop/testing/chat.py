"""OpenAI Chat Completions, as a server speaks it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from itertools import cycle
from typing import Any

from glassloop.core.ids import new_id
from glassloop.core.messages import StopReason, ToolCall
from glassloop.core.usage import Usage
from glassloop.testing.answer import Answer, Failure, pieces
from glassloop.testing.chat_rules import chat_violations
from glassloop.testing.conversation import Conversation, read_chat
from glassloop.testing.shapes import record
from glassloop.testing.wire import message_of, sse, usage_of

_FINISH: dict[StopReason, str] = {
    "stop": "stop",
    "length": "length",
    "refusal": "stop",
    "content_filter": "content_filter",
    "paused": "other",
    "no_calls": "tool_calls",
    "unknown": "other",
}
_ERROR_TYPES = {401: "invalid_api_key", 404: "model_not_found", 429: "rate_limit_exceeded"}


class ChatWire:
    """Requests and answers of `POST /v1/chat/completions`."""

    def violations(self, body: object, headers: Mapping[str, str]) -> list[str]:
        """See `Wire.violations`."""
        return chat_violations(body)

    def read(self, body: Mapping[str, Any], headers: Mapping[str, str]) -> Conversation:
        """See `Wire.read`."""
        return read_chat(body, headers)

    def prepared(self, answer: Answer, conversation: Conversation) -> Answer:
        """See `Wire.prepared`."""
        return answer

    def whole(self, answer: Answer, conversation: Conversation) -> dict[str, Any]:
        """See `Wire.whole`."""
        message: dict[str, Any] = {"role": "assistant", "content": answer.text or None, "refusal": None}
        if answer.stop == "refusal":
            message |= {"content": None, "refusal": answer.text}
        if answer.thoughts:
            message["reasoning_content"] = "".join(thought.text for thought in answer.thoughts)
        if answer.calls:
            message["tool_calls"] = [{**_call_head(call), "function": _function(call)} for call in answer.calls]
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _finish(answer)}
        body = {**_head(conversation, "chat.completion"), "choices": [choice]}
        return body | ({"usage": _usage(usage_of(answer, conversation))} if answer.report_usage else {})

    def events(self, answer: Answer, conversation: Conversation) -> Iterator[bytes]:
        """See `Wire.events`."""
        head = _head(conversation, "chat.completion.chunk")

        def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
            choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
            return sse({**head, "choices": [choice]})

        yield chunk({"role": "assistant", "content": "" if answer.text else None})
        for delta in _deltas(answer):
            yield chunk(delta)
        if answer.failure:
            yield sse(self.error(answer.failure))
            return
        yield chunk({}, _finish(answer))
        wanted = record(conversation.body.get("stream_options")).get("include_usage") is True
        if wanted and answer.report_usage:
            yield sse({**head, "choices": [], "usage": _usage(usage_of(answer, conversation))})
        yield sse("[DONE]")

    def error(self, failure: Failure) -> dict[str, Any]:
        """See `Wire.error`."""
        kind = "invalid_request_error" if failure.status < 429 else "server_error"
        code = _ERROR_TYPES.get(failure.status)
        return {"error": {"message": message_of(failure), "type": kind, "param": None, "code": code}}


def _head(conversation: Conversation, kind: str) -> dict[str, Any]:
    return {"id": new_id("chatcmpl"), "object": kind, "created": int(time.time()), "model": conversation.model}


def _finish(answer: Answer) -> str:
    if answer.stop is None:
        return "tool_calls" if answer.calls else "stop"
    return _FINISH[answer.stop]


def _call_head(call: ToolCall) -> dict[str, Any]:
    return {"id": call.id or new_id("call"), "type": "function"}


def _function(call: ToolCall) -> dict[str, str]:
    return {"name": call.name, "arguments": call.arguments}


def _deltas(answer: Answer) -> Iterator[dict[str, Any]]:
    for thought in answer.thoughts:
        yield from ({"reasoning_content": piece} for piece in pieces(thought.text, answer.piece))
    field = "refusal" if answer.stop == "refusal" else "content"
    words = pieces(answer.text, answer.piece)
    yield from ({field: piece} for piece in (cycle(words) if answer.endless else words))
    for index, call in enumerate(answer.calls):
        opening = {"index": index, **_call_head(call), "function": {"name": call.name, "arguments": ""}}
        yield {"tool_calls": [opening]}
        for piece in pieces(call.arguments, answer.piece):
            yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.input,
        "completion_tokens": usage.output,
        "total_tokens": usage.total,
        "prompt_tokens_details": {"cached_tokens": usage.cached},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    }
