"""Identifiers of our own: sortable by time, unique between processes, legal on every provider's wire."""

from __future__ import annotations

import os
import re
import time

from glassloop.core.encoding import digest

_FRESH = re.compile(r"\b([a-z]+_)[0-9a-f]{24}\b")


def new_id(prefix: str) -> str:
    """A fresh id such as `run_019acf3e07f2b81d5c60a94e`: 48 bits of UTC milliseconds, then 48 random bits, in hex."""
    return f"{prefix}_{time.time_ns() // 1_000_000:012x}{os.urandom(6).hex()}"


def child_id(parent: str, key: str) -> str:
    """The id of a run that another one begins: the same for the same key, so that it exists once; it sorts after its
    parent and before the next run, and begins with the root's id."""
    return f"{parent}.{digest(key.encode())[:10]}"


def without_ids(text: str) -> str:
    """A text with all fresh ids alike, to tell whether two say the same."""
    return _FRESH.sub(r"\1", text)


def root_of(run_id: str) -> str:
    """The id of the run that a run's tree begins with; its own where it is nobody's child."""
    return run_id.partition(".")[0]
