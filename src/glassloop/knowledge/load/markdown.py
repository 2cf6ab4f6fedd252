"""Markdown, by CommonMark's rules for blocks: sections under headings, the text as it stands."""

from __future__ import annotations

import re
from functools import cache
from itertools import pairwise

from markdown_it import MarkdownIt

from glassloop.knowledge.load.decode import decode
from glassloop.knowledge.load.outline import Outline
from glassloop.knowledge.load.parsed import Parsed

_FRONT_MATTER = re.compile(r"---[ \t]*\n(.*?\n)?(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL)
_TITLE = re.compile(r"(?m)^title:[ \t]*(.+?)[ \t]*$")


def parse(data: bytes) -> Parsed:
    """Sections with their lines; the title is that of the front matter, else the first heading of level 1."""
    text = decode(data)
    front = _FRONT_MATTER.match(text)
    title = _TITLE.search(front[1] or "") if front else None
    outline, lines = Outline(), text.split("\n")
    done = front[0].count("\n") if front else 0
    first = None
    for level, heading, begin, end in _headings(lines, done):
        _add(outline, lines, done, begin)
        outline.heading(level, heading, begin + 1)
        done = end
        first = first or (heading if level == 1 else None)
    _add(outline, lines, done, len(lines))
    return Parsed(title[1].strip("\"'") if title else first, outline.sections())


def _headings(lines: list[str], skipped: int) -> list[tuple[int, str, int, int]]:
    """Level, text, and lines from and up to (from 0) of each heading that stands in no quotation and no list."""
    blocks, inline = _parsers()
    tokens = blocks.parse("\n".join(lines[skipped:]))
    return [
        (int(token.tag[1:]), _plain(inline, inside.content), token.map[0] + skipped, token.map[1] + skipped)
        for token, inside in pairwise(tokens)
        if token.type == "heading_open" and token.level == 0 and token.map is not None
    ]


@cache
def _parsers() -> tuple[MarkdownIt, MarkdownIt]:
    """Of blocks alone, for emphasis and links are of interest in headings only; and of what is in those."""
    blocks = MarkdownIt("commonmark")
    blocks.core.ruler.disable("inline")
    return blocks, MarkdownIt("commonmark")


def _plain(inline: MarkdownIt, text: str) -> str:
    """The text of a heading, without marks of emphasis, code and links."""
    children = inline.parseInline(text)[0].children or []
    parts = (" " if child.type in ("softbreak", "hardbreak") else child.content for child in children)
    return " ".join("".join(parts).split())


def _add(outline: Outline, lines: list[str], begin: int, end: int) -> None:
    while begin < end and not lines[begin].strip():
        begin += 1
    outline.add("\n".join(lines[begin:end]).rstrip(), begin + 1, verbatim=True)
