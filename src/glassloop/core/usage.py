"""What model calls consumed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one reply, or of many added together.

    `cached` and `cache_write` are part of `input`; `reasoning` is part of `output`, whatever the provider's
    own convention is (each provider file converts). `unreported` counts the requests whose server gave no
    usage at all: a total with `unreported > 0` is a lower bound, not zero.
    """

    input: int = 0
    output: int = 0
    cached: int = 0
    cache_write: int = 0
    reasoning: int = 0
    requests: int = 0
    unreported: int = 0

    @property
    def total(self) -> int:
        """Tokens in and out."""
        return self.input + self.output

    @property
    def known(self) -> bool:
        """Whether every request counted here reported its usage."""
        return self.requests > 0 and self.unreported == 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input + other.input,
            self.output + other.output,
            self.cached + other.cached,
            self.cache_write + other.cache_write,
            self.reasoning + other.reasoning,
            self.requests + other.requests,
            self.unreported + other.unreported,
        )


@dataclass(frozen=True, slots=True)
class Spent:
    """What some runs have spent, with what is set aside for calls in flight.

    Args:
        tokens: input and output.
        cost_usd: US dollars; None where a price is unknown.
        steps: model calls.
    """

    tokens: int = 0
    cost_usd: float | None = 0.0
    steps: int = 0

    def __add__(self, other: Spent) -> Spent:
        unknown = self.cost_usd is None or other.cost_usd is None
        cost = None if unknown else (self.cost_usd or 0.0) + (other.cost_usd or 0.0)
        return Spent(self.tokens + other.tokens, cost, self.steps + other.steps)
