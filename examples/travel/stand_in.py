"""The model that stands in for the travel planner when there is no key.

It reads what the traveller wants, then looks at what the tools have said so far and picks the next ones. Like real
models it sometimes makes a name up (`search_hotels_v2`), and reads in the result which ones exist.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from glassloop.core.messages import ToolCall, UserMessage
from glassloop.testing import Conversation, Reaction, ToolOutcome, ask, call

_FIRST = ("january", "february", "march", "april", "may", "june")
MONTHS = (*_FIRST, "july", "august", "september", "october", "november", "december")
ENGLISH = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
CHINESE = "一二三四五六七八九十"
COUNT = rf"(\d+|{'|'.join(ENGLISH)}|十[一二]|[{CHINESE}两])"

NAME = r"[A-Z][\w']+"
MONTH = re.compile(
    rf"\b({'|'.join(MONTHS)}|{'|'.join(name[:3] for name in MONTHS)})\b|(\d+|十[一二]|[{CHINESE}])\s*月份?",
    re.I,
)
DAYS = re.compile(rf"{COUNT}\s*-?\s*(?:days?\b|天)", re.I)
ORIGIN = re.compile(
    rf"(?:\bfrom|\b(?:am|live|are|based|living)\s+in|'m\s+in)\s+({NAME})"
    r"|(?:我们?在|住在|人在|从)([一-鿿]{2,3}?)(?=[，。,、\s]|出发|去|有|$)"
)
GOAL = re.compile(
    rf"\b(?:go|travel|trip|fly|journey|visit|days in)\s+(?:to\s+)?(?!{'|'.join(map(str.title, MONTHS))})({NAME})"
    r"|(?:想去|要去|前往|去)([一-鿿]{2,3})(?=[，。,、\s玩旅]|$)"
)
LIKES = re.compile(r"\b(?:like|love|prefer|enjoy|into)\s+([^.;!?\n]+)|(?:喜欢|偏爱|爱)([^。；！？\n]+)", re.I)
LIKES_END = re.compile(
    rf",?\s*\b(?:budget|under|below|and book|book|for|from|in (?:{'|'.join(MONTHS)})|we are|{COUNT}\s*-?\s*days?)\b.*"
    rf"|，?\s*(?:预算|预订|预定|帮我|我|不超过|从|{COUNT}\s*[月天个人]).*",
    re.I,
)
PEOPLE = re.compile(rf"{COUNT}\s*(?:people|persons|travell?ers|adults|of us|个人|人)", re.I)
BUDGET = re.compile(r"(?:budget|under|below|at most|less than|within|预算|不超过)\D{0,12}(\d[\d,]*)", re.I)
BOOK = re.compile(r"\b(?:book|reserve)\b|预订|预定|订(?:下|好|了|吧)|帮我订", re.I)
REAL_HOTELS = re.compile(r"\bsearch_hotels\b(?!_v2)")


@dataclass(frozen=True)
class Trip:
    """What the traveller wants, as far as it was said."""

    chinese: bool
    month: int | None
    days: int | None
    origin: str | None
    goal: str | None
    likes: str | None
    travellers: int
    budget: int | None
    book: bool


def read_trip(texts: list[str]) -> Trip:
    """Read what the traveller has said so far; what was said last counts."""

    def last(pattern: re.Pattern[str], convert: Callable[[str], Any]) -> Any:
        found = [group for text in texts for match in pattern.finditer(text) for group in match.groups() if group]
        return convert(found[-1]) if found else None

    likes = last(LIKES, lambda text: LIKES_END.sub("", text).strip(" ,，"))
    return Trip(
        chinese=bool(re.search(r"[一-鿿]", texts[-1])),
        month=last(MONTH, month_number),
        days=last(DAYS, number),
        origin=last(ORIGIN, str),
        goal=last(GOAL, str),
        likes=likes or None,
        travellers=last(PEOPLE, number) or 1,
        budget=last(BUDGET, number),
        book=bool(BOOK.search(texts[-1])),
    )


def number(word: str) -> int:
    """A number in digits, English or Chinese."""
    word = word.lower().replace(",", "").replace("两", "二")
    if word.isdigit():
        return int(word)
    if word in ENGLISH:
        return ENGLISH.index(word) + 1
    return sum(CHINESE.index(character) + 1 for character in word)


def month_number(word: str) -> int:
    """A month by name or number."""
    starts = [index for index, name in enumerate(MONTHS, 1) if word.lower()[:3] == name[:3]]
    return starts[0] if starts else number(word)


class Facts:
    """What the tools have said in this conversation, and to others `before`."""

    def __init__(self, conversation: Conversation, before: Iterable[ToolOutcome] = ()) -> None:
        self.all = [*before, *conversation.earlier, *conversation.results]
        self.turn = conversation.results

    def of(self, tool: str, **arguments: Any) -> ToolOutcome | None:
        """The last result of a call with these arguments."""
        for result in reversed(self.all):
            if result.name == tool and arguments.items() <= result.arguments.items():
                return result
        return None

    def value(self, tool: str, **arguments: Any) -> Any:
        """The value of such a result; None where there is none, or the tool refused."""
        result = self.of(tool, **arguments)
        return result.value if result is not None and not isinstance(result.value, str) else None


def brain(conversation: Conversation) -> Reaction:
    """The next tools to call, or the plan."""
    texts = [message.text for message in conversation.messages if isinstance(message, UserMessage)]
    trip, facts = read_trip(texts), Facts(conversation)
    if not is_clear(trip):
        return missing(trip)
    if not conversation.tools:
        return "我没有可用的查询工具。" if trip.chinese else "I have no tools to look anything up with."
    return search(trip, facts) or _plan(trip, facts)


def is_clear(trip: Trip) -> bool:
    """Whether enough was said to plan with."""
    return trip.month is not None and trip.days is not None and bool(trip.likes or trip.goal)


def missing(trip: Trip) -> str:
    """Ask for what was not said."""
    asked = [
        ("in which month", "哪个月出发", trip.month),
        ("for how many days", "玩几天", trip.days),
        ("what you like, for example nature or history", "喜欢什么，比如自然或历史", trip.likes or trip.goal),
    ]
    if trip.chinese:
        return "请告诉我：" + "；".join(chinese for _, chinese, known in asked if not known) + "？"
    return "Please tell me " + ", and ".join(english for english, _, known in asked if not known) + "?"


def search(trip: Trip, facts: Facts) -> Reaction | None:
    """First a destination: the one that was named, or those that suit."""
    if trip.goal:
        return None
    found = facts.of("search_destinations", month=trip.month)
    if found is None:
        thought = (
            f"先按{trip.month}月和喜好找目的地。" if trip.chinese else "First, which places suit the month and taste."
        )
        return ask(call("search_destinations", month=trip.month, preference=trip.likes), text=thought)
    if not found.value or isinstance(found.value, str):
        return f"没有找到合适的目的地：{found.text}" if trip.chinese else f"I found no destination: {found.text}"
    return None


def _plan(trip: Trip, facts: Facts) -> Reaction:
    """Weather of the candidates, then everything about the best of them."""
    candidates = candidates_of(trip, facts)
    if asked := weather(trip, facts, candidates):
        return asked
    best = best_of(trip, facts, candidates)
    if best is None:
        return unplannable(trip, facts, candidates)
    return _details(trip, facts, best) or lodging(trip, facts, best) or money(trip, facts, best) or answer(trip, facts)


def weather(trip: Trip, facts: Facts, candidates: list[str]) -> Reaction | None:
    """Ask for the weather that is not known yet."""
    unknown = [place for place in candidates if facts.of("get_weather", destination=place, month=trip.month) is None]
    if not unknown:
        return None
    thought = f"比较{'、'.join(unknown)}的天气。" if trip.chinese else f"Now the weather in {' and '.join(unknown)}."
    return ask(*(call("get_weather", destination=place, month=trip.month) for place in unknown), text=thought)


def unplannable(trip: Trip, facts: Facts, candidates: list[str]) -> str:
    """Why there can be no plan: what the tool said of the weather there."""
    refused = facts.of("get_weather", destination=candidates[0], month=trip.month)
    why = refused.text if refused else ""
    return f"查不到：{why}" if trip.chinese else f"I cannot plan that: {why}"


def candidates_of(trip: Trip, facts: Facts) -> list[str]:
    """The two best destinations, or the one that was named."""
    if trip.goal:
        return [trip.goal]
    found: list[dict[str, Any]] = facts.value("search_destinations", month=trip.month)
    return [place["chinese" if trip.chinese else "name"] for place in found[:2]]


def best_of(trip: Trip, facts: Facts, candidates: list[str]) -> str | None:
    """The candidate with the fewest rainy days; None if the weather of none is known."""
    known = {place: facts.value("get_weather", destination=place, month=trip.month) for place in candidates}
    dry = sorted((weather["rain_days"], place) for place, weather in known.items() if weather)
    return dry[0][1] if dry else None


def _details(trip: Trip, facts: Facts, best: str) -> Reaction | None:
    calls = detail_calls(trip, facts, best)
    thought = f"{best}更合适，看看景点和交通。" if trip.chinese else f"{best} it is: sights, and how to get there."
    return ask(*calls, text=thought) if calls else None


def detail_calls(trip: Trip, facts: Facts, place: str) -> list[ToolCall]:
    """The calls that tell what is not known yet of the sights of a place and the way there."""
    calls: list[ToolCall] = []
    if facts.of("get_attractions", destination=place, days=trip.days) is None:
        calls.append(call("get_attractions", destination=place, days=trip.days))
    if trip.origin and facts.of("get_transport", origin=trip.origin, destination=place) is None:
        calls.append(call("get_transport", origin=trip.origin, destination=place))
    return calls


def lodging(trip: Trip, facts: Facts, best: str) -> Reaction | None:
    """Ask with a made-up name first; take the right one from the result, if it is named there."""
    if facts.of("search_hotels", destination=best) is not None:
        return None
    invented = facts.of("search_hotels_v2", destination=best)
    if invented is None:
        thought = "再找住处。" if trip.chinese else "Next, a place to sleep."
        return ask(call("search_hotels_v2", destination=best), text=thought)
    if not REAL_HOTELS.search(invented.text):
        return None
    thought = (
        "没有这个工具，改用 search_hotels。" if trip.chinese else "There is no such tool, but search_hotels exists."
    )
    return ask(call("search_hotels", destination=best), text=thought)


def money(trip: Trip, facts: Facts, best: str) -> Reaction | None:
    """Add it up for the first hotel, and for the cheapest where that is over the budget; book where asked to."""
    fare, hotels = fare_of(trip, facts, best), facts.value("search_hotels", destination=best)
    if fare is None or not hotels:
        return None
    for hotel in (hotels[0], cheapest(hotels)):
        arguments = budget_arguments(trip, fare, hotel)
        if facts.of("estimate_budget", **arguments) is None:
            thought = (
                f"算算住{hotel['hotel']}的总价。" if trip.chinese else f"The price of everything with {hotel['hotel']}."
            )
            return ask(call("estimate_budget", **arguments), text=thought)
        if within(trip, facts.value("estimate_budget", **arguments)):
            break
    if not trip.book or any(result.name == "book_trip" for result in facts.turn):
        return None
    hotel, cost = choice(trip, facts, best)
    if not within(trip, cost):
        return None
    booking = {"destination": best, "hotel": hotel["hotel"], "month": trip.month, "days": trip.days}
    thought = "现在预订。" if trip.chinese else "Now the booking."
    return ask(call("book_trip", **booking, travellers=trip.travellers, total_cny=cost["total_cny"]), text=thought)


def fare_of(trip: Trip, facts: Facts, best: str) -> int | None:
    """The return fare, where the way is known."""
    way = facts.value("get_transport", origin=trip.origin, destination=best) if trip.origin else None
    return way["return_fare_cny"] if way else None


def budget_arguments(trip: Trip, fare: int, hotel: dict[str, Any]) -> dict[str, Any]:
    """What `estimate_budget` is asked for this hotel."""
    price = hotel["price_cny_per_night"]
    return {"return_fare_cny": fare, "hotel_cny_per_night": price, "days": trip.days, "travellers": trip.travellers}


def cheapest(hotels: list[dict[str, Any]]) -> dict[str, Any]:
    """The hotel with the lowest price."""
    return min(hotels, key=lambda hotel: hotel["price_cny_per_night"])


def within(trip: Trip, cost: dict[str, Any] | None) -> bool:
    """Whether the price is within what the traveller wants to spend."""
    return trip.budget is None or (cost is not None and cost["total_cny"] <= trip.budget)


def choice(trip: Trip, facts: Facts, best: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The hotel of the plan and what everything costs with it; empty where that is unknown."""
    hotels: list[dict[str, Any]] = facts.value("search_hotels", destination=best) or [{}]
    fare = fare_of(trip, facts, best)
    if fare is None or not hotels[0]:
        return hotels[0], {}
    hotel, cost = hotels[0], None
    for hotel in (hotels[0], cheapest(hotels)):
        cost = facts.value("estimate_budget", **budget_arguments(trip, fare, hotel))
        if within(trip, cost):
            break
    return hotel, cost or {}


def answer(trip: Trip, facts: Facts) -> str:
    """The plan in words, from the results alone."""
    from_results = chinese_plan if trip.chinese else english_plan
    candidates = candidates_of(trip, facts)
    best = best_of(trip, facts, candidates) or candidates[0]
    return from_results(trip, facts, best, [place for place in candidates if place != best])


def english_plan(trip: Trip, facts: Facts, best: str, others: list[str]) -> str:
    """The plan in English."""
    weather = facts.value("get_weather", destination=best, month=trip.month)
    month = MONTHS[(trip.month or 1) - 1].title()
    rain = f"{climate(weather)}, about {weather['rain_days']} rainy days"
    lines = [f"For {trip.days} days in {month} I suggest {best}: {rain}."]
    lines += [f"{place} has about {days} rainy days." for place, days in rains(trip, facts, others)]
    if way := facts.of("get_transport", origin=trip.origin, destination=best):
        good = isinstance(way.value, dict)
        trip_there = "From {from} it takes {hours:g} hours, {return_fare_cny} yuan return."
        lines.append(trip_there.format(**way.value) if good else f"How to get there is unknown: {way.text}")
    else:
        lines.append("Tell me where you start from, and the plan can include the way there.")
    if sights := facts.value("get_attractions", destination=best, days=trip.days):
        lines.append(f"See {', '.join(sights)}.")
    hotel, cost = choice(trip, facts, best)
    if hotel:
        lines.append("Stay at {hotel}, {price_cny_per_night} yuan a night.".format(**hotel))
    if cost:
        who = "one traveller" if trip.travellers == 1 else f"{trip.travellers} travellers"
        parts = "transport {transport}, hotel {hotel}, meals and tickets {meals_and_tickets}".format(**cost)
        lines.append(f"In all about {cost['total_cny']} yuan for {who} ({parts}).")
        if trip.budget is not None:
            verdict = "within" if within(trip, cost) else "over"
            lines.append(
                f"That is {verdict} your budget of {trip.budget} yuan{unbooked(trip, cost, ', so it was not booked')}."
            )
    for booked in facts.turn:
        if booked.name == "book_trip":
            number = booked.fields.get("booking")
            lines.append(f"Booked, number {number}." if number else f"Not booked. {booked.text}")
    return " ".join(lines)


def chinese_plan(trip: Trip, facts: Facts, best: str, others: list[str]) -> str:
    """The plan in Chinese."""
    weather = facts.value("get_weather", destination=best, month=trip.month)
    lines = [f"{trip.month}月{trip.days}天，推荐{best}：{climate(weather)}，大约{weather['rain_days']}天有雨。"]
    lines += [f"{place}大约有{days}天雨。" for place, days in rains(trip, facts, others)]
    if way := facts.of("get_transport", origin=trip.origin, destination=best):
        good = isinstance(way.value, dict)
        there = f"从{trip.origin}出发" + "{hours:g}小时，往返{return_fare_cny}元。"
        lines.append(there.format(**way.value) if good else f"交通查不到：{way.text}")
    else:
        lines.append("告诉我从哪里出发，就可以补上交通。")
    if sights := facts.value("get_attractions", destination=best, days=trip.days):
        lines.append(f"景点：{'、'.join(sights)}。")
    hotel, cost = choice(trip, facts, best)
    if hotel:
        lines.append("住{hotel}，每晚{price_cny_per_night}元。".format(**hotel))
    if cost:
        parts = "交通{transport}元，住宿{hotel}元，餐饮门票{meals_and_tickets}元".format(**cost)
        lines.append(f"{trip.travellers}人总共约{cost['total_cny']}元（{parts}）。")
        if trip.budget is not None:
            verdict = f"在{trip.budget}元预算之内" if within(trip, cost) else f"超出{trip.budget}元预算"
            lines.append(f"{verdict}{unbooked(trip, cost, '，所以没有预订')}。")
    for booked in facts.turn:
        if booked.name == "book_trip":
            number = booked.fields.get("booking")
            lines.append(f"已预订，编号{number}。" if number else f"没有预订。{booked.text}")
    return "".join(lines)


def unbooked(trip: Trip, cost: dict[str, Any], words: str) -> str:
    """`words` where a booking was asked for that would cost more than the traveller wants to spend."""
    return words if trip.book and not within(trip, cost) else ""


def rains(trip: Trip, facts: Facts, places: list[str]) -> list[tuple[str, int]]:
    """Rainy days of those places whose weather is known."""
    weather = ((place, facts.value("get_weather", destination=place, month=trip.month)) for place in places)
    return [(place, known["rain_days"]) for place, known in weather if known]


def climate(weather: dict[str, Any]) -> str:
    """Degrees of a month."""
    return f"{weather['low_c']}–{weather['high_c']} °C"
