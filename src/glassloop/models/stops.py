"""Why a reply ended, in the words of every server: gateways pass on those of the server behind them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from glassloop.core.errors import ModelError
from glassloop.core.messages import StopReason
from glassloop.models.failures import Peer

_STOPS: Mapping[str, StopReason] = {
    "stop": "stop",
    "eos": "stop",
    "end_turn": "stop",
    "tool_calls": "stop",
    "tool_use": "stop",
    "function_call": "stop",
    "stop_sequence": "stop",
    "length": "length",
    "max_tokens": "length",
    "model_length": "length",
    "model_context_window_exceeded": "length",
    "content_filter": "content_filter",
    "content_filtered": "content_filter",
    "guardrail_intervened": "content_filter",
    "safety": "content_filter",
    "sensitive": "content_filter",
    "recitation": "content_filter",
    "prohibited_content": "content_filter",
    "blocklist": "content_filter",
    "spii": "content_filter",
    "refusal": "refusal",
    "pause_turn": "paused",
}
_CALLING = frozenset({"tool_calls", "tool_use", "function_call"})
_FAILED = frozenset({"abort", "aborted", "cancelled", "error", "insufficient_system_resource", "network_error"})
_MALFORMED = frozenset({"malformed_function_call", "unexpected_tool_call"})
_NOT_YET = frozenset({"null", "none"})


def is_end(word: Any) -> bool:
    """Whether a reason says that the reply has ended: neither nothing nor the word for it, as DashScope writes it."""
    return bool(word) and _plain(str(word)) not in _NOT_YET


def graver(before: str, word: str) -> str:
    """Of two reasons for one reply the one that counts: that it ended naturally takes no other reason back."""
    return before if before and _STOPS.get(_plain(word)) == "stop" else word


def stop_reason(word: str, peer: Peer, *, called: bool, offered: bool) -> StopReason:
    """What a server's word means.

    Args:
        word: as the server wrote it; Gemini's may follow a class of reasons and a colon.
        peer: who answered, for the error's message.
        called: whether the reply calls a tool.
        offered: whether there were tools to call.

    Raises:
        ModelError: the server failed (`overloaded`), or could not read the call that its model wrote (`bad_tool_call`).
    """
    plain = _plain(word)
    if plain in _FAILED:
        raise ModelError(f"{peer.host} gave up on its answer ({word}).", kind="overloaded")
    if plain in _MALFORMED:
        text = f"The model wrote a tool call that its own server rejected ({peer.host}): {word}"
        raise ModelError(text, kind="bad_tool_call")
    if plain in _CALLING and offered and not called:
        return "no_calls"
    return _STOPS.get(plain, "unknown")


def _plain(word: str) -> str:
    return word.rpartition(":")[2].strip().lower()
