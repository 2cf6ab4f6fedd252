"""From a signature and its docstring: the JSON Schema for the model, and the validator for what the model sends."""

from __future__ import annotations

import dataclasses
import functools
import sys
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any, Literal, cast, get_args, get_origin, get_type_hints

import typing_extensions
from pydantic import BaseModel, ConfigDict, PydanticUserError, TypeAdapter
from pydantic.errors import PydanticInvalidForJsonSchema, PydanticSchemaGenerationError
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import SchemaError, core_schema, to_jsonable_python

from glassloop.core.encoding import dumps
from glassloop.core.errors import ConfigurationError, ToolDefinitionError
from glassloop.core.parsing import is_finite
from glassloop.core.schema import VALUE, Schema
from glassloop.models.shapes import array
from glassloop.tools.lean import lean
from glassloop.tools.signature import REQUIRED, Callee, Parameter, ParameterKind
from glassloop.tools.strangers import with_any_names, with_names, without_names

ValidateJson = Callable[[str | bytes], dict[str, Any]]
"""From the JSON of the arguments to the function's keyword arguments; raises `pydantic_core.ValidationError`."""

_CONFIG = ConfigDict(extra="forbid", allow_inf_nan=False, val_json_bytes="base64", ser_json_bytes="base64")


@dataclass(frozen=True, slots=True)
class Arguments:
    """The arguments of a function tool.

    Args:
        schema: lean JSON Schema, an object.
        validate_json: strict about names, lax about unambiguous spellings ("5" for an integer).
        holds_decimals: whether some value is a `Decimal`.
        named: the schema with the names that models inside of it read, for `strangers`; None where there are none.
    """

    schema: Schema
    validate_json: ValidateJson
    holds_decimals: bool = False
    named: Schema | None = None


def arguments_of(callee: Callee, descriptions: Mapping[str, str]) -> Arguments:
    """Build schema and validator for a callable.

    Args:
        callee: looked into; its context parameters are left out.
        descriptions: of parameters, from the docstring; those in `Annotated` or `Field` win.

    Raises:
        ToolDefinitionError: a parameter's type has no JSON form; names function and parameter.
    """
    asked = [parameter for parameter in callee.parameters if not parameter.is_context]
    fields = {one.name: _field(one, descriptions.get(one.name)) for one in asked}
    try:
        adapter = _adapter(fields)
        generated, holds_decimals = _generated(adapter)
    except _BAD_TYPE as error:
        raise _explained(callee, asked, fields, error) from error
    bare = without_names(generated)
    schema = lean(bare)
    properties = {**schema.get("properties", {})}
    for one in asked:
        if (name := _told_name(one)) in properties:
            properties[name] = _with_default(properties[name], one.default)
    rest = {key: value for key, value in schema.items() if key not in ("type", "properties")}
    told = {"type": "object", "properties": properties, **rest}
    return Arguments(
        told, adapter.validator.validate_json, holds_decimals, None if bare == generated else lean(generated)
    )


def value_of(annotation: Any) -> Arguments:
    """Schema and validator of one value, as the one argument `result`.

    Raises:
        ConfigurationError: the type has no JSON form.
    """
    try:
        adapter = _adapter({VALUE: _current(annotation)})
        generated, holds_decimals = _generated(adapter)
    except _BAD_TYPE as error:
        raise ConfigurationError(
            f"A model cannot be asked for an output of type {_spelled(annotation)} ({_reason(error)}). Use a type with "
            "a JSON form: a plain type, pydantic model, dataclass or TypedDict."
        ) from error
    schema = lean(without_names(generated))
    return Arguments({"type": "object", **schema}, adapter.validator.validate_json, holds_decimals)


_BAD_TYPE = (
    *(PydanticUserError, PydanticSchemaGenerationError, SchemaError),
    *(NameError, TypeError, ValueError, AttributeError),
)


def _adapter(fields: Mapping[str, Any]) -> TypeAdapter[Any]:
    """A TypedDict takes any name as a key, where a model has names of its own (`schema`, `copy`, `model_x`, `_x`)."""
    arguments: Any = typing_extensions.TypedDict("Arguments", dict(fields))  # pyright: ignore[reportArgumentType, reportGeneralTypeIssues] - made of data
    arguments.__pydantic_config__ = _CONFIG
    return TypeAdapter[Any](arguments)


def _field(parameter: Parameter, description: str | None) -> Any:
    annotation = _current(parameter.annotation)
    match parameter.kind:
        case ParameterKind.VAR_POSITIONAL:
            annotation = _unpacked(annotation) or list[annotation]
        case ParameterKind.VAR_KEYWORD:
            annotation = _unpacked(annotation) or dict[str, annotation]
        case _:
            annotation = _described(annotation, description)
            if isinstance(parameter.default, FieldInfo):
                annotation = Annotated[annotation, parameter.default]
            return annotation if _is_required(parameter) else typing_extensions.NotRequired[annotation]
    return typing_extensions.NotRequired[_described(annotation, description)]


def _told_name(parameter: Parameter) -> str:
    """The name that the model is told: an alias, where `Field` gives one."""
    given = (*getattr(parameter.annotation, "__metadata__", ()), parameter.default)
    aliases = [info.validation_alias for info in given if isinstance(info, FieldInfo)]
    return next((alias for alias in reversed(aliases) if isinstance(alias, str)), parameter.name)


def _is_required(parameter: Parameter) -> bool:
    if isinstance(parameter.default, FieldInfo):
        return parameter.default.is_required()
    if parameter.default is not REQUIRED:
        return False
    infos = (item for item in getattr(parameter.annotation, "__metadata__", ()) if isinstance(item, FieldInfo))
    return all(info.is_required() for info in infos)


def _described(annotation: Any, description: str | None) -> Any:
    """The annotation with the docstring's description innermost, where any explicit one overrides it."""
    metadata: tuple[Any, ...] = ()
    if get_origin(annotation) is Annotated:
        annotation, *rest = get_args(annotation)
        metadata = tuple(_as_field(item) for item in rest)
    if description:
        metadata = (_description(description), *metadata)
    return Annotated[(annotation, *metadata)] if metadata else annotation


def _as_field(item: Any) -> Any:
    """A bare text, or `Doc` (PEP 727), in `Annotated` is a description."""
    text = item if isinstance(item, str) else getattr(item, "documentation", None)
    return _description(text) if isinstance(text, str) else item


def _description(text: str) -> FieldInfo:
    return FieldInfo(description=text)


def _unpacked(annotation: Any) -> Any:
    """What `*args: *tuple[int, str]` and `**options: Unpack[Options]` hold (PEP 646, PEP 692)."""
    if get_origin(annotation) in (typing.Unpack, typing_extensions.Unpack):
        return get_args(annotation)[0]
    return annotation if getattr(annotation, "__unpacked__", False) else None


def _current(annotation: Any) -> Any:
    """What pydantic checks at once and on every Python, also inside lists, unions and the like.

    It wants another `TypedDict` than that of `typing` before Python 3.12, and would check the items of an `Iterable`
    only when the function takes them.
    """
    if annotation is Iterable or get_origin(annotation) is Iterable:
        return list[_current((*get_args(annotation), Any)[0])]
    if _is_old_typed_dict(annotation):
        hints = {name: _current(hint) for name, hint in get_type_hints(annotation, include_extras=True).items()}
        wrapped = {name: _presence(annotation, name, hint) for name, hint in hints.items()}
        again: Any = typing_extensions.TypedDict(annotation.__name__, wrapped)  # pyright: ignore[reportArgumentType, reportGeneralTypeIssues] - made of data
        again.__doc__ = annotation.__doc__
        return again
    origin, members = get_origin(annotation), get_args(annotation)
    if origin is None or origin is Literal or not members:
        return annotation
    if origin is Annotated:
        return Annotated[(_current(members[0]), *members[1:])]
    current = tuple(_current(member) for member in members)
    if all(new is old for new, old in zip(current, members, strict=True)):
        return annotation
    if isinstance(annotation, types.UnionType):
        return functools.reduce(lambda one, other: one | other, current)
    return origin[current] if isinstance(annotation, types.GenericAlias) else annotation.copy_with(current)


def _is_old_typed_dict(annotation: Any) -> bool:
    kind = cast("type[Any]", type(annotation))
    return sys.version_info < (3, 12) and kind.__name__ == "_TypedDictMeta" and kind.__module__ == "typing"


def _presence(typed_dict: Any, name: str, hint: Any) -> Any:
    """The hint as required or not; its own word counts before the class's, which cannot read postponed annotations."""
    if get_origin(hint) in (typing.Required, typing.NotRequired):
        return hint
    return hint if name in typed_dict.__required_keys__ else typing_extensions.NotRequired[hint]


def _with_default(schema: Schema, default: Any) -> Schema:
    if default is None:
        return _without_null(schema)
    if default is REQUIRED or isinstance(default, FieldInfo):
        return schema
    try:
        plain = float(default) if isinstance(default, Decimal) else to_jsonable_python(default, bytes_mode="base64")
    except ValueError:
        return schema  # a default of your own kind needs no place in the schema: leaving the argument out gives it
    return {**schema, "default": _ordered(plain, default)} if is_finite(plain) else schema


def _ordered(plain: Any, value: object) -> Any:
    """A value's JSON form, its sets as sorted lists: their own order is another in each process, and what a model is
    told is the beginning of its cached prompt, and part of what a human has approved."""
    if isinstance(plain, dict):
        named = cast("dict[str, Any]", plain)
        return dict(zip(named, _ordered([*named.values()], [*_inside(value)]), strict=True))
    own, inside = array(plain), _inside(value)
    if not own or len(own) != len(inside):  # a form of its own
        return plain
    parts = [_ordered(one, given) for one, given in zip(own, inside, strict=True)]
    return sorted(parts, key=dumps) if isinstance(value, Set) else parts


def _inside(value: object) -> list[Any]:
    match value:
        case dict():
            return [*cast("dict[Any, Any]", value).values()]
        case list() | tuple() | Set():
            return [*cast("Iterable[Any]", value)]
        case BaseModel():
            return [given for _, given in value]
        case _ if dataclasses.is_dataclass(value):
            return [getattr(value, field.name, None) for field in dataclasses.fields(value)]
        case _:
            return []


def _without_null(schema: Schema) -> Schema:
    """A parameter that is None unless given: leaving it out says the same as null, in fewer words. Null is accepted."""
    branches = schema.get("anyOf", [])
    real = [branch for branch in branches if branch != {"type": "null"}]
    if len(real) == len(branches):
        return schema
    rest = {key: value for key, value in schema.items() if key != "anyOf"}
    return {**real[0], **rest} if len(real) == 1 else {**rest, "anyOf": real}


def _explained(
    callee: Callee, asked: list[Parameter], fields: Mapping[str, Any], error: Exception
) -> ToolDefinitionError:
    """The error that names the first parameter that fails by itself."""
    for parameter in asked:
        try:
            _generated(_adapter({parameter.name: fields[parameter.name]}))
        except _BAD_TYPE as own:
            return ToolDefinitionError(
                f"{callee.origin}, parameter {parameter.name!r}: a model cannot be asked for a value of type "
                f"{_spelled(parameter.annotation)} ({_reason(own)}). Use a type with a JSON form: a plain type, "
                "pydantic model, dataclass or TypedDict; or bind the argument with functools.partial."
            )
    return ToolDefinitionError(f"{callee.origin} cannot be a tool: {_reason(error)}.")


def _reason(error: Exception) -> str:
    if isinstance(error, PydanticSchemaGenerationError | PydanticInvalidForJsonSchema):
        return "it has no JSON form"
    lines = str(error).splitlines() or [type(error).__name__]
    return lines[-1 if isinstance(error, SchemaError) else 0].strip().rstrip(".")


def _spelled(annotation: Any) -> str:
    return annotation.__qualname__ if isinstance(annotation, type) else str(annotation)


def _generated(adapter: TypeAdapter[Any]) -> tuple[Schema, bool]:
    """The schema, and whether it has decimals, which JSON Schema does not tell from other numbers."""

    class Noting(_Generator):
        seen = False

        def decimal_schema(self, schema: core_schema.DecimalSchema) -> JsonSchemaValue:
            Noting.seen = True
            return super().decimal_schema(schema)

    return adapter.json_schema(schema_generator=Noting), Noting.seen


_POSITIONAL = "pydantic_js_prefer_positional_arguments"


class _Generator(GenerateJsonSchema):
    """Pydantic's generator, without titles made of field names and with the short form of decimals and bytes."""

    ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012 - pydantic's own attribute

    def encode_default(self, dft: Any) -> Any:
        return _ordered(super().encode_default(dft), dft)

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def sort(self, value: JsonSchemaValue, parent_key: str | None = None) -> JsonSchemaValue:
        return value

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        """With the names that it reads, unless it is one value or has an `__init__` of its own to read them."""
        generated = super().model_schema(schema)
        is_free = schema.get("root_model") or schema.get("custom_init")
        return generated if is_free else with_names(generated, schema["cls"], schema.get("config"))

    def dataclass_schema(self, schema: core_schema.DataclassSchema) -> JsonSchemaValue:
        return with_names(super().dataclass_schema(schema), schema["cls"], schema.get("config"))

    def typed_dict_schema(self, schema: core_schema.TypedDictSchema) -> JsonSchemaValue:
        return with_names(super().typed_dict_schema(schema), schema.get("cls"), schema.get("config"))

    def function_before_schema(self, schema: core_schema.BeforeValidatorFunctionSchema) -> JsonSchemaValue:
        return with_any_names(super().function_before_schema(schema))

    def function_wrap_schema(self, schema: core_schema.WrapValidatorFunctionSchema) -> JsonSchemaValue:
        return with_any_names(super().function_wrap_schema(schema))

    def named_tuple_schema(self, schema: Any) -> JsonSchemaValue:
        """An object, which pydantic also accepts: an array would not tell the names of the fields."""
        properties = {field["name"]: self.generate_inner(field["schema"]) for field in schema["fields"]}
        required = [field["name"] for field in schema["fields"] if field["schema"]["type"] != "default"]
        return {"type": "object", "properties": properties, **({"required": required} if required else {})}

    def arguments_schema(self, schema: core_schema.ArgumentsSchema) -> JsonSchemaValue:
        """The same where pydantic is older."""
        metadata: dict[str, Any] = schema.get("metadata", {})
        others = {key: value for key, value in metadata.items() if key != _POSITIONAL}
        return super().arguments_schema({**schema, "metadata": others})

    def decimal_schema(self, schema: core_schema.DecimalSchema) -> JsonSchemaValue:
        """A number; the text that pydantic also accepts is accepted without being offered."""
        generated = super().decimal_schema(schema)
        return generated["anyOf"][0] if "anyOf" in generated else generated

    def datetime_schema(self, schema: core_schema.DatetimeSchema) -> JsonSchemaValue:
        """A `date-time` has an offset (RFC 3339), and so is not the form of a datetime that may have none."""
        if schema.get("tz_constraint") == "naive":
            return {"type": "string", "description": "date and time without offset, such as 2026-02-28T10:00:00"}
        return super().datetime_schema(schema)

    def bytes_schema(self, schema: core_schema.BytesSchema) -> JsonSchemaValue:
        generated = super().bytes_schema(schema)
        encoded = generated.pop("format", None) == "base64url"
        return {**generated, "contentEncoding": "base64"} if encoded else generated
