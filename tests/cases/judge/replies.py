"""Replies of the scripted server: canned ones, ones computed from the request, and whole bodies cut into a stream."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Literal

from judge.shape import mapping, mappings

Wire = Literal["openai", "anthropic"]
Item = dict[str, Any]
"""One item of a script: `json`, `status` and `headers`, `sse`, `sse_raw` or `sse_endless`."""

Answer = Callable[[Any, Wire], Item]
"""Computes the item from the request's body."""


def text_answer(wire: Wire, text: str | None = "ok") -> Item:
    """A reply that says `text`."""
    if wire == "anthropic":
        return {
            "json": {
                "id": "msg_x",
                "type": "message",
                "role": "assistant",
                "model": "scripted",
                "content": [{"type": "text", "text": text}],
                "stop_reason": "end_turn",
                "stop_sequence": None,
                "usage": {"input_tokens": 1, "output_tokens": 1},
            }
        }
    return {
        "json": {
            "id": "chatcmpl-x",
            "object": "chat.completion",
            "created": 1,
            "model": "scripted",
            "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
        }
    }


def ok(body: Any, wire: Wire) -> Item:
    """Always says ok."""
    return text_answer(wire)


def calling(arguments: list[str]) -> Answer:
    """Calls the first tool on offer once with each of `arguments` (raw strings), one a reply; then says done."""

    def answer(body: Any, wire: Wire) -> Item:
        done = sum(message.get("role") == "tool" for message in mappings(body.get("messages")))
        if done >= len(arguments) or not body.get("tools"):
            return text_answer(wire, "done")
        function = {"name": body["tools"][0]["function"]["name"], "arguments": arguments[done]}
        item = text_answer(wire, None)
        choice = item["json"]["choices"][0]
        choice["message"]["tool_calls"] = [{"id": f"call_{done}", "type": "function", "function": function}]
        choice["finish_reason"] = "tool_calls"
        return item

    return answer


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def as_chunks(body: Any) -> list[str]:
    """A Chat Completions body as server-sent events."""
    out: list[Any] = []
    for n, choice in enumerate(mappings(body.get("choices"))):
        message = dict(mapping(choice.get("message")))
        if message.get("tool_calls"):
            message["tool_calls"] = [
                dict(call, index=call.get("index", i)) for i, call in enumerate(mappings(message["tool_calls"]))
            ]
        base = {key: value for key, value in body.items() if key not in ("choices", "usage")}
        base["object"] = "chat.completion.chunk"
        end: dict[str, Any] = {"index": n, "delta": {}, "finish_reason": choice.get("finish_reason")}
        out += [dict(base, choices=[{"index": n, "delta": message, "finish_reason": None}]), dict(base, choices=[end])]
        if body.get("usage"):
            out.append(dict(base, choices=[], usage=body["usage"]))
    return [f"data: {_json(chunk)}\n\n" for chunk in out or [body]] + ["data: [DONE]\n\n"]


def as_events(body: Any) -> list[str]:
    """A Messages body as server-sent events."""
    events: list[tuple[str, dict[str, Any]]] = []
    events.append(("message_start", {"message": dict(body, content=[], stop_reason=None)}))
    for i, block in enumerate(mappings(body.get("content"))):
        start, deltas = _started(block)
        events.append(("content_block_start", {"index": i, "content_block": start}))
        events += [("content_block_delta", {"index": i, "delta": delta}) for delta in deltas]
        events.append(("content_block_stop", {"index": i}))
    delta = {"stop_reason": body.get("stop_reason"), "stop_sequence": None}
    events.append(("message_delta", {"delta": delta, "usage": body.get("usage") or {}}))
    events.append(("message_stop", {}))
    return [f"event: {name}\ndata: {_json(dict(data, type=name))}\n\n" for name, data in events]


def _started(block: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    match block["type"]:
        case "text":
            return dict(block, text=""), [{"type": "text_delta", "text": block["text"]}] if block["text"] else []
        case "tool_use":
            return dict(block, input={}), [{"type": "input_json_delta", "partial_json": _json(block["input"])}]
        case "thinking":
            deltas = [
                {"type": "thinking_delta", "thinking": block["thinking"]},
                {"type": "signature_delta", "signature": block["signature"]},
            ]
            return dict(block, thinking="", signature=""), deltas
        case _:
            return dict(block), []
