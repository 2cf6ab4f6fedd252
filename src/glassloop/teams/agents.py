"""An agent as a tool, and a model that chooses among agents."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping, Sequence
from typing import Any

from glassloop.agent import Agent
from glassloop.core.context import RunContext
from glassloop.core.errors import ConfigurationError, FatalToolError, ToolError
from glassloop.core.limits import Limits
from glassloop.core.result import RunResult
from glassloop.middleware.call import Pending
from glassloop.models.model import Model
from glassloop.runnable import Runnable
from glassloop.teams.flow import FLOW_LIMITS
from glassloop.tools.tool import Tool

TASK = {
    "type": "string",
    "description": "What to do, with everything that is needed to know: nothing else is passed on.",
}

_HOPELESS = frozenset({"auth", "payment", "not_found", "price", "configuration"})
"""What no model mends that is told of it: it would ask again, or answer without, and say nothing of what is wrong."""

SUPERVISE = (
    "You lead a team. Give each part of the task to the member who is best for it, one at a time or several at once, "
    "check what comes back, and ask again where it is not good enough. Do not do yourself what a member can do. When "
    "everything is there, answer the user."
)


def agent_tool(runs: Runnable, *, name: str | None = None, description: str | None = None) -> Tool:
    """An agent, or a flow, as a tool: the model gives it a task and reads its answer.

    Each call is a run below the caller's: it spends from the same limits, is cancelled with it, and when it waits for
    a human both rest. It has no time-out of its own, and is never done twice.

    Args:
        runs: the agent.
        name: of the tool; default the agent's.
        description: for the model, what it is good for; default the beginning of its instructions.

    Raises:
        ToolDefinitionError: the name cannot name a tool.
    """

    about = description or about_agent(runs)
    schema = {"type": "object", "properties": {"task": TASK}, "required": ["task"]}
    return Tool.from_schema(name or runs.name, about, schema, _Delegate(runs), timeout=math.inf)


def supervisor(
    model: str | Model | None,
    members: Sequence[Runnable] | Mapping[str, Runnable],
    *,
    instructions: str = SUPERVISE,
    name: str = "supervisor",
    limits: Limits = FLOW_LIMITS,
) -> Agent:
    """An agent whose one tool gives tasks to the members of a team, until its model answers.

    Args:
        model: who chooses.
        members: agents and flows; a mapping says by its keys what each is good for.
        instructions: the system prompt, before the list of members.
        name: of the agent.
        limits: of the whole team.

    Raises:
        ConfigurationError: no members, or two have one name.
    """
    given = [(about_agent(one), one) for one in members] if not isinstance(members, Mapping) else list(members.items())
    by_name = {one.name: one for _, one in given}
    if len(by_name) != len(given) or not given:
        raise ConfigurationError("A supervisor needs members, each with a name of its own: Agent(..., name=...).")

    who = {"type": "string", "enum": list(by_name), "description": "Who does it."}
    schema = {"type": "object", "properties": {"member": who, "task": TASK}, "required": ["member", "task"]}
    about = "Give a member of the team a task, and read what it comes to."
    team = "\n".join(f"- {one.name}: {what}" for what, one in given)
    tool = Tool.from_schema("give_task", about, schema, _Delegate(*by_name.values()), timeout=math.inf)
    return Agent(model, [tool], instructions=f"{instructions}\n\nYour team:\n{team}", name=name, limits=limits)


class _Delegate:
    """The function behind an agent as a tool, or behind a team."""

    def __init__(self, *begins: Runnable) -> None:
        self.begins = begins

    async def __call__(self, context: RunContext[Any], task: str, member: str = "") -> Any:
        runs = next((one for one in self.begins if one.name == member), self.begins[0])
        try:
            return await delegate(context, runs, task)
        except ConfigurationError as error:
            raise _hopeless(f"{runs.name} cannot be asked: {error}", "configuration") from error


def _hopeless(message: str, kind: str) -> FatalToolError:
    error = FatalToolError(message)
    error.kind = kind
    return error


async def delegate(context: RunContext[Any], runs: Runnable, task: str, *, key: str = "") -> Any:
    """Give a task to an agent from inside a tool: a run below the caller's, the same for the same call and key.

    Where the agent waits for a human, so does the call: give back what this returns. The function is called again when
    the decision is there, and takes what has ended meanwhile from here.

    Args:
        context: of the call.
        runs: the agent, or flow.
        task: what it is told; only the first time counts.
        key: tells the runs that one call begins from each other.

    Returns:
        its typed output where it has one, else its text; or that it waits for a human.

    Raises:
        ToolError: it did not complete; says why, and how far it came.
        FatalToolError: it did not, and would not if it were asked again: its model's server refuses access or wants
            payment, or there is no such model. The caller's run ends with this, too, as a ModelError.
        ConfigurationError: called outside a run, or no model is configured for `runs`.
    """
    if context.below is None:
        raise ConfigurationError("An agent as a tool needs a run: call it through an agent's tools.")
    result = await context.below.run(f"{context.call_id}/{key}" if key else context.call_id, runs, task)
    if result.outcome == "waiting":
        return Pending("", result.run_id)
    if result.outcome != "completed":
        if result.error_kind in _HOPELESS:
            raise _hopeless(failure_of(runs.name, result), result.error_kind)
        raise ToolError(failure_of(runs.name, result))
    return result.output if result.value is None else result.value


def failure_of(name: str, result: RunResult) -> str:
    """What a model is told of an agent that did not complete."""
    partial = f" What it had so far: {result.output}" if result.output else ""
    return f"{name} did not complete ({result.outcome}): {result.message or 'no reason given.'}{partial}"


def about_agent(runs: Runnable) -> str:
    """What a model is told an agent is good for, unless told: the first paragraph of its instructions."""
    instructions = runs.instructions if isinstance(runs, Agent) else ""
    text = instructions if isinstance(instructions, str) else inspect.getdoc(instructions) or ""
    first = text.strip().partition("\n\n")[0].replace("\n", " ")
    return first[:300] or f"Does what {runs.name} does."
