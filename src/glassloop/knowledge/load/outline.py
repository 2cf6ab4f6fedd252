"""Sections from a text with headings, whatever the format, and tables as text."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from glassloop.knowledge.documents import Section

_LONGEST_HEADING = 200


class Outline:
    """Collects headings and blocks in reading order: `heading`, `add`, and at the end `sections`."""

    def __init__(self) -> None:
        self._path: list[tuple[int, str, int | None]] = []
        self._blocks: list[str] = []
        self._sections: list[Section] = []
        self._bare = False

    def heading(self, level: int, text: str, line: int | None = None) -> None:
        """A heading; it stands under the last one of a lower level (1 is the outermost).

        What is as long as a paragraph is one, whatever its style.
        """
        if len(text) > _LONGEST_HEADING or not text:
            self.add(text, line)
            return
        self._close(level)
        while self._path and self._path[-1][0] >= level:
            self._path.pop()
        self._path.append((level, text, line))
        self._bare = True

    def add(self, text: str, line: int | None = None, *, verbatim: bool = False) -> None:
        """A block of text: a paragraph, a list, a table.

        Args:
            text: the block; a blank one is nothing.
            line: where it begins in the file, from 1; then it is a section of its own.
            verbatim: its lines are those of the file.
        """
        if not text.strip():
            return
        self._bare = False
        if line is None:
            self._blocks.append(text)
        else:
            self._sections.append(Section(text, self._headings(), line=line, verbatim=verbatim))

    def sections(self) -> tuple[Section, ...]:
        """All of it."""
        self._close(0)
        return tuple(self._sections)

    def _headings(self) -> tuple[str, ...]:
        return tuple(text for _, text, _ in self._path)

    def _close(self, level: int) -> None:
        """End the section before a heading of this level; a heading with nothing under it is text of its own."""
        if self._blocks:
            self._sections.append(Section(_joined(self._blocks), self._headings()))
            self._blocks = []
        elif self._bare and self._path[-1][0] >= level:
            _, text, line = self._path[-1]
            self._sections.append(Section(text, self._headings()[:-1], line=line))
        self._bare = False


def _joined(blocks: Sequence[str]) -> str:
    """Blocks with a blank line between them, items of a list without."""
    parts = [blocks[0]]
    for before, block in pairwise(blocks):
        tight = before.startswith("- ") and block.startswith("- ")
        parts += ("\n" if tight else "\n\n", block)
    return "".join(parts)


def table_text(rows: Sequence[Sequence[str]]) -> str:
    """Rows of cells as a Markdown table, which models read and the splitter does not tear; blank rows are left out."""
    full = [[" ".join(cell.split()).replace("|", "\\|") for cell in row] for row in rows]
    full = [row for row in full if any(row)]
    if not full:
        return ""
    width = max(map(len, full))
    lines = [f"| {' | '.join([*row, *[''] * (width - len(row))])} |" for row in full]
    return "\n".join([lines[0], f"|{' --- |' * width}", *lines[1:]])
