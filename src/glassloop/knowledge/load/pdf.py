"""PDF: a section for each page that has text."""

from __future__ import annotations

import logging
import re
from io import BytesIO
from itertools import pairwise
from unicodedata import east_asian_width

from pypdf import PasswordType, PdfReader
from pypdf.errors import DependencyError

from glassloop.knowledge.documents import Section
from glassloop.knowledge.load.parsed import Parsed
from glassloop.knowledge.load.reading import Unreadable

_MOST_CHARACTERS = 50_000_000
_NO_TITLE = re.compile(r"(?i)(untitled|\(?anonymous\)?|microsoft word - .*|.*\.(docx?|pdf|tex|indd))?")
_FULL = 0.8
_ENDS = "。！？；：.!?;:…"

logging.getLogger("pypdf").addHandler(logging.NullHandler())  # it would write to stderr about what it can mend


def parse(data: bytes) -> Parsed:
    """The text of the pages; the title is that of the properties if it looks like one."""
    try:
        reader = PdfReader(BytesIO(data))
        if reader.is_encrypted and reader.decrypt("") is PasswordType.NOT_DECRYPTED:
            raise Unreadable("is encrypted: save it without a password.")
        sections = _pages(reader)
        title = str((reader.metadata and reader.metadata.title) or "").strip()
    except DependencyError as error:
        raise Unreadable("is encrypted with AES, which needs pip install 'pypdf[crypto]'.") from error
    if not sections:
        raise Unreadable("has no text layer: run OCR (text recognition) on it first.")
    return Parsed(None if _NO_TITLE.fullmatch(title) else title, tuple(sections))


def _pages(reader: PdfReader) -> list[Section]:
    sections: list[Section] = []
    characters = 0
    for number, page in enumerate(reader.pages, 1):
        # Half characters come from broken fonts, and no store takes them.
        text = _joined(page.extract_text().encode("utf-8", "replace").decode().strip())
        characters += len(text)
        if characters > _MOST_CHARACTERS:
            raise Unreadable(f"has more than {_MOST_CHARACTERS / 1e6:.0f} million characters: split it.")
        if text:
            sections.append(Section(text, page=number))
    return sections


def _joined(text: str) -> str:
    """The text of a page, with words whole that a line break cuts.

    Chinese and Japanese break lines anywhere: a line that is nearly as wide as the widest and ends in the middle of a
    sentence goes on in the next.
    """
    lines = [line.strip() for line in text.split("\n")]
    wide = _FULL * max(map(_width, lines))
    joined = lines[:1]
    for before, line in pairwise(lines):
        goes_on = before and line and before[-1] not in _ENDS and _width(before) >= wide
        if goes_on and _is_wide(before[-1]) and _is_wide(line[0]):
            joined[-1] += line
        else:
            joined.append(line)
    return "\n".join(joined)


def _width(line: str) -> int:
    return sum(2 if _is_wide(character) else 1 for character in line)


def _is_wide(character: str) -> bool:
    return east_asian_width(character) in "WF"
