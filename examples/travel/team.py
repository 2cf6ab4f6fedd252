"""The travel planner as a team: one plans routes, one prices each of them, side by side, one writes the plan and books.

A sequence rather than a supervisor: the order is the same for every journey, so it is code, and no model is paid for
deciding who is next. Everybody is told the traveller's own words, so nothing is lost on the way from one to the other.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field

from glassloop import Agent
from glassloop.core.encoding import dumps
from glassloop.teams import Step, branch, parallel, sequence

from .tools import (
    book_trip,
    estimate_budget,
    get_attractions,
    get_transport,
    get_weather,
    search_destinations,
    search_hotels,
)


class Route(BaseModel):
    """A destination, and how to get there; names are in the traveller's language."""

    destination: str
    low_c: int
    high_c: int
    rain_days: int
    sights: list[str] = []
    transport: str = Field("", description="Why there is no fare, where there is none.")
    hours: float | None = Field(None, description="One way; null where the origin is unknown.")
    return_fare_cny: int | None = None


class Routes(BaseModel):
    """What the planner comes to: the routes, the best first, or what the traveller is to be asked or told instead."""

    options: Annotated[list[Route], Field(max_length=2)] = []
    instead: str = ""


class Estimate(BaseModel):
    """What `estimate_budget` says."""

    transport: int
    hotel: int
    meals_and_tickets: int
    total_cny: int


class Price(BaseModel):
    """What the budget checker comes to: the best hotel that the budget allows, else the cheapest, and the sum."""

    hotel: str
    price_cny_per_night: int
    estimate: Estimate | None = Field(None, description="Null where the fare is unknown.")
    within_budget: bool = Field(True, description="True where the traveller named no budget.")


class Journey(BaseModel):
    """What the team knows so far, by the names of its parts."""

    input: str = ""
    routes: Routes = Routes()
    first: Price | None = None
    second: Price | None = None
    plan: str = ""


planner = Agent(
    tools=[search_destinations, get_weather, get_attractions, get_transport],
    name="planner",
    instructions="""\
You plan routes for short journeys in China. Compare the weather of the two best destinations, or look at the one that
the traveller names, and give for each its sights and the way there, the driest first. Others find hotels and prices.
Where month, days or taste are missing, or nothing suits, say instead what to ask or tell the traveller, in the
traveller's language.""",
    output=Routes,
)

checker = Agent(
    tools=[search_hotels, estimate_budget],
    name="budget-checker",
    instructions="""\
You check the budget of one route: find a hotel there and add everything up. Where that is over the traveller's budget,
do the same with the cheapest hotel.""",
    output=Price,
)

writer = Agent(
    tools=[book_trip],
    name="writer",
    instructions="""\
You write the traveller's plan from the routes and prices that others have found, and add nothing of your own. Suggest
the first route unless only the second is within the budget. Book only when the traveller asks for it. Answer in the
traveller's language.""",
)


def price(number: int) -> Step:
    """The budget checker on one of the routes."""

    def told(journey: Journey) -> str:
        return f"{journey.input}\n\nRoute: {journey.routes.options[number].model_dump_json()}"

    return Step(checker, prompt=told, into=("first", "second")[number])


def for_writer(journey: Journey) -> str:
    """What the writer is told."""
    prices = [journey.first, journey.second]
    options = [{"route": route, "price": price} for route, price in zip(journey.routes.options, prices, strict=False)]
    return f"{journey.input}\n\nRoutes: {dumps(options).decode()}"


def instead(journey: Journey) -> str:
    """What the traveller is asked or told where there is no route."""
    return journey.routes.instead


prices = branch(
    lambda journey: len(journey.routes.options) == 2,
    yes=parallel(price(0), price(1)),
    no=price(0),
)

team = sequence(
    Step(planner, into="routes"),
    branch(
        lambda journey: bool(journey.routes.options),
        yes=sequence(prices, Step(writer, prompt=for_writer, into="plan")),
        no=Step(instead, into="plan"),
    ),
    name="travel-team",
    state=Journey,
)
