"""The typed output of an agent: what the model is asked for, and the gate that its answers pass.

The gate is that of tool arguments: faults of syntax and of spelling are repaired where that takes no guessing, anything
else goes back to the model with the reason.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Generic, cast

from pydantic_core import from_json

from glassloop.core.encoding import dumps, loads
from glassloop.core.errors import ToolDefinitionError
from glassloop.core.messages import Reply, Text
from glassloop.core.parsing import Unreadable, read_object
from glassloop.core.result import OutputT
from glassloop.core.schema import VALUE, Schema
from glassloop.models.model import FINAL_ANSWER, OutputMode, OutputSpec
from glassloop.tools.arguments import ArgumentsError, Problem
from glassloop.tools.problems import listed

_FENCED = re.compile(r"\s*```(?:json)?\s*\n(.*?)\n?\s*```\s*", re.DOTALL)
_HEAD = "Your answer was not accepted, since it does not fit what was asked for."
_TAIL = "Give the whole answer again, corrected."
_LONGEST_SCHEMA = 2_000  # characters of a schema that is shown to a model whose answer did not fit
_WORDS = (
    ("the arguments are", "the answer is"),
    ("the arguments end", "the answer ends"),
    ("the arguments", "the answer"),
    ("such argument", "such field"),
    ("it takes none, so send {}", "none"),
)


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer that passed the gate.

    Args:
        value: of the type that was asked for.
        text: the same as JSON.
    """

    value: Any
    text: str


@dataclass(frozen=True, slots=True)
class BadAnswer:
    """An answer that did not; `reason` tells the model what to change, without repeating what it said."""

    reason: str


class Output(Generic[OutputT]):
    """What an agent's answer must be: `Agent(output=Weather)`, or `Agent(output=Output(Weather, mode="tool"))`.

    A type that is no object in JSON (a list, a number, a union) is asked for as `{"result": ...}`.

    Args:
        type_: pydantic model, dataclass, TypedDict, enum, `Literal`, plain type, or a list, dict or union of such.
        mode: `native` has the server constrain the model's reply to the type's JSON Schema, `tool` has the model give
            the answer as the arguments of a tool `final_answer`; `auto` takes the first where the server is known to
            do it together with the tools of the agent.
        retries: how often in a row an answer that does not fit is sent back.
        description: what the answer is, for the model.

    Raises:
        ConfigurationError: the type has no JSON form.
    """

    def __init__(
        self,
        type_: type[OutputT] | Any,
        *,
        mode: OutputMode = "auto",
        retries: int = 2,
        description: str = "",
    ) -> None:
        from glassloop.tools.function_gate import FunctionGate
        from glassloop.tools.schema import value_of

        self.type = type_
        self.retries = retries
        arguments = value_of(type_)
        self._gate = FunctionGate(arguments)
        inner = arguments.schema["properties"][VALUE]
        self._bare = inner.get("type") == "object" and "properties" in inner
        self.spec = OutputSpec(_unwrapped(arguments.schema) if self._bare else arguments.schema, mode, description)

    def __repr__(self) -> str:
        return f"Output({self.type.__name__ if isinstance(self.type, type) else self.type})"

    def judge(self, reply: Reply) -> Answer | BadAnswer:
        """The first answer in a reply that fits, else what is wrong with the last one."""
        texts = [part.text for part in reply.parts if isinstance(part, Text)]
        judged: Answer | BadAnswer = BadAnswer("")
        for text in texts if len(texts) < 2 else [*texts, reply.text]:
            judged = self._judge(text)
            if isinstance(judged, Answer):
                break
        return judged

    def value(self, text: str) -> OutputT | None:
        """The value of an answer that was accepted, from its JSON; None where the type has changed since."""
        try:
            checked = self._gate.check("", f'{{"{VALUE}":{text}}}')
        except ArgumentsError:
            return None
        return cast("OutputT", checked.kwargs[VALUE])

    def partial(self, text: str) -> Any:
        """What can be read of an answer that is still coming, as plain JSON values; None where nothing can."""
        try:
            value: Any = from_json(text, allow_partial="trailing-strings", allow_inf_nan=False)
        except ValueError:
            return None
        if self._bare or not isinstance(value, dict):
            return value
        return cast("dict[str, Any]", value).get(VALUE)

    def _judge(self, text: str) -> Answer | BadAnswer:
        try:
            said = self._said(text)
            checked = self._gate.check("", f'{{"{VALUE}":{said}}}')
        except Unreadable as error:
            return self._bad([Problem("", str(error))])
        except ArgumentsError as error:
            return self._bad(list(error.problems))
        if checked.repaired:
            said = dumps(checked.arguments[VALUE]).decode()
        return Answer(checked.kwargs[VALUE], said)

    def _said(self, text: str) -> str:
        """The JSON of the answer alone, spelled as the model did.

        Raises:
            Unreadable: it is no JSON, and cannot be made JSON without guessing.
        """
        fenced = _FENCED.fullmatch(text)
        text = (fenced[1] if fenced else text).strip()
        try:
            value = loads(text)
        except ValueError:
            value = read_object(text)[0]
            text = dumps(value).decode()
        if not self._bare and isinstance(value, dict) and cast("dict[str, Any]", value).keys() == {VALUE}:
            return _inner(text, value[VALUE])
        return text

    def _bad(self, problems: list[Problem]) -> BadAnswer:
        shown = dumps(self.spec.schema).decode()
        rule = f" It must fit this JSON Schema: {shown}" if len(shown) <= _LONGEST_SCHEMA else ""
        return BadAnswer(listed(_HEAD, [self._worded(problem) for problem in problems], _TAIL, 1_000) + rule)

    def _worded(self, problem: Problem) -> Problem:
        text = problem.text
        for said, meant in _WORDS:
            text = text.replace(said, meant)
        path = problem.path.removeprefix(VALUE).removeprefix(".") if self._bare else problem.path
        return Problem(path, text)


def as_output(output: Any) -> Output[Any] | None:
    """The output of an agent as it was given: nothing, a type, or all about it."""
    if output is None or isinstance(output, Output):
        return cast("Output[Any] | None", output)
    return Output(output)


def check_names(output: Output[Any] | None, tools: Collection[str]) -> None:
    """Keep the name of the answer's tool free where there may be one.

    Raises:
        ToolDefinitionError: one of the tools has it.
    """
    if output is not None and FINAL_ANSWER in tools:
        raise ToolDefinitionError(
            f"An agent with an output type may answer by a tool named {FINAL_ANSWER}: rename the one in its tools."
        )


def _unwrapped(schema: Mapping[str, Any]) -> Schema:
    inner = schema["properties"][VALUE]
    return {**inner, "$defs": schema["$defs"]} if "$defs" in schema else dict(inner)


def _inner(text: str, value: Any) -> str:
    """What stands under the one name of an object, as it is spelled there, unless the name is there twice."""
    inner = text[1:-1].partition(":")[2].strip()
    try:
        return inner if loads(inner) == value else dumps(value).decode()
    except ValueError:
        return dumps(value).decode()
