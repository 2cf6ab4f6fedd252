"""Limits and reservations: no model call starts whose reservation does not fit."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

from glassloop.core.estimate import BYTES_PER_TOKEN, text_tokens, written_tokens
from glassloop.core.messages import Media, Message, Reply, SystemMessage, ToolResult
from glassloop.core.usage import Spent
from glassloop.journal.allowance import Allowance, money_limit
from glassloop.journal.state import State
from glassloop.journal.view import SummaryWanted, View
from glassloop.tools.output import Output

TOKENS_PER_IMAGE = 1_600
SMALLEST_REPLY = 16
SMALLEST_SUMMARY = 128


@dataclass(slots=True)
class Terms:
    """What a decision needs beside the state.

    Args:
        now: UTC milliseconds.
        head_bytes: size of instructions and tool list.
        rates: USD per input token and per output token; None where the price is unknown.
        model: the model's name, for messages.
        undoable: names of the tools that have an undo.
        sequential: names of the tools that run alone.
        view: what the next request shows; None for the whole conversation.
        left: what the run's tree leaves it; None where the run is all there is.
        output: the gate that answers pass, where the agent has an output type.
        tools: names of the tools on offer.
        switches: whether tools are to travel as a JSON Schema once the model has written a call as text.
    """

    now: int
    head_bytes: int = 0
    rates: tuple[float, float] | None = None
    model: str = ""
    undoable: frozenset[str] = frozenset()
    sequential: frozenset[str] = frozenset()
    view: View | None = None
    left: Allowance | None = None
    output: Output[Any] | None = None
    tools: Collection[str] = ()
    switches: bool = False


@dataclass(slots=True)
class Budget:
    """What the next model call may take.

    Args:
        needed: tokens that it will cost to read.
        tokens: tokens left for the reply by the token limit, None where there is none.
        most: tokens that a reply may have at all.
        max_tokens: room for the reply, clamped to what is left.
    """

    needed: int
    tokens: int | None
    most: int
    max_tokens: int

    @property
    def fits(self) -> bool:
        """Whether a reply of any use fits."""
        return self.max_tokens >= min(SMALLEST_REPLY, self.most)


def budget_of(state: State, terms: Terms) -> Budget:
    """The budget of the next model call."""
    needed = estimate_input(state, terms)
    tokens, money = _left(state, terms)
    return _budget(needed, state.limits.output_tokens, tokens, money, terms.rates)


def summary_budget(state: State, terms: Terms, wanted: SummaryWanted) -> Budget | None:
    """The budget of a summary; None where it would take the step, or the room for a reply, that the run needs."""
    limits, left, answer = state.limits, terms.left, budget_of(state, terms)
    steps = _least(None if limits.steps is None else limits.steps - state.step, None if left is None else left.steps)
    rates = wanted.prices.rates if wanted.prices else terms.rates
    if (steps is not None and steps < 2) or _unknown_price(state, replace(terms, rates=rates)) is not None:
        return None
    needed = text_tokens(wanted.instructions) + sum(map(message_tokens, wanted.messages))
    tokens, money = _left(state, terms)
    if tokens is not None:
        tokens -= answer.needed + SMALLEST_REPLY
    if money is not None and terms.rates is not None:
        money -= answer.needed * terms.rates[0] + SMALLEST_REPLY * terms.rates[1]
    budget = _budget(needed, min(wanted.most, limits.output_tokens), tokens, money, rates)
    return budget if budget.max_tokens >= min(SMALLEST_SUMMARY, budget.most) else None


def _left(state: State, terms: Terms) -> tuple[int | None, float | None]:
    """Tokens and money that are left; None where there is no limit, or what was spent is unknown."""
    total, most = state.limits.total_tokens, money_limit(state.limits)
    tokens = None if total is None else total - state.tokens
    money = None if most is None or state.cost_usd is None else most - state.cost_usd
    if terms.left is None:
        return tokens, money
    return _least(tokens, terms.left.tokens), _least(money, terms.left.cost_usd)


def _least(one: Any, other: Any) -> Any:
    return one if other is None else other if one is None else min(one, other)


def _budget(
    needed: int, most: int, tokens: int | None, money: float | None, rates: tuple[float, float] | None
) -> Budget:
    room, left = most, None
    if tokens is not None:
        left = tokens - needed
        room = min(room, left)
    if money is not None and rates is not None and rates[1] > 0:
        room = min(room, int((money - needed * rates[0]) / rates[1]))
    return Budget(needed, left, most, room)


def over_limit(state: State, terms: Terms, budget: Budget) -> tuple[str, str] | None:
    """The limit that forbids another model call and a sentence about it; None where there is room."""
    limits, left = state.limits, terms.left
    if limits.steps is not None and state.step >= limits.steps:
        return "steps", f"The run used its {limits.steps} steps without finishing."
    if left is not None and left.steps is not None and left.steps <= 0:
        return "steps", f"The run and those it belongs to used their {left.limits.steps} steps without finishing."
    if limits.seconds is not None and state.active_ms + terms.now - state.last_at >= limits.seconds * 1000:
        return "seconds", f"The run used its {limits.seconds:g} seconds without finishing."
    limit = _unknown_price(state, terms)
    if limit is not None:
        return "cost_usd", (
            f"The price of {terms.model or 'the model'} is unknown, so the limit of {limit:g} USD cannot be "
            "kept: give ModelSettings(price=(input, output)) in USD per million tokens, or set cost_usd=None."
        )
    if not budget.fits and budget.tokens == budget.max_tokens:
        spent, most, who = _spent_of(state, left, limits.total_tokens, "total_tokens")
        return "total_tokens", f"{who} used {spent.tokens:,} of {most:,} tokens, and the next model call does not fit."
    if not budget.fits:
        spent, most, who = _spent_of(state, left, money_limit(limits), "cost_usd")
        return (
            "cost_usd",
            f"{who} spent {spent.cost_usd or 0:.4f} of {most:g} USD, and the next model call does not fit.",
        )
    return None


def _unknown_price(state: State, terms: Terms) -> float | None:
    """The money limit that cannot be kept, since a price is unknown."""
    for limit, cost in (
        (state.limits.cost_usd, state.cost_usd),
        (terms.left.limits.cost_usd, terms.left.spent.cost_usd) if terms.left else (None, None),
    ):
        if isinstance(limit, int | float) and (terms.rates is None or cost is None):
            return limit
    return None


def _spent_of(state: State, left: Allowance | None, own: float | None, name: str) -> tuple[Spent, float, str]:
    """What was spent of which limit by whom: the limit that leaves less."""
    spent = Spent(state.tokens, state.cost_usd, state.step)
    if left is None:
        return spent, own or 0, "The run"
    most = left.limits.total_tokens if name == "total_tokens" else money_limit(left.limits)
    rest = left.tokens if name == "total_tokens" else left.cost_usd
    used = spent.tokens if name == "total_tokens" else spent.cost_usd or 0
    if most is None or rest is None or (own is not None and own - used < rest):
        return spent, own or 0, "The run"
    return left.spent, most, "The run and those it belongs to"


def estimate_input(state: State, terms: Terms) -> int:
    """Tokens that the next request will cost to read.

    The last reply's own usage is the best base; what came after it, or everything before the first reply, is estimated
    from its bytes. Under a view it is a base only where the view goes on from what that reply has read.
    """
    if terms.view is not None:
        return _estimate_view(state, terms, terms.view)
    conversation, tokens = state.conversation, 0
    for position in range(len(conversation) - 1, -1, -1):
        message = conversation[position]
        if isinstance(message, Reply) and message.usage.input and position >= state.history_length:
            return tokens + message.usage.total
        tokens += message_tokens(message)
    return tokens + terms.head_bytes // BYTES_PER_TOKEN


def _estimate_view(state: State, terms: Terms, view: View) -> int:
    beyond = view.beyond(state.answered.view) if state.answered else None
    if beyond and beyond[0] is state.replies[-1] and state.replies[-1].usage.input:
        return state.replies[-1].usage.total + sum(map(message_tokens, beyond[1:]))
    return sum(map(message_tokens, view.messages)) + terms.head_bytes // BYTES_PER_TOKEN


def message_tokens(message: Message) -> int:
    """Estimated tokens of one message."""
    if isinstance(message, ToolResult):
        return text_tokens(message.content) + TOKENS_PER_IMAGE * len(message.media)
    if isinstance(message, Reply):
        return message.usage.output or written_tokens(message)
    if isinstance(message, SystemMessage):
        return text_tokens(message.text)
    if isinstance(message.content, str):
        return text_tokens(message.content)
    return sum(TOKENS_PER_IMAGE if isinstance(part, Media) else text_tokens(part.text) for part in message.content)
