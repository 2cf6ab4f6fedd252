"""The model that stands in for `mini.py` when there is no key: it asks for everything at once, then answers.

It finds times, calculations and cities in the question by rules, so another question makes other calls.
"""

from __future__ import annotations

import re

from glassloop.core.messages import ToolCall
from glassloop.testing import Conversation, Reaction, ToolOutcome, ask, call

TIME = re.compile(r"\btime\b|\bclock\b|\bdate\b|\bweekday\b|what day|几点|时间|时候|日期|几号|星期几", re.I)
ZONE = re.compile(r"\b(?:[A-Z][A-Za-z]+/[A-Z][A-Za-z_]+|UTC)\b")
WEATHER = re.compile(r"weather|temperature|forecast|\bhot|\bcold|\bwarm|\brain|天气|气温|温度|热|冷|下雨", re.I)
ORDER = re.compile(r"(?:calculate|compute|evaluate|work out|计算|算一下|算算|算)\s*[:：]?\s*(.+)", re.I)
NUMBER = r"(?:\d[\d,]*\.?\d*|\.\d+|\bpi\b|\be\b)"
SUM = re.compile(rf"(?:(?:sqrt|abs)\s*\(|[(\s-])*{NUMBER}(?:[\s()]*(?:\*\*|//|[-+*/%])[\s(-]*{NUMBER}|\s*\))*")
WORDS = (
    (r"%\s*(?:of)\s+", " / 100 * "),
    (r"\s*(?:multiplied by|times|乘以|乘)\s*|×", " * "),
    (r"\s*(?:divided by|除以)\s*|÷", " / "),
    (r"\s*(?:plus|加上|加)\s*", " + "),
    (r"\s*(?:minus|减去|减)\s*", " - "),
    (r"\^", "**"),
)
WIDE = str.maketrans("（）＋－＊／０１２３４５６７８９", "()+-*/0123456789")
BREAKS = re.compile(r"[,.;:?!，。；：？！、]|\b(?:and|or|vs|versus|than|but)\b|和|与|跟|及|比|还是|或者|或", re.I)
NOISE = re.compile(
    r"\b(?:what|what's|which|where|how|how's|is|are|it|it's|the|a|in|at|of|for|today|now|right|please|tell|me|will|do|i|"
    r"weather|temperature|forecast|like|about|hotter|hottest|hot|warmer|warm|colder|cold|cooler|cool|also|then|"
    r"rain|raining|there|time|date|day|clock|weekday|current|check|much|calculate|compute|equal|equals|result|s|to|does)\b|'"
    r"|哪个|哪里|哪儿|城市|更|比较|最|热|冷|气温|温度|天气|今天|现在|怎么样|如何|多少度|几度|几点|时间|日期|几号|星期几|"
    r"等于|多少|是|的|呢|吗|请问|告诉我|查一下|一下|下雨|会|了|计算|再|算|顺便|还有|[=*/+()%-]",
    re.I,
)
SKY = {"sunny": "晴", "cloudy": "多云", "rain": "有雨"}
DAYS = dict(
    zip(("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"), "一二三四五六日", strict=True)
)


def brain(conversation: Conversation) -> Reaction:
    """All calls in the first step, the answer in the second."""
    question = conversation.user
    chinese = bool(re.search(r"[一-鿿]", question))
    if conversation.results:
        said = [in_chinese(result) if chinese else in_english(result) for result in conversation.results]
        return ("" if chinese else " ").join(said)
    calls = [wanted for wanted in calls_for(question) if conversation.offers(wanted.name)]
    if not calls:
        return (
            "我可以报时、计算和查天气，请告诉我需要哪一个。"
            if chinese
            else "I can tell the time, calculate, and look up the weather: which of these would you like?"
        )
    if len(calls) == 1:
        return calls
    return ask(*calls, text=f"需要{len(calls)}次查询，一起做。" if chinese else f"{len(calls)} lookups, all at once.")


def calls_for(question: str) -> list[ToolCall]:
    """The calls that the question needs."""
    calls: list[ToolCall] = []
    if TIME.search(question):
        zone = ZONE.search(question)
        calls.append(call("get_current_time", timezone=zone[0]) if zone else call("get_current_time"))
    sums, rest = sums_in(question)
    calls += [call("calculate", expression=expression) for expression in sums]
    if WEATHER.search(rest):
        calls += [call("get_weather", city=city) for city in cities_in(ZONE.sub(" ", rest))]
    return calls


def sums_in(question: str) -> tuple[list[str], str]:
    """The expressions in the question, and the question without them."""
    text = question.translate(WIDE)
    for words, sign in WORDS:
        text = re.sub(words, sign, text, flags=re.I)
    found = [balanced(match[0].strip()) for match in SUM.finditer(text)]
    sums = [expression for expression in found if re.search(r"[-+*/%]|sqrt|abs", expression)]
    if not sums and (order := ORDER.search(text)):
        what = order[1].strip().rstrip("?？!！。.")
        return [what], text.replace(order[0], " ")
    for expression in sums:
        text = text.replace(expression, " ")
    return [expression.replace(",", "") for expression in sums], text


def balanced(expression: str) -> str:
    """The expression without brackets that belong to the sentence around it."""
    while expression.count(")") > expression.count("(") and expression.endswith(")"):
        expression = expression[:-1].rstrip()
    while expression.count("(") > expression.count(")") and expression.startswith("("):
        expression = expression[1:].lstrip()
    return expression


def cities_in(text: str) -> list[str]:
    """What is left when everything is taken out that is not a name."""
    names = (" ".join(NOISE.sub(" ", part).split()) for part in BREAKS.split(text))
    named = (name.title() if name.islower() and name.isascii() else name for name in names)
    return list(dict.fromkeys(name for name in named if name and not re.fullmatch(r"[\d\W]+", name)))


def in_english(result: ToolOutcome) -> str:
    """One result as a sentence."""
    match result.name:
        case "calculate" if isinstance(result.value, int | float):
            return f"{result.arguments['expression']} = {result.value}."
        case "get_weather" if result.fields:
            return "{city} has {celsius} °C, {sky}.".format(**result.fields)
        case "get_current_time" if result.fields:
            return "It is {time} ({timezone}) on {weekday}, {date}.".format(**result.fields)
        case _:
            return f"{result.name} refused: {result.text}"


def in_chinese(result: ToolOutcome) -> str:
    """One result as a sentence in Chinese."""
    value = result.fields
    match result.name:
        case "calculate" if isinstance(result.value, int | float):
            return f"{result.arguments['expression']} 等于 {result.value}。"
        case "get_weather" if value:
            city = result.arguments["city"]
            return f"{city}今天{value['celsius']}°C，{SKY.get(value['sky'], value['sky'])}。"
        case "get_current_time" if value:
            day = DAYS.get(value["weekday"], "?")
            return f"现在是{value['date']}（星期{day}）{value['time']}，{value['timezone']}。"
        case _:
            return f"{result.name} 拒绝了请求：{result.text}"
