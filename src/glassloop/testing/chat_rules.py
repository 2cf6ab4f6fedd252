"""What OpenAI's Chat Completions refuses in a request.

The rules are those of OpenAI's reference and of its 400 answers, and of compatible servers where they are stricter
(unique tool names). A request that passes is accepted by all of them.
"""

from __future__ import annotations

import re
from typing import Any, cast

from glassloop.core.encoding import loads
from glassloop.testing.format_rules import chat_format_violations
from glassloop.testing.schema_rules import chat_schema_violations
from glassloop.testing.shapes import array, record

NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
MAX_TOOLS = 128
MAX_CALL_ID = 40
_ROLES = ("system", "developer", "user", "assistant", "tool", "function")


def chat_violations(body: object) -> list[str]:
    """One readable sentence for each rule that `body` breaks, in the order of the request."""
    if not isinstance(body, dict):
        return ["The request body is not a JSON object."]
    request = cast("dict[str, Any]", body)
    model = [] if isinstance(request.get("model"), str) else ["You must provide a model parameter."]
    return [*model, *_tools(request), *chat_format_violations(request), *_History().check(request.get("messages"))]


def _tools(request: dict[str, Any]) -> list[str]:
    if "tools" not in request:
        dependent = (name for name in ("tool_choice", "parallel_tool_calls") if name in request)
        return [f"'{name}' is only allowed when 'tools' are specified." for name in dependent]
    tools = array(request["tools"])
    if not isinstance(request["tools"], list):
        return ["Invalid type for 'tools': expected an array."]
    if not tools:
        return ["Invalid 'tools': empty array. Expected an array with minimum length 1."]
    functions = [record(record(tool).get("function")) for tool in tools]
    found = [problem for index, function in enumerate(functions) for problem in _function(index, function)]
    names = [function.get("name") for function in functions]
    if len(names) > MAX_TOOLS:
        found.append(f"Invalid 'tools': array too long. Expected at most {MAX_TOOLS}, got {len(names)}.")
    found += [f"Tool names must be unique: {name!r} is used twice." for name in _repeated(names)]
    return found + _choice(request.get("tool_choice"), names)


def _function(index: int, function: dict[str, Any]) -> list[str]:
    name = function.get("name")
    found: list[str] = []
    if not (isinstance(name, str) and NAME.fullmatch(name)):
        found.append(f"Invalid 'tools[{index}].function.name': {name!r} does not match '^[a-zA-Z0-9_-]{{1,64}}$'.")
    schema = function.get("parameters")
    return found if schema is None else found + chat_schema_violations(name, schema)


def _repeated(names: list[Any]) -> list[Any]:
    return [name for index, name in enumerate(names) if name in names[:index]]


def _choice(choice: object, names: list[Any]) -> list[str]:
    if not isinstance(choice, dict):
        return []
    wanted = record(record(cast("object", choice)).get("function")).get("name")
    return [] if wanted in names else [f"Tool choice {wanted!r} is not one of the tools."]


class _History:
    """Walks the messages, pairing every call with its one result."""

    def __init__(self) -> None:
        self.found: list[str] = []
        self._seen: set[str] = set()
        self._open: list[str] | None = None
        self._answered: set[str] = set()

    def check(self, messages: object) -> list[str]:
        if not array(messages):
            return ["Invalid 'messages': expected an array with at least one message."]
        for index, message in enumerate(array(messages)):
            self._message(index, record(message))
        self._close("at the end")
        return self.found

    def _message(self, index: int, message: dict[str, Any]) -> None:
        role = message.get("role")
        if role == "tool":
            self._result(index, message)
            return
        self._close(f"before messages[{index}]")
        if role not in _ROLES:
            self.found.append(f"Invalid value for 'messages[{index}].role': {role!r}.")
        if role == "assistant":
            self._assistant(index, message)
        elif message.get("content") is None:
            self.found.append(f"Invalid value for 'messages[{index}].content': expected a string, got null.")

    def _close(self, where: str) -> None:
        if self._open:
            self.found.append(
                "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
                f"'tool_call_id'. No response message for {', '.join(map(repr, self._open))} {where}."
            )
        self._open, self._answered = None, set()

    def _result(self, index: int, message: dict[str, Any]) -> None:
        call_id = message.get("tool_call_id")
        if message.get("content") is None:
            self.found.append(f"Invalid value for 'messages[{index}].content': expected a string, got null.")
        if self._open is not None and call_id in self._open:
            self._open.remove(call_id)
            self._answered.add(call_id)
        elif call_id in self._answered:
            self.found.append(f"messages[{index}]: a second response to the tool call {call_id!r}.")
        else:
            self.found.append(
                f"messages[{index}]: messages with role 'tool' must be a response to a preceding message with "
                f"'tool_calls'; none of its calls is {call_id!r}."
            )

    def _assistant(self, index: int, message: dict[str, Any]) -> None:
        calls = array(message.get("tool_calls"))
        if not calls and isinstance(message.get("tool_calls"), list):
            self.found.append(f"Invalid 'messages[{index}].tool_calls': empty array.")
        spoken = message.get("content") or message.get("refusal") or message.get("audio")
        if not calls and not message.get("function_call") and not spoken:
            self.found.append(f"messages[{index}]: an assistant message must have content or tool calls.")
        if len(calls) > MAX_TOOLS:
            self.found.append(f"Invalid 'messages[{index}].tool_calls': array too long, at most {MAX_TOOLS}.")
        if calls:
            where = f"messages[{index}].tool_calls"
            self._open = [self._call(f"{where}[{number}]", record(call)) for number, call in enumerate(calls)]

    def _call(self, where: str, call: dict[str, Any]) -> str:
        call_id, function = call.get("id"), record(call.get("function"))
        if not isinstance(call_id, str) or not call_id:
            self.found.append(f"Invalid '{where}.id': {call_id!r} is not a non-empty string.")
        elif len(call_id) > MAX_CALL_ID:
            self.found.append(f"Invalid '{where}.id': string too long, at most {MAX_CALL_ID} characters.")
        elif call_id in self._seen:
            self.found.append(f"Invalid '{where}.id': {call_id!r} is used twice.")
        self._seen.add(str(call_id))
        name, arguments = function.get("name"), function.get("arguments")
        if call.get("type", "function") == "function" and not (isinstance(name, str) and NAME.fullmatch(name)):
            self.found.append(f"Invalid '{where}.function.name': {name!r} does not match '^[a-zA-Z0-9_-]{{1,64}}$'.")
        if not _is_object(arguments):
            self.found.append(f"Invalid '{where}.function.arguments': expected a string that holds a JSON object.")
        return cast("str", call_id)


def _is_object(arguments: object) -> bool:
    try:
        return isinstance(arguments, str) and isinstance(loads(arguments), dict)
    except ValueError:
        return False
