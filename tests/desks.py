"""Agents whose tools ask a human, and a human who answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from glassloop import Agent, Identity
from glassloop.core.messages import ToolResult
from glassloop.core.result import Decision, RunResult
from glassloop.models.scripted import ScriptedModel, call
from glassloop.stores import Store

ANN = Identity("ann")


def desk(*tools: Any, calls: Sequence[Any] = (), name: str = "desk", **options: Any) -> Agent:
    """An agent that makes these calls, by default one of its first tool, and then says what came of them."""

    def answer(request: Any) -> Any:
        done = [message.content for message in request.messages if isinstance(message, ToolResult)]
        first = getattr(tools[0], "name", "") or tools[0].__name__
        return "; ".join(done) if done else [*calls] or call(first)

    return Agent(ScriptedModel(answer), tools, name=name, **options)


def answered(text: str) -> Decision:
    """What Ann says."""
    return Decision("answer", answer=text, by="ann")


async def answer(agent: Agent, result: RunResult, *texts: str, store: Store) -> RunResult:
    """Answer what a run asks, one question after another."""
    for text in texts:
        assert result.outcome == "waiting"
        [held] = result.pending
        result = await agent.resume(result.run_id, decisions={held.approval_id: answered(text)}, store=store)
    return result
