"""What providers demand of a request: W-OPENAI and W-ANTHROPIC, as lists of violations."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, NoReturn

from judge.shape import mapping, mappings

OPENAI_NAME = re.compile(r"^[A-Za-z0-9_-]{1,64}$")
ANTHROPIC_ID = re.compile(r"^[a-zA-Z0-9_-]+$")
THINKING = ("thinking", "redacted_thinking")


def _no_constant(text: str) -> NoReturn:
    raise ValueError("not strict JSON: " + text)


def strict_loads(raw: str | bytes) -> Any:
    """Parse UTF-8 JSON without NaN and Infinity.

    Raises:
        ValueError: `raw` is not that.
    """
    return json.loads(raw.decode("utf-8") if isinstance(raw, bytes) else raw, parse_constant=_no_constant)


def wire_openai(body: Any) -> list[str]:
    """Violations of the Chat Completions format in a request body."""
    if not isinstance(body, dict):
        return ["(8) body is not an object"]
    return _OpenAI(body).violations()


def wire_anthropic(body: Any, served: Sequence[object] = ()) -> list[str]:
    """Violations of the Messages format in a request body; `served` are the contents of the replies given so far."""
    if not isinstance(body, dict):
        return ["body is not an object"]
    return _Anthropic(body, served).violations()


class _OpenAI:
    def __init__(self, body: Any) -> None:
        self.body = mapping(body)
        self.found: list[str] = []
        self.seen: set[Any] = set()
        self.pending: list[Any] | None = None
        """Calls of the nearest assistant message that still need a result; None where no such message is open."""
        self.answered: set[Any] = set()

    def violations(self) -> list[str]:
        self._tools()
        for i, message in enumerate(mappings(self.body.get("messages"))):
            if message.get("role") == "tool":
                self._result(i, message)
                continue
            if self.pending:
                ids = sorted(map(str, self.pending))
                self.found.append(f"(2) unanswered calls {ids!r} before messages[{i}] ({message.get('role')})")
            self.pending, self.answered = None, set()
            if message.get("role") == "assistant":
                self._assistant(i, message)
        if not self.body.get("messages"):
            self.found.append("(0) no messages")
        if self.pending:
            self.found.append(f"(2) unanswered calls {sorted(map(str, self.pending))!r} at the end")
        return self.found

    def _tools(self) -> None:
        tools = self.body.get("tools")
        if "tools" in self.body and not tools:
            self.found.append("(5) empty tools array")
        if not tools:
            keys = ("tool_choice", "parallel_tool_calls")
            self.found += [f"(5) {key} without tools" for key in keys if key in self.body]
        for tool in mappings(tools):
            name = mapping(tool.get("function")).get("name")
            if tool.get("type") == "function" and not (isinstance(name, str) and OPENAI_NAME.match(name)):
                self.found.append(f"(7) tool name {name!r}")

    def _result(self, i: int, message: dict[str, Any]) -> None:
        call = message.get("tool_call_id")
        if message.get("content") is None:
            self.found.append(f"(6) messages[{i}] tool content is null")
        if self.pending is None:
            self.found.append(f"(1) messages[{i}] orphan tool message {call!r}")
        elif call in self.answered:
            self.found.append(f"(2) messages[{i}] second result for {call!r}")
        elif call not in self.pending:
            self.found.append(f"(1) messages[{i}] tool message {call!r} answers no call of the preceding assistant")
        else:
            self.pending.remove(call)
            self.answered.add(call)

    def _assistant(self, i: int, message: dict[str, Any]) -> None:
        calls, content = message.get("tool_calls"), message.get("content")
        if "tool_calls" in message and calls is not None and not calls:
            self.found.append(f"(5) messages[{i}] empty tool_calls")
        other = message.get("function_call") or message.get("refusal") or message.get("audio")
        if not calls and not other and content in (None, "", []):
            self.found.append(f"(6) messages[{i}] assistant without content or calls")
        if calls:
            self.pending = []
            for call in mappings(calls):
                self._call(i, call)
                self.pending.append(call.get("id"))

    def _call(self, i: int, call: dict[str, Any]) -> None:
        call_id, function = call.get("id"), mapping(call.get("function"))
        if not isinstance(call_id, str) or not call_id:
            self.found.append(f"(3) messages[{i}] call id {call_id!r}")
        elif call_id in self.seen:
            self.found.append(f"(3) messages[{i}] call id {call_id!r} not unique")
        self.seen.add(call_id)
        arguments = function.get("arguments")
        if not isinstance(arguments, str):
            self.found.append(f"(4) messages[{i}] arguments is {type(arguments).__name__}")
        else:
            try:
                if not isinstance(strict_loads(arguments), dict):
                    self.found.append(f"(4) messages[{i}] arguments {arguments[:40]} is not an object")
            except ValueError:
                self.found.append(f"(4) messages[{i}] arguments {arguments[:40]!r} is not JSON")
        name = function.get("name")
        if not (isinstance(name, str) and OPENAI_NAME.match(name)):
            self.found.append(f"(7) messages[{i}] name {name!r}")


class _Anthropic:
    def __init__(self, body: Any, served: Sequence[object]) -> None:
        self.body = mapping(body)
        self.found: list[str] = []
        self.ids: set[Any] = set()
        self.open: list[Any] = []
        """Calls of the assistant message just read."""
        self.thought = [block for blocks in served for block in mappings(blocks) if block.get("type") in THINKING]
        self.replayed = 0

    def violations(self) -> list[str]:
        if "tools" in self.body and not self.body["tools"]:
            self.found.append("empty tools array")
        previous = None
        for i, message in enumerate(mappings(self.body.get("messages"))):
            role, content = message.get("role"), message.get("content")
            if i == 0 and role != "user":
                self.found.append(f"first role {role!r}")
            if role == previous:
                self.found.append(f"messages[{i}] role {role} repeats")
            previous = role
            blocks = [{"type": "text", "text": content}] if isinstance(content, str) else mappings(content)
            if not blocks:
                self.found.append(f"messages[{i}] empty content")
            self._results(i, role, blocks)
            for block in blocks:
                self._block(i, block)
        if self.open:
            self.found.append(f"calls {self.open!r} unanswered at the end")
        return self.found

    def _results(self, i: int, role: Any, blocks: list[dict[str, Any]]) -> None:
        results = [block.get("tool_use_id") for block in blocks if block.get("type") == "tool_result"]
        if role != "user":
            if self.open:
                self.found.append(f"messages[{i}] calls {self.open!r} unanswered")
            return
        if self.open and sorted(map(str, results)) != sorted(map(str, self.open)):
            self.found.append(f"messages[{i}] results {results!r} for calls {self.open!r}")
        if not self.open and results:
            self.found.append(f"messages[{i}] orphan results {results!r}")
        if any(block.get("type") == "tool_result" for block in blocks[len(results) :]):
            self.found.append(f"messages[{i}] tool_result not first")
        self.open = []

    def _block(self, i: int, block: dict[str, Any]) -> None:
        kind = block.get("type")
        if kind == "text" and not (block.get("text") or "").strip():
            self.found.append(f"messages[{i}] empty text block")
        if kind == "tool_use":
            self._call(block)
        if kind in THINKING:
            keys = ("type", "thinking", "signature", "data")
            served = self.thought[self.replayed] if self.replayed < len(self.thought) else None
            if served is None or any(block.get(key) != served.get(key) for key in keys):
                self.found.append(f"messages[{i}] {kind} block changed or reordered")
            self.replayed += 1

    def _call(self, block: dict[str, Any]) -> None:
        call_id = block.get("id")
        if not isinstance(call_id, str) or not ANTHROPIC_ID.match(call_id):
            self.found.append(f"tool_use id {call_id!r}")
        if call_id in self.ids:
            self.found.append(f"tool_use id {call_id!r} not unique")
        self.ids.add(call_id)
        self.open.append(call_id)
        if not isinstance(block.get("input"), dict):
            self.found.append(f"tool_use.input is {type(block.get('input')).__name__}")
