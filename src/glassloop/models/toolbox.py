"""The tools of a request, encoded once for as long as they are the same objects."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from glassloop.core.encoding import dumps
from glassloop.core.names import wire_name
from glassloop.models.model import ToolSpec
from glassloop.models.tool_schemas import wire_keys

_KEPT = 64


@dataclass(frozen=True, slots=True)
class Packed:
    """Encoded tools.

    Args:
        specs: what was encoded.
        encoded: the elements of the JSON array, without its brackets; empty where there are none.
        names: wire names, with ours.
        keys: by our names, of the tools with arguments whose names Anthropic refuses: what they are called there, with
            ours.
    """

    specs: tuple[ToolSpec, ...]
    encoded: bytes
    names: Mapping[str, str]
    keys: Mapping[str, Mapping[str, str]]


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
            keys = {spec.name: ours for spec in specs if (ours := wire_keys(spec.parameters))}
            packed = Packed(tuple(specs), encoded, names, keys)  # holds the specs, so that ids stay theirs
            self._known[key] = packed
        if not more:
            return packed
        own = dumps(list(more))[1:-1]
        return replace(packed, encoded=b",".join(filter(None, (packed.encoded, own))))
