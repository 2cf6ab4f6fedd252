"""DOCX: paragraphs, headings, lists and tables of the body, in their order."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator
from io import BytesIO
from typing import Any

import docx
from docx.document import Document

from glassloop.knowledge.load.outline import Outline, table_text
from glassloop.knowledge.load.parsed import Parsed
from glassloop.knowledge.load.reading import Unreadable

_MOST_BYTES = 200_000_000
_MOST_XML_BYTES = 50_000_000  # a part of XML takes some twenty times as much when it is parsed
_MOST_PARTS = 20_000
_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"  # what Word wrote before 2007, and what it wraps an encrypted file in
_TITLE, _BODY_TEXT = 0, 9
_HEADING = re.compile(r"heading ([1-9])", re.IGNORECASE)
_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_P, _TBL, _TR, _TC, _T = (f"{_W}{name}" for name in ("p", "tbl", "tr", "tc", "t"))
_BLANKS = {f"{_W}tab": "\t", f"{_W}br": "\n", f"{_W}cr": "\n", f"{_W}noBreakHyphen": "-"}
_NO_TEXT = {
    f"{_W}moveFrom",  # where a text was before
    "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback",  # the same again, for older programs
}


def parse(data: bytes) -> Parsed:
    """Sections under the headings; the title is that of the properties, else the first paragraph in style Title.

    The tree is read as it is, for python-docx leaves out what is in content controls and tracked insertions.
    """
    _check(data)
    document = docx.Document(BytesIO(data))
    styles = _styles(document)
    tree: Any = document.element
    outline, title = Outline(), None
    for block in _nearest(tree.body, _P, _TBL):
        if block.tag == _TBL:
            outline.add(table_text([_cells(row) for row in _nearest(block, _TR)]))
            continue
        text, style = _text(block), styles.get(_value(block, "pPr/pStyle"), "")
        level = _level(_value(block, "pPr/outlineLvl"), style)
        if level == _BODY_TEXT:
            is_item = block.find(f"{_W}pPr/{_W}numPr") is not None or style.startswith("list")
            outline.add(f"- {text}" if text and is_item else text)
        else:
            outline.heading(level + 1, " ".join(text.split()))
            title = title or (text if level == _TITLE else None)
    return Parsed(document.core_properties.title.strip() or title, outline.sections())


def _check(data: bytes) -> None:
    """Refuse what is no DOCX file, and what a small file may be made to unpack to (a "zip bomb")."""
    if data.startswith(_OLE):
        encrypted = "EncryptedPackage".encode("utf-16-le") in data
        what = "is encrypted: save it without a password." if encrypted else "is an old Word file: save it as DOCX."
        raise Unreadable(what)
    with zipfile.ZipFile(BytesIO(data)) as archive:
        parts = archive.infolist()
    xml = max((part.file_size for part in parts if part.filename.endswith((".xml", ".rels"))), default=0)
    total = sum(part.file_size for part in parts)
    if total > _MOST_BYTES or xml > _MOST_XML_BYTES or len(parts) > _MOST_PARTS:
        raise Unreadable(f"unpacks to {total / 1e6:,.0f} MB in {len(parts):,} parts, which is too much: split it.")


def _styles(document: Document) -> dict[str, str]:
    """The built-in style that each style of the document is, or is based on, in lower case, by id."""
    elements: Any = document.styles.element
    found = {
        str(style.get(f"{_W}styleId")): (_value(style, "name").lower(), _value(style, "basedOn"))
        for style in elements.findall(f"{_W}style")
    }
    return {identifier: _built_in(identifier, found) for identifier in found}


def _built_in(identifier: str, found: dict[str, tuple[str, str]]) -> str:
    seen: list[str] = []
    while identifier in found and identifier not in seen:
        seen.append(identifier)
        name, identifier = found[identifier]
        if name == "title" or name.startswith("list") or _HEADING.fullmatch(name):
            return name
    return ""


def _level(outline: str, style: str) -> int:
    """Of a heading, from 1; what is said of the paragraph itself (from 0 there) goes before its style."""
    if outline.isdecimal():
        return min(int(outline) + 1, _BODY_TEXT)
    heading = _HEADING.fullmatch(style)
    return int(heading[1]) if heading else _TITLE if style == "title" else _BODY_TEXT


def _nearest(parent: Any, *tags: str) -> Iterator[Any]:
    """The elements with one of the tags that are in no other such one."""
    for child in parent:
        if child.tag in tags:
            yield child
        elif child.tag not in _NO_TEXT:
            yield from _nearest(child, *tags)


def _cells(row: Any) -> list[str]:
    """The texts of a row, a cell that spans columns followed by empty ones."""
    cells: list[str] = []
    for cell in _nearest(row, _TC):
        span = _value(cell, "tcPr/gridSpan")
        cells += [_text(cell), *[""] * (min(int(span), 100) - 1 if span.isdecimal() else 0)]
    return cells


def _text(element: Any) -> str:
    return "".join(_pieces(element)).strip()


def _pieces(element: Any) -> Iterator[str]:
    for child in element:
        if child.tag == _T:
            yield child.text or ""
        elif child.tag in _BLANKS:
            yield _BLANKS[child.tag]
        elif child.tag not in _NO_TEXT:
            yield from _pieces(child)
            yield "\n" if child.tag in (_P, _TC) else ""  # of a cell, a text box or a table in the table


def _value(element: Any, path: str) -> str:
    """The attribute `val` of an element below, by its path; "" if there is none."""
    found = element.find("/".join(f"{_W}{name}" for name in path.split("/")))
    return str(found.get(f"{_W}val") or "") if found is not None else ""
