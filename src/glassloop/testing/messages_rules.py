"""What Anthropic's Messages API refuses in a request.

The rules are those of its reference and of its 400 answers. Two are stricter than the API is today, which merges
neighbouring messages of one role and tolerates results behind other blocks: sent like this, a request is accepted by
every server that speaks the format.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast

from glassloop.testing.format_rules import messages_format_violations
from glassloop.testing.schema_rules import messages_schema_violations
from glassloop.testing.seals import Seals
from glassloop.testing.shapes import array, record

NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
CALL_ID = re.compile(r"[a-zA-Z0-9_-]+")
_THINKING = ("thinking", "redacted_thinking")


def messages_violations(body: object, headers: Mapping[str, str], seals: Seals, thought: set[str]) -> list[str]:
    """One readable sentence for each rule that the request breaks, in its order.

    Args:
        body: the request.
        headers: its HTTP headers, names in lower case.
        seals: checks thinking that comes back.
        thought: ids of calls that were given with thinking before them.
    """
    if not isinstance(body, dict):
        return ["The request body is not a JSON object."]
    request = cast("dict[str, Any]", body)
    found = [] if "anthropic-version" in headers else ["anthropic-version: header is required"]
    found += [f"{name}: Field required" for name in ("model", "max_tokens", "messages") if name not in request]
    found += _tools(request) + messages_format_violations(request)
    return found + _History(seals).check(request) + _final_thinking(request, thought)


def _tools(request: dict[str, Any]) -> list[str]:
    if "tools" not in request:
        return ["tool_choice: may only be specified while providing tools"] if "tool_choice" in request else []
    tools = [record(tool) for tool in array(request["tools"])]
    if not tools:
        return ["tools: List should have at least 1 item"]
    names = [tool.get("name") for tool in tools]
    found = [problem for index, tool in enumerate(tools) if "input_schema" in tool for problem in _tool(index, tool)]
    found += [
        f"tools: Tool names must be unique ({name!r})" for index, name in enumerate(names) if name in names[:index]
    ]
    choice = record(request.get("tool_choice"))
    if choice.get("type") == "tool" and choice.get("name") not in names:
        found.append(f"tool_choice: Tool {choice.get('name')!r} not found in provided tools")
    return found


def _tool(index: int, tool: dict[str, Any]) -> list[str]:
    name = tool.get("name")
    found: list[str] = []
    if not (isinstance(name, str) and NAME.fullmatch(name)):
        found.append(f"tools.{index}.custom.name: {name!r} should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'")
    return found + messages_schema_violations(f"tools.{index}.custom.input_schema", tool["input_schema"])


class _History:
    """Walks the messages, pairing every `tool_use` with its one `tool_result`."""

    def __init__(self, seals: Seals) -> None:
        self.found: list[str] = []
        self._seals = seals
        self._order = 0
        self._seen: set[Any] = set()
        self._open: list[Any] = []

    def check(self, request: dict[str, Any]) -> list[str]:
        messages = [record(message) for message in array(request.get("messages"))]
        if not messages:
            return ["messages: at least one message is required"]
        previous = "assistant"
        for index, message in enumerate(messages):
            self._message(index, message, previous)
            previous = message.get("role")
        self._close(len(messages) - 1)
        return self.found

    def _message(self, index: int, message: dict[str, Any], previous: object) -> None:
        role, content = message.get("role"), message.get("content")
        if role not in ("user", "assistant"):
            self.found.append(f"messages.{index}.role: {role!r} should be 'user' or 'assistant'")
        elif role == previous:
            first = "first message must use the" if index == 0 else "roles must alternate, but found a second"
            self.found.append(f"messages.{index}: {first} {'user' if index == 0 else role!r} role")
        blocks = [record(block) for block in array(content)]
        if isinstance(content, str):
            blocks = [{"type": "text", "text": content}]
        if not blocks:
            self.found.append(f"messages.{index}: all messages must have non-empty content")
        self._user(index, blocks) if role == "user" else self._assistant(index, blocks)
        for number, block in enumerate(blocks):
            if block.get("type") == "text" and not str(block.get("text") or "").strip():
                self.found.append(f"messages.{index}.content.{number}: text content blocks must be non-empty")

    def _close(self, index: int) -> None:
        if self._open:
            self.found.append(
                f"messages.{index}: `tool_use` ids were found without `tool_result` blocks immediately after: "
                f"{', '.join(map(str, self._open))}. Each `tool_use` block must have a corresponding `tool_result` "
                "block in the next message."
            )
        self._open = []

    def _user(self, index: int, blocks: list[dict[str, Any]]) -> None:
        answered: set[Any] = set()
        behind = False
        for number, block in enumerate(blocks):
            if block.get("type") != "tool_result":
                behind = True
                continue
            call_id, where = block.get("tool_use_id"), f"messages.{index}.content.{number}"
            if behind:
                self.found.append(f"{where}: `tool_result` blocks must come first in the message")
            if call_id in self._open:
                self._open.remove(call_id)
                answered.add(call_id)
            elif call_id in answered:
                self.found.append(f"{where}: each `tool_use` must have a single result; found a second for {call_id}")
            else:
                self.found.append(
                    f"{where}: unexpected `tool_use_id` found in `tool_result` blocks: {call_id}. Each `tool_result` "
                    "block must have a corresponding `tool_use` block in the previous message."
                )
        self._close(index - 1)

    def _assistant(self, index: int, blocks: list[dict[str, Any]]) -> None:
        self._close(index - 1)
        for number, block in enumerate(blocks):
            where = f"messages.{index}.content.{number}"
            if block.get("type") == "tool_use":
                self._call(where, block)
            elif block.get("type") in _THINKING:
                self._thinking(where, block)

    def _call(self, where: str, block: dict[str, Any]) -> None:
        call_id = block.get("id")
        if not (isinstance(call_id, str) and CALL_ID.fullmatch(call_id)):
            self.found.append(f"{where}.tool_use.id: {call_id!r} should match pattern '^[a-zA-Z0-9_-]+$'")
        elif call_id in self._seen:
            self.found.append(f"{where}: `tool_use` ids must be unique ({call_id})")
        if not isinstance(block.get("input"), dict):
            self.found.append(f"{where}.tool_use.input: Input should be a valid dictionary")
        self._seen.add(call_id)
        self._open.append(call_id)

    def _thinking(self, where: str, block: dict[str, Any]) -> None:
        order = self._seals.order(block)
        if order is None:
            self.found.append(f"{where}: Invalid `signature` in `thinking` block: it is not as it was given")
        elif order < self._order:
            self.found.append(f"{where}: `thinking` blocks are not in the order in which they were given")
        self._order = max(self._order, order or 0)


def _final_thinking(request: dict[str, Any], thought: set[str]) -> list[str]:
    """With thinking on, the call that is being answered must come back with the thinking that led to it."""
    if record(request.get("thinking")).get("type") not in ("enabled", "adaptive"):
        return []
    replies = [
        record(message) for message in array(request.get("messages")) if record(message).get("role") == "assistant"
    ]
    blocks = [record(block) for block in array(replies[-1].get("content"))] if replies else []
    called = any(block.get("type") == "tool_use" and block.get("id") in thought for block in blocks)
    if not called or blocks[0].get("type") in _THINKING:
        return []
    return [
        "messages: Expected `thinking` or `redacted_thinking`, but found "
        f"`{blocks[0].get('type')}`. When `thinking` is enabled, a final `assistant` message must start with it."
    ]
