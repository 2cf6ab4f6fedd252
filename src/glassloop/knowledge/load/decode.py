"""Bytes as text. Never guessed by replacing: an encoding fits in full, or the file is refused."""

from __future__ import annotations

import codecs
import re
from unicodedata import category

from glassloop.knowledge.load.reading import Unreadable

_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before UTF-16, whose mark it begins with
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_WIDER = {"gb2312": "gb18030", "gbk": "gb18030", "iso-8859-1": "cp1252", "latin-1": "cp1252", "ascii": "cp1252"}
"""Declared names of older sets stand for what contains them (encoding.spec.whatwg.org)."""
_CONTROLS = re.compile("[\x00-\x08\x0e-\x1a\x1c-\x1f\ufffe\uffff]")
_WESTERN = re.compile("[À-ÖØ-öø-ÿŒœŠšŽžŸƒ‘’‚“”„–—…•€™©®°±²³´·¼½¾«»¿¡§£¥µ¹º\xa0]")
_SAMPLE = 100_000
_MOSTLY = 0.9
_FEW = 0.25
_STRAY = 0.01


def decode(data: bytes, declared: str | None = None) -> str:
    """The text of a file, with "\\n" between lines.

    Tried in this order, each strictly: the encoding that a byte order mark tells; the one that the file declares;
    UTF-16 without a mark; UTF-8; GB18030, if nearly all that is not ASCII is in the everyday set of GB 2312 (in another
    encoding bytes come out as rare characters); Windows-1252, if it gives Western letters here and there.

    Raises:
        Unreadable: none fits, or it is no text.
    """
    text = _marked(data)
    if text is None and declared is not None:
        text = _strictly(data, _WIDER.get(declared.lower(), declared))
    if text is None:
        text = next(filter(None, (attempt(data) for attempt in (_utf16, _utf8, _chinese, _western))), None)
    if text is None or _is_binary(text):
        if b"\0" in data or text is not None:
            raise Unreadable("is binary, not text: convert it to text, or leave it out.")
        raise Unreadable("is in an unknown encoding (not UTF-8, UTF-16, GB18030, Windows-1252): save it as UTF-8.")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _marked(data: bytes) -> str | None:
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            text = _strictly(data[len(mark) :], encoding)
            if text is None:
                raise Unreadable(f"begins as {encoding.upper()} and does not go on as such: save it as UTF-8.")
            return text
    return None


def _strictly(data: bytes, encoding: str) -> str | None:
    try:
        return data.decode(encoding)
    except (UnicodeError, LookupError):
        return None


def _utf8(data: bytes) -> str | None:
    return _strictly(data, "utf-8")


def _utf16(data: bytes) -> str | None:
    """Only with zero bytes, which every text with a line break or a space has then, and no other text.

    Of the two orders of bytes the one that gives more ASCII; a binary file comes out with characters that nobody uses.
    """
    if b"\0" not in data:
        return None
    texts = [text for text in (_strictly(data, "utf-16-le"), _strictly(data, "utf-16-be")) if text]
    text = max(texts, key=lambda text: sum(map(str.isascii, text[:_SAMPLE])), default="")
    odd = sum(category(character) in ("Cn", "Co", "Cc") and not character.isspace() for character in text[:_SAMPLE])
    return text if text and odd <= _STRAY * len(text[:_SAMPLE]) else None


def _chinese(data: bytes) -> str | None:
    text = _strictly(data, "gb18030")
    if text is None:
        return None
    others = [character for character in text[:_SAMPLE] if not character.isascii()]
    everyday = sum(_is_in(character, "gb2312") for character in others)
    return text if everyday >= _MOSTLY * len(others) else None


def _western(data: bytes) -> str | None:
    text = _strictly(data, "cp1252")
    if text is None:
        return None
    others = sum(not character.isascii() for character in text)
    return text if others == len(_WESTERN.findall(text)) and others <= _FEW * len(text) else None


def _is_in(character: str, encoding: str) -> bool:
    try:
        return bool(character.encode(encoding))
    except UnicodeError:
        return False


def _is_binary(text: str) -> bool:
    return "\0" in text or len(_CONTROLS.findall(text)) > _STRAY * len(text)
