"""The same assistant with the loop written by hand, from the public pieces that `glassloop.loop` stands on.

All there is to tool calling is in `answer`: send the conversation together with the list of tools, run the calls that
come back, add their results, send it again. Without the list the model never calls anything, however it is asked.

What is missing here is what the runtime is for: a journal to go on from, limits on time, tokens and money, retries,
time-outs, approvals, traces.

    python -m examples.research --manual [--no-tools] "What is 5 / 0?"
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from glassloop import Agent, Identity, RunContext, ToolError
from glassloop.core.ids import new_id
from glassloop.core.messages import Message, Reply, ToolCall, ToolResult, UserMessage
from glassloop.models.model import Model, ModelRequest, complete
from glassloop.stores import Store
from glassloop.tools.results import render_result
from glassloop.tools.toolset import ToolIndex, unknown_tool_message

MOST_STEPS = 10


@dataclass(frozen=True)
class Turn:
    """A question, what was done about it, and the answer, which is the last message."""

    run_id: str
    messages: Sequence[Message]

    @property
    def answer(self) -> str:
        """What the model said at the end; empty if the steps were used up before."""
        last = self.messages[-1]
        return last.text if isinstance(last, Reply) else ""

    @property
    def calls(self) -> list[tuple[ToolCall, ToolResult]]:
        """Every tool call with its result, in order."""
        calls = [call for reply in self.messages if isinstance(reply, Reply) for call in reply.calls]
        return list(zip(calls, [each for each in self.messages if isinstance(each, ToolResult)], strict=True))


async def converse(
    question: str, agent: Agent, store: Store, *, who: Identity, model: Model, tools: bool = True
) -> Turn:
    """Answer a question with what was said before in the session, and remember both.

    Args:
        question: the user's.
        agent: whose tools and instructions to use; its own loop is not.
        store: has the sessions.
        who: user and session.
        model: answers.
        tools: False leaves the list of tools out.

    Raises:
        ModelError: the model's server refused or failed; nothing is remembered.
    """
    context = RunContext(None, new_id("manual"), who, store=store)
    instructions = await agent.instructions_for(context)
    offered = await agent.tools.resolve(context) if tools else ToolIndex(())
    session = who.session or context.run_id
    async with store.sessions.lock(session, context.run_id):
        history = await store.sessions.load(session)
        turn = await answer(question, history, context, model=model, instructions=instructions, tools=offered)
        await store.sessions.append(session, context.run_id, turn)
    return Turn(context.run_id, turn)


async def answer(
    question: str,
    history: Sequence[Message],
    context: RunContext,
    *,
    model: Model,
    instructions: str,
    tools: ToolIndex,
) -> list[Message]:
    """The loop: what it adds to the conversation."""
    turn: list[Message] = [UserMessage(question)]
    for _ in range(MOST_STEPS):
        reply = await complete(model, ModelRequest([*history, *turn], instructions, tools.specs))
        turn.append(reply)
        if not reply.calls:
            break
        turn += await asyncio.gather(*(run(call, tools, context) for call in reply.calls))
    return turn


async def run(call: ToolCall, tools: ToolIndex, context: RunContext) -> ToolResult:
    """One call. Whatever comes of it, there is a result: a conversation with a call without one is refused."""
    tool = tools.find(call.name)
    if tool is None:
        return ToolResult(call.id, call.name, unknown_tool_message(call.name, tools), "error")
    try:
        checked = tool.validate(call.arguments)
        value = await tool.invoke(checked.kwargs, context)
    except ToolError as error:  # also raised for arguments that do not fit: the model reads it and tries again
        return ToolResult(call.id, tool.name, str(error), "error")
    except Exception as error:  # noqa: BLE001 - its words may hold addresses and passwords: the model reads the kind alone
        return ToolResult(call.id, tool.name, f"The tool failed with {type(error).__name__}.", "error")
    return ToolResult(call.id, tool.name, render_result(value).content)
