"""Recorded runs as a table."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import datetime
from shutil import get_terminal_size

from glassloop.cli.printable import printable
from glassloop.journal.projection import RunRow

_NAMES = ("ID", "STATUS", "AGENT", "SESSION", "STEPS", "TOKENS", "COST", "STARTED", "INPUT")
_NUMBERS = ("STEPS", "TOKENS", "COST")
_WIDE = 200
_GAP = 2
_SHORTEST_INPUT = 12
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
    from rich.cells import cell_len
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    cells = [[Text(printable(" ".join(cell.split()))) for cell in _cells(row)] for row in rows]
    table = Table(box=None, pad_edge=False, header_style="bold")
    room = 0
    for index, name in enumerate(_NAMES[:-1]):
        width = max(cell_len(name), *(line[index].cell_len for line in cells))
        room += width + _GAP
        table.add_column(name, width=width, no_wrap=True, justify="right" if name in _NUMBERS else "left")
    table.add_column(_NAMES[-1], no_wrap=True, overflow="ellipsis")
    for row, line in zip(rows, cells, strict=True):
        line[1].stylize(_STYLES.get(row.status, "magenta"))
        table.add_row(*line)
    wanted = get_terminal_size().columns if sys.stdout.isatty() else _WIDE
    width = max(wanted, room + _SHORTEST_INPUT)
    Console(file=sys.stdout, width=width, color_system="auto" if colour else None, highlight=False).print(table)


def _cells(row: RunRow) -> tuple[str, ...]:
    cost = "?" if row.cost_usd is None else f"{row.cost_usd:.4f}"
    started = datetime.fromtimestamp(row.started_at / 1000).strftime("%Y-%m-%d %H:%M")
    return (
        *(row.id, row.status, row.agent, row.session or "-"),
        *(str(row.steps), f"{row.tokens:,}", cost),
        *(started, row.input),
    )
