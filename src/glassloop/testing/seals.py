"""Signed thinking: how a stand-in notices that its thinking came back changed, as Anthropic's servers do."""

from __future__ import annotations

import base64
import time
from collections.abc import Mapping
from typing import Any

from glassloop.core.encoding import digest
from glassloop.core.messages import Thinking

_clock = 0


class Seals:
    """Signs thinking blocks and checks those that come back.

    A signature holds the order in which the block was given and a digest of its text, so that it can be checked by
    another process as well: a stored session outlives the server that spoke in it.
    """

    def __init__(self) -> None:
        self._given: dict[str, tuple[str, int]] = {}

    def seal(self, thought: Thinking) -> dict[str, Any]:
        """The block to send for `thought`; a signature or redacted content of its own is kept and remembered."""
        order = _tick()
        if thought.redacted is not None:
            self._given[thought.redacted] = ("", order)
            return {"type": "redacted_thinking", "data": thought.redacted}
        signature = thought.signature or _sign(thought.text, order)
        self._given[signature] = (thought.text, order)
        return {"type": "thinking", "thinking": thought.text, "signature": signature}

    def order(self, block: Mapping[str, Any]) -> int | None:
        """When the block was given, as a number that only grows; None if it was not given like this."""
        redacted = block.get("type") == "redacted_thinking"
        seal, text = str(block.get("data" if redacted else "signature")), "" if redacted else block.get("thinking")
        if seal in self._given:
            given, order = self._given[seal]
            return order if given == text else None
        return _verify(seal, str(text))


def _tick() -> int:
    global _clock
    _clock = max(_clock + 1, time.time_ns())
    return _clock


def _sign(text: str, order: int) -> str:
    return base64.b64encode(f"{order:x}.{digest(f'{order:x}.{text}'.encode())}".encode()).decode()


def _verify(signature: str, text: str) -> int | None:
    try:
        order, _, _ = base64.b64decode(signature, validate=True).decode().partition(".")
        return int(order, 16) if _sign(text, int(order, 16)) == signature else None
    except ValueError:
        return None
