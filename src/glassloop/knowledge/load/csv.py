"""CSV: a section for each row, its cells as "column: value" lines."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice

from glassloop.knowledge.documents import Section
from glassloop.knowledge.load.decode import decode
from glassloop.knowledge.load.parsed import Parsed
from glassloop.knowledge.load.reading import Unreadable

_DELIMITERS = ",;\t|"
_SAMPLE_ROWS = 50
_EXCEL = re.compile(r"sep=(.)\n", re.IGNORECASE)
_NUMBER = re.compile(r"[\s+-]*[\d.,/:%$€¥£-]+\s*")


def parse(data: bytes) -> Parsed:
    """Rows as sections; a section's line is its row, as a spreadsheet numbers it.

    The delimiter is the one that gives the same number of columns most often. The first row is the header, unless it
    has a number, an empty cell or a cell twice: then columns are named by their number.
    """
    text = decode(data)
    told = _EXCEL.match(text)  # Excel's own way to tell the delimiter
    delimiter = told[1] if told else _delimiter(text)
    rows = _rows(text[told.end() :] if told else text, delimiter)
    first = next(rows, list[str]())
    headed = _is_header(first)
    names = [" ".join(cell.split()) for cell in first] if headed else []
    begin = 2 if told else 1
    sections = [] if headed else [Section(_lines(names, first), line=begin)]
    sections += [Section(_lines(names, row), line=number) for number, row in enumerate(rows, begin + 1)]
    return Parsed(None, tuple(sections))


def _rows(text: str, delimiter: str) -> Iterator[list[str]]:
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True)
    try:
        yield from reader
    except csv.Error as error:
        raise Unreadable(f"is no valid CSV (line {reader.line_num}: {error}): export it again.") from error


def _delimiter(text: str) -> str:
    """The delimiter with which most of the first rows have the same number of columns, more than one."""

    def fit(delimiter: str) -> tuple[int, int]:
        widths = Counter(len(row) for row in islice(_rows(text, delimiter), _SAMPLE_ROWS) if len(row) > 1)
        width, rows = max(widths.items(), key=lambda item: item[1], default=(0, 0))
        return rows, width

    return max(_DELIMITERS, key=fit)


def _is_header(row: Sequence[str]) -> bool:
    cells = [cell.strip() for cell in row]
    return all(cells) and len(set(cells)) == len(cells) and not any(_NUMBER.fullmatch(cell) for cell in cells)


def _lines(names: Sequence[str], row: Sequence[str]) -> str:
    """The cells of a row that are not empty, each with the name of its column."""
    cells = [" ".join(cell.split()) for cell in row]
    known = [*names, *(f"column {number}" for number in range(len(names) + 1, len(cells) + 1))]
    return "\n".join(f"{name}: {cell}" for name, cell in zip(known, cells, strict=False) if cell)
