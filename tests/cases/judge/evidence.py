"""What was seen while a case was played, and how to read it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from judge.server import Request
from judge.shape import mapping, mappings, sequence

Case = dict[str, Any]
Verdict = tuple[bool | None, str]
"""True: holds. False: does not, and why. None: cannot be seen through this adapter."""

Check = Callable[["Evidence", Any], Verdict]
CHECKS: dict[str, Check] = {}


def check(function: Check) -> Check:
    """Register a check under its function's name."""
    CHECKS[function.__name__] = function
    return function


@dataclass
class Group:
    """The calls of one tool in a case with code of its own."""

    target: str
    requests: list[Request]
    results: list[str]
    wall_s: float | None
    arg_types: dict[str, str] | None
    definition_error: bool


@dataclass
class Evidence:
    """Everything that the checks look at; `result` is what the adapter returned."""

    case: Case
    result: dict[str, Any] = field(default_factory=dict[str, Any])
    requests: list[Request] = field(default_factory=list[Request])
    probe_requests: list[Request] = field(default_factory=list[Request])
    log: list[list[Any]] = field(default_factory=list[list[Any]])
    outbox: list[Any] = field(default_factory=list[Any])
    deleted: list[Any] = field(default_factory=list[Any])
    groups: list[Group] = field(default_factory=list[Group])
    timed_out: bool = False
    overrun: int = 0
    raised: int = 0
    disconnect_t: float | None = None

    @property
    def error(self) -> str:
        """The adapter's error, for a reason."""
        return " " + short(self.result["error"], 110) if self.result.get("error") else ""

    def tool_results(self) -> list[tuple[Any, str]]:
        """The tool results of the request that has most of them."""
        best = max(self.requests, key=lambda request: len(tool_results(request)), default=None)
        return tool_results(best) if best else []


def as_json(value: Any) -> str:
    """Readable JSON, whatever `value` is."""
    return json.dumps(value, ensure_ascii=False, default=str)


def short(value: Any, size: int = 160) -> str:
    """`value` as text of about `size` characters."""
    text = value if isinstance(value, str) else as_json(value)
    return text if len(text) <= size else text[: size - 20] + "..." + text[-15:]


def execution(name: str, arguments: dict[str, Any]) -> list[Any]:
    """An execution in its one form: arguments that are None equal absent ones."""
    return [name, {key: value for key, value in json.loads(as_json(arguments)).items() if value is not None}]


def text_of(content: Any) -> str:
    """The text of a message's content, in either wire format."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    parts = [part if isinstance(part, str) else mapping(part) for part in sequence(content)]
    return "".join(p if isinstance(p, str) else p.get("text") or text_of(p.get("content")) for p in parts)


def messages(request: Request) -> list[dict[str, Any]]:
    """The messages of a request."""
    return mappings(mapping(request.body).get("messages"))


def tool_results(request: Request) -> list[tuple[Any, str]]:
    """(call id, text) of every tool result in a request, in either wire format."""
    found: list[tuple[Any, str]] = []
    for message in messages(request):
        content = message.get("content")
        if message.get("role") == "tool":
            found.append((message.get("tool_call_id"), text_of(content)))
        else:
            results = [block for block in mappings(content) if block.get("type") == "tool_result"]
            found += [(block.get("tool_use_id"), text_of(block.get("content"))) for block in results]
    return found


def last_assistant(request: Request, *, with_calls: bool = False) -> dict[str, Any] | None:
    """The last assistant message, or the last that has calls; None where there is none."""
    found = [m for m in messages(request) if m.get("role") == "assistant" and (not with_calls or m.get("tool_calls"))]
    return found[-1] if found else None


def last_calls(request: Request) -> list[dict[str, Any]]:
    """The tool calls of the last assistant message that has some."""
    return mappings(mapping(last_assistant(request, with_calls=True)).get("tool_calls"))


def parameters(request: Request) -> dict[str, Any]:
    """The parameter schema of the first tool on offer."""
    tools = mappings(mapping(request.body).get("tools")) or [{}]
    return mapping(mapping(tools[0].get("function")).get("parameters"))


def same_result(text: str, wanted: Any) -> bool:
    """Whether a tool result says `wanted`, as text or as JSON; `{"matches": pattern}` is a regular expression."""
    if set(mapping(wanted)) == {"matches"}:
        return bool(re.search(wanted["matches"], text))
    if text == wanted or text == str(wanted):
        return True
    try:
        value = json.loads(text)
    except ValueError:
        return False
    return value == wanted or str(value) == str(wanted)


def resolve(schema: dict[str, Any], root: Any) -> dict[str, Any]:
    """`schema` with its references into `root` followed.

    Raises:
        KeyError: a reference leads nowhere.
    """
    depth = 0
    while "$ref" in schema and depth < 50:
        node: Any = root
        for part in str(schema["$ref"]).lstrip("#/").split("/"):
            node = node[part]
        schema, depth = mapping(node), depth + 1
    return schema


def references(node: Any) -> Iterator[str]:
    """Every `$ref` in a schema."""
    for key, value in mapping(node).items():
        if key == "$ref" and isinstance(value, str):
            yield value
        else:
            yield from references(value)
    for value in sequence(node):
        yield from references(value)


def at_path(value: Any, path: str) -> Any:
    """The part of a JSON value at a path such as `a.b[0]`; None where there is none."""
    for part in re.findall(r"[^.\[\]]+|\[\d+\]", path):
        items = {f"[{i}]": item for i, item in enumerate(sequence(value))}
        value = {**items, **mapping(value)}.get(part)
    return value
