"""What a tool returned, as the model reads it: JSON or text, capped; images and files apart; the whole value kept."""

from __future__ import annotations

import dataclasses
import io
import math
import re
import unicodedata
from collections import UserString
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from itertools import islice
from os import PathLike, fspath
from types import SimpleNamespace
from typing import Any, Literal, NamedTuple, cast

from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from glassloop.core.encoding import dumps
from glassloop.core.messages import Media
from glassloop.tools.encoded import decoded, holds_encoded, may_be_encoded

CAP = 40_000
"""Characters of a result that the model sees, unless said otherwise."""

_DONE = "Done; nothing to report."
_NO_RESULTS = "No results: the call worked and found nothing."
_NO_TEXT = "No results: the call worked and returned an empty text."
_NO_FIELDS = "No results: the call worked and returned an empty object."

_HEAD_SHARE = 0.75
_LONGEST_CHANGE = 2_000
_MOST_DEPTH = 100
_MOST_OF_UNKNOWN = 200
_MOST_ITEMS = 100_000  # of an iterator, which may have no end
_JOINED_UP = 16  # code points that may form one character with those around them, looked at on each side of a cut
_SCALARS = frozenset({str, int, bool, type(None)})
_MOST_DIGITS = 4_300  # of a number that readers of JSON take, as Python does (CVE-2020-10735)
_MOST_BITS = (10**_MOST_DIGITS - 1).bit_length() - 1
_DIGITS_ALIKE = bytes.maketrans(b"123456789", b"0" * 9)
_TOO_MANY_DIGITS = b"0" * (_MOST_DIGITS + 1)
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b\x0e-\x1a\x1c-\x1f\x7f]")


class Rendered(NamedTuple):
    """A tool's result.

    Args:
        content: for the model, never empty.
        value: the whole result as plain JSON values; bytes and images in it are described, and stand in `media`.
        media: images and files, in order.
        form: whether `content` is the value as JSON, or its text.
        complete: whether `value` can be had back from `content`.
    """

    content: str
    value: Any
    media: tuple[Media, ...] = ()
    form: Literal["text", "json"] = "text"
    complete: bool = True


def render_result(value: object, cap: int = CAP) -> Rendered:
    """Turn what a tool returned into what the model reads. Never raises, whatever `value` is.

    Text stays as it is, everything else becomes compact JSON with characters as themselves. None and empty results
    become a sentence, so that a model does not take them for a failure. Bytes that are UTF-8 text are text; other
    bytes, images (PIL's too, and those in base64) and `Media` become media. What has no JSON form is named by its type.
    More than `cap` characters are cut in the middle: a quarter of the room is for the end.
    """
    if type(value) is str and len(value) <= cap and value and not value.isspace() and not may_be_encoded(value):
        return Rendered(value, value)
    media: list[Media] = []
    plain = _plain(value, media, [])
    if media:
        return _with_media(plain, media, cap)
    if isinstance(plain, str):
        image = decoded(plain)
        return _text(plain, cap) if image is None else _with_media(_keep(image, media), media, cap)
    if value is None:
        return Rendered(_DONE, None, complete=False)
    if isinstance(plain, list | dict) and not plain:
        return Rendered(_NO_RESULTS if isinstance(plain, list) else _NO_FIELDS, plain, complete=False)
    return _json(plain, (), cap)


def _text(text: str, cap: int) -> Rendered:
    if not text or text.isspace():
        return Rendered(_NO_TEXT, text, complete=False)
    return Rendered(capped(text, cap), text, complete=len(text) <= cap)


def _json(plain: Any, media: tuple[Media, ...], cap: int) -> Rendered:
    encoded = dumps(plain)
    if len(encoded) > _MOST_DIGITS and _TOO_MANY_DIGITS in encoded.translate(_DIGITS_ALIKE):
        plain = _each(plain, _long_number_as_text)
        if isinstance(plain, str):
            return _text(plain, cap)
        encoded = dumps(plain)
    text = encoded.decode()
    if holds_encoded(text):
        found = [*media]
        plain = _each(plain, lambda leaf: _decoded(leaf, found))
        if len(found) > len(media):
            return _with_media(plain, found, cap)
    return Rendered(capped(text, cap), plain, media, "json", complete=len(text) <= cap)


def _each(plain: Any, change: Callable[[Any], Any]) -> Any:
    """A copy of a plain value with each number and text changed."""
    if isinstance(plain, dict):
        return {name: _each(child, change) for name, child in cast("dict[str, Any]", plain).items()}
    if isinstance(plain, list):
        return [_each(child, change) for child in cast("list[Any]", plain)]
    return change(plain)


def _long_number_as_text(leaf: Any) -> Any:
    is_long = isinstance(leaf, int) and leaf.bit_length() > _MOST_BITS
    return dumps(leaf).decode() if is_long else leaf


def _decoded(leaf: Any, media: list[Media]) -> Any:
    image = decoded(leaf) if isinstance(leaf, str) else None
    return leaf if image is None else _keep(image, media)


def _with_media(plain: Any, media: list[Media], cap: int) -> Rendered:
    """A list of texts and media, or one medium alone, reads as text; media inside anything else leave JSON as it is."""
    parts = cast("list[Any]", plain) if isinstance(plain, list) else [plain]
    described = [_description(part) if _is_description(part) else part for part in parts]
    if not all(isinstance(part, str) for part in described):
        return _json(plain, tuple(media), cap)
    return Rendered(capped("\n".join(described), cap), plain, tuple(media), complete=False)


# Cutting


def capped(text: str, cap: int) -> str:
    """`text`, or its head and tail around a notice that says how much is missing; never more than `cap` characters.

    No character is cut: neither a surrogate pair nor a base letter and its accents, nor an emoji of several parts.
    """
    if len(text) <= cap:
        return text
    room = cap - len(_notice(len(text), len(text)))
    if room <= 0:
        return text[: _safe_cut(text, cap)] if cap > 0 else ""
    head = _safe_cut(text, math.ceil(room * _HEAD_SHARE))
    tail = _safe_start(text, len(text) - (room - head))
    return f"{text[:head]}{_notice(tail - head, len(text))}{text[tail:]}"


def change_note(arguments: str) -> str:
    """What a model is told of a call that a human has changed: with which arguments, as JSON, it ran instead.

    It stands behind the result: before it, it would be read in its place.
    """
    return f"\n[A human changed this call before it ran. Its arguments were {capped(arguments, _LONGEST_CHANGE)}]"


def head_and_tail(text: str, head: int, tail: int) -> tuple[str, str]:
    """At most so many characters of a text's beginning and of its end, none of them cut; the tail is what is left."""
    first = text if head >= len(text) else text[: _safe_cut(text, head)]
    rest = text[len(first) :]
    return first, rest[_safe_start(rest, max(0, len(rest) - tail)) :]


def _notice(omitted: int, whole: int) -> str:
    return f"\n[... {omitted:,} of {whole:,} characters omitted ...]\n"


def _safe_cut(text: str, position: int) -> int:
    """The last place at or before `position` that is between two characters as people see them."""
    for place in range(position, max(position - _JOINED_UP, 0), -1):
        if not _joined_at(text, place):
            return place
    return position if position > _JOINED_UP else 0


def _safe_start(text: str, position: int) -> int:
    for place in range(position, min(position + _JOINED_UP, len(text))):
        if not _joined_at(text, place):
            return place
    return position if position < len(text) - _JOINED_UP else len(text)


def _joined_at(text: str, place: int) -> bool:
    if not 0 < place < len(text):
        return False
    before, after = text[place - 1], text[place]
    return (
        "\ud800" <= before <= "\udbff"
        or before == "\u200d"  # zero-width joiner
        or after in "\u200d\ufe0e\ufe0f"  # joiner, variation selectors
        or "\U0001f3fb" <= after <= "\U0001f3ff"  # skin tones
        or unicodedata.combining(after) != 0
        or (_is_half_flag(after) and _half_flags_before(text, place) % 2 == 1)
    )


def _is_half_flag(letter: str) -> bool:
    return "\U0001f1e6" <= letter <= "\U0001f1ff"  # regional indicators: two make a flag


def _half_flags_before(text: str, place: int) -> int:
    start = place
    while start > 0 and _is_half_flag(text[start - 1]):
        start -= 1
    return place - start


# To plain JSON values


def _plain(value: Any, media: list[Media], above: list[int]) -> Any:
    """`value` as plain JSON values; media found on the way are put into `media`, ids of what holds it into `above`."""
    kind = cast("type[Any]", type(value))
    if kind in _SCALARS:
        return value
    if kind is float:
        return value if math.isfinite(value) else None
    if len(above) > _MOST_DEPTH:
        return "[nested too deeply]"
    if id(value) in above:
        return "[refers to itself]"
    above.append(id(value))
    try:
        if kind is dict:
            return {
                key if type(key) is str else _key(key): child
                if type(child) in _SCALARS
                else _plain(child, media, above)
                for key, child in value.items()
            }
        if kind is list:
            return [child if type(child) in _SCALARS else _plain(child, media, above) for child in value]
        return _container(value, media, above)
    except Exception:  # noqa: BLE001 - the value's own code failed; its result must not fail the run
        return _described_type(value)
    finally:
        above.pop()


def _container(value: Any, media: list[Media], above: list[int]) -> Any:
    def inner(child: Any) -> Any:
        return _plain(child, media, above)

    match value:
        case Mapping():
            return {_key(key): inner(child) for key, child in cast("Mapping[Any, Any]", value).items()}
        case list():
            return [inner(child) for child in cast("list[Any]", value)]
        case Sequence() if hasattr(cast("object", value), "_asdict"):  # named tuples, rows of SQLAlchemy
            return inner(cast("Any", value)._asdict())
        case Media():
            return _keep(value, media)
        case bytes() | bytearray() | memoryview():
            return _bytes(bytes(cast("bytes", value)), media)
        case Enum():
            return inner(value.value)
        case Set():
            return _sorted([inner(child) for child in cast("Set[Any]", value)])
        case _ if (image := _image(value)) is not None:
            return _keep(image, media)
        case _:
            return _object(value, inner)


def _sorted(values: list[Any]) -> list[Any]:
    """The order of a set differs from process to process; a result should not."""
    try:
        return sorted(values)
    except TypeError:
        return sorted(values, key=dumps)


def _object(value: Any, inner: Callable[[Any], Any]) -> Any:
    match value:
        case str() | int() | float():
            return inner(_as_base(value))
        case UserString():
            return str(value)
        case date() | time() | timedelta() | Decimal():
            return to_jsonable_python(value)
        case BaseModel():
            return _model(value, inner)
        case BaseException():
            return f"{type(value).__name__}: {value}"
        case PathLike():
            return inner(fspath(cast("PathLike[str]", value)))
        case io.IOBase():
            return _described_type(value)  # a file is not read behind its owner's back
        case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return {one.name: inner(getattr(value, one.name)) for one in dataclasses.fields(value)}
        case _ if hasattr(value, "__attrs_attrs__"):
            return {one.name: inner(getattr(value, one.name)) for one in value.__attrs_attrs__}
        case _ if callable(getattr(value, "tolist", None)):  # arrays and numbers of numpy and its kin
            return inner(value.tolist())
        case _ if hasattr(value, "columns") and callable(getattr(value, "to_dict", None)):  # a data frame
            return inner(value.to_dict(orient="records"))
        case SimpleNamespace():
            return inner(vars(value))
        case Collection() if names := _column_names(value):
            return {_key(name): inner(cast("Any", value)[name]) for name in names}
        case Collection() | Iterator():
            return [inner(child) for child in islice(cast("Iterable[Any]", value), _MOST_ITEMS)]
        case _:
            return to_jsonable_python(value, fallback=_described_type)


def _column_names(value: Any) -> list[Any]:
    """The names in a row of sqlite3 or asyncpg: as `dict` would take it, although it calls itself no mapping."""
    names = list(value.keys()) if callable(getattr(value, "keys", None)) and hasattr(value, "__getitem__") else []
    return names if len(set(names)) == len(value) else []


def _as_base(value: str | int | float) -> str | int | float:
    """A number or text of a subclass as one of the plain kind."""
    if isinstance(value, str):
        return str.__str__(value)
    return int(value) if isinstance(value, int) else float(value)


def _model(value: BaseModel, inner: Callable[[Any], Any]) -> Any:
    pictured = {name: child for name, child in vars(value).items() if _holds_media(child)}
    try:
        dumped = value.model_dump(mode="json", fallback=_described_type, exclude=set(pictured))
    except ValueError:
        dumped = value.model_dump(exclude=set(pictured))  # bytes that are no text
    return inner({**dumped, **pictured} if pictured else dumped)


def _holds_media(value: Any) -> bool:
    match value:
        case list() | tuple():
            return any(map(_holds_media, cast("list[Any]", value)))
        case dict():
            return any(map(_holds_media, cast("dict[Any, Any]", value).values()))
        case BaseModel():
            return any(map(_holds_media, vars(value).values()))
        case _:
            return isinstance(value, Media) or _is_image(value)


def _key(key: Any) -> str:
    if isinstance(key, str):
        return str.__str__(key)
    plain = _plain(key, [], [])
    return plain if isinstance(plain, str) else dumps(plain).decode()


def _described_type(value: Any) -> str:
    """An object without a JSON form: the name of its type, and its own text where it has one of its own."""
    kind = cast("type[Any]", type(value))
    name = f"[{kind.__name__}]"
    if kind.__str__ is object.__str__:
        return name
    try:
        text = str(value)
    except Exception:  # noqa: BLE001 - a broken __str__
        return name
    if not text or text.startswith("<") or "0x" in text:  # Python's repr, and addresses in memory
        return name
    return f"{name} {text[:_MOST_OF_UNKNOWN]}"


# Media


def _bytes(data: bytes, media: list[Media]) -> Any:
    from glassloop.core.media_types import sniffed

    media_type = sniffed(data)
    if media_type is None:
        try:
            text = data.decode()
        except UnicodeDecodeError:
            pass
        else:
            if not _UNPRINTABLE.search(text):
                return text
    return _keep(Media.of(data, media_type or "application/octet-stream"), media)


def _image(value: Any) -> Media | None:
    """The PNG of an image as PIL has them; None of anything else."""
    if not _is_image(value):
        return None
    file = io.BytesIO()
    value.save(file, format="PNG")
    return Media.of(file.getvalue(), "image/png")


def _is_image(value: Any) -> bool:
    return hasattr(value, "mode") and hasattr(value, "size") and callable(getattr(value, "save", None))


def _keep(one: Media, media: list[Media]) -> dict[str, Any]:
    media.append(one)
    name = {} if one.name is None else {"name": one.name}
    return {"media_type": one.media_type, "size": one.size, **name, "digest": one.digest}


def _is_description(part: Any) -> bool:
    return isinstance(part, dict) and {"media_type", "size", "digest"} <= cast("dict[str, Any]", part).keys()


def _description(part: dict[str, Any]) -> str:
    name = f"{part['name']}, " if "name" in part else ""
    return f"[{name}{part['media_type']}, {part['size']:,} bytes, attached]"
