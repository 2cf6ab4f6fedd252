"""Files as documents: one module a format. Needs `pip install 'glassloop[rag]'`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from os import PathLike
from pathlib import Path

from glassloop.core.encoding import digest
from glassloop.core.errors import ConfigurationError, LoadError
from glassloop.knowledge.documents import Document, Section
from glassloop.knowledge.load.parsed import Parsed
from glassloop.knowledge.load.reading import MAX_BYTES, Unreadable, read_bytes

__all__ = ["FORMATS", "MAX_BYTES", "NEEDS_EXTRA", "check_format", "load", "parse"]

FORMATS = {
    **dict.fromkeys((".md", ".markdown"), "markdown"),
    **dict.fromkeys((".txt", ".text", ".rst"), "plain"),
    **dict.fromkeys((".html", ".htm", ".xhtml"), "html"),
    ".pdf": "pdf",
    ".docx": "docx",
    **dict.fromkeys((".csv", ".tsv"), "csv"),
}
"""The module that reads a file, by the suffix of its name."""

NEEDS_EXTRA = "Knowledge needs the rag extra: pip install 'glassloop[rag]'."

_UNSEEN: dict[int, str | None] = {
    **dict.fromkeys((*range(0x20), 0x7F, 0xFEFF)),
    **{ord(blank): " " for blank in "\v\f\x1c\x1d\x1e\x1f"},
    **{ord(kept): kept for kept in "\t\n"},
}
"""Control characters, which databases refuse and terminals obey, and byte order marks."""


def load(path: str | PathLike[str], *, source: str | None = None, max_bytes: int = MAX_BYTES) -> Document:
    """Read a file. It blocks: call it in a thread (`asyncio.to_thread`).

    Args:
        path: a Markdown, text, HTML, PDF, DOCX or CSV file; its suffix says which.
        source: how the document is named; default the file's name.
        max_bytes: the largest file that is read.

    Raises:
        LoadError: it cannot be read; the message names it and says why.
        ConfigurationError: a library that reads this format is not installed.
    """
    name = Path(path).name if source is None else source
    try:
        return parse(read_bytes(Path(path), max_bytes), name)
    except Unreadable as why:
        raise LoadError(name, str(why)) from why


def parse(data: bytes, source: str) -> Document:
    """The document in the content of a file.

    Args:
        data: all of its bytes.
        source: how it is named; the suffix says which format it has.

    Raises:
        LoadError, ConfigurationError: as `load`.
    """
    parser = _parser(source)
    try:
        parsed = parser(data)
    except Unreadable as why:
        raise LoadError(source, str(why)) from why
    except RecursionError as error:
        raise LoadError(source, "is nested too deeply: make it simpler.") from error
    except Exception as error:  # the libraries raise whatever they like on a broken file
        kind = Path(source).suffix[1:].upper()
        raise LoadError(source, f"is broken, or no {kind} file: save it anew with what it was made with.") from error
    sections = tuple(filter(None, map(_clean, parsed.sections)))
    if not sections:
        raise LoadError(source, "holds no text: write something into it, or leave it out.")
    title = _one_line(parsed.title or "")
    return Document(source, title or Path(source).name, sections, digest(data))


def check_format(source: str) -> None:
    """Refuse a file by its name.

    Raises:
        LoadError: no format has this suffix.
    """
    suffix = Path(source).suffix
    if suffix.lower() not in FORMATS:
        what = f"is of an unknown kind ({suffix})" if suffix else "has no suffix that says what it is"
        raise LoadError(source, f"{what}: Markdown, text, HTML, PDF, DOCX and CSV files can be loaded.")


def _parser(source: str) -> Callable[[bytes], Parsed]:
    check_format(source)
    try:
        return import_module(f"{__name__}.{FORMATS[Path(source).suffix.lower()]}").parse
    except ImportError as error:
        raise ConfigurationError(NEEDS_EXTRA) from error


def _clean(section: Section) -> Section | None:
    """Without characters that nobody sees; None if nothing is left."""
    text = section.text.translate(_UNSEEN)
    return replace(section, text=text, headings=tuple(map(_one_line, section.headings))) if text.strip() else None


def _one_line(text: str) -> str:
    return " ".join(text.translate(_UNSEEN).split())
