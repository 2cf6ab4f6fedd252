"""The validation gate of Python functions."""

from __future__ import annotations

from typing import Any

from pydantic_core import ValidationError

from glassloop.core.encoding import dumps
from glassloop.tools.arguments import Gate, Refused, Validated
from glassloop.tools.exact import with_exact_numbers
from glassloop.tools.instants import in_utc, may_hold_instants
from glassloop.tools.misread import Misreadings
from glassloop.tools.problems import from_pydantic
from glassloop.tools.schema import Arguments
from glassloop.tools.strangers import strangers


class FunctionGate(Gate):
    """The gate of a function, by pydantic.

    A `datetime` that the model wrote without an offset is in UTC, for the function and for whoever reads the arguments.
    Annotate the parameter with pydantic's `AwareDatetime` to have the model asked for an offset instead, or with
    `NaiveDatetime` for the time on some clock, which has none.
    """

    def __init__(self, arguments: Arguments) -> None:
        super().__init__(arguments.schema)
        self._validate_json = arguments.validate_json
        self._holds_instants = may_hold_instants(arguments.schema)
        self._holds_decimals = arguments.holds_decimals
        self._misreadings = Misreadings(arguments.schema)
        self._named = arguments.named

    def convert(self, arguments: dict[str, Any], text: str | bytes) -> dict[str, Any]:
        """See `Gate`."""
        kwargs = self._validate_json(text)
        problems = self._misreadings.found(arguments)
        if self._named is not None:
            problems += strangers(arguments, self._named, self._named)
        if problems:
            raise Refused(problems, {problem.path.partition(".")[0] for problem in problems})
        return kwargs

    def refusal(self, error: ValueError, arguments: dict[str, Any]) -> Refused:
        """See `Gate`."""
        if isinstance(error, Refused):
            return error
        if not isinstance(error, ValidationError):
            raise error
        names = {
            str(detail["loc"][0]) for detail in error.errors(include_url=False, include_input=False) if detail["loc"]
        }
        return Refused(from_pydantic(error, arguments, self._schema), names)

    def _exact(self, arguments: dict[str, Any], raw: str) -> dict[str, Any]:
        return with_exact_numbers(arguments, raw, self._schema) if self._holds_decimals else arguments

    def _settled(self, checked: Validated) -> Validated:
        if not self._holds_instants:
            return checked
        moved = in_utc(checked.arguments, self._schema, self._schema)
        if moved is checked.arguments:
            return checked
        try:
            return Validated(self.convert(moved, dumps(moved)), moved, True)
        except ValueError:
            return checked  # a type of the function's own that takes no offset
