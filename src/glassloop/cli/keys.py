"""`glassloop keys`: API keys for `glassloop serve`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from glassloop.cli import options
from glassloop.cli.problems import OK, say

DEFAULT_FILE = Path("glassloop-keys.jsonl")

_NEW = """\b
Examples:
  glassloop keys new --user ann
  glassloop keys new --user sam --role supervisor --tenant acme --keys /etc/glassloop/keys.jsonl
"""

keys = typer.Typer(help="Make API keys for the server.", epilog=_NEW, no_args_is_help=True, rich_markup_mode=None)


@keys.callback()
def group() -> None:
    """Make API keys for the server."""


@keys.command(epilog=_NEW)
def new(
    user: Annotated[str, typer.Option("--user", metavar="NAME", help="On whose behalf the key acts.")],
    role: Annotated[list[str] | None, typer.Option("--role", metavar="ROLE", help="A role; repeatable.")] = None,
    tenant: Annotated[str, typer.Option("--tenant", metavar="NAME", help="Of which tenant.")] = "default",
    keys: Annotated[
        Path, typer.Option("--keys", metavar="FILE", envvar="GLASSLOOP_KEYS", help="The file that gets its hash.")
    ] = DEFAULT_FILE,
    json: options.Json = False,
    debug: options.Debug = False,
) -> int:
    """Print a fresh key, once, and append its hash to the file."""
    import sys

    from glassloop.cli.output import print_json
    from glassloop.server.keys import new_key

    key = new_key(keys, user, tenant, role or ())
    if json:
        print_json({"key": key, "user": user, "tenant": tenant, "roles": role or [], "file": str(keys)})
    else:
        sys.stdout.write(f"{key}\n")
    say(
        f"Its hash is in {keys}; the key itself cannot be shown again. A server that runs reads it when it starts anew."
    )
    return OK
