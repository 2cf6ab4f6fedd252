"""`glassloop`: the commands, and what happens when one of them fails."""

from __future__ import annotations

import codecs
import os
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, Any

import typer

from glassloop.cli import chat, doctor, ingest, run, serve
from glassloop.cli.keys import keys
from glassloop.cli.knowledge import knowledge
from glassloop.cli.problems import CANCELLED, OK, json_printed, leave_at_once, report
from glassloop.cli.runs import runs

_HELP = """Run agents, and look into every run.

\b
Exit codes: 0 completed, 1 failed (run, configuration or store), 2 wrong command line, 3 not completed (a limit, cut
off, refused, filtered, unanswered, partly rolled back), 4 waiting for approval, 130 cancelled.

\b
Examples:
  glassloop run examples/minimal.py:agent "Which is hotter, Beijing or Shanghai?" --trace
  glassloop chat examples/mini.py:agent
  glassloop runs list
  glassloop doctor
"""

app = typer.Typer(
    name="glassloop",
    help=_HELP,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)
app.command(epilog=run.EXAMPLES)(run.run)
app.command(epilog=chat.EXAMPLES)(chat.chat)
app.add_typer(runs, name="runs")
app.command(epilog=serve.EXAMPLES)(serve.serve)
app.add_typer(keys, name="keys")
app.command(epilog=ingest.EXAMPLES)(ingest.ingest)
app.add_typer(knowledge, name="knowledge")
app.command(epilog=doctor.EXAMPLES)(doctor.doctor)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code; after Ctrl-C it ends the process where a thread would hold it.

    Args:
        arguments: without the program's name; default those of this process.
    """
    code = _run(list(sys.argv[1:] if arguments is None else arguments))
    if code == CANCELLED and _held_up():
        leave_at_once(code)
    return code


def _run(words: list[str]) -> int:
    _prepare_streams()
    printed = json_printed()
    try:
        code = typer.main.get_command(app).main(words, prog_name="glassloop", standalone_mode=False)
        sys.stdout.flush()
        if code == CANCELLED and json_printed() == printed:  # typer has caught the interrupt
            raise KeyboardInterrupt
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - the edge of the program: one sentence for everything
        return report(error, debug="--debug" in words, json="--json" in words)
    return code if isinstance(code, int) else OK


def _held_up() -> bool:
    """Whether Python would wait for a thread at its end, e.g. for a tool in `asyncio.to_thread` that sleeps on."""
    from glassloop.cli.background import THREAD

    others = (thread for thread in threading.enumerate() if thread is not threading.main_thread())
    return any(thread.name == THREAD or not thread.daemon for thread in others)


def _prepare_streams() -> None:
    """Let no closed stream end the program, and no character that the terminal cannot show, or that is not text."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 - until the program ends
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        reconfigure: Any = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            plain = stream is sys.stdin and codecs.lookup(stream.encoding).name == "ascii"
            with suppress(OSError):  # an input that was read from already stays as it is
                reconfigure(encoding="utf-8" if plain else None, errors="replace")  # what else could it be


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        sys.stdout.write(f"glassloop {version('glassloop')}\n")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    """What comes before the command."""
