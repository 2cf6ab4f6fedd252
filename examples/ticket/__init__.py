"""The after-sales ticket desk: order, policy, ticket. Nothing is written before a human has said yes.

python -m examples.ticket --trace "Customer complains that order 2024001 was never shipped"
python -m examples.ticket --plan "Customer complains that order 2024001 was never shipped"
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from glassloop import Agent
from glassloop.teams import planned
from glassloop.testing import StandIn

from .tools import create_ticket, query_order_detail, search_policy, submit_refund

if TYPE_CHECKING:
    from fastapi import FastAPI

    from glassloop.runtime import Runtime

INSTRUCTIONS = """\
You are the after-sales desk of a shop. For every complaint look up the order first, then the policy that applies, then
do what the policy asks for: open a ticket, or submit a refund where the customer wants money back.
Tickets and refunds are confirmed by a human. Where a tool says that a call is held, tell the confirmation id and that
nothing has been done yet; where it was denied, say so politely with the reason, and do not try again.
Never promise what neither the order's record nor a policy says. Prices are in yuan. Answer in the user's language."""

agent = Agent(
    tools=[query_order_detail, search_policy, create_ticket, submit_refund],
    name="ticket",
    instructions=INSTRUCTIONS,
)

plan_first = planned(agent)

STAND_IN = StandIn("stand_in_plan.py", beside=__file__, wire="openai")


def app(server: FastAPI, runtime: Runtime) -> None:
    """Add the desk's routes to the server of `glassloop serve`."""
    from .http import routes

    server.include_router(routes(runtime))
