"""Tools for models and servers that call them badly or not at all: as replies that a JSON Schema constrains.

The model reads about the tools in its instructions and replies with one JSON object, to which the server holds it: the
next call, or several where parallel calls are allowed, or the final answer. Results come back as messages of the user.
What comes out are the same parts and replies as where tools travel natively; nothing above knows the difference.

    {"next": {"action": "get_weather", "arguments": {"city": "Oslo"}}}
    {"next": {"action": "final_answer", "answer": "It is mild."}}
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, cast

from glassloop.core.encoding import dumps
from glassloop.core.errors import ModelError
from glassloop.core.ids import new_id
from glassloop.core.messages import Message, Part, Reply, Text, ToolCall, ToolResult, UserMessage
from glassloop.core.names import wire_name
from glassloop.core.schema import Schema, moved, refers
from glassloop.models.answer_reader import AnswerReader, plainly
from glassloop.models.answers import with_answers_as_text
from glassloop.models.model import FINAL_ANSWER, ModelPart, ModelRequest, OutputSpec, ReplyPart, TextPart, ToolSpec
from glassloop.models.replay import arguments_object
from glassloop.models.sendable import sendable
from glassloop.models.shapes import array, record
from glassloop.models.tool_schemas import plain_schema
from glassloop.models.tool_words import tool_words
from glassloop.models.views import alternating, media_after_results

NEXT, ACTION, ARGUMENTS, ANSWER = "next", "action", "arguments", "answer"
SAID = "schema_mode"
"""Where in `Reply.extra` a reply keeps what the model wrote."""

UNREADABLE = "unreadable"
"""What a call is named that cannot be made out."""

_NEITHER = (
    'Not run: your reply was neither a call nor an answer. Reply with one JSON object that has "next", as your '
    "instructions say."
)

Ask = Callable[[ModelRequest], AsyncIterator[ModelPart]]


async def through_schema(request: ModelRequest, ask: Ask) -> AsyncIterator[ModelPart]:
    """Ask once, with the tools as a schema.

    The text of the final answer is streamed as it comes; calls never are.

    Raises:
        ModelError: the request failed.
    """
    plan = Plan.of(request)
    if plan is None:
        async with aclosing(cast("Any", ask(request))) as parts:
            async for part in parts:
                yield part
        return
    reader = AnswerReader(plan.answer)
    try:
        async with aclosing(cast("Any", ask(plan.request()))) as parts:
            async for part in parts:
                match part:
                    case TextPart(text):
                        if shown := reader.feed(text):
                            yield TextPart(shown)
                    case ReplyPart(reply):
                        reply = plan.read(with_answers_as_text(reply), reader)
                        if request.stream and (rest := reader.rest(reply.text)):
                            yield TextPart(rest)
                        yield ReplyPart(reply)
                    case _:
                        yield part
    except ModelError as error:
        error.partial = reader.shown
        raise


@dataclass(frozen=True, slots=True)
class Plan:
    """How one request travels.

    Args:
        asked: the request.
        names: names of the tools in replies, with ours.
        answer: the action that gives the answer.
    """

    asked: ModelRequest
    names: dict[str, str]
    answer: str

    @staticmethod
    def of(request: ModelRequest) -> Plan | None:
        """The plan of a request; None where there are no tools, now or in its history."""
        called = any(isinstance(message, Reply) and message.calls for message in request.messages)
        if not request.tools and not called:
            return None
        names = {wire_name(tool.name): tool.name for tool in request.tools}
        answer = FINAL_ANSWER
        while answer in names:
            answer += "_"
        return Plan(request, names, answer)

    def request(self) -> ModelRequest:
        """The request without tools, whose reply a schema constrains."""
        asked = self.asked
        told = tool_words(self._offered(), self.answer, several=self._several, output=asked.output)
        instructions = f"{asked.instructions}\n\n{told}" if asked.instructions else told
        messages = self._as_text(media_after_results(sendable(asked.messages)))
        turns, instructions = alternating(messages, instructions)
        settings = replace(asked.settings, tool_choice=None, parallel_tool_calls=None, tool_mode="native")
        output = OutputSpec(self.schema(), "native", told=True)
        return replace(asked, messages=turns, instructions=instructions, tools=(), settings=settings, output=output)

    def schema(self) -> Schema:
        """What a reply must be: one of the actions that are allowed now."""
        definitions: Schema = {}
        choice = self.asked.settings.tool_choice
        calls = [_call(tool, definitions) for tool in self._offered()]
        choices: list[Any] = calls
        if calls and self._several:
            choices = [{"type": "array", "items": {"anyOf": calls}, "minItems": 1}]
        if choice in (None, "auto", "none") or not choices:
            output = self.asked.output
            answer = {"type": "string"} if output is None else output.schema
            choices = [*choices, _alternative(self.answer, ANSWER, answer, definitions)]
        root = _object({NEXT: choices[0] if len(choices) == 1 else {"anyOf": choices}})
        return {**root, "$defs": definitions} if definitions else root

    def read(self, reply: Reply, reader: AnswerReader) -> Reply:
        """The reply as calls or an answer.

        One that is no JSON is an answer in words, from a server that ignores the schema; one that is JSON and neither
        is a call that cannot be run.
        """
        said, complete = reply.text, reply.stop != "length"
        if reply.calls or reply.refusal is not None or not said.strip():
            return reply
        step = plainly(said, complete=complete)
        if step is None:
            return reply
        reader.see(said)
        parts = self._parts(record(step).get(NEXT), reader, complete)
        if not parts and complete:
            parts = [ToolCall(new_id("call"), UNREADABLE, said, problem=_NEITHER)]
        others = tuple(part for part in reply.parts if not isinstance(part, Text))
        return replace(reply, parts=(*others, *parts), extra={**reply.extra, SAID: said})

    @property
    def _several(self) -> bool:
        return self.asked.settings.parallel_tool_calls is True

    def _offered(self) -> Sequence[ToolSpec]:
        choice = self.asked.settings.tool_choice
        if choice == "none":
            return ()
        named = [tool for tool in self.asked.tools if tool.name == choice]
        return named or self.asked.tools

    def _parts(self, step: Any, reader: AnswerReader, complete: bool) -> list[Part]:
        if isinstance(step, list):
            return [part for one in array(step) for part in self._parts(one, reader, complete)]
        fields = record(step)
        action = fields.get(ACTION)
        if action == self.answer:
            return [Text(reader.answer(fields.get(ANSWER, ""), complete=complete))]
        if not isinstance(action, str):
            return []
        arguments = dumps(fields.get(ARGUMENTS, {})).decode()
        return [ToolCall(new_id("call"), self.names.get(action, action), arguments)]

    def _as_text(self, messages: Sequence[Message]) -> list[Message]:
        return [self._message_as_text(message) for message in messages]

    def _message_as_text(self, message: Message) -> Message:
        if isinstance(message, ToolResult):
            return UserMessage(result_text(message), origin="note")
        if not isinstance(message, Reply):
            return message
        said = message.extra.get(SAID)
        if not isinstance(said, str) or message.dropped_calls:
            said = self._spelled(message)
        return Reply((Text(said),), provider=message.provider)

    def _spelled(self, reply: Reply) -> str:
        """A reply that came natively, as it would have been written."""
        calls = [{ACTION: wire_name(call.name), ARGUMENTS: arguments_object(call.arguments)} for call in reply.calls]
        if not calls:
            text = reply.text or reply.refusal or ""
            return dumps({NEXT: {ACTION: self.answer, ANSWER: text}}).decode()
        return dumps({NEXT: calls[0] if len(calls) == 1 else calls}).decode()


def result_text(result: ToolResult) -> str:
    """A tool result as the model reads it; nothing in it can end it before its end."""
    status = f' status="{result.status}"' if result.is_error else ""
    content = result.content.replace("</result", "<\\/result")
    return f'<result tool="{wire_name(result.name)}"{status}>\n{content}\n</result>'


def _call(tool: ToolSpec, definitions: Schema) -> Schema:
    arguments = {"additionalProperties": False, **plain_schema(tool.parameters)}
    return _alternative(wire_name(tool.name), ARGUMENTS, arguments, definitions)


def _alternative(action: str, name: str, schema: Any, definitions: Schema) -> Schema:
    """One action with what belongs to it; a schema with references stands among the definitions, so that they hold."""
    if refers(schema):
        place = f"#/$defs/{action}"
        definitions[action] = moved(schema, place)
        schema = {"$ref": place}
    return _object({ACTION: {"type": "string", "const": action}, name: schema})


def _object(properties: Schema) -> Schema:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
