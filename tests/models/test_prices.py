from __future__ import annotations

import subprocess
import sys
from decimal import Decimal
from typing import Any

import pytest
from genai_prices import Usage as ListedUsage
from genai_prices import calc_price

from glassloop.core.messages import Reply
from glassloop.core.usage import Usage
from glassloop.models.prices import Price, Prices, cost_usd, load_prices, price_of

USED = Usage(input=1_000, output=100, cached=400, cache_write=100, requests=1)
LARGE = Usage(input=400_000, output=2_000, cached=100_000, requests=1)


def listed(model: str, provider: str, usage: Usage) -> float:
    """What the list itself says."""
    asked: Any = ListedUsage(
        input_tokens=usage.input,
        output_tokens=usage.output,
        cache_read_tokens=usage.cached,
        cache_write_tokens=usage.cache_write,
    )
    return float(calc_price(asked, model, provider_id=provider).total_price)


@pytest.mark.parametrize(
    ("name", "model", "provider"),
    [
        ("anthropic:claude-opus-4-5", "claude-opus-4-5", "anthropic"),
        ("anthropic:claude-sonnet-4-5", "claude-sonnet-4-5", "anthropic"),
        ("gemini:gemini-2.5-pro", "gemini-2.5-pro", "google"),
        ("openrouter:anthropic/claude-sonnet-4.5", "anthropic/claude-sonnet-4.5", "openrouter"),
        ("glm:glm-4.6", "glm-4.6", "zai"),
        ("moonshot:kimi-k2-0905-preview", "kimi-k2-0905-preview", "moonshotai"),
    ],
)
@pytest.mark.parametrize("usage", [USED, LARGE], ids=["small", "large"])
def test_costs_are_those_of_the_list(name: str, model: str, provider: str, usage: Usage) -> None:
    plain = (
        Usage(usage.input, usage.output, usage.cached, 0, 0, 1)
        if provider in ("google", "zai", "moonshotai")
        else usage
    )
    assert cost_usd(name, "", plain) == pytest.approx(listed(model, provider, plain))


def test_cached_tokens_cost_less_and_written_ones_are_not_forgotten() -> None:
    name = "anthropic:claude-opus-4-5"
    fresh = cost_usd(name, "", Usage(input=1_000, requests=1))
    cached = cost_usd(name, "", Usage(input=1_000, cached=1_000, requests=1))
    written = cost_usd(name, "", Usage(input=1_000, cache_write=1_000, requests=1))
    assert fresh is not None
    assert cached is not None
    assert written is not None
    assert cached < fresh < written


@pytest.mark.parametrize(
    ("model", "provider"),
    [
        ("openai:no-such-model", ""),
        ("ollama:llama3", ""),
        ("compatible:gpt-5", "openai-chat:127.0.0.1:8000"),
        ("scripted", "scripted"),
        ("gpt-5", ""),
        ("", ""),
        ("gpt-5", "openai-chat:proxy.example"),
    ],
)
def test_an_unknown_price_is_none(model: str, provider: str) -> None:
    assert price_of(model, provider) is None
    assert cost_usd(model, provider, USED) is None


def test_a_bare_name_is_found_by_the_host_that_answered() -> None:
    assert price_of("gpt-5-2025-08-07", "openai-chat:api.openai.com") == price_of("openai:gpt-5")
    assert price_of("gpt-5", "openai-chat:api.openai.com") is not None


def test_usage_that_was_not_reported_has_no_cost() -> None:
    assert cost_usd("openai:gpt-5", "", Usage(requests=1, unreported=1)) is None


def reply(model: str, provider: str) -> Reply:
    return Reply((), usage=USED, model=model, provider=provider)


def test_prices_of_one_model() -> None:
    prices = Prices("openai:gpt-5")
    assert prices.rates == pytest.approx((1.25e-6, 10e-6))
    assert prices.cost(reply("gpt-5-2025-08-07", "openai-chat:127.0.0.1:1")) == cost_usd("openai:gpt-5", "", USED)
    assert Prices("ollama:x").rates is None
    assert Prices("ollama:x").cost(reply("x", "y")) is None


def test_prices_of_alternatives_are_those_of_the_dearest_and_of_who_answered() -> None:
    cheap, dear = Prices("openai:gpt-4o-mini").rates, Prices("anthropic:claude-opus-4-5").rates
    both = Prices("openai:gpt-4o-mini|anthropic:claude-opus-4-5")
    assert cheap is not None
    assert dear is not None
    assert both.rates == (max(cheap[0], dear[0]), max(cheap[1], dear[1]))
    answered = reply("claude-opus-4-5-20251101", "anthropic-messages:api.anthropic.com")
    assert both.cost(answered) == cost_usd("anthropic:claude-opus-4-5", "", USED)
    assert Prices("openai:gpt-4o-mini|ollama:x").rates is None


def test_a_price_that_is_given_counts() -> None:
    prices = Prices("ollama:x", (2.0, 8.0))
    assert prices.rates == pytest.approx((2e-6, 8e-6))
    assert prices.cost(reply("x", "y")) == pytest.approx(
        float(Decimal("1000") * 2 / 10**6 + Decimal("100") * 8 / 10**6)
    )
    assert Price.per_million(1, 1).cost(Usage(5, 5, requests=1)) == pytest.approx(1e-5)


async def test_loading_gives_the_same() -> None:
    assert (await load_prices("openai:gpt-5")).rates == Prices("openai:gpt-5").rates
    assert (await load_prices("x", (1.0, 1.0))).rates == pytest.approx((1e-6, 1e-6))


def test_the_list_is_not_loaded_for_models_that_it_cannot_know() -> None:
    code = (
        "import asyncio, sys; from glassloop.models.prices import load_prices\n"
        "for name in ('ollama:x', 'compatible:x', 'scripted'):\n"
        "    assert asyncio.run(load_prices(name)).rates is None\n"
        "assert 'genai_prices' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
