"""Values from a server that may have any shape, read as the shape that is hoped for."""

from __future__ import annotations

from typing import Any, cast

_MOST = 10**12
_NUMBERS = (int, float)  # `int | float` would be made anew at each call


def record(value: Any) -> dict[str, Any]:
    """`value` if it is a JSON object, else an empty one."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def array(value: Any) -> list[Any]:
    """`value` if it is a JSON array, else an empty one."""
    return cast("list[Any]", value) if isinstance(value, list) else []


def count(value: Any) -> int:
    """`value` as a number of tokens that a store can hold: 0 where it is missing, null or no number."""
    return int(min(value, _MOST)) if isinstance(value, _NUMBERS) and value > 0 else 0
