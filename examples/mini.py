"""One file, three tools, the Anthropic wire: several calls in one step, side by side.

python -m examples.mini --trace "What time is it, what is (1024 + 768) * 2, and the weather in Beijing and Shanghai?"
"""

from __future__ import annotations

import ast
import asyncio
import math
import sys
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import simpleeval  # pyright: ignore[reportMissingTypeStubs] it has none

from glassloop import Agent, ToolError
from glassloop.cli.demo import demo
from glassloop.testing import StandIn

WEATHER = {
    ("Beijing", "北京"): (29, "sunny"),
    ("Shanghai", "上海"): (31, "cloudy"),
    ("Shenzhen", "深圳"): (33, "rain"),
    ("Harbin", "哈尔滨"): (18, "sunny"),
    ("Tokyo", "东京"): (27, "cloudy"),
    ("Paris", "巴黎"): (21, "rain"),
}
FUNCTIONS = {"abs": abs, "round": round, "min": min, "max": max, "sqrt": math.sqrt}
NAMES = {"pi": math.pi, "e": math.e}


async def get_weather(city: str) -> dict[str, object]:
    """Get today's weather in one city.

    Args:
        city: the city's name, in English or Chinese
    """
    await asyncio.sleep(len(city) / 200)  # like a service that takes its time, longer for some cities
    for names, (celsius, sky) in WEATHER.items():
        if city.strip().lower() in map(str.lower, names):
            return {"city": names[0], "celsius": celsius, "sky": sky}
    raise ToolError(f"No weather for {city!r}. Known cities: {', '.join(names[0] for names in WEATHER)}.")


def get_current_time(timezone: str = "") -> dict[str, str]:
    """Get the current date and time.

    Args:
        timezone: an IANA name such as Asia/Shanghai; empty for local time
    """
    try:
        now = datetime.now(ZoneInfo(timezone)) if timezone else datetime.now().astimezone()
    except (ZoneInfoNotFoundError, ValueError) as error:
        raise ToolError(f"Unknown time zone {timezone!r}: use an IANA name such as Asia/Shanghai.") from error
    return {"date": f"{now:%Y-%m-%d}", "time": f"{now:%H:%M}", "weekday": f"{now:%A}", "timezone": f"{now:%Z}"}


def calculate(expression: str) -> int | float:
    """Calculate an arithmetic expression.

    Args:
        expression: numbers, + - * / // % ** ( ), abs, round, min, max, sqrt, pi, e
    """
    evaluator: Any = simpleeval.SimpleEval(functions=FUNCTIONS, names=NAMES)
    evaluator.operators[ast.Pow] = power
    try:
        value = evaluator.eval(expression)
    except Exception as error:
        raise ToolError(f"Cannot calculate {expression!r}: {error}") from error
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ToolError(f"Cannot calculate {expression!r}: the result is not a number.")
    return value


def power(base: float, exponent: float) -> float:
    """`base ** exponent`, within reason: a few digits of input must not keep a processor busy for hours."""
    if abs(exponent) * math.log2(abs(base) + 2) > 1000:
        raise ValueError("the power is too large.")
    return base**exponent


agent = Agent(
    tools=[get_weather, get_current_time, calculate],
    name="mini",
    instructions="Call every tool that you need at once, then answer. If a tool refuses, say what it said.",
)

STAND_IN = StandIn("_stand_ins/mini.py", beside=__file__, wire="anthropic")
QUESTION = "What time is it, what is (1024 + 768) * 2, and the weather in Beijing and Shanghai?"

if __name__ == "__main__":
    sys.exit(demo(__file__, QUESTION))
