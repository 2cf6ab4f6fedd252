"""The kill -9 suite: `make kill KILLS=1000`, or `python tests/kill --kills 1000 --seed 7 --seconds 600`.

The store is a file. With `STORE=postgresql` (`--store postgresql`) it is in a PostgreSQL server that is started for it,
with `STORE=postgresql://user:password@host/postgres` in that one: each round has a database of its own there.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from campaign import Campaign, Tally
from plan import Kind

_KINDS: dict[Kind, str] = {
    "naive": "external, naive",
    "held": "external, approved first",
    "undone": "external, with undo",
    "keyed": "external, honours the key",
    "reconciled": "external, with reconcile",
    "same_database": "same database",
    "below": "runs of other agents",
    "handed": "conversations handed on",
}


def main() -> int:
    """Kill, count, print the table; 1 if anything was lost, repeated or wrong."""
    parser = argparse.ArgumentParser(prog="tests/kill", description="Kill the program again and again, and audit it.")
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=None, help="the same plan and the same choices again")
    parser.add_argument("--seconds", type=float, default=None, help="stop killing after so many seconds")
    parser.add_argument("--runs", type=int, default=12, help="runs in each round")
    parser.add_argument("--lanes", type=int, default=2, help="rounds at a time")
    places = "sqlite, postgresql (a server is started), or the URL of a server"
    parser.add_argument("--store", default="sqlite", help=places)
    asked = parser.parse_args()
    with server_of(asked.store) as server:
        return _play(asked, server)


@contextmanager
def server_of(store: str) -> Generator[str | None]:
    """The URL of the PostgreSQL server that is asked for, while the block lasts; None for a file each round."""
    if store == "sqlite":
        yield None
    elif store == "postgresql":
        sys.path.append(str(Path(__file__).parents[1]))
        from servers import postgres_server

        with postgres_server() as server:
            yield server.url()
    elif store.startswith(("postgresql://", "postgres://")):
        yield store
    else:
        raise SystemExit("STORE is neither sqlite, nor postgresql, nor postgresql://user:password@host/postgres.")


def _play(asked: argparse.Namespace, server: str | None) -> int:
    seed = asked.seed if asked.seed is not None else int(time.time()) % 10_000
    folder = Path(tempfile.mkdtemp(prefix="glassloop-kill-"))
    print(f"seed {seed}, {asked.kills} kills, worlds in {folder}", flush=True)
    tally = Campaign(
        folder,
        seed=seed,
        kills=asked.kills,
        seconds=asked.seconds,
        runs=asked.runs,
        lanes=asked.lanes,
        server=server,
        tell=_Progress(asked.kills),
    ).play()
    print("\r", end="")
    print(table(tally))
    for fault in tally.found.faults[:20]:
        print(f"WRONG: {fault}")
    if not tally.found.faults:
        folder.rmdir()
    return 1 if tally.found.faults else 0


class _Progress:
    """One line that says how things stand: over and over on a terminal, every 10 s elsewhere."""

    def __init__(self, kills: int) -> None:
        self._kills = kills
        self._said = 0.0

    def __call__(self, tally: Tally) -> None:
        terminal = sys.stdout.isatty()
        if tally.seconds - self._said < (0.2 if terminal else 10.0):
            return
        self._said = tally.seconds
        found = tally.found
        line = f"{tally.seconds:6.0f} s  {tally.kills}/{self._kills} kills  {tally.rounds} rounds  {found.started} runs"
        line += f"  {found.lost} lost  {sum(c.repeats for c in found.counts.values())} repeated  {found.cut} in doubt"
        print(f"\r{line}" if terminal else line, end="" if terminal else "\n", flush=True)


def table(tally: Tally) -> str:
    """The result, as a table."""
    found = tally.found
    head = f"{'':28}{'calls':>8}{'effects':>9}{'repeated':>10}{'run again':>11}{'asked':>8}{'missing':>9}"
    lines = [head]
    for kind, name in _KINDS.items():
        count = found.counts[kind]
        numbers = f"{count.calls:8}{count.effects:9}{count.repeats:10}{count.again:11}{count.doubts:8}{count.missing:9}"
        lines.append(f"{name:28}{numbers}")
    ways = ", ".join(f"{way} {times}" for way, times in sorted(tally.ways.items()))
    return "\n".join(
        [
            f"kills {tally.kills}   rounds {tally.rounds}   runs {found.started}   lost {found.lost}   "
            f"in doubt {found.cut}, surfaced {found.surfaced}   {tally.seconds:.0f} s",
            "",
            *lines,
            "",
            f"lives ended at: {ways}",
            "repeated: without anybody's word. run again: a human said so of a call that might have happened. asked: "
            "questions to a human whether a call happened.",
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
