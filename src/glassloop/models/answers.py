"""A typed answer on the wire: constrained by the server to a JSON Schema, or as the arguments of a tool."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, cast

from glassloop.core.encoding import dumps, loads
from glassloop.core.messages import Part, Reply, Text, ToolCall
from glassloop.core.names import before_markup
from glassloop.core.schema import Schema, map_children
from glassloop.models.model import FINAL_ANSWER, OutputSpec, ToolSpec

_ABOUT = "Gives your final answer. Call it once you have all that the answer needs, instead of answering in words."
_FORMATS = frozenset({"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"})
_STRUCTURE = frozenset(
    {"type", "enum", "const", "description", "format", "$ref", "$defs", "properties", "required", "items", "anyOf"}
    | {"additionalProperties"}
)
_INEXPRESSIBLE = frozenset({"allOf", "prefixItems", "patternProperties"})


@dataclass(frozen=True, slots=True)
class Subset:
    """The part of JSON Schema that a server accepts in a schema which its replies always fit.

    Args:
        bounds: keywords that it knows beside the structural ones.
        all_required: whether every property must be required.
        references: whether `$ref` is known, and with it recursion.
    """

    bounds: frozenset[str]
    all_required: bool
    references: bool


OPENAI = Subset(
    frozenset({"pattern", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"})
    | {"minItems", "maxItems"},
    all_required=True,
    references=True,
)
"""OpenAI's strict mode (guide "Structured Outputs", supported schemas)."""

ANTHROPIC = Subset(frozenset(), all_required=False, references=False)
"""Anthropic's `output_config.format` (guide "Structured outputs", JSON Schema limitations)."""


class _Inexpressible(ValueError):
    """A schema says what the subset cannot."""


def answer_tool(spec: OutputSpec) -> ToolSpec:
    """The tool whose arguments are the answer; the same object for the same spec, so that it is encoded once."""
    return _answer_tool(spec.description, dumps(spec.schema))


@lru_cache(maxsize=64)
def _answer_tool(description: str, schema: bytes) -> ToolSpec:
    return ToolSpec(FINAL_ANSWER, f"{_ABOUT} {description}".strip(), loads(schema))


def answer_words(output: OutputSpec) -> str:
    """What the answer must be, for models whose server constrains their reply without telling them how."""
    about = f" {output.description}" if output.description else ""
    return f"Answer with one JSON object that fits this JSON Schema: {dumps(output.schema).decode()}{about}"


def is_answer(name: str) -> bool:
    """Whether a name as a model wrote it is the answer tool's, less what leaks into names (`functions.`, markup)."""
    return before_markup(name).removeprefix("functions.") == FINAL_ANSWER


def with_answers_as_text(reply: Reply) -> Reply:
    """The reply with its calls of the answer tool as the texts that they mean; one that cannot be told is left out."""
    if not any(is_answer(call.name) for call in reply.calls):
        return reply
    parts: list[Part] = []
    for part in reply.parts:
        if not isinstance(part, ToolCall) or not is_answer(part.name):
            parts.append(part)
        elif part.problem is None:
            parts.append(Text(part.arguments.strip() or "{}"))
    return replace(reply, parts=tuple(parts))


def fitted(schema: Mapping[str, Any], subset: Subset) -> Schema | None:
    """The schema in the form that a server can guarantee; None where that would allow less than the schema does.

    Objects are closed. What only narrows a value (`minLength` and the like) and the server does not know is left out:
    validation says it afterwards. Where all properties must be required, one that need not be given may be null
    instead, which validation takes for not given.
    """
    try:
        return _fit(schema, subset)
    except _Inexpressible:
        return None


def _fit(node: Any, subset: Subset) -> Schema:
    if not isinstance(node, Mapping):
        raise _Inexpressible
    schema: Schema = dict(cast("Mapping[str, Any]", node))
    if not _INEXPRESSIBLE.isdisjoint(schema) or ("$ref" in schema and not subset.references):
        raise _Inexpressible
    if "oneOf" in schema:
        schema["anyOf"] = schema.pop("oneOf")
    if "$ref" in schema:
        return {"$ref": schema["$ref"], **({"$defs": _fit_all(schema["$defs"], subset)} if "$defs" in schema else {})}
    if schema.keys().isdisjoint(("type", "enum", "const", "anyOf")):
        raise _Inexpressible
    if schema.get("format") not in _FORMATS:
        schema.pop("format", None)
    kept = {key: value for key, value in schema.items() if key in _STRUCTURE or key in subset.bounds}
    if _may_be(schema, "array") and "items" not in schema:
        raise _Inexpressible
    if _may_be(schema, "object"):
        _close(kept, subset)
    return map_children(kept, lambda child: _fit(child, subset))


def _fit_all(definitions: Mapping[str, Any], subset: Subset) -> Schema:
    return {name: _fit(node, subset) for name, node in definitions.items()}


def _close(schema: Schema, subset: Subset) -> None:
    if schema.get("additionalProperties", False) is not False or "properties" not in schema:
        raise _Inexpressible
    schema["additionalProperties"] = False
    if subset.all_required:
        given: Sequence[str] = schema.get("required", ())
        properties: Mapping[str, Any] = schema["properties"]
        schema["properties"] = {
            name: node if name in given else {"anyOf": [node, {"type": "null"}]} for name, node in properties.items()
        }
        schema["required"] = list(properties)


def _may_be(schema: Mapping[str, Any], kind: str) -> bool:
    type_ = schema.get("type")
    return type_ == kind or (isinstance(type_, list) and kind in type_)
