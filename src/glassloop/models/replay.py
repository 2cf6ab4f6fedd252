"""Old tool calls on the wire: ids that are legal and unique, arguments that are an object."""

from __future__ import annotations

import re
from collections.abc import Container, Sequence
from typing import Any

from glassloop.core.encoding import digest, dumps, loads
from glassloop.core.messages import ToolCall
from glassloop.core.parsing import Unreadable, read_object

INVALID_ARGUMENTS = "_invalid_arguments"
_SHOWN = 200
_LEGAL_ID = re.compile(r"[a-zA-Z0-9_-]{1,40}")
_GIVEN_ID = re.compile(r"\S{1,40}|functions\.[a-zA-Z0-9_-]{1,64}:\d{1,6}")
_LEGAL_SHORT_ID = re.compile(r"[a-zA-Z0-9]{9}")


def arguments_object(raw: str) -> dict[str, Any]:
    """What a model wrote as arguments, as the object that every wire demands.

    It is read as the validation gate reads it, so that a call which ran with its syntax repaired is not shown to the
    model as a fault to imitate. What cannot be read as an object becomes `{"_invalid_arguments": <the first 200
    characters>}`: the conversation stays sendable, and the model still sees what it did.
    """
    try:
        return read_object(raw, bare=True)[0]
    except Unreadable:
        return {INVALID_ARGUMENTS: raw[:_SHOWN]}


def arguments_text(raw: str) -> str:
    """The same as text: `raw` itself where it is a JSON object."""
    try:
        if isinstance(loads(raw), dict):
            return raw
    except ValueError:
        pass
    return dumps(arguments_object(raw)).decode()


def wire_ids(
    calls: Sequence[ToolCall], taken: Container[str] = (), *, short: bool = False, own: bool = False
) -> tuple[str, ...]:
    """The ids of one reply's calls on the wire, different from each other and from `taken`.

    The provider's own id where it is legal on every wire (letters, digits, `_` and `-`, at most the 40 characters that
    OpenAI accepts) and still free, else ours.

    Args:
        calls: the reply's calls.
        taken: ids that earlier calls of the request have.
        short: nine letters or digits, which is what Mistral demands.
        own: the request goes to the model that made the calls, and wrote its ids in a form that it may rely on (Kimi's
            `functions.name:0`): they stay as they are.
    """
    legal = _LEGAL_SHORT_ID if short else _LEGAL_ID
    given = _GIVEN_ID if own else legal
    ids: list[str] = []
    for call in calls:
        wire = call.provider_id
        if not given.fullmatch(wire) or wire in taken or wire in ids:
            wire = call.id
            attempt = 0
            while not legal.fullmatch(wire) or wire in taken or wire in ids:
                mark = digest(f"{call.id}#{attempt}".encode("utf-8", "replace"))
                wire = mark[:9] if short else f"call_{mark}"
                attempt += 1
        ids.append(wire)
    return tuple(ids)
