"""The gate of a tool that is given by a JSON Schema, by jsonschema-rs."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

from glassloop.core.errors import ToolDefinitionError
from glassloop.core.schema import Schema, resolve, without_unused_definitions
from glassloop.tools.arguments import Gate, Refused
from glassloop.tools.dialects import modern, untitled
from glassloop.tools.problems import from_jsonschema, unknown_argument
from glassloop.tools.repair import with_whole_numbers
from glassloop.tools.signature import REQUIRED, Callee, ParameterKind

if TYPE_CHECKING:
    import jsonschema_rs

_MOST_ERRORS = 20


def object_schema(parameters: Mapping[str, Any], origin: str) -> Schema:
    """A copy of a schema as tools have it: of type `object`, with `properties`, in the spelling of 2020-12, lean.

    Raises:
        ToolDefinitionError: it describes something else.
    """
    given: Any = copy.deepcopy(untitled(modern(parameters)))
    schema = _at_root(cast("Schema", given)) if isinstance(given, dict) else {"type": ()}  # booleans are schemas, too
    types = schema.get("type", "object")
    if "object" not in ([types] if isinstance(types, str) else types):
        raise ToolDefinitionError(f"{origin}: the schema of a tool's arguments must be of type object.")
    left_out = {"$schema", "type"} if " " in str(schema.get("title", "")) else {"$schema", "type", "title"}
    rest = {key: value for key, value in schema.items() if key not in left_out}
    return {"type": "object", "properties": {}, **rest}


def _at_root(schema: Schema) -> Schema:
    """A schema that is but a reference into itself (as zod-to-json-schema writes them), with what that points to."""
    target = resolve(schema, schema) if "$ref" in schema else None
    if not isinstance(target, Mapping) or not target:
        return schema
    beside = {key: value for key, value in schema.items() if key != "$ref"}
    return without_unused_definitions({**cast("Mapping[str, Any]", target), **beside})


class SchemaGate(Gate):
    """Validates by the schema as it was given. Defaults in it are the function's business: none is filled in.

    Args:
        schema: as sent to the model.
        parameters: as given, with its `$schema`.
        callee: the function.

    Raises:
        ToolDefinitionError: the schema is invalid, refers to something outside it, or does not fit the function.
    """

    def __init__(self, schema: Schema, parameters: Mapping[str, Any], callee: Callee) -> None:
        self._validator = _validator(parameters, callee.origin)
        super().__init__(schema)
        self._known = _names_taken(callee, schema)

    def convert(self, arguments: dict[str, Any], text: str | bytes) -> dict[str, Any]:
        """See `Gate`."""
        if not self._validator.is_valid(arguments):
            errors = list(islice(self._validator.iter_errors(arguments), _MOST_ERRORS))
            problems = from_jsonschema(errors, arguments, self._schema)
            raise Refused(problems, {str(error.instance_path[0]) for error in errors if error.instance_path})
        if self._known is not None and not self._known.issuperset(arguments):
            known = [name for name in self._schema["properties"] if name in self._known]
            extra = [name for name in arguments if name not in self._known]
            raise Refused([unknown_argument(name, known, arguments) for name in extra], set())
        return with_whole_numbers(arguments, self._schema)

    def refusal(self, error: ValueError, arguments: dict[str, Any]) -> Refused:
        """See `Gate`."""
        if not isinstance(error, Refused):
            raise error
        return error


def _names_taken(callee: Callee, schema: Schema) -> set[str] | None:
    """The argument names that a function takes; None where its `**` takes any.

    Raises:
        ToolDefinitionError: schema and function do not fit each other.
    """
    asked = [parameter for parameter in callee.parameters if not parameter.is_context]
    takes_any = any(parameter.kind is ParameterKind.VAR_KEYWORD for parameter in asked)
    named = {
        one.name: one for one in asked if one.kind in (ParameterKind.POSITIONAL_OR_KEYWORD, ParameterKind.KEYWORD_ONLY)
    }
    hidden = {one.name for one in callee.parameters if one.is_context and one.kind is not ParameterKind.POSITIONAL_ONLY}
    for name in schema["properties"]:
        if name in hidden:
            raise ToolDefinitionError(
                f"{callee.origin}: the argument {name!r} of the schema has the name of the context parameter. "
                f"Make that one positional-only: def function({name}: RunContext, /, ...)."
            )
        if not takes_any and name not in named:
            raise ToolDefinitionError(
                f"{callee.origin} does not take the argument {name!r} of its schema. "
                "Give it that parameter, or **arguments."
            )
    for name, parameter in named.items():
        if parameter.default is REQUIRED and name not in schema.get("required", ()):
            raise ToolDefinitionError(
                f"{callee.origin}: the parameter {name!r} has no default, so the schema must list it under 'required'."
            )
    return None if takes_any else set(named)


def _validator(parameters: Mapping[str, Any], origin: str) -> jsonschema_rs.Validator:
    import jsonschema_rs

    # otherwise unchanged: a reference to the root may stand where the value is no object
    given: dict[str, Any] = dict(parameters) if "$schema" in parameters else modern(parameters)
    try:
        return jsonschema_rs.validator_for(given, offline=True)
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
        reason = getattr(error, "message", str(error))
        raise ToolDefinitionError(f"{origin}: the schema of the tool's arguments is not valid: {reason}") from error
