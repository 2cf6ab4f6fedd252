"""JSON of unknown shape, read without trusting it."""

from __future__ import annotations

from typing import Any, cast


def mapping(value: object) -> dict[str, Any]:
    """`value` if it is an object, else an empty one."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def sequence(value: object) -> list[Any]:
    """`value` if it is an array, else an empty one."""
    return cast("list[Any]", value) if isinstance(value, list) else []


def mappings(value: object) -> list[dict[str, Any]]:
    """The objects in `value` if it is an array."""
    return [cast("dict[str, Any]", item) for item in sequence(value) if isinstance(item, dict)]
