"""An agent in forty lines: one tool, and the model decides how often to call it.

python examples/minimal.py --trace "Which is hotter, Beijing or Shanghai?"
"""

from __future__ import annotations

import sys

from glassloop import Agent, ToolError
from glassloop.cli.demo import demo
from glassloop.testing import StandIn

WEATHER = {
    ("Beijing", "北京"): (29, "sunny"),
    ("Shanghai", "上海"): (31, "cloudy"),
    ("Guangzhou", "广州"): (33, "rain"),
    ("Harbin", "哈尔滨"): (18, "sunny"),
    ("London", "伦敦"): (16, "rain"),
    ("New York", "纽约"): (24, "cloudy"),
}


def get_weather(city: str) -> dict[str, object]:
    """Get today's weather in one city.

    Args:
        city: the city's name, in English or Chinese
    """
    for names, (celsius, sky) in WEATHER.items():
        if city.strip().lower() in map(str.lower, names):
            return {"city": names[0], "celsius": celsius, "sky": sky}
    raise ToolError(f"No weather for {city!r}. Known cities: {', '.join(names[0] for names in WEATHER)}.")


agent = Agent(tools=[get_weather], name="minimal", instructions="Look the weather up, then answer in one sentence.")

STAND_IN = StandIn("_stand_ins/minimal.py", beside=__file__, wire="openai")

if __name__ == "__main__":
    sys.exit(demo(__file__, "Which is hotter, Beijing or Shanghai?"))
