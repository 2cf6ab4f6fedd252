"""The tools of a request, encoded once for as long as they are the same objects."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from glassloop.core.encoding import dumps
from glassloop.core.names import wire_name
from glassloop.models.model import ToolSpec
from glassloop.models.shapes import array, record

_KEPT = 64


@dataclass(frozen=True, slots=True)
class Packed:
    """Encoded tools.

    Args:
        specs: what was encoded.
        encoded: the elements of the JSON array, without its brackets; empty where there are none.
        names: wire names, with ours.
    """

    specs: tuple[ToolSpec, ...]
    encoded: bytes
    names: Mapping[str, str]


class Toolbox:
    """Encodes tool lists.

    Args:
        encode: one tool, as the provider wants it.
    """

    def __init__(self, encode: Callable[[ToolSpec], bytes]) -> None:
        self._encode = encode
        self._known: dict[tuple[int, ...], Packed] = {}

    def pack(self, specs: Sequence[ToolSpec], more: Sequence[Any] | None = None) -> Packed:
        """Encode `specs`, and after them `more` tools that are in the provider's own format already."""
        key = tuple(map(id, specs))
        packed = self._known.get(key)
        if packed is None:
            if len(self._known) >= _KEPT:
                self._known.clear()
            encoded = b",".join(map(self._encode, specs))
            names = {wire_name(spec.name): spec.name for spec in specs}
            packed = self._known[key] = Packed(tuple(specs), encoded, names)  # holds the specs, so that ids stay theirs
        if not more:
            return packed
        own = dumps(list(more))[1:-1]
        return Packed(packed.specs, b",".join(filter(None, (packed.encoded, own))), packed.names)


def object_schema(parameters: Mapping[str, Any]) -> Mapping[str, Any]:
    """A schema that says that it is an object's and which properties that has; providers refuse one that does not."""
    if parameters.get("type") == "object" and ("properties" in parameters or "$ref" in parameters):
        return parameters
    return {"properties": {}, **parameters, "type": "object"}


def without_unions(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema without `anyOf`, `oneOf` and `allOf` at the top level, which Anthropic refuses.

    Their properties are offered side by side; which of them go together is for the validation gate to say.
    """
    unions = {"anyOf", "oneOf", "allOf"}.intersection(schema)
    if not unions:
        return schema
    flat = {key: value for key, value in schema.items() if key not in unions}
    for union in sorted(unions):
        for choice in map(record, array(schema[union])):
            flat["properties"] = {**record(choice.get("properties")), **flat["properties"]}
            if union == "allOf":
                flat["required"] = [*flat.get("required", ()), *array(choice.get("required"))]
    return flat
