"""`glassloop knowledge`: what was ingested."""

from __future__ import annotations

from typing import Annotated

import typer

from glassloop.cli import options
from glassloop.cli.problems import OK, Problem, UsageProblem

_GROUP = """\b
Examples:
  glassloop knowledge list
  glassloop knowledge search "How long does a refund take?"
  glassloop knowledge remove docs/refund.md
"""

_LIST = """\b
Examples:
  glassloop knowledge list
  glassloop knowledge list --collection shop --json
"""

_SEARCH = """\b
Examples:
  glassloop knowledge search "How long does a refund take?"
  glassloop knowledge search 退款 --collection shop --limit 3
"""

_REMOVE = """\b
Examples:
  glassloop knowledge remove docs/refund.md
  glassloop knowledge remove prices.csv --collection shop
"""

knowledge = typer.Typer(
    help="List, search and remove what was ingested.",
    epilog=_GROUP,
    no_args_is_help=True,
    rich_markup_mode=None,
)


@knowledge.command("list", epilog=_LIST)
def list_(
    collection: options.Collection = options.DEFAULT_COLLECTION,
    json: options.Json = False,
    store: options.KnowledgeStore = options.DEFAULT_STORE,
    debug: options.Debug = False,
) -> int:
    """List the documents of a collection."""
    from dataclasses import asdict

    from glassloop.cli.knowing import list_sources, print_sources
    from glassloop.cli.output import print_json, write

    sources, collections = list_sources(store, collection)
    if json:
        print_json([asdict(source) for source in sources])
    elif sources:
        print_sources(sources)
    else:
        others = f" There are {', '.join(map(repr, collections))}." if collections else ""
        write(f"No documents in collection {collection!r}.{others}\n")
    return OK


@knowledge.command(epilog=_SEARCH)
def search(
    query: Annotated[str, typer.Argument(metavar="QUERY", help="Words, or a question.")],
    collection: options.Collection = options.DEFAULT_COLLECTION,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, help="At most so many passages.")] = 5,
    json: options.Json = False,
    store: options.KnowledgeStore = options.DEFAULT_STORE,
    no_color: options.NoColor = False,
    debug: options.Debug = False,
) -> int:
    """Search as an agent does: passages, best first, each with its source and place.

    Where another source says otherwise, the passage is marked.
    """
    from glassloop.cli.knowing import find, hit_as_dict, print_hits
    from glassloop.cli.output import print_json, use_colour, write

    wanted = query.encode("utf-8", "replace").decode()
    if not wanted.strip():
        raise UsageProblem("The query is empty.")
    hits = find(store, collection, wanted, limit)
    if json:
        print_json([hit_as_dict(hit) for hit in hits])
    elif hits:
        print_hits(hits, wanted, colour=use_colour(no_color))
    else:
        write(f"Nothing found for {wanted!r} in collection {collection!r}.\n")
    return OK


@knowledge.command(epilog=_REMOVE)
def remove(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="As `glassloop knowledge list` names it.")],
    collection: options.Collection = options.DEFAULT_COLLECTION,
    json: options.Json = False,
    store: options.KnowledgeStore = options.DEFAULT_STORE,
    debug: options.Debug = False,
) -> int:
    """Remove a document from a collection. Its file stays."""
    from glassloop.cli.knowing import forget
    from glassloop.cli.output import print_json, write

    passages, sources = forget(store, collection, source)
    if not passages:
        raise Problem(_unknown(source, collection, sources))
    if json:
        print_json({"collection": collection, "source": source, "passages_removed": passages})
    else:
        write(f"Removed {source} ({passages:,} passage{'s' * (passages > 1)}).\n")
    return OK


def _unknown(source: str, collection: str, sources: list[str]) -> str:
    from difflib import get_close_matches

    close = get_close_matches(source, sources, n=1)
    near = f" Did you mean {close[0]!r}?" if close else " `glassloop knowledge list` shows those that there are."
    return f"There is no document {source!r} in collection {collection!r}.{near}"
