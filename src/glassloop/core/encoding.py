"""JSON in and out, at the speed of the hot path and never in the way of a run."""

from __future__ import annotations

import hashlib
import json
from dataclasses import fields, is_dataclass
from typing import Any

from pydantic_core import from_json, to_json


def dumps(value: object) -> bytes:
    """Encode `value` as UTF-8 JSON, compact, characters as themselves.

    Lone surrogates (half an emoji, from a tool that cut text by bytes) become `?`, and NaN or infinity
    become null: a request or an event must never fail, or break the receiver's JSON, over one character.

    Raises:
        TypeError: `value` holds something that has no JSON form.
    """
    try:
        return to_json(value, inf_nan_mode="null")
    except UnicodeEncodeError:
        return to_json(_without_surrogates(value), inf_nan_mode="null")
    except ValueError as error:
        if "surrogates" in str(error):
            return to_json(_without_surrogates(value), inf_nan_mode="null")
        raise TypeError(str(error)) from error


def loads(data: str | bytes) -> Any:
    """Decode strict JSON (no NaN, no infinity).

    Raises:
        ValueError: `data` is not JSON (text with half a character in it is none either).
    """
    try:
        return from_json(data, allow_inf_nan=False)
    except TypeError as error:
        raise ValueError("text with a lone surrogate is not JSON") from error


def canonical(value: object) -> str:
    """The one spelling of a JSON value, for fingerprints and comparisons: sorted keys, no blanks.

    `1`, `1.0` and `true` stay three different values.
    """
    return json.dumps(json.loads(dumps(value)), sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def digest(data: bytes) -> str:
    """Content address of `data`: 32 hexadecimal characters of BLAKE2b."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def _without_surrogates(value: object) -> Any:
    text = json.dumps(json.loads(json.dumps(value, default=_plain)), ensure_ascii=False)
    return json.loads(text.encode("utf-8", "replace"))


def _plain(value: object) -> Any:
    if is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    return json.loads(to_json(value, inf_nan_mode="null", serialize_unknown=True))
