"""Documents as passages: section by section, so that an edit changes the passages of its own section only."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING

from glassloop.core.encoding import canonical, digest
from glassloop.core.errors import ConfigurationError
from glassloop.knowledge.documents import Document, Passage, Section
from glassloop.knowledge.load import NEEDS_EXTRA

if TYPE_CHECKING:
    from semantic_text_splitter import MarkdownSplitter

SIZE = 800
"""Characters of a passage, at most."""
OVERLAP = 80
"""Characters that a passage may repeat of the one before it, at most."""

_PIECE = 20_000
_ENDS = (re.compile(r"\n(?=\n)"), re.compile(r"\n"), re.compile(r"[。！？；]|[.!?](?=\s)"), re.compile(r"\s"))
"""Where a text may be cut, best first."""


def split(document: Document, *, size: int = SIZE, overlap: int = OVERLAP) -> list[Passage]:
    """The passages of a document, in its order.

    A passage ends where a block, a row of a table or an item of a list does, else a line, a sentence (also one that
    ends with 。！？), a word; never in the middle of a character as a reader sees it, unless that alone is too long.

    Args:
        document: what was loaded.
        size: characters of a passage, at most.
        overlap: characters that one may repeat of the one before it, in whole sentences or lines.

    Raises:
        ConfigurationError: the library that splits is not installed, or `overlap` is not below `size`.
    """
    if not 0 <= overlap < size:
        raise ConfigurationError(f"An overlap of {overlap} in passages of {size} characters: it must be less.")
    splitter = _splitter(size, overlap)
    passages: list[Passage] = []
    seen: Counter[str] = Counter()
    for section in document.sections:
        for line, text in _lined(section, _chunks(splitter, section.text, size)):
            name = _digest(text, section.headings, seen)
            place = (len(passages), text, section.headings, section.page, line, name)
            passages.append(Passage(document.source, document.title, *place))
    return passages


def require_splitter() -> None:
    """Load the library that splits.

    Raises:
        ConfigurationError: it is not installed.
    """
    _splitter(SIZE, OVERLAP)


def _digest(text: str, headings: tuple[str, ...], seen: Counter[str]) -> str:
    """The identity of a passage; the second of two equal ones is another one."""
    identity = canonical([text, *headings])
    seen[identity] += 1
    return digest(f"{identity}{seen[identity] if seen[identity] > 1 else ''}".encode())


def _lined(section: Section, chunks: Iterator[tuple[int, str]]) -> Iterator[tuple[int | None, str]]:
    """Each chunk with the line where it begins."""
    line, counted = section.line, 0
    for offset, text in chunks:
        if line is not None and section.verbatim:
            line += section.text.count("\n", counted, offset)
            counted = offset
        yield line, text


def _chunks(splitter: MarkdownSplitter, text: str, size: int) -> Iterator[tuple[int, str]]:
    """The parts of a text that have at most `size` characters, each with its offset."""
    if len(text) <= size:
        if text.strip():
            yield len(text) - len(text.lstrip()), text.strip()
        return
    for begin, piece in _pieces(text):
        for offset, chunk in splitter.chunk_indices(piece):
            if chunk.strip():
                yield begin + offset, chunk


def _pieces(text: str) -> Iterator[tuple[int, str]]:
    """A long text in pieces, cut where it hurts least: the splitter takes quadratic time for what has no blocks."""
    begin = 0
    while len(text) - begin > _PIECE:
        middle, most = begin + _PIECE // 2, begin + _PIECE
        ends = (max((found.end() for found in end.finditer(text, middle, most)), default=0) for end in _ENDS)
        stop = next((end for end in ends if end), most)
        yield begin, text[begin:stop]
        begin = stop
    yield begin, text[begin:]


@lru_cache(maxsize=8)
def _splitter(size: int, overlap: int) -> MarkdownSplitter:
    try:
        from semantic_text_splitter import MarkdownSplitter
    except ImportError as error:
        raise ConfigurationError(NEEDS_EXTRA) from error
    return MarkdownSplitter(size, overlap)
