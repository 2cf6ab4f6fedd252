"""Stand-ins for models: one that says what it is told to say, one that calls every tool once."""

from __future__ import annotations

import inspect
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any

from glassloop.core.encoding import dumps
from glassloop.core.errors import ScriptError
from glassloop.core.ids import new_id
from glassloop.core.messages import Opaque, Part, Reply, Text, Thinking, ToolCall, ToolResult
from glassloop.core.usage import Usage
from glassloop.models.model import ModelPart, ModelRequest, ReplyPart, TextPart, ThinkingPart
from glassloop.models.schema_values import example_of

_WORD = re.compile(r"\s*[^\s\u4e00-\u9fff]+\s*|[\u4e00-\u9fff]{1,3}|\s+")
_PROVIDER = "scripted"

Line = str | Part | Sequence[str | Part] | Reply | BaseException
"""One thing that a scripted model does: a text, a tool call, several of them in one reply, a whole reply with usage and
stop reason, or an exception that it raises."""

Script = Sequence[Line] | Callable[[ModelRequest], Line | Awaitable[Line]]


def call(name: str, /, **arguments: Any) -> ToolCall:
    """A tool call for a script: `call("get_weather", city="Oslo")`."""
    return ToolCall("", name, dumps(arguments).decode())


class ScriptedModel:
    """A model that plays a script.

    Texts are streamed word by word. Each reply reports a usage estimated from its length and the request's, unless it
    is given as a `Reply` with a usage of its own. In a `with` block, or by `assert_exhausted`, a script that was not
    used up is an error: the agent did less than was expected.

    Args:
        script: a list of lines, played in order; or a function (sync or async) from the request to a line.
        name: what the journal calls it.
    """

    def __init__(self, script: Script, *, name: str = "scripted") -> None:
        self.requests: list[ModelRequest] = []
        self._name = name
        self._function = script if callable(script) else None
        self._lines: Sequence[Line] = () if callable(script) else script
        self._given: set[str] = set()

    def __repr__(self) -> str:
        return f"ScriptedModel({self._name!r}, {len(self.requests)} requests)"

    def __enter__(self) -> ScriptedModel:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if kind is None:
            self.assert_exhausted()

    @property
    def name(self) -> str:
        """What the journal calls it."""
        return self._name

    def assert_exhausted(self) -> None:
        """Check that the whole script was played.

        Raises:
            ScriptError: it was not; the message says what is left.
        """
        left = self._lines[len(self.requests) :]
        if left:
            count = f"{len(left)} of {len(self._lines)} lines were not used"
            raise ScriptError(f"{self._name}: {count}; next: {str(left[0])[:200]}")

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelPart]:
        """Play the next line.

        Raises:
            ScriptError: there is none.
        """
        line = self._next(request)
        if inspect.isawaitable(line):
            line = await line
        if isinstance(line, BaseException):
            raise line
        reply = self._reply(line, request)
        if request.stream:
            for part in _pieces(reply):
                yield part
        yield ReplyPart(reply)

    def _next(self, request: ModelRequest) -> Line | Awaitable[Line]:
        number = len(self.requests)
        self.requests.append(replace(request, messages=tuple(request.messages)))
        if self._function is not None:
            return self._function(request)
        if number >= len(self._lines):
            last = str(request.messages[-1])[:200] if request.messages else "nothing"
            raise ScriptError(
                f"{self._name}: the script has {len(self._lines)} lines and was asked for one more, after: {last}"
            )
        return self._lines[number]

    def _reply(self, line: Any, request: ModelRequest) -> Reply:
        match line:
            case Reply():
                reply = line
            case str() | Text() | Thinking() | ToolCall() | Opaque():
                reply = Reply((_part(line),))
            case _:
                reply = Reply(tuple(map(_part, line)))
        parts = tuple(self._with_id(part) if isinstance(part, ToolCall) else part for part in reply.parts)
        usage = reply.usage if reply.usage.requests else estimated_usage(request, parts)
        return replace(
            reply, parts=parts, usage=usage, model=reply.model or self._name, provider=reply.provider or _PROVIDER
        )

    def _with_id(self, part: ToolCall) -> ToolCall:
        """The call under an id that no call of this model has had."""
        id_ = part.id if part.id and part.id not in self._given else new_id("call")
        self._given.add(id_)
        return replace(part, id=id_, provider_id=part.provider_id or part.id)


class SchemaModel:
    """A model that calls every tool on offer once, with arguments made from its schema, and then answers.

    Good for seeing that tools can be called at all. It is a function of the conversation, so it can be asked again
    after a restart.

    Args:
        answer: what it says in the end.
        name: what the journal calls it.
    """

    def __init__(self, answer: str = "Every tool was called once.", *, name: str = "schema") -> None:
        self._scripted = ScriptedModel(self._line, name=name)
        self._answer = answer

    @property
    def name(self) -> str:
        """What the journal calls it."""
        return self._scripted.name

    @property
    def requests(self) -> list[ModelRequest]:
        """What it was asked."""
        return self._scripted.requests

    def stream(self, request: ModelRequest) -> AsyncIterator[ModelPart]:
        """Call what has not been called yet, or answer."""
        return self._scripted.stream(request)

    def _line(self, request: ModelRequest) -> Line:
        called = {message.name for message in request.messages if isinstance(message, ToolResult)}
        wanted = [tool for tool in request.tools if tool.name not in called]
        if not wanted or request.settings.tool_choice == "none":
            return self._answer
        return [ToolCall("", tool.name, dumps(example_of(tool.parameters)).decode()) for tool in wanted]


def estimated_usage(request: ModelRequest, parts: Sequence[Part]) -> Usage:
    """Usage as a real provider might report it: about four characters a token."""
    asked = len(request.instructions) + sum(len(str(message)) for message in request.messages)
    return Usage(input=1 + asked // 4, output=1 + sum(len(str(part)) for part in parts) // 4, requests=1)


def _part(piece: str | Part) -> Part:
    return Text(piece) if isinstance(piece, str) else piece


def _pieces(reply: Reply) -> Iterator[ModelPart]:
    for part in reply.parts:
        if isinstance(part, Text):
            yield from map(TextPart, _WORD.findall(part.text))
        elif isinstance(part, Thinking) and part.text:
            yield ThinkingPart(part.text)
