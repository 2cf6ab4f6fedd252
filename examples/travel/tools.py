"""What the travel agent can do: look things up, add things up, and, with a human's yes, book."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import Field

from glassloop import RunContext, ToolError, tool

from .data import DESTINATIONS, ORIGINS, Destination, in_language_of

Month = Annotated[int, Field(ge=1, le=12)]
Count = Annotated[int, Field(ge=1, le=30)]

WORDS = {
    "nature": "nature green forest 自然 山水 风景",
    "quiet": "quiet calm peaceful 安静 清静 宁静",
    "town": "town towns village villages 小镇 古镇 村",
    "mountains": "mountain mountains hiking 山 爬山 徒步",
    "beach": "beach sea coast swimming 海 海边 沙滩",
    "water": "water lake river 水 湖 江",
    "history": "history museum museums old culture 历史 文化 博物馆 古迹",
    "food": "food eating cuisine 美食 吃",
    "city": "city cities shopping 城市 购物",
    "snow": "snow ice skiing 雪 冰 滑雪",
}


def search_destinations(month: Month, preference: str) -> list[dict[str, Any]]:
    """Search places to travel to, the best match first.

    Args:
        month: month of the journey, 1 to 12
        preference: what the traveller likes, e.g. "nature, quiet towns"
    """
    wanted = {tag for tag, words in WORDS.items() if any(means(preference.lower(), word) for word in words.split())}
    if not wanted:
        raise ToolError(f"No destination is known for {preference!r}. Known preferences: {', '.join(WORDS)}.")
    scored = [(len(wanted & set(place.tags)), -place.climate(month).rain_days, place) for place in DESTINATIONS]
    best = sorted((item for item in scored if item[0]), key=lambda item: item[:2], reverse=True)
    return [{"name": place.name, "chinese": place.chinese, "liked_for": place.tags} for _, _, place in best[:3]]


def get_weather(destination: str, month: Month) -> dict[str, Any]:
    """Get the usual weather of a destination in a month.

    Args:
        destination: name of the place, in English or Chinese
        month: 1 to 12
    """
    climate = find(destination).climate(month)
    return {"destination": destination, "month": month, **vars(climate)}


def get_attractions(destination: str, days: Count) -> list[str]:
    """Get what to see at a destination, two things a day.

    Args:
        destination: name of the place, in English or Chinese
        days: days at the place
    """
    return [in_language_of(destination, name) for name in find(destination).attractions[: 2 * days]]


def get_transport(origin: str, destination: str) -> dict[str, Any]:
    """Get the fastest way to a destination and its return fare.

    Args:
        origin: city to leave from
        destination: name of the place
    """
    place, city = find(destination), ORIGINS.get(origin, origin)
    if city not in place.hours:
        raise ToolError(f"No connection from {origin!r} is known. Known origins: {', '.join(ORIGINS.values())}.")
    return {"from": city, "to": place.name, "hours": place.hours[city], "return_fare_cny": place.fares[city]}


def search_hotels(destination: str, quiet: bool = False) -> list[dict[str, Any]]:
    """Search hotels at a destination, the best first.

    Args:
        destination: name of the place, in English or Chinese
        quiet: only quiet ones
    """
    hotels = [hotel for hotel in find(destination).hotels if hotel.quiet or not quiet]
    return [
        {
            "hotel": in_language_of(destination, hotel.name),
            "price_cny_per_night": hotel.price_cny,
            "quiet": hotel.quiet,
        }
        for hotel in hotels
    ]


def estimate_budget(
    return_fare_cny: int, hotel_cny_per_night: int, days: Count, travellers: Count = 1
) -> dict[str, Any]:
    """Add up what a journey costs in yuan, meals and tickets included; two travellers share a room.

    Args:
        return_fare_cny: per traveller
        hotel_cny_per_night: per room
        days: days away; one night less
        travellers: number of people
    """
    rooms, nights = (travellers + 1) // 2, max(days - 1, 1)
    parts = {
        "transport": return_fare_cny * travellers,
        "hotel": hotel_cny_per_night * nights * rooms,
        "meals_and_tickets": 200 * days * travellers,
    }
    return {**parts, "total_cny": sum(parts.values())}


@tool(effect="write", risk="high", idempotent=True)
def book_trip(
    context: RunContext, destination: str, hotel: str, month: Month, days: Count, travellers: Count, total_cny: int
) -> dict[str, Any]:
    """Book the journey: transport and hotel. Costs money.

    Args:
        destination: name of the place
        hotel: name of the hotel
        month: 1 to 12
        days: days away
        travellers: number of people
        total_cny: what the traveller agreed to pay
    """
    place = find(destination)
    if not any(hotel in known.name.split(" | ") for known in place.hotels):
        raise ToolError(f"There is no hotel {hotel!r} in {place.name}; search_hotels lists them.")
    return {"booking": f"TR-{context.idempotency_key[-8:].upper()}", "destination": place.name, "total_cny": total_cny}


def means(text: str, word: str) -> bool:
    """Whether the word stands in the text, also in the plural; Chinese has no blanks between words."""
    return bool(re.search(rf"\b{word}(?:s|es)?\b", text)) if word.isascii() else word in text


def find(destination: str) -> Destination:
    """The place of that name.

    Raises:
        ToolError: there is none.
    """
    for place in DESTINATIONS:
        if place.answers_to(destination):
            return place
    raise ToolError(f"Unknown destination {destination!r}. Known: {', '.join(place.name for place in DESTINATIONS)}.")
