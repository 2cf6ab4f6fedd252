"""Plain text: one section."""

from __future__ import annotations

from glassloop.knowledge.documents import Section
from glassloop.knowledge.load.decode import decode
from glassloop.knowledge.load.parsed import Parsed


def parse(data: bytes) -> Parsed:
    """All of the text, with the lines of the file."""
    return Parsed(None, (Section(decode(data), line=1, verbatim=True),))
