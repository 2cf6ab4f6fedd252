"""The model that stands in for `minimal.py` when there is no key: it reads the question and the tool results.

One city at a time: it asks for the first, looks at what came back, asks for the next, and compares at the end.
"""

from __future__ import annotations

import re

from glassloop.testing import Conversation, Reaction, ToolOutcome, ask, call

BREAKS = re.compile(r"[,.;:?!，。；：？！、]|\b(?:and|or|vs|versus|than|but)\b|和|与|跟|及|比|还是|或者|或", re.I)
NOISE = re.compile(
    r"\b(?:what|which|where|how|is|are|it|it's|the|a|in|at|of|for|today|now|right|please|tell|me|city|will|does|do|i|"
    r"weather|temperature|like|about|hotter|hottest|hot|warmer|warmest|warm|colder|coldest|cold|cooler|cool|"
    r"rain|raining|rainy|sunny|there|outside|check|compare|between|whether|degrees|s)\b|'"
    r"|哪个|哪里|哪儿|哪座|哪边|城市|更|比较|最|炎热|热|寒冷|冷|暖和|凉快|气温|温度|高|低|天气|今天|现在|怎么样|如何|"
    r"多少度|几度|是|的|呢|吗|请问|告诉我|查一下|一下|下雨|会|有没有|谁|哪|些|一些|点",
    re.I,
)
COLD = re.compile(r"\bcold|\bcool|冷|凉", re.I)
SKY = {"sunny": "晴", "cloudy": "多云", "rain": "有雨"}


def brain(conversation: Conversation) -> Reaction:
    """Ask for the next city that has no weather yet; compare when all have."""
    question = conversation.user
    chinese = bool(re.search(r"[一-鿿]", question))
    cities = cities_in(question)
    if not cities:
        return "你想了解哪个城市的天气？" if chinese else "Which city's weather would you like to know?"
    if not conversation.offers("get_weather"):
        return "我没有查询天气的工具。" if chinese else "I have no tool that tells the weather."
    known = {str(result.arguments.get("city")): result for result in conversation.results_of("get_weather")}
    for number, city in enumerate(cities):
        if city not in known:
            thought = f"还缺{city}的天气。" if chinese else f"I still need the weather in {city}."
            first = f"先查{city}。" if chinese else f"First, the weather in {city}."
            return ask(call("get_weather", city=city), text=thought if number else first)
    results = [(city, known[city]) for city in cities]
    return in_chinese(question, results) if chinese else in_english(question, results)


def cities_in(question: str) -> list[str]:
    """What is left of the question when everything is taken out that is not a name."""
    names = (" ".join(NOISE.sub(" ", part).split()) for part in BREAKS.split(question))
    named = (name.title() if name.islower() and name.isascii() else name for name in names)
    return list(dict.fromkeys(name for name in named if name))


Results = list[tuple[str, ToolOutcome]]


def measured(results: Results) -> list[tuple[int, str, str]]:
    """Degrees, city and sky of those cities that the tool knows, hottest first."""
    values = ((city, result.fields) for city, result in results)
    return sorted(((value["celsius"], city, value["sky"]) for city, value in values if value), reverse=True)


def in_english(question: str, results: Results) -> str:
    """The answer, from the results."""
    found = measured(results)
    parts = [result.text for _, result in results if not result.fields]
    if len(found) == 1:
        parts.insert(0, "{1} has {0} °C today, {2}.".format(*found[0]))
    if len(found) > 1:
        word = "cool" if COLD.search(question) else "hott"
        (best, city, _), *others = reversed(found) if word == "cool" else found
        rest = ", ".join(f"{name} has {celsius} °C" for celsius, name, _ in others)
        parts.insert(0, f"{city} is {word}{'er' if len(found) == 2 else 'est'}: {best} °C today, while {rest}.")
    return " ".join(parts)


def in_chinese(question: str, results: Results) -> str:
    """The answer in Chinese, from the results."""
    found = measured(results)
    parts = [f"查询失败：{result.text}" for _, result in results if not result.fields]
    if len(found) == 1:
        celsius, city, sky = found[0]
        parts.insert(0, f"{city}今天{celsius}°C，{SKY.get(sky, sky)}。")
    if len(found) > 1:
        cold = bool(COLD.search(question))
        (best, city, _), *others = reversed(found) if cold else found
        rest = "，".join(f"{name}{celsius}°C" for celsius, name, _ in others)
        degree = ("更" if len(found) == 2 else "最") + ("凉" if cold else "热")
        parts.insert(0, f"{city}{degree}：今天{best}°C；{rest}。")
    return "".join(parts)
