"""What knowledge is made of: a document in sections, as it was loaded, and passages, as they are indexed."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Document", "Passage", "Section"]


@dataclass(frozen=True, slots=True)
class Section:
    """A piece of text under its headings.

    Args:
        text: the text, without the headings.
        headings: path of headings, outermost first.
        page: of a PDF, from 1.
        line: where it begins in a text format, from 1; of a CSV file the row, with the header as row 1.
        verbatim: whether its lines are those of the file, so that a passage further down has a line of its own.
    """

    text: str
    headings: tuple[str, ...] = ()
    page: int | None = None
    line: int | None = None
    verbatim: bool = False


@dataclass(frozen=True, slots=True)
class Document:
    """A file, loaded.

    Args:
        source: how citations and lists name it: its path below the root that was ingested, with "/" between parts.
        title: what it calls itself, else its file name.
        sections: its text in reading order.
        digest: of the file's bytes.
    """

    source: str
    title: str
    sections: tuple[Section, ...]
    digest: str


@dataclass(frozen=True, slots=True)
class Passage:
    """A chunk of a document: what is indexed, found and cited.

    Args:
        source: that of the document.
        title: that of the document.
        position: ordinal in the document, from 0.
        text: the text.
        headings: path of the headings it stands under, outermost first.
        page: of a PDF, from 1.
        line: where it begins in a text format, from 1; of a CSV file the row.
        digest: of text and headings: what makes it the same chunk as before. Unique in its document.
    """

    source: str
    title: str
    position: int
    text: str
    headings: tuple[str, ...] = ()
    page: int | None = None
    line: int | None = None
    digest: str = ""
