"""The command line of an example: `glassloop run` on the file itself, with a question of its own by default."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from glassloop.cli.problems import CANCELLED


def demo(
    file: str, question: str, arguments: Sequence[str] | None = None, *, others: Mapping[str, str] | None = None
) -> int:
    """Run the agent that stands in `file` on a question from the command line, and return the exit code.

    Without a question it asks for one at a terminal, and takes `question` where there is none.

    Args:
        file: `__file__` of the example; a package's `__main__.py` means the package.
        question: the default.
        arguments: `[--trace] [--OTHER] [QUESTION]`; default those of this process.
        others: what else in `file` can be run, by its name, which is its option: what it is, for `--help`.
    """
    from glassloop.cli.main import main

    parser = argparse.ArgumentParser(
        description="The same as `glassloop run` on this file, which has more options.", allow_abbrev=False
    )
    parser.add_argument("question", nargs="*", metavar="QUESTION", help=f"default: {question}".replace("%", "%%"))
    parser.add_argument("--trace", action="store_true", help="a line for each thought, action and observation")
    for name, what in (others or {}).items():
        parser.add_argument(f"--{name}", action="store_const", const=name, dest="other", help=what)
    parser.set_defaults(other=None)
    given = parser.parse_args(arguments)
    try:
        asked = " ".join(given.question).strip() or _prompt(question)
    except (KeyboardInterrupt, EOFError):
        return CANCELLED
    path = Path(file).parent if Path(file).name == "__main__.py" else Path(file)
    other = f":{given.other}" if given.other else ""
    return main(["run", *(["--trace"] if given.trace else []), "--", f"{os.path.relpath(path)}{other}", asked])


def _prompt(question: str) -> str:
    if not sys.stdin.isatty():
        return question
    sys.stderr.write(f"Question [{question}]: ")
    sys.stderr.flush()
    return input().strip() or question
