"""THE VALIDATION GATE: what a model wrote becomes the arguments of a function, or an error that it can act on."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple, cast

from glassloop.core.encoding import dumps, loads
from glassloop.core.parsing import Unreadable, is_finite, read_object
from glassloop.tools.lean import may_hold_floats
from glassloop.tools.problems import ArgumentsError, Problem
from glassloop.tools.repair import repair, unwrapped

__all__ = ["ArgumentsError", "Gate", "Problem", "Refused", "Validated", "parse_arguments"]

_MAY_OVERFLOW = re.compile(r"\d[eE]\+?\d{3}|\d{309}")
"""A number that may be infinite as a double, although it is JSON."""


class Validated(NamedTuple):
    """Arguments that passed the gate.

    Args:
        kwargs: for the function, converted to the types that it names.
        arguments: what the model meant, as plain JSON values, after repair: for the wire, the journal, fingerprints
            and keys. Defaults are not filled in (`Tool.with_defaults`). A `Decimal` that is no double stands as text.
        repaired: whether `arguments` differs from what the model wrote.
    """

    kwargs: dict[str, Any]
    arguments: dict[str, Any]
    repaired: bool = False


class Refused(ValueError):
    """Arguments that do not fit.

    Args:
        problems: what is wrong.
        names: the top-level arguments that are wrong.
    """

    def __init__(self, problems: list[Problem], names: set[str]) -> None:
        super().__init__()
        self.problems = problems
        self.names = names


class Gate(ABC):
    """Reads, repairs and validates. Only what validation refuses is ever repaired, so valid arguments stay as they are.

    Args:
        schema: JSON Schema of the arguments, an object.
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._schema = schema
        self._bare = not schema.get("properties")
        self._holds_floats = may_hold_floats(schema)

    @abstractmethod
    def convert(self, arguments: dict[str, Any], text: str | bytes) -> dict[str, Any]:
        """The function's keyword arguments; `text` is the JSON of `arguments`.

        Raises:
            ValueError: they do not fit.
        """

    @abstractmethod
    def refusal(self, error: ValueError, arguments: dict[str, Any]) -> Refused:
        """What an error of `convert` says."""

    def check(self, tool: str, raw: str, complete: bool = True) -> Validated:
        """Let arguments through, or turn them back.

        Args:
            tool: its name, for the message.
            raw: what the model wrote.
            complete: False where the reply was cut off: then nothing is repaired that may be half a text.

        Raises:
            ArgumentsError: they are turned back.
        """
        try:
            arguments = loads(raw)
            if isinstance(arguments, dict) and not (self._holds_floats and _MAY_OVERFLOW.search(raw)):
                arguments = cast("dict[str, Any]", arguments)
                exact = self._exact(arguments, raw)
                text = raw if exact is arguments else dumps(exact)
                return self._settled(Validated(self.convert(exact, text), exact))
        except ValueError:
            pass
        try:
            return self._settled(self._repaired(tool, *_read(raw, complete, self._bare)))
        except Refused as refused:
            raise ArgumentsError(tool, refused.problems) from None

    def _exact(self, arguments: dict[str, Any], raw: str) -> dict[str, Any]:
        """The arguments as they stand in `raw`, where reading it lost something; else `arguments` itself."""
        return arguments

    def _settled(self, checked: Validated) -> Validated:
        """Arguments that passed, as the function is given them."""
        return checked

    def _repaired(self, tool: str, arguments: dict[str, Any], repaired: bool) -> Validated:
        try:
            return Validated(self.convert(arguments, dumps(arguments)), arguments, repaired)
        except ValueError as error:
            refused = self.refusal(error, arguments)
        inner = unwrapped(arguments, self._schema, tool)
        if inner is not None:
            with suppress(Refused):
                return self._repaired(tool, inner, True)
        again = repair(arguments, self._schema, refused.names)
        if again == arguments:
            raise refused
        try:
            return Validated(self.convert(again, dumps(again)), again, True)
        except ValueError as error:
            raise self.refusal(error, again) from None


def parse_arguments(raw: str, schema: Mapping[str, Any], *, complete: bool = True) -> dict[str, Any]:
    """The JSON object that a model meant, its syntax repaired but nothing validated. The caller may change it.

    Raises:
        ArgumentsError: `raw` is no JSON object and cannot be made one without guessing.
    """
    try:
        return _read(raw, complete, not schema.get("properties"))[0]
    except Refused as refused:
        raise ArgumentsError("The tool", refused.problems) from None


def _read(raw: str, complete: bool, bare: bool) -> tuple[dict[str, Any], bool]:
    try:
        arguments, repaired = read_object(raw, complete=complete, bare=bare)
    except Unreadable as error:
        raise Refused([Problem("", str(error))], set()) from None
    if not is_finite(arguments):
        raise Refused([Problem("", "a number is too large; NaN and infinity are not allowed")], set())
    return arguments, repaired
