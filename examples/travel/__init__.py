"""A travel planner: the model picks the order of the tools, and nothing is booked without a human's yes.

python -m examples.travel --trace "I am in Shanghai, 4 days off in October, I like nature and quiet towns"
python -m examples.travel --trace --team "I am in Shanghai, 4 days off in October, I like nature and quiet towns"
"""

from __future__ import annotations

from glassloop import Agent
from glassloop.testing import StandIn

from .team import team
from .tools import (
    book_trip,
    estimate_budget,
    get_attractions,
    get_transport,
    get_weather,
    search_destinations,
    search_hotels,
)

INSTRUCTIONS = """\
You plan short journeys in China. Compare the weather of the best destinations, then give a plan with transport, hotel,
sights and the price of everything. Prices are in yuan. Book only when the traveller asks for it.
Answer in the traveller's language."""

agent = Agent(
    tools=[
        search_destinations,
        get_weather,
        get_attractions,
        get_transport,
        search_hotels,
        estimate_budget,
        book_trip,
    ],
    name="travel",
    instructions=INSTRUCTIONS,
)

STAND_IN = StandIn("stand_in_team.py", beside=__file__, wire="openai")

__all__ = ["STAND_IN", "agent", "team"]
