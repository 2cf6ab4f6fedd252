"""Checks of tools made from a case's own code: their schemas, arguments and results."""

from __future__ import annotations

from typing import Any

from judge.evidence import Evidence, Verdict, as_json, check, parameters, references, resolve, same_result, short
from judge.server import Request
from judge.shape import mapping


def _results(seen: Evidence) -> list[str]:
    return [text for group in seen.groups for text in group.results]


def _refused(seen: Evidence) -> bool:
    return any(group.definition_error for group in seen.groups)


def _first(seen: Evidence) -> Request | None:
    return next(iter(seen.groups[0].requests), None)


def _no_request(seen: Evidence) -> Verdict:
    return False, "no request" + seen.error


@check
def results(seen: Evidence, want: Any) -> Verdict:
    have = _results(seen)
    same = len(have) == len(want) and all(same_result(text, wanted) for text, wanted in zip(have, want, strict=True))
    return same, f"results {short(have, 200)}{seen.error}, wanted {short(want)}"


@check
def result(seen: Evidence, want: Any) -> Verdict:
    have = _results(seen)
    return any(same_result(text, want) for text in have), f"results {short(have, 200)}{seen.error}"


@check
def returns(seen: Evidence, want: Any) -> Verdict:
    return results(seen, [want])


@check
def raises_at_definition(seen: Evidence, want: Any) -> Verdict:
    return _refused(seen) == want, f"results {short(_results(seen))}, definition did not raise"


@check
def never_result(seen: Evidence, want: Any) -> Verdict:
    have = _results(seen)
    bad = [text for text in have if text.strip('"').endswith(want)]
    if bad:
        return False, f"silent defaults: {bad}"
    return bool(have) and same_result(have[0], "a/2"), f"advertised shape gives {have[:1]}{seen.error}"


@check
def result_not(seen: Evidence, want: Any) -> Verdict:
    have = _results(seen)
    return want not in [text.strip('"') for text in have], f"result {have}"


@check
def schema_properties(seen: Evidence, want: Any) -> Verdict:
    if not (request := _first(seen)):
        return _no_request(seen)
    schema = parameters(request)
    have = sorted(schema.get("properties") or {})
    return have == sorted(want) and schema.get("type") == "object", f"schema properties {have}"


@check
def schema_properties_count(seen: Evidence, want: Any) -> Verdict:
    if not (request := _first(seen)):
        return _no_request(seen)
    count = len(parameters(request).get("properties") or {})
    return count == want, f"{count} schema properties"


@check
def schema_refs_resolve(seen: Evidence, want: Any) -> Verdict:
    if not (request := _first(seen)):
        return _no_request(seen)
    schema = parameters(request)
    try:
        for reference in references(schema):
            resolve({"$ref": reference}, schema)
    except (KeyError, TypeError) as error:
        return False, f"unresolved $ref {error}"
    text = as_json(schema)
    return '"city"' in text and '"zip"' in text, "schema has no city/zip"


@check
def schema_allows_extra_keys(seen: Evidence, want: Any) -> Verdict:
    if _refused(seen):
        return True, "refused at definition"
    if not (request := _first(seen)):
        return _no_request(seen)
    schema = parameters(request)
    for key in want:
        part = resolve(mapping(mapping(schema.get("properties")).get(key)), schema)
        if part.get("additionalProperties") is False or part.get("type") not in ("object", None):
            return False, f"schema of {key} is {short(part)}"
    failed = any("error" in text.lower() and "retry" in text.lower() for text in _results(seen))
    return not failed, f"call failed: {short(_results(seen))}"


@check
def arg_types(seen: Evidence, want: Any) -> Verdict:
    types = seen.groups[0].arg_types or {}
    same = all(types.get(key) == name for key, name in want.items())
    return same, f"argument types {types}{seen.error}; results {short(_results(seen))}"


@check
def definition_time_s_max(seen: Evidence, want: Any) -> Verdict:
    slowest = max(group.wall_s or 99 for group in seen.groups)
    return slowest <= want, f"took {slowest:.1f} s"


@check
def wall_s_max(seen: Evidence, want: Any) -> Verdict:
    slowest = max(group.wall_s or 99 for group in seen.groups)
    return slowest <= want, f"took {slowest:.1f} s{seen.error}"


@check
def descriptions_present(seen: Evidence, want: Any) -> Verdict:
    missing: list[str] = []
    for group in seen.groups:
        if not group.requests:
            return False, f"no request for {group.target}{seen.error}"
        schema = parameters(group.requests[0])
        properties = mapping(schema.get("properties"))
        for argument in want.get(group.target, []):
            own = mapping(properties.get(argument))
            if not own.get("description") and not resolve(own, schema).get("description"):
                missing.append(f"{group.target}.{argument}")
    return not missing, f"no description for {missing}"
