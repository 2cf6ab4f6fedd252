"""The model that stands in for each of the team, and for the planner that works alone, when there is no key.

It knows by its instructions who it is, and reads what that one is told: the traveller's words, routes, prices.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from examples.travel import stand_in
from examples.travel.stand_in import Facts, Trip
from glassloop.core.encoding import dumps, loads
from glassloop.models.model import FINAL_ANSWER
from glassloop.testing import Conversation, Reaction, ToolOutcome, ask, call


def brain(conversation: Conversation) -> Reaction:
    """What the one whose instructions these are does next."""
    roles = (role for words, role in ROLES.items() if conversation.system.startswith(words))
    return next(roles, stand_in.brain)(conversation)


def plan_routes(conversation: Conversation) -> Reaction:
    """The planner: destinations, their weather, sights and ways, then the routes."""
    trip, facts = stand_in.read_trip([conversation.user]), Facts(conversation)
    if not stand_in.is_clear(trip):
        return given(conversation, instead=stand_in.missing(trip))
    found = stand_in.search(trip, facts)
    if found is not None:
        return given(conversation, instead=found) if isinstance(found, str) else found
    candidates = stand_in.candidates_of(trip, facts)
    if asked := stand_in.weather(trip, facts, candidates):
        return asked
    routes = sorted((route for place in candidates for route in route_to(place, trip, facts)), key=rain)
    if not routes:
        return given(conversation, instead=stand_in.unplannable(trip, facts, candidates))
    places = [route["destination"] for route in routes]
    if calls := [each for place in places for each in stand_in.detail_calls(trip, facts, place)]:
        both = ("和" if trip.chinese else " and ").join(places)
        thought = f"看看{both}的景点和交通。" if trip.chinese else f"Sights of {both}, and how to get there."
        return ask(*calls, text=thought)
    return given(conversation, options=routes)


def rain(route: dict[str, Any]) -> tuple[int, str]:
    """What routes are ordered by: rainy days, then the name."""
    return route["rain_days"], route["destination"]


def route_to(place: str, trip: Trip, facts: Facts) -> Iterator[dict[str, Any]]:
    """The route to a place as far as it is known; none where its weather is not."""
    weather = facts.value("get_weather", destination=place, month=trip.month)
    if weather is None:
        return
    route = {"destination": place, **{name: weather[name] for name in ("low_c", "high_c", "rain_days")}}
    route["sights"] = facts.value("get_attractions", destination=place, days=trip.days) or []
    way = facts.of("get_transport", origin=trip.origin, destination=place) if trip.origin else None
    if way is not None:
        known = {name: way.fields.get(name) for name in ("hours", "return_fare_cny")}
        route |= known if way.fields else {"transport": way.text}
    yield route


def check_budget(conversation: Conversation) -> Reaction:
    """The budget checker: a hotel, and the sum with it."""
    words, told = conversation.user.rsplit("\n\nRoute: ", 1)
    trip, route = replace(stand_in.read_trip([words]), book=False), loads(told)
    facts, place = Facts(conversation, said_of(trip, route)), route["destination"]
    if asked := stand_in.lodging(trip, facts, place) or stand_in.money(trip, facts, place):
        return asked
    hotel, cost = stand_in.choice(trip, facts, place)
    fits = stand_in.within(trip, cost) if cost else True
    kept = {name: hotel[name] for name in ("hotel", "price_cny_per_night")}
    return given(conversation, **kept, estimate=cost or None, within_budget=fits)


def write_plan(conversation: Conversation) -> Reaction:
    """The writer: a booking where one is wanted, then the plan in words."""
    words, told = conversation.user.rsplit("\n\nRoutes: ", 1)
    trip, options = stand_in.read_trip([words]), loads(told)
    said = [each for option in options for each in said_of(trip, option["route"], option["price"])]
    facts = Facts(conversation, said)
    fitting = [option for option in options if option["price"]["within_budget"]]
    chosen = (fitting or options)[0]
    best = chosen["route"]["destination"]
    if asked := stand_in.money(trip, facts, best):
        return asked
    others = [option for option in options if option is not chosen]
    in_words = stand_in.chinese_plan if trip.chinese else stand_in.english_plan
    plan = in_words(trip, facts, best, [option["route"]["destination"] for option in others])
    return plan + "".join(compared(trip, option) for option in others if option["price"]["estimate"])


def compared(trip: Trip, option: dict[str, Any]) -> str:
    """What the journey that is not suggested would cost."""
    place, total = option["route"]["destination"], option["price"]["estimate"]["total_cny"]
    return f"去{place}的话总共约{total}元。" if trip.chinese else f" {place} would be about {total} yuan in all."


def said_of(trip: Trip, route: dict[str, Any], price: dict[str, Any] | None = None) -> Iterator[ToolOutcome]:
    """A route and its price, as the tools have told them to others of the team."""

    def said(tool: str, value: Any, **arguments: Any) -> ToolOutcome:
        return ToolOutcome(tool, arguments, value if isinstance(value, str) else dumps(value).decode())

    place, fare = route["destination"], route["return_fare_cny"]
    yield said("get_weather", route, destination=place, month=trip.month)
    yield said("get_attractions", route["sights"], destination=place, days=trip.days)
    if trip.origin:
        way = {"from": trip.origin, "hours": route["hours"], "return_fare_cny": fare}
        yield said("get_transport", route["transport"] or way, origin=trip.origin, destination=place)
    if price is not None:
        yield said("search_hotels", [price], destination=place)
        if price["estimate"] is not None:
            yield said("estimate_budget", price["estimate"], **stand_in.budget_arguments(trip, fare, price))


def given(conversation: Conversation, **answer: Any) -> Reaction:
    """A typed answer, in the form that is asked for."""
    return call(FINAL_ANSWER, **answer) if conversation.offers(FINAL_ANSWER) else dumps(answer).decode()


ROLES = {
    "You plan routes": plan_routes,
    "You check the budget": check_budget,
    "You write the traveller's plan": write_plan,
}
