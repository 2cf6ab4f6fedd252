"""What a run may still take from what its whole tree may spend.

The runs of a tree spend from the limits of its root. What they have spent and set aside is read from their states: a
model call counts with its reservation from the moment it is recorded until it is answered.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from glassloop.core.limits import DEFAULT_COST_USD, Limits
from glassloop.core.usage import Spent
from glassloop.journal.state import State

Rates = tuple[float, float] | None


@dataclass(frozen=True, slots=True)
class Allowance:
    """What is left of a root's limits for one of its runs; None: no bound.

    Args:
        tokens: for the next call, input and output.
        cost_usd: US dollars for the next call.
        steps: model calls.
        spent: by the whole tree, for messages.
        limits: of the root.
    """

    tokens: int | None
    cost_usd: float | None
    steps: int | None
    spent: Spent
    limits: Limits


def spent_by(state: State, rates: Rates) -> Spent:
    """What a run has spent and set aside."""
    spent = Spent(state.tokens, state.cost_usd, state.step)
    if state.asking is None:
        return spent
    asked = state.asking
    cost = 0.0 if rates is None else (asked.reserved - asked.max_tokens) * rates[0] + asked.max_tokens * rates[1]
    return spent + Spent(asked.reserved, cost)


def allowance_of(limits: Limits, spent: Iterable[Spent]) -> Allowance:
    """What is left of `limits` after what all runs of the tree have spent."""
    total = Spent()
    for each in spent:
        total += each
    most = money_limit(limits)
    return Allowance(
        tokens=None if limits.total_tokens is None else limits.total_tokens - total.tokens,
        cost_usd=None if most is None or total.cost_usd is None else most - total.cost_usd,
        steps=None if limits.steps is None else limits.steps - total.steps,
        spent=total,
        limits=limits,
    )


def money_limit(limits: Limits) -> float | None:
    """The most that may be spent, in USD, where the price is known."""
    return DEFAULT_COST_USD if limits.cost_usd == "default" else limits.cost_usd
