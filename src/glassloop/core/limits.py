"""What stops a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

OnLimit = Literal["raise", "answer", "return"]

DEFAULT_COST_USD = 1.00
"""Applies where the price of the model is known; a limit that the user sets applies always."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one run, sub-runs included; `None` lifts a bound.

    Args:
        steps: model calls, nudges and summaries included.
        total_tokens: input + output tokens of all model calls. Checked before a call is paid for: a call
            whose estimated input plus reserved output does not fit is not made. Where a server reports no usage, an
            estimate counts.
        seconds: wall-clock time of the run, without the time it was parked or asked a human at hand; the call in flight
            is cancelled.
        cost_usd: money, in US dollars. Left alone it is 1.00 where the model's price is known and nothing
            where it is not; set by you, an unknown price stops the run with a message that says so.
        calls_per_tool: how often each named tool may be called in the run, e.g. `{"send_mail": 3}`.
        calls_per_step: tool calls of one reply that are run; a reply with more is cut to this many.
        repetition: the same call with the same result this often, or a few calls in turn: the model is told once,
            then stopped.
        handoffs: how often the conversation may be handed from agent to agent.
        output_tokens: room reserved, and asked of the provider, for each reply.
        on_limit: what reaching one does: `raise` LimitReached with the partial result, `answer` by asking the model
            once more without tools, or `return` the partial result with the outcome `limited`.
    """

    steps: int | None = 20
    total_tokens: int | None = 200_000
    seconds: float | None = 600.0
    cost_usd: float | Literal["default"] | None = "default"
    calls_per_tool: Mapping[str, int] = field(default_factory=dict[str, int])
    calls_per_step: int = 64
    repetition: int | None = 3
    handoffs: int | None = 8
    output_tokens: int = 8_192
    on_limit: OnLimit = "raise"

    def __post_init__(self) -> None:
        for name in ("steps", "total_tokens", "seconds", "calls_per_step", "repetition", "handoffs", "output_tokens"):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, int | float) and value > 0):
                raise ValueError(f"Limits({name}={value!r}): must be a number more than 0, or None for no limit.")
        if isinstance(self.cost_usd, int | float) and self.cost_usd < 0:
            raise ValueError(f"Limits(cost_usd={self.cost_usd!r}): must be 0 or more, or None for no limit.")
