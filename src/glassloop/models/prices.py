"""What replies cost, by the price list of `genai-prices` (which ships with its data; nothing is fetched).

The list is large, and is only loaded for models that it may know. A price that is not known is None, never zero.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from glassloop.core.memo import memoized
from glassloop.core.messages import Reply
from glassloop.core.usage import Usage

ALTERNATIVES = "|"
"""Stands between the names of several models in the name of a fallback."""

_LISTED: Mapping[str, tuple[str, ...]] = {
    "anthropic": ("anthropic",),
    "deepseek": ("deepseek",),
    "gemini": ("google",),
    "glm": ("zai", "zhipuai"),
    "groq": ("groq",),
    "mistral": ("mistral",),
    "moonshot": ("moonshotai",),
    "openai": ("openai",),
    "openrouter": ("openrouter",),
    "xai": ("x-ai",),
    "zhipu": ("zhipuai", "zai"),
}
"""Provider ids of the list, by the prefix of a model's name."""

_FRESH_SECONDS = 60.0
"""Some prices depend on the time of day."""

_MILLION = 1_000_000
_known: dict[tuple[str, str], tuple[float, Price | None]] = {}


@dataclass(frozen=True, slots=True)
class Rate:
    """USD per token; above each threshold of input tokens another one for all tokens."""

    base: float
    tiers: tuple[tuple[int, float], ...] = ()

    def at(self, input_tokens: int) -> float:
        """The rate of a request of that size."""
        rate = self.base
        for start, price in self.tiers:
            if input_tokens > start:
                rate = price
        return rate


@dataclass(frozen=True, slots=True)
class Price:
    """What the tokens of one model cost."""

    input: Rate
    output: Rate
    cached: Rate
    cache_write: Rate

    @staticmethod
    def per_million(input: float, output: float) -> Price:
        """A flat price, in USD per million tokens."""
        read, written = Rate(input / _MILLION), Rate(output / _MILLION)
        return Price(read, written, read, read)

    def cost(self, usage: Usage) -> float | None:
        """USD for `usage`; None where a server did not report it."""
        if usage.unreported:
            return None
        size, fresh = usage.input, usage.input - usage.cached - usage.cache_write
        return (
            fresh * self.input.at(size)
            + usage.cached * self.cached.at(size)
            + usage.cache_write * self.cache_write.at(size)
            + usage.output * self.output.at(size)
        )


class Prices:
    """What the replies of one model, or of the alternatives of a fallback, cost.

    Args:
        model: the model's name, e.g. `openai:gpt-5`.
        given: USD per million tokens of input and output, in place of the list.
    """

    def __init__(self, model: str, given: tuple[float, float] | None = None) -> None:
        self._names = model.split(ALTERNATIVES)
        self._given = Price.per_million(*given) if given else None

    @memoized
    def rates(self) -> tuple[float, float] | None:
        """USD per input token and per output token, for reservations; the dearest where there are alternatives.

        Those of the moment they are first asked for.
        """
        prices = [self._given or price_of(name) for name in self._names]
        known = [price for price in prices if price is not None]
        if not known or len(known) < len(prices):
            return None
        return max(price.input.base for price in known), max(price.output.base for price in known)

    def cost(self, reply: Reply) -> float | None:
        """USD for one reply; None where the price or the usage is unknown."""
        price = self._given or self._price_of(reply)
        return price.cost(reply.usage) if price else None

    def _price_of(self, reply: Reply) -> Price | None:
        if len(self._names) == 1:
            return price_of(self._names[0])
        answered = (name for name in self._names if reply.model.startswith(name.partition(":")[2] or name))
        return price_of(next(answered, reply.model), reply.provider)


async def load_prices(model: str, given: tuple[float, float] | None = None) -> Prices:
    """As `Prices`, with the list loaded in a thread, so that the event loop does not wait for it."""
    prices = Prices(model, given)
    listed = any(name.partition(":")[0] in _LISTED for name in model.split(ALTERNATIVES))
    if given is None and listed and "genai_prices.data" not in sys.modules:
        await asyncio.to_thread(lambda: prices.rates)
    return prices


def price_of(model: str, provider: str = "") -> Price | None:
    """The price of a model.

    Args:
        model: `provider:model`, as in `Model.name`; or a bare name, as in `Reply.model`.
        provider: the identity in `Reply.provider`; its host tells whose bare name it is.
    """
    key = (model, provider)
    entry = _known.get(key)
    if entry is None or (entry[1] is not None and entry[0] < time.monotonic()):
        entry = _known[key] = (time.monotonic() + _FRESH_SECONDS, _look_up(model, provider))
    return entry[1]


def cost_usd(model: str, provider: str, usage: Usage) -> float | None:
    """USD for `usage` of a model; None where the price is unknown. See `price_of` for the names."""
    price = price_of(model, provider)
    return price.cost(usage) if price else None


def _look_up(model: str, provider: str) -> Price | None:
    prefix, _, rest = model.partition(":")
    if prefix in _LISTED:
        asked: list[dict[str, str]] = [{"provider_id": known} for known in _LISTED[prefix]]
        model = rest
    else:
        host = provider.partition(":")[2]
        asked = [{"provider_api_url": f"https://{host}"}] if "." in host else []
    for where in asked:
        price = _listed(model, where)
        if price is not None:
            return price
    return None


def _listed(model: str, where: dict[str, str]) -> Price | None:
    from genai_prices import data_snapshot

    snapshot = data_snapshot.get_snapshot()
    try:
        found = snapshot.find_provider_model(model, None, where.get("provider_id"), where.get("provider_api_url"))
    except LookupError:
        return None
    prices = found[1].get_prices(datetime.now(UTC))
    rates = {name: _rate(getattr(prices, f"{name}_mtok", None)) for name in _FIELDS}
    read, written = rates["input"], rates["output"]
    if read is None or written is None:
        return None
    return Price(read, written, rates["cache_read"] or read, rates["cache_write"] or read)


_FIELDS = ("input", "output", "cache_read", "cache_write")


def _rate(listed: Any) -> Rate | None:
    if listed is None:
        return None
    tiers = tuple((int(tier.start), float(tier.price) / _MILLION) for tier in getattr(listed, "tiers", ()))
    return Rate(float(getattr(listed, "base", listed)) / _MILLION, tiers)
