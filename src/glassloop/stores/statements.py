"""A tool's own statements in the transaction that its result is recorded in: what every SQL store refuses alike."""

from __future__ import annotations

import re

NOT_YOURS = "The transaction is not yours to begin or end: its result is recorded in it too."
"""What is said to a tool that tries."""


class StatementError(Exception):
    """A tool's own statement is wrong or breaks a constraint; `__cause__` is the database's error."""


_BEGINS_OR_ENDS = re.compile(
    r"(?is)(?:\s|--[^\n]*\n|/\*.*?\*/)*"  # comments come before
    r"(?:BEGIN|START\s+TRANSACTION|COMMIT|END|ABORT|PREPARE\s+TRANSACTION|ROLLBACK(?!\s+(?:(?:WORK|TRANSACTION)\s+)?TO\b))\b"
)


def begins_or_ends(statement: str) -> bool:
    """Whether a statement begins or ends a transaction; savepoints in it do not."""
    return _BEGINS_OR_ENDS.match(statement) is not None
