"""HTML: what a reader of the page sees, without its navigation; tables as text rows."""

from __future__ import annotations

import re
from collections.abc import Iterator

from bs4 import BeautifulSoup, Tag
from bs4.dammit import EncodingDetector
from bs4.element import NavigableString, PageElement, PreformattedString

from glassloop.knowledge.load.decode import decode
from glassloop.knowledge.load.outline import Outline, table_text
from glassloop.knowledge.load.parsed import Parsed

_LEFT_OUT = {
    *("script", "style", "template", "noscript", "svg", "math", "canvas", "iframe", "object", "audio", "video"),
    *("nav", "head", "button", "select", "input", "textarea", "dialog", "rt", "rp"),
}
_HIDDEN = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden", re.IGNORECASE)
_HEADING = re.compile(r"h([1-6])")
_BLOCKS = {
    *("address", "article", "aside", "blockquote", "body", "center", "dd", "details", "div", "dl", "dt", "fieldset"),
    *("figcaption", "figure", "footer", "form", "header", "hr", "html", "li", "main", "menu", "ol", "p", "pre"),
    *("section", "summary", "table", "caption", "tr", "td", "th", "ul", *(f"h{level}" for level in range(1, 7))),
}
_LAYOUT = {"table", "h1", "h2", "h3", "h4", "h5", "h6"}
_XML = re.compile(r"\s*<\?xml[^>]*>")
_BREAK = "\x00"


def parse(data: bytes) -> Parsed:
    """Sections under the page's headings; the title is the page's, else its first heading of level 1.

    Left out are scripts, styles, navigation, controls, and what is hidden with an attribute or a style of its own.
    """
    text = decode(data, EncodingDetector.find_declared_encoding(data, is_html=True))
    # Not html.parser: it does not know which end tags may be left out, and nests `<td>a<td>b`.
    soup = BeautifulSoup(_XML.sub("", text, count=1) + "\n", "lxml")
    page = _Page()
    page.walk(soup)
    page.end_block()
    title = _inline(soup.head.title) if soup.head is not None and soup.head.title is not None else ""
    return Parsed(title or page.first, page.outline.sections())


class _Page:
    """Walks the tree and gives its blocks to an outline."""

    def __init__(self) -> None:
        self.outline = Outline()
        self.first: str | None = None
        self._line: list[str] = []
        self._mark = ""

    def walk(self, tag: Tag) -> None:
        """All that is in `tag`."""
        for child in tag.children:
            if isinstance(child, Tag):
                if not _is_left_out(child):
                    self._tag(child)
            elif _is_text(child):
                self._line.append(str(child))

    def end_block(self) -> None:
        """What was collected is a paragraph, or an item of a list."""
        lines = (" ".join(line.split()) for line in "".join(self._line).split(_BREAK))
        text = "\n".join(filter(None, lines))
        self._line = []
        if text:
            self.outline.add(self._mark + text)
            self._mark = ""

    def _tag(self, tag: Tag) -> None:
        name = tag.name
        if name == "br":
            self._line.append(_BREAK)
        elif name not in _BLOCKS:
            self.walk(tag)
        else:
            self.end_block()
            self._block(tag, name)

    def _block(self, tag: Tag, name: str) -> None:
        if heading := _HEADING.fullmatch(name):
            text = _inline(tag)
            self.outline.heading(int(heading[1]), text)
            self.first = self.first or (text if heading[1] == "1" else None)
        elif name == "pre":
            code = "".join(str(child) for child in tag.descendants if _is_text(child)).strip("\n")
            self.outline.add(f"```\n{code}\n```" if code.strip() else "")
        elif name == "table" and _LAYOUT.isdisjoint(part.name for part in _parts(tag)):
            for caption in _parts(tag, "caption"):
                self.outline.add(_inline(caption))
            self.outline.add(table_text([_cells(row) for row in _parts(tag, "tr")]))
        else:
            self._mark = "- " if name == "li" else self._mark
            self.walk(tag)
            self.end_block()


def _parts(table: Tag, name: str | None = None) -> list[Tag]:
    return [part for part in table.descendants if isinstance(part, Tag) and (name is None or part.name == name)]


def _cells(row: Tag) -> list[str]:
    return [_inline(cell) for cell in row.children if isinstance(cell, Tag) and cell.name in ("td", "th")]


def _inline(tag: Tag) -> str:
    """The text of a tag on one line."""
    return " ".join("".join(_pieces(tag)).split())


def _pieces(tag: Tag) -> Iterator[str]:
    for child in tag.children:
        if _is_text(child):
            yield str(child)
        elif isinstance(child, Tag) and not _is_left_out(child):
            apart = " " if child.name in _BLOCKS or child.name == "br" else ""
            yield from (apart, *_pieces(child), apart)


def _is_left_out(tag: Tag) -> bool:
    style = str(tag.get("style") or "")
    return tag.name in _LEFT_OUT or tag.has_attr("hidden") or _HIDDEN.search(style) is not None


def _is_text(node: PageElement) -> bool:
    return isinstance(node, NavigableString) and not isinstance(node, PreformattedString)
