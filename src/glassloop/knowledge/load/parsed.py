"""What a format's parser gives."""

from __future__ import annotations

from typing import NamedTuple

from glassloop.knowledge.documents import Section


class Parsed(NamedTuple):
    """A file's content.

    Args:
        title: what it calls itself; None if it does not say.
        sections: its text in reading order.
    """

    title: str | None
    sections: tuple[Section, ...]
