"""Reading JSON of unknown shape without a cast at every step."""

from __future__ import annotations

from typing import Any, cast


def record(value: object) -> dict[str, Any]:
    """`value` if it is a JSON object, else an empty one."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def array(value: object) -> list[Any]:
    """`value` if it is a JSON array, else an empty one."""
    return cast("list[Any]", value) if isinstance(value, list) else []


def string(value: object) -> str:
    """`value` if it is a string, else an empty one."""
    return value if isinstance(value, str) else ""


def texts(content: object) -> str:
    """The text of a message's content, which is a string or a list of parts; other kinds of parts are left out."""
    if isinstance(content, str):
        return content
    return "".join(string(record(part).get("text")) for part in array(content))
