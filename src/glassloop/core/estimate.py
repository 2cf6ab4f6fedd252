"""How many tokens a text is, as far as that can be said without the model's own tokenizer."""

from __future__ import annotations

from glassloop.core.messages import Reply

BYTES_PER_TOKEN = 3
"""Conservative for English (about 4) and about right for Chinese (one character, three bytes, one token)."""


def text_tokens(text: str) -> int:
    """Estimated tokens of a text."""
    size = len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
    return 4 + size // BYTES_PER_TOKEN


def written_tokens(reply: Reply) -> int:
    """Estimated tokens of what a reply says, as far as it can be read."""
    return text_tokens(reply.text + reply.thinking + "".join(call.name + call.arguments for call in reply.calls))
