"""Identifiers of our own: sortable by time, unique between processes, legal on every provider's wire."""

from __future__ import annotations

import os
import time

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"


def new_id(prefix: str) -> str:
    """A fresh id such as `run_01jd3x7k2m9q4v8c5t6w0n1z`: 48 bits of UTC milliseconds, then 72 random bits."""
    number = (time.time_ns() // 1_000_000 << 72) | int.from_bytes(os.urandom(9))
    return f"{prefix}_{''.join(_ALPHABET[number >> shift & 31] for shift in range(115, -1, -5))}"
