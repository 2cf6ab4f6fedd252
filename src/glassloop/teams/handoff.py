"""Handing a conversation to another agent."""

from __future__ import annotations

import re
from typing import Any

from glassloop.agent import Agent
from glassloop.core.context import RunContext
from glassloop.teams.agents import about_agent
from glassloop.tools.tool import Tool


class HandOff:
    """The function behind a hand-off; the run looks at `hands_off_to` when the call has its result.

    Args:
        agent: who takes over.
    """

    def __init__(self, agent: Agent) -> None:
        self.hands_off_to = agent
        self.begins = (agent,)

    async def __call__(self, context: RunContext[Any], reason: str = "") -> str:
        """Says who has the conversation now."""
        return f"{self.hands_off_to.name} has the conversation now."


def handoff(agent: Agent, *, name: str | None = None, description: str | None = None) -> Tool:
    """A tool that hands the conversation to another agent: the same run goes on with that agent's model, instructions
    and tools, and the other reads all that was said.

    Two agents may hand to each other: `tools` of one can be added to later through a `DynamicToolset`, or give both a
    hand-off to a third. `Limits.handoffs` of the run bounds how often. The next run of a session begins with the agent
    it is a run of.

    Args:
        agent: who takes over.
        name: of the tool; default `hand_to_` and the agent's name.
        description: for the model, when to hand over; default the beginning of the agent's instructions.

    Raises:
        ToolDefinitionError: the name cannot name a tool.
    """
    about = description or f"Hand the conversation to {agent.name}: {about_agent(agent)}"
    reason = {"type": "string", "description": "Why, in one sentence."}
    schema = {"type": "object", "properties": {"reason": reason}}
    named = name or f"hand_to_{re.sub(r'[^A-Za-z0-9_-]+', '_', agent.name)}"
    return Tool.from_schema(named, about, schema, HandOff(agent))
