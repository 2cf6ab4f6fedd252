"""`glassloop ingest`: files into knowledge."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from glassloop.cli import options

EXAMPLES = """\b
Examples:
  glassloop ingest docs
  glassloop ingest handbook.pdf faq.md prices.csv --collection shop
  glassloop ingest docs --prune --store postgresql://localhost/knowledge
"""


def ingest(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="PATH", help="Files and folders: Markdown, text, HTML, PDF, DOCX, CSV.", show_default=False
        ),
    ],
    collection: options.Collection = options.DEFAULT_COLLECTION,
    root: Annotated[
        Path | None,
        typer.Option(
            "--root",
            metavar="FOLDER",
            help="Name sources by their path below it. Default: the folder that each PATH is in.",
        ),
    ] = None,
    prune: Annotated[
        bool, typer.Option("--prune", help="Remove sources of these folders whose file is there no longer.")
    ] = False,
    json: options.Json = False,
    store: options.KnowledgeStore = options.DEFAULT_STORE,
    no_color: options.NoColor = False,
    debug: options.Debug = False,
) -> int:
    """Put files into knowledge, for agents to look things up in.

    Files that are as before are skipped, a changed file replaces its passages. A file that cannot be read is named and
    the others go in. Exit code: 0 all are in, 3 some were skipped, 1 none could be loaded.
    """
    from dataclasses import asdict

    from glassloop.cli.ingesting import code_of, ingest_files, print_report
    from glassloop.cli.output import print_json

    report = ingest_files(store, collection, paths, root=root, prune=prune, no_color=no_color)
    code = code_of(report)
    if json:
        print_json({"collection": collection, **asdict(report), "exit_code": code})
    else:
        print_report(report)
    return code
