"""The research assistant at the terminal: one question, or without one a conversation."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

from glassloop import Identity
from glassloop.cli.main import main
from glassloop.cli.options import DEFAULT_STORE
from glassloop.cli.problems import OK, report, say
from glassloop.models.registry import resolve_model
from glassloop.stores import open_configured

from . import STAND_IN, agent
from .manual import converse

if TYPE_CHECKING:
    import io

QUESTION = "Look up how long a refund takes, then how many hours are 3 working days"


def talk(arguments: Sequence[str] | None = None) -> int:
    """`glassloop run` or `glassloop chat` on this example, or the loop by hand; the exit code.

    Args:
        arguments: see `--help`; default those of this process. Without a question the lines of standard input are the
            conversation, and where there are none `QUESTION` is asked.
    """
    parser = argparse.ArgumentParser(prog="python -m examples.research", description=__doc__, allow_abbrev=False)
    parser.add_argument("question", nargs="*", metavar="QUESTION", help=f"e.g. {QUESTION}")
    parser.add_argument("--trace", action="store_true", help="a line for each thought, action and observation")
    parser.add_argument("--session", metavar="NAME", help="go on with a conversation")
    parser.add_argument("--manual", action="store_true", help="answer one question with the loop written by hand")
    parser.add_argument("--no-tools", action="store_true", help="with --manual: leave out the list of tools")
    given = parser.parse_args(arguments)
    question = " ".join(given.question).strip()
    if given.manual:
        return by_hand(question or QUESTION, given.session, tools=not given.no_tools)
    options = [*(["--trace"] if given.trace else []), *(["--session", given.session] if given.session else [])]
    place = os.path.relpath(Path(__file__).parent)
    if not question and somebody_talks():
        return main(["chat", *options, place])
    return main(["run", *options, "--", place, question or QUESTION])


def somebody_talks() -> bool:
    """Whether standard input is a terminal or has something in it."""
    given = cast("io.BufferedReader", sys.stdin.buffer)
    return sys.stdin.isatty() or bool(given.peek(1))


def by_hand(question: str, session: str | None, *, tools: bool) -> int:
    """Answer one question with the loop of manual.py, showing its calls; the exit code."""

    async def answer() -> None:
        async with open_configured(None, DEFAULT_STORE) as store:
            model, who = resolve_model(chosen.model), Identity(session=session)
            turn = await converse(question, agent, store, who=who, model=model, tools=tools)
        for call, result in turn.calls:
            print(f"{call.name}({call.arguments}) -> {result.content}")
        print(turn.answer)

    try:
        with STAND_IN.choose() as chosen:
            say(chosen.note)
            asyncio.run(answer())
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - the edge of the program: one sentence for everything
        return report(error)
    return OK


if __name__ == "__main__":
    sys.exit(talk())
