"""A real server under load: `python tests/load --runs 200`, or `python tests/load --parked 1000`."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

import parked
import together


def main() -> int:
    """Load a server, audit its journal, print the table; 1 if anything was lost or wrong."""
    parser = argparse.ArgumentParser(prog="tests/load", description="Load `glassloop serve` on an SQLite file.")
    parser.add_argument("--runs", type=int, default=200, help="runs at once over HTTP, each followed to its end")
    parser.add_argument("--parked", type=int, default=0, help="instead: so many runs that wait for a human")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="glassloop-load-") as folder:
        if asked.parked:
            waited = asyncio.run(parked.park_and_decide(Path(folder), asked.parked))
            print(parked.report(waited))
            faults = waited.faults
        else:
            loaded = asyncio.run(together.all_at_once(Path(folder), asked.runs))
            print(together.report(loaded))
            faults = loaded.faults
    for fault in faults[:20]:
        print(f"WRONG: {fault}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
