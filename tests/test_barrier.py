"""Calls of one step whose order counts, while a human thinks about one of them."""

from __future__ import annotations

from typing import Any

import pytest

from glassloop import Agent, tool
from glassloop.core.messages import ToolResult, UserMessage
from glassloop.models.model import ModelRequest
from glassloop.models.scripted import ScriptedModel, call
from glassloop.stores import open_store


@pytest.mark.parametrize("held", ["order", "pay"])
async def test_a_sequential_tool_is_a_barrier_also_while_a_human_thinks(held: str) -> None:
    """anomalyco/opencode#4094, openclaw/openclaw#137980: what needs a yes ran after what counts on it."""
    log: list[str] = []

    @tool(effect="write", approval=held == "order")
    def order(item: str) -> str:
        log.append(f"order {item}")
        return f"ordered {item}"

    @tool(effect="write", sequential=True, approval=held == "pay")
    def pay(item: str) -> str:
        log.append(f"pay {item}")
        return f"paid {item}"

    def brain(request: ModelRequest) -> Any:
        if any(isinstance(message, ToolResult) for message in request.messages):
            return "done"
        return [call("order", item="a"), call("pay", item="a"), call("order", item="b")]

    agent, store = Agent(ScriptedModel(brain), [order, pay]), open_store("memory:")
    result = await agent.run("go", session="s", store=store)
    assert (result.outcome, log) == ("waiting", [] if held == "order" else ["order a"])
    between = await agent.run("and now?", session="s", store=store)
    told = [message.content for message in between.messages if isinstance(message, ToolResult)]
    first = "Held for approval" if held == "order" else "ordered a"
    assert [told[0].startswith(first), told[2].startswith("Not run yet: order waits")] == [True, True]
    while result.pending:
        decisions = {one.approval_id: True for one in result.pending}
        result = await agent.resume(result.run_id, store=store, decisions=decisions)
    assert result.outcome == "completed"
    assert log == ["order a", "pay a", "order b"]
    said = [message.text for message in await store.sessions.load("s") if isinstance(message, UserMessage)]
    assert len([text for text in said if "paid a" in text or "ordered b" in text]) == 2
