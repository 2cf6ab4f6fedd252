"""The research assistant: searches the shop's documents, calculates, and remembers the conversation.

python -m examples.research --trace "Look up how long a refund takes, then how many hours are 3 working days"
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from glassloop import Agent
from glassloop.memory import TokenWindow
from glassloop.testing import StandIn

from .search import Library
from .tools import calculate, get_current_time, percentage

if TYPE_CHECKING:
    from fastapi import FastAPI

    from glassloop.runtime import Runtime

INSTRUCTIONS = """\
You are the research assistant of a shop. Answer from its documents: search them before you say anything about the shop,
and name the file that each statement comes from. Where documents disagree, give every value with its file and say that
they disagree; do not choose one. Where the documents say nothing, say that.
Leave arithmetic to the tools. If a tool refuses, quote what it says. What was said or computed earlier in the
conversation you know already: answer from it, without a tool. Answer in the user's language, shortly."""

library = Library()

agent = Agent(
    tools=[library, get_current_time, calculate, percentage],
    name="research",
    instructions=INSTRUCTIONS,
    memory=[TokenWindow(8_000)],
)

STAND_IN = StandIn("stand_in.py", beside=__file__, wire="openai")


def app(server: FastAPI, runtime: Runtime) -> None:
    """Add the assistant's routes to the server of `glassloop serve`."""
    from .http import routes

    server.include_router(routes(runtime, library))
