"""Contents by digest in a SQLite store, each once, and which run holds which."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping


def keep_blobs(run_id: str, blobs: Mapping[str, bytes], cursor: sqlite3.Cursor) -> None:
    """Store contents, each once, and note that the run holds them."""
    cursor.executemany("INSERT OR IGNORE INTO glassloop_blobs VALUES (?, ?)", list(blobs.items()))
    cursor.executemany(
        "INSERT OR IGNORE INTO glassloop_run_blobs VALUES (?, ?)", [(run_id, digest) for digest in blobs]
    )
