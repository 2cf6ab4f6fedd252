"""Recorded runs as a table."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import datetime

from glassloop.cli.printable import printable
from glassloop.journal.projection import RunRow

_WIDE = 200
_STYLES = {"completed": "green", "running": "cyan", "waiting": "yellow", "failed": "red", "cancelled": "dim"}


def print_runs(rows: Sequence[RunRow], *, colour: bool) -> None:
    """Print one line per run; nothing but a sentence where there is none.

    Args:
        rows: newest first.
        colour: whether to colour the status.
    """
    if not rows:
        sys.stdout.write("No runs.\n")
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("ID", "STATUS", "AGENT", "SESSION"):
        table.add_column(name, no_wrap=True, overflow="ignore")
    for name in ("STEPS", "TOKENS", "COST"):
        table.add_column(name, no_wrap=True, justify="right")
    table.add_column("STARTED", no_wrap=True)
    table.add_column("INPUT", no_wrap=True, overflow="ellipsis", min_width=10)
    for row in rows:
        cells = [Text(printable(" ".join(cell.split()))) for cell in _cells(row)]
        cells[1].stylize(_STYLES.get(row.status, "magenta"))
        table.add_row(*cells)
    width = None if sys.stdout.isatty() else _WIDE
    console = Console(file=sys.stdout, width=width, no_color=not colour, highlight=False, emoji=False)
    console.print(table, soft_wrap=False, crop=False)


def _cells(row: RunRow) -> tuple[str, ...]:
    cost = "?" if row.cost_usd is None else f"{row.cost_usd:.4f}"
    started = datetime.fromtimestamp(row.started_at / 1000).strftime("%Y-%m-%d %H:%M")
    return (
        *(row.id, row.status, row.agent, row.session or "-"),
        *(str(row.steps), f"{row.tokens:,}", cost),
        *(started, row.input),
    )
