"""Decimals with more digits than a double holds: kept, where they would silently be another amount."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, cast

from glassloop.tools.instants import item_of, property_of
from glassloop.tools.repair import allowed_types, branches_for

_LONG = re.compile(r"[\d.]{17}")  # a double holds any 15 digits, and two more where it is lucky


def with_exact_numbers(arguments: dict[str, Any], raw: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    """`arguments` as they stand in their JSON, numbers that are no doubles as texts where the schema wants a number.

    Returns:
        `arguments` itself where there is none.
    """
    if not _LONG.search(raw):
        return arguments
    exact: Any = _exact(json.loads(raw, parse_float=Decimal), schema, schema)
    return arguments if exact == arguments else exact


def _exact(value: Any, schema: Any, root: Mapping[str, Any]) -> Any:
    match value:
        case Decimal():
            number = float(value)
            wanted = "number" in (allowed_types(schema, root) or ())
            return str(value) if wanted and Decimal(repr(number)) != value else number
        case dict():
            branches = branches_for(schema, "object", root)
            given = cast("dict[str, Any]", value)
            return {name: _exact(child, property_of(name, branches), root) for name, child in given.items()}
        case list():
            branches = branches_for(schema, "array", root)
            return [_exact(child, item_of(n, branches), root) for n, child in enumerate(cast("list[Any]", value))]
        case _:
            return value
