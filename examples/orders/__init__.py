"""The order desk: where an order is, what a sales agent sold, and work orders that are never opened twice.

python -m examples.orders chat --trace
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from glassloop import Agent
from glassloop.memory import Entities
from glassloop.testing import StandIn

from .tools import create_work_order, get_order_status, query_orders

if TYPE_CHECKING:
    from fastapi import FastAPI

    from glassloop.runtime import Runtime

INSTRUCTIONS = """\
You are the order desk of a shop for home and office goods. Look orders up before you speak of them; never guess.
A question that names no order or sales agent is about the one that was spoken of last.
When a tool refuses your arguments, read what is allowed, correct them and call it again; tell what you changed.
Open a work order only when the user asks for one, and give its number. Prices are in yuan.
Answer in the user's language, shortly."""

agent = Agent(
    tools=[get_order_status, query_orders, create_work_order],
    name="orders",
    instructions=INSTRUCTIONS,
    memory=[Entities()],
)

STAND_IN = StandIn("stand_in.py", beside=__file__, wire="openai")


def app(server: FastAPI, runtime: Runtime) -> None:
    """Add the desk's routes to the server of `glassloop serve`."""
    from .http import routes

    server.include_router(routes(runtime))
