"""A Chat Completions server that knows no tools and holds its replies to the JSON Schema that it is sent.

So do Ollama, llama.cpp and vLLM with models that were never taught to call. A brain need not know: the tools of
`glassloop.models.schema_mode` are on offer to it, and what it calls or says is put into the form that is asked for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, get_args

from glassloop.core.encoding import dumps, loads
from glassloop.core.errors import ScriptError
from glassloop.core.messages import Message, Part, Reply, ResultStatus, Text, ToolCall, ToolResult, UserMessage
from glassloop.models.schema_mode import ACTION, ANSWER, ARGUMENTS, NEXT
from glassloop.testing.answer import Answer
from glassloop.testing.chat import ChatWire
from glassloop.testing.conversation import Conversation, OfferedTool
from glassloop.testing.shapes import array, record, string

if TYPE_CHECKING:
    import jsonschema_rs

_RESULT = re.compile(r'<result tool="([^"]*)"(?: status="([a-z]+)")?>\n(.*?)\n</result>\s*', re.DOTALL)


class ToollessWire(ChatWire):
    """Requests and answers of `POST /v1/chat/completions` where there are no tools."""

    def violations(self, body: object, headers: Mapping[str, str]) -> list[str]:
        """See `Wire.violations`."""
        request = record(body)
        fields = [name for name in ("tools", "tool_choice", "parallel_tool_calls") if name in request]
        found = [f"This model does not support {name!r}." for name in fields]
        for index, message in enumerate(map(record, array(request.get("messages")))):
            if message.get("role") == "tool" or "tool_calls" in message:
                found.append(f"messages[{index}]: this model knows neither tool calls nor their results.")
        return found or super().violations(body, headers)

    def read(self, body: Mapping[str, Any], headers: Mapping[str, str]) -> Conversation:
        """See `Wire.read`."""
        told = super().read(body, headers)
        read = _Reading(_answer_action(told.schema))
        messages = tuple(message for one in told.messages for message in read.messages(one))
        return replace(told, messages=messages, tools=tuple(_offered(told.schema)))

    def prepared(self, answer: Answer, conversation: Conversation) -> Answer:
        """See `Wire.prepared`: as a reply that fits the schema."""
        return _constrained(answer, conversation.schema)


def _constrained(answer: Answer, schema: Mapping[str, Any] | None) -> Answer:
    """The answer as a reply that fits the schema.

    Raises:
        ScriptError: the schema does not allow it.
    """
    if schema is None or answer.failure is not None or answer.stop is not None:
        return answer
    try:
        said = _spelled(answer, schema)
        problem = next(_validator(schema).iter_errors(loads(said)), None)
    except ValueError as error:
        raise ScriptError(f"The brain said {answer.text[:200]!r}, and the request wants JSON: {error}") from None
    if problem is not None:
        raise ScriptError(f"The brain said {said[:200]}, which the schema of the request forbids: {problem.message}")
    return replace(answer, text=said, calls=())


def _spelled(answer: Answer, schema: Mapping[str, Any]) -> str:
    action = _answer_action(schema)
    if action is None:
        return answer.text
    calls = [{ACTION: call.name, ARGUMENTS: loads(call.arguments)} for call in answer.calls]
    several = any(one.get("type") == "array" for one in _choices(schema))
    if calls:
        return dumps({NEXT: calls if several else calls[0]}).decode()
    typed = _alternatives(schema)[action].get("type") != "string"
    return dumps({NEXT: {ACTION: action, ANSWER: loads(answer.text) if typed else answer.text}}).decode()


class _Reading:
    """Reads a conversation back: calls from what the model wrote, results from what the user seems to say."""

    def __init__(self, answer: str | None) -> None:
        self._answer = answer
        self._calls = 0
        self._open: list[ToolCall] = []

    def messages(self, message: Message) -> Iterator[Message]:
        match message:
            case Reply():
                yield self._reply(message)
            case UserMessage():
                for name, status, content in _RESULT.findall(message.text):
                    call = next((one for one in self._open if one.name == name), None)
                    if call is not None:
                        self._open.remove(call)
                    known: ResultStatus = status if status in get_args(ResultStatus) else "ok"
                    yield ToolResult(call.id if call else "", name, content.replace("<\\/result", "</result"), known)
                rest = _RESULT.sub("", message.text)
                if rest.strip():
                    yield UserMessage(rest)
            case _:
                yield message

    def _reply(self, reply: Reply) -> Reply:
        try:
            step: Any = record(loads(reply.text)).get(NEXT)
        except ValueError:
            return reply
        parts = [self._part(record(one)) for one in (array(step) if isinstance(step, list) else [step])]
        self._open = [part for part in parts if isinstance(part, ToolCall)]
        return replace(reply, parts=tuple(parts))

    def _part(self, step: dict[str, Any]) -> Part:
        if step.get(ACTION) == self._answer:
            answer = step.get(ANSWER)
            return Text(answer if isinstance(answer, str) else dumps(answer).decode())
        self._calls += 1
        return ToolCall(f"call_{self._calls}", string(step.get(ACTION)), dumps(step.get(ARGUMENTS)).decode())


def _choices(schema: Mapping[str, Any]) -> list[dict[str, Any]]:
    step = record(record(schema.get("properties")).get(NEXT))
    return [record(one) for one in array(step.get("anyOf"))] or [step]


def _alternatives(schema: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The schema of what belongs to each action, by action."""
    found: dict[str, dict[str, Any]] = {}
    due = _choices(schema)
    while due:
        one = due.pop(0)
        due += [record(item) for item in array(record(one.get("items")).get("anyOf"))]
        properties = record(one.get("properties"))
        action = record(properties.get(ACTION)).get("const")
        if isinstance(action, str):
            found[action] = record(properties.get(ARGUMENTS) or properties.get(ANSWER))
    return found


def _answer_action(schema: Mapping[str, Any] | None) -> str | None:
    """The action that gives the answer; None where the schema is not that of schema mode, or allows only calls."""
    actions = [one for one in _choices(schema or {}) if ANSWER in record(one.get("properties"))]
    return string(record(record(actions[0]["properties"]).get(ACTION)).get("const")) if actions else None


def _offered(schema: Mapping[str, Any] | None) -> Iterator[OfferedTool]:
    answer = _answer_action(schema)
    for action, arguments in _alternatives(schema or {}).items():
        if action != answer:
            yield OfferedTool(action, "", arguments)


def _validator(schema: Mapping[str, Any]) -> jsonschema_rs.Draft202012Validator:
    import jsonschema_rs

    return jsonschema_rs.Draft202012Validator(dict(schema))
