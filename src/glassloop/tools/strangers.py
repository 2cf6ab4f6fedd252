"""Names inside an argument that no field has: pydantic drops them without a word, unless a model says otherwise.

What a model meant by `{"limt": 5}` would be lost, and the call would succeed all the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

from pydantic import AliasChoices, AliasPath, ConfigDict
from pydantic.fields import FieldInfo
from pydantic_core import CoreConfig

from glassloop.core.schema import Schema, map_children, refers
from glassloop.tools.instants import item_of, property_of
from glassloop.tools.problems import Problem, unknown_argument
from glassloop.tools.repair import branches_for

_NAMES = "x-names"


def with_names(schema: Schema, kind: Any, config: CoreConfig | None) -> Schema:
    """A schema with the names that its class reads; as it is where the class decides about others itself.

    Args:
        schema: of a model, dataclass or TypedDict.
        kind: the class.
        config: of its core schema; what it says of other names may come from the model that the class is used in.
    """
    decorators = getattr(kind, "__pydantic_decorators__", None)
    validators = decorators.model_validators.values() if decorators else ()
    decides = "extra_fields_behavior" in (config or {}) or any(one.info.mode != "after" for one in validators)
    return schema if decides else {**schema, _NAMES: sorted(_names(kind, schema))}


def with_any_names(schema: Schema) -> Schema:
    """The schema of a value that code of one's own reads first, and there every name may mean something."""
    return {_NAMES: None, "anyOf": [schema, {}]} if refers(schema) else schema


def without_names(schema: Any) -> Any:
    """A copy of a schema for others to read."""
    if not isinstance(schema, Mapping):
        return schema
    node = dict(cast("Mapping[str, Any]", schema))
    if node.pop(_NAMES, ()) is None:
        inner, _ = node.pop("anyOf")
        return without_names({**inner, **node})
    return map_children(node, without_names)


def strangers(value: Any, schema: Any, root: Mapping[str, Any], path: str = "") -> Iterator[Problem]:
    """What is wrong with a valid value whose schema knows names."""
    if isinstance(value, list):
        branches = branches_for(schema, "array", root)
        for place, child in enumerate(cast("list[Any]", value)):
            yield from strangers(child, item_of(place, branches), root, f"{path}.{place}")
    elif isinstance(value, dict):
        given = cast("dict[str, Any]", value)
        branches = branches_for(schema, "object", root)
        if branches and all(branch.get(_NAMES) is not None for branch in branches):
            known = list(dict.fromkeys(name for branch in branches for name in branch.get("properties", ())))
            read = {name for branch in branches for name in branch[_NAMES]}
            yield from (unknown_argument(name, known, given, path) for name in given if name not in read)
        for name, child in given.items():
            yield from strangers(child, property_of(name, branches), root, f"{path}.{name}" if path else name)


def _names(kind: Any, schema: Schema) -> Iterator[str]:
    fields: Mapping[str, FieldInfo] | None = getattr(kind, "__pydantic_fields__", None)
    if fields is None:  # not one of pydantic's own
        yield from schema.get("properties", ())
        return
    config: ConfigDict = getattr(kind, "model_config", None) or getattr(kind, "__pydantic_config__", ConfigDict())
    by_name = bool(config.get("populate_by_name") or config.get("validate_by_name"))
    for name, field in fields.items():
        match field.validation_alias:
            case str() as alias:
                yield alias
            case AliasPath() as alias:
                yield str(alias.path[0])
            case AliasChoices(choices):
                yield from (str(one.path[0]) if isinstance(one, AliasPath) else one for one in choices)
            case None:
                yield name
        if by_name:
            yield name
