"""A tool call as a person reads it: nothing in it is unseen, and what is cut says so."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, cast

from glassloop.core.encoding import dumps, loads

_SUMMARY = 300
_UNSEEN = re.compile(
    "[\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f"
    "\u3164\ufeff\uffa0\ufff0-\ufffb\ud800-\udfff\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e00ff\U000e01f0-\U000e0fff]"
)
"""Beside what JSON escapes itself: controls (ECMA-48), half characters, and what is invisible or moves the text around
it (Unicode's Bidi_Control and Default_Ignorable_Code_Point; "Trojan Source", CVE-2021-42574). The joiners U+200C and
U+200D and the variation selectors U+FE00 to U+FE0F and U+E0100 to U+E01EF stay: Persian, emoji and Japanese names are
written with them."""


def render_call(name: str, arguments: Mapping[str, Any]) -> str:
    """One line: `create_ticket(order_id="A-1")`; a name that is no identifier stands in quotes."""
    return f"{name}({', '.join(f'{render_name(key)}={_compact(value)}' for key, value in arguments.items())})"


def render_written_call(name: str, arguments: str) -> str:
    """The same of arguments as a model has written them; where they are no JSON object, they stand as they are."""
    try:
        value: object = loads(arguments) if arguments.strip() else {}
    except ValueError:
        value = None
    if isinstance(value, dict):
        return render_call(name, cast("dict[str, Any]", value))
    return f"{name}({visible(arguments)})"


def render_name(name: str) -> str:
    """The name of an argument, as JSON where it could be mistaken for something else than a name."""
    return name if name.isidentifier() and name == visible(name) else render_json(name)


def render_json(value: object) -> str:
    """JSON on one line, the same value when it is read again, with what could not be seen as `\\uXXXX`."""
    return visible(json.dumps(value, ensure_ascii=False))


def visible(text: str) -> str:
    """`text` with each character that is not seen, or that moves what stands beside it, as JSON would escape it."""
    return _UNSEEN.sub(lambda found: json.dumps(found[0])[1:-1], text)


def shortened(text: str, width: int = _SUMMARY) -> str:
    """At most `width` characters of `text`, and how many more there are."""
    left = len(text) - width
    return text if left <= 0 else f"{text[:width]}… ({left:,} more character{'' if left == 1 else 's'})"


def _compact(value: object) -> str:
    return visible(dumps(value).decode())
