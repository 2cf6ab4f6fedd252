"""Tools described in words, compactly, for models that read about them in their instructions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from glassloop.core.encoding import dumps
from glassloop.core.names import wire_name
from glassloop.models.model import OutputSpec, ToolSpec
from glassloop.models.shapes import array, record

_ONE = '- {"next": {"action": "<tool>", "arguments": {...}}} calls a tool. Its result is the next message.'
_SEVERAL = (
    '- {"next": [{"action": "<tool>", "arguments": {...}}, ...]} calls one tool, or several side by side. '
    "Their results are the next message."
)
_DEEPEST = 4


def tool_words(tools: Sequence[ToolSpec], answer: str, *, several: bool, output: OutputSpec | None) -> str:
    """How to reply, and with what.

    Args:
        tools: on offer.
        answer: the action that gives the answer.
        several: whether several tools may be called at once.
        output: what the answer must be; None for a text.
    """
    what = '"..."' if output is None else type_words(output.schema)
    reply = f'- {{"next": {{"action": "{answer}", "answer": {what}}}}} answers'
    if not tools:
        return f"Reply with one JSON object and nothing else:\n{reply}."
    return "\n".join(
        (
            "Reply with one JSON object and nothing else:",
            _SEVERAL if several else _ONE,
            f"{reply}, once you have what you need.",
            "",
            "Tools:",
            *map(_described, tools),
        )
    )


def _described(tool: ToolSpec) -> str:
    properties = record(tool.parameters.get("properties"))
    required = array(tool.parameters.get("required"))
    signature = ", ".join(
        f"{name}{'' if name in required else '?'}: {type_words(node)}" for name, node in properties.items()
    )
    about = [f"    {name}: {text}" for name, node in properties.items() if (text := record(node).get("description"))]
    head = f"- {wire_name(tool.name)}({signature})"
    return "\n".join((f"{head}: {tool.description}" if tool.description else head, *about))


def type_words(schema: Any, depth: int = 0) -> str:
    """A schema's type in TypeScript's words: `"low" | "high"`, `integer[]`, `{a: string, b?: number}`."""
    if not isinstance(schema, Mapping) or depth > _DEEPEST:
        return "any"
    node = cast("Mapping[str, Any]", schema)
    values = [node["const"]] if "const" in node else array(node.get("enum"))
    if values:
        return " | ".join(dumps(value).decode() for value in values)
    for key in ("anyOf", "oneOf"):
        if key in node:
            return " | ".join(dict.fromkeys(type_words(one, depth + 1) for one in array(node[key])))
    match node.get("type"):
        case "array":
            inner = type_words(node.get("items"), depth + 1)
            return f"({inner})[]" if " | " in inner else f"{inner}[]"
        case "object" if record(node.get("properties")):
            required = array(node.get("required"))
            fields = (
                f"{name}{'' if name in required else '?'}: {type_words(child, depth + 1)}"
                for name, child in record(node["properties"]).items()
            )
            return f"{{{', '.join(fields)}}}"
        case list():
            return " | ".join(map(str, array(node["type"])))
        case str() as type_:
            return type_
        case _:
            return "any"
