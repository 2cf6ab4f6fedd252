"""`glassloop doctor`: what is configured, and does it work."""

from __future__ import annotations

from typing import TYPE_CHECKING

from glassloop.cli import options
from glassloop.cli.problems import FAILED, OK

if TYPE_CHECKING:
    from glassloop.cli.checks import Check, Mark

EXAMPLES = """\b
Examples:
  glassloop doctor
  MODEL=openai:qwen3 MODEL_ENDPOINT=http://127.0.0.1:11434/v1 glassloop doctor
  glassloop doctor --json
"""

_COLOURS: dict[Mark, str] = {"ok": "32", "missing": "33", "problem": "31"}


def doctor(
    json: options.Json = False,
    store: options.Store = options.DEFAULT_STORE,
    no_color: options.NoColor = False,
    debug: options.Debug = False,
) -> int:
    """Say what is configured and what was found, one sentence each.

    Asks no model and shows no key. Exit code 1 if something that is configured does not work; what is merely missing
    is no problem.
    """
    import os
    import sys
    from dataclasses import asdict

    from glassloop.cli.checks import diagnose
    from glassloop.cli.output import print_json, use_colour

    checks = diagnose(store, os.environ)
    healthy = all(check.mark != "problem" for check in checks)
    if json:
        print_json({"ok": healthy, "checks": [asdict(check) for check in checks]})
    else:
        colour = use_colour(no_color)
        sys.stdout.write("".join(_line(check, colour) for check in checks))
    return OK if healthy else FAILED


def _line(check: Check, colour: bool) -> str:
    from glassloop.cli.printable import printable

    mark, said = f"{check.mark:<8}", printable(check.message)
    return f"\x1b[{_COLOURS[check.mark]}m{mark}\x1b[0m{said}\n" if colour else f"{mark}{said}\n"
