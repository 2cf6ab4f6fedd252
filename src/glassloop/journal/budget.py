"""Limits and reservations: no model call starts whose reservation does not fit."""

from __future__ import annotations

from dataclasses import dataclass

from glassloop.core.limits import DEFAULT_COST_USD
from glassloop.core.messages import Media, Message, Reply, SystemMessage, ToolResult
from glassloop.journal.state import State

BYTES_PER_TOKEN = 3
"""Conservative for English (about 4) and about right for Chinese (one character, three bytes, one token)."""

TOKENS_PER_IMAGE = 1_600
SMALLEST_REPLY = 16


@dataclass(frozen=True, slots=True)
class Terms:
    """What a decision needs beside the state.

    Args:
        now: UTC milliseconds.
        head_bytes: size of instructions and tool list.
        rates: USD per input token and per output token; None where the price is unknown.
        model: the model's name, for messages.
        undoable: names of the tools that have an undo.
    """

    now: int
    head_bytes: int = 0
    rates: tuple[float, float] | None = None
    model: str = ""
    undoable: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Budget:
    """What the next model call may take.

    Args:
        needed: tokens that it will cost to read.
        tokens: tokens left for the reply by the token limit, None where there is none.
        affordable: tokens left for the reply by the money limit, None where there is none.
        most: tokens that a reply may have at all.
    """

    needed: int
    tokens: int | None
    affordable: int | None
    most: int

    @property
    def max_tokens(self) -> int:
        """Room for the reply, clamped to what is left."""
        return min(self.most, *(self.most if room is None else room for room in (self.tokens, self.affordable)))

    @property
    def fits(self) -> bool:
        """Whether a reply of any use fits."""
        return self.max_tokens >= min(SMALLEST_REPLY, self.most)


def budget_of(state: State, terms: Terms) -> Budget:
    """The budget of the next model call."""
    limits, needed = state.limits, estimate_input(state, terms)
    tokens = None if limits.total_tokens is None else limits.total_tokens - state.usage.total - needed
    affordable, most = None, _money_limit(state)
    if most is not None and terms.rates is not None and state.cost_usd is not None and terms.rates[1] > 0:
        affordable = int((most - state.cost_usd - needed * terms.rates[0]) / terms.rates[1])
    return Budget(needed, tokens, affordable, limits.output_tokens)


def over_limit(state: State, terms: Terms, budget: Budget) -> tuple[str, str] | None:
    """The limit that forbids another model call and a sentence about it; None where there is room."""
    limits = state.limits
    if limits.steps is not None and state.step >= limits.steps:
        return "steps", f"The run used its {limits.steps} steps without finishing."
    if limits.seconds is not None and state.active_ms + terms.now - state.last_at >= limits.seconds * 1000:
        return "seconds", f"The run used its {limits.seconds:g} seconds without finishing."
    if isinstance(limits.cost_usd, int | float) and (terms.rates is None or state.cost_usd is None):
        return "cost_usd", (
            f"The price of {terms.model or 'the model'} is unknown, so the limit of {limits.cost_usd:g} USD cannot be "
            "kept: give ModelSettings(price=(input, output)) in USD per million tokens, or set cost_usd=None."
        )
    if not budget.fits and budget.tokens == budget.max_tokens:
        return "total_tokens", (
            f"The run used {state.usage.total:,} of its {limits.total_tokens:,} tokens, "
            "and the next model call does not fit."
        )
    if not budget.fits:
        return "cost_usd", (
            f"The run spent {state.cost_usd or 0:.4f} of its {_money_limit(state):g} USD, "
            "and the next model call does not fit."
        )
    return None


def estimate_input(state: State, terms: Terms) -> int:
    """Tokens that the next request will cost to read.

    The last reply's own usage is the best base; what came after it, or everything before the first reply, is estimated
    from its bytes.
    """
    conversation, tokens = state.conversation, 0
    for position in range(len(conversation) - 1, -1, -1):
        message = conversation[position]
        if isinstance(message, Reply) and message.usage.input and position >= state.history_length:
            return tokens + message.usage.total
        tokens += message_tokens(message)
    return tokens + terms.head_bytes // BYTES_PER_TOKEN


def message_tokens(message: Message) -> int:
    """Estimated tokens of one message."""
    if isinstance(message, ToolResult):
        return _text_tokens(message.content) + TOKENS_PER_IMAGE * len(message.media)
    if isinstance(message, Reply):
        written = message.text + message.thinking + "".join(call.name + call.arguments for call in message.calls)
        return message.usage.output or _text_tokens(written)
    if isinstance(message, SystemMessage):
        return _text_tokens(message.text)
    if isinstance(message.content, str):
        return _text_tokens(message.content)
    return sum(TOKENS_PER_IMAGE if isinstance(part, Media) else _text_tokens(part.text) for part in message.content)


def _text_tokens(text: str) -> int:
    size = len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
    return 4 + size // BYTES_PER_TOKEN


def _money_limit(state: State) -> float | None:
    return DEFAULT_COST_USD if state.limits.cost_usd == "default" else state.limits.cost_usd
