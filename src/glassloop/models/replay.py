"""Old tool calls on the wire: ids that are legal and unique, arguments that are an object."""

from __future__ import annotations

import re
from collections.abc import Container, Sequence
from typing import Any, cast

from glassloop.core.encoding import digest, dumps, loads
from glassloop.core.messages import ToolCall

INVALID_ARGUMENTS = "_invalid_arguments"
_SHOWN = 200
_LEGAL_ID = re.compile(r"[a-zA-Z0-9_-]{1,40}")
_LEGAL_SHORT_ID = re.compile(r"[a-zA-Z0-9]{9}")


def arguments_object(raw: str) -> dict[str, Any]:
    """What a model wrote as arguments, as the object that every wire demands.

    Nothing, blanks and `null` are `{}`; an object that was encoded twice is unwrapped. Anything else that is no JSON
    object becomes `{"_invalid_arguments": <the first 200 characters>}`, so that the conversation stays sendable and the
    model still sees what it did.
    """
    value = _parsed(raw)
    return value if value is not None else {INVALID_ARGUMENTS: raw[:_SHOWN]}


def arguments_text(raw: str) -> str:
    """The same as text: `raw` itself where it is a JSON object."""
    try:
        if isinstance(loads(raw), dict):
            return raw
    except ValueError:
        pass
    return dumps(arguments_object(raw)).decode()


def wire_ids(calls: Sequence[ToolCall], taken: Container[str] = (), *, short: bool = False) -> tuple[str, ...]:
    """The ids of one reply's calls on the wire, different from each other and from `taken`.

    The provider's own id where it is legal on every wire (letters, digits, `_` and `-`, at most the 40 characters that
    OpenAI accepts) and still free, else ours.

    Args:
        calls: the reply's calls.
        taken: ids that earlier calls of the request have.
        short: nine letters or digits, which is what Mistral demands.
    """
    legal = _LEGAL_SHORT_ID if short else _LEGAL_ID
    ids: list[str] = []
    for call in calls:
        wire = call.provider_id
        if not legal.fullmatch(wire) or wire in taken or wire in ids:
            wire = call.id
            attempt = 0
            while not legal.fullmatch(wire) or wire in taken or wire in ids:
                mark = digest(f"{call.id}#{attempt}".encode("utf-8", "replace"))
                wire = mark[:9] if short else f"call_{mark}"
                attempt += 1
        ids.append(wire)
    return tuple(ids)


def _parsed(raw: str) -> dict[str, Any] | None:
    if not raw.strip():
        return {}
    try:
        value = loads(raw)
        if isinstance(value, str):
            value = loads(value)
    except ValueError:
        return None
    if value is None:
        return {}
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None
