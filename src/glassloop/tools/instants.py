"""Date and time without an offset: read as UTC, so that a tool is given the same instant on every machine.

JSON Schema's `date-time` demands an offset (RFC 3339, 5.6) and models leave it out now and then. Read on some machine's
clock, what they mean would differ from worker to worker, and a comparison with an instant that has one would fail.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, cast

from glassloop.core.schema import map_children
from glassloop.tools.repair import branches_for

_NAIVE = re.compile(r"\d{4}-\d\d-\d\d([Tt _]\d\d:\d\d(:\d\d([.,]\d+)?)?)?")


def may_hold_instants(schema: Any) -> bool:
    """Whether some value that a schema allows may be, or hold, a `date-time`."""
    if not isinstance(schema, Mapping):
        return False
    node = cast("Mapping[str, Any]", schema)
    found = [node.get("format") == "date-time"]

    def visit(child: Any) -> Any:
        found.append(may_hold_instants(child))
        return child

    map_children(node, visit)
    return any(found)


def in_utc(value: Any, schema: Any, root: Mapping[str, Any]) -> Any:
    """`value` with the offset `Z` on each naive text where the schema allows a `date-time` and no other such text.

    Returns:
        `value` itself where nothing had to be added, else a copy.
    """
    match value:
        case str():
            return _instant(value, [branch.get("format") for branch in branches_for(schema, "string", root)])
        case dict():
            branches = branches_for(schema, "object", root)
            given = cast("dict[str, Any]", value)
            moved = {name: in_utc(child, property_of(name, branches), root) for name, child in given.items()}
            return moved if any(moved[name] is not child for name, child in given.items()) else given
        case list():
            branches = branches_for(schema, "array", root)
            children = cast("list[Any]", value)
            items = [in_utc(child, item_of(place, branches), root) for place, child in enumerate(children)]
            return items if any(one is not other for one, other in zip(items, children, strict=True)) else children
        case _:
            return value


def _instant(text: str, formats: list[Any]) -> str:
    found = _NAIVE.fullmatch(text)
    if found is None or "date-time" not in formats or not {"date-time", "date"}.issuperset(formats):
        return text
    if found[1] is not None:
        return f"{text}Z"
    return text if "date" in formats else f"{text}T00:00:00Z"


def property_of(name: str, branches: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The schema of a property, by whichever of the alternatives holds."""
    found = (branch.get("properties", {}).get(name, branch.get("additionalProperties")) for branch in branches)
    return {"anyOf": [one for one in found if isinstance(one, Mapping)]}


def item_of(place: int, branches: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The schema of an item, by whichever of the alternatives holds."""
    found: list[Any] = []
    for branch in branches:
        first = branch.get("prefixItems", [])
        found.append(first[place] if place < len(first) else branch.get("items"))
    return {"anyOf": [one for one in found if isinstance(one, Mapping)]}
