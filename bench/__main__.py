"""Command line: `python -m bench [--quick]` makes the environments, measures, writes the report."""

import argparse
import os
import sys
from collections.abc import Callable

from bench import report
from bench.environments import prepare
from bench.registry import ENTRIES, REFERENCE, Entry
from bench.session import Session, smoke
from bench.stages import IMPORT_REPETITIONS, STAGES


def _some_of(names: list[str]) -> Callable[[str], list[str]]:
    """Reads a comma-separated choice."""

    def chosen(text: str) -> list[str]:
        if unknown := [name for name in text.split(",") if name not in names]:
            raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: not among {', '.join(names)}")
        return text.split(",")

    return chosen


def _arguments() -> argparse.Namespace:
    stages = [*(stage.name for stage in STAGES), "import"]
    quick = os.environ.get("QUICK", "0") not in ("", "0")
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", default=quick, help="a few minutes; also QUICK=1")
    for option, names in (("--stages", stages), ("--peers", list(ENTRIES))):
        everything = ",".join(names)
        parser.add_argument(option, type=_some_of(names), default=everything, help=f"which of {everything}")
    parser.add_argument("--keep", action="store_true", help="add to the rows of earlier sessions")
    parser.add_argument("--repeat", type=float, default=1.0, metavar="FACTOR", help="more or fewer repetitions")
    parser.add_argument("--smoke", action="store_true", help="only see that every peer works")
    parser.add_argument("--report", action="store_true", help="only write the report, from the rows so far")
    return parser.parse_args()


def _ready(keys: list[str]) -> list[Entry]:
    """The peers whose environment could be made; the others are named and left out."""
    entries = [ENTRIES[key] for key in keys]
    failed = prepare(["server", *(entry.environment for entry in entries)])
    for environment, reason in failed.items():
        print(f"no environment {environment}: {reason}", file=sys.stderr)
    if "server" in failed:
        raise SystemExit(1)
    return [entry for entry in entries if entry.environment not in failed]


def main() -> int:
    """Returns the exit code."""
    options = _arguments()
    if not options.report:
        entries = _ready(options.peers)
        if options.smoke:
            return 0 if smoke(entries) else 1
        if REFERENCE not in [entry.key for entry in entries]:
            print(f"without {REFERENCE} there are no ratios", file=sys.stderr)
        names: list[str] = options.stages
        session = Session(entries, options.quick, options.keep, options.repeat)
        session.measure([stage for stage in STAGES if stage.name in names])
        if "import" in names:
            session.weigh(max(1, round(IMPORT_REPETITIONS[options.quick] * options.repeat)))
    report.write()
    return 0


if __name__ == "__main__":
    sys.exit(main())
