"""Requests may have any shape: reading them as the shape that is hoped for."""

from __future__ import annotations

from glassloop.models.shapes import array as array
from glassloop.models.shapes import record as record


def string(value: object) -> str:
    """`value` if it is a string, else an empty one."""
    return value if isinstance(value, str) else ""


def texts(content: object) -> str:
    """The text of a message's content, which is a string or a list of parts; other kinds of parts are left out."""
    if isinstance(content, str):
        return content
    return "".join(string(record(part).get("text")) for part in array(content))
