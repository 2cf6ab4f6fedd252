"""Identifiers of our own: sortable by time, unique between processes, legal on every provider's wire."""

from __future__ import annotations

import os
import time


def new_id(prefix: str) -> str:
    """A fresh id such as `run_019acf3e07f2b81d5c60a94e`: 48 bits of UTC milliseconds, then 48 random bits, in hex."""
    return f"{prefix}_{time.time_ns() // 1_000_000:012x}{os.urandom(6).hex()}"
