"""Recorded runs, and anything else, as a table."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from shutil import get_terminal_size

from glassloop.cli.printable import printable
from glassloop.journal.projection import RunRow

_NAMES = ("ID", "STATUS", "AGENT", "SESSION", "STEPS", "TOKENS", "COST", "STARTED", "INPUT")
_NUMBERS = ("STEPS", "TOKENS", "COST")
_WIDE = 200
_GAP = 2
_SHORTEST_LAST = 12
_STYLES = {"completed": "green", "running": "cyan", "waiting": "yellow", "failed": "red", "cancelled": "dim"}


def print_runs(rows: Sequence[RunRow], *, colour: bool) -> None:
    """Print one line per run, or a sentence where there is none. Only the input is cut where the terminal is narrow.

    Args:
        rows: newest first.
        colour: whether to colour the status.
    """
    if not rows:
        sys.stdout.write("No runs.\n")
        return
    print_table(_NAMES, list(map(_cells, rows)), numbers=_NUMBERS, styles={"STATUS": _style_of}, colour=colour)


def print_table(
    names: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    numbers: Sequence[str] = (),
    styles: Mapping[str, Callable[[str], str]] | None = None,
    colour: bool,
) -> None:
    """Print rows of cells in columns. Only the last column is cut where the terminal is narrow.

    Args:
        names: of the columns.
        rows: their cells.
        numbers: the columns that are flush right.
        styles: by column, the style of a cell.
        colour: whether to colour anything.
    """
    from rich.cells import cell_len
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    cells = [[Text(printable(" ".join(cell.split()))) for cell in row] for row in rows]
    table = Table(box=None, pad_edge=False, header_style="bold")
    room = 0
    for index, name in enumerate(names[:-1]):
        width = max(cell_len(name), *(line[index].cell_len for line in cells))
        room += width + _GAP
        table.add_column(name, width=width, no_wrap=True, justify="right" if name in numbers else "left")
    wanted = get_terminal_size().columns if sys.stdout.isatty() else _WIDE
    width = max(wanted, room + _SHORTEST_LAST)
    longest = max(cell_len(names[-1]), *(line[-1].cell_len for line in cells))
    table.add_column(names[-1], width=min(longest, width - room), no_wrap=True, overflow="ellipsis")
    for line in cells:
        for name, style in (styles or {}).items():
            cell = line[names.index(name)]
            cell.stylize(style(cell.plain))
        table.add_row(*line)
    Console(file=sys.stdout, width=width, color_system="auto" if colour else None, highlight=False).print(table)


def _style_of(status: str) -> str:
    return _STYLES.get(status, "magenta")


def _cells(row: RunRow) -> tuple[str, ...]:
    cost = "?" if row.cost_usd is None else f"{row.cost_usd:.4f}"
    started = datetime.fromtimestamp(row.started_at / 1000).strftime("%Y-%m-%d %H:%M")
    return (
        *(row.id, row.status, row.agent, row.session or "-"),
        *(str(row.steps), f"{row.tokens:,}", cost),
        *(started, row.input),
    )
