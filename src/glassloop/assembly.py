"""From an agent and a journal to what the loop needs."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any

from glassloop.core.context import RunContext
from glassloop.core.ids import root_of
from glassloop.journal.recorder import Recorder, now_ms
from glassloop.journal.requests import RequestLog
from glassloop.middleware.approval import Approval, pending_of
from glassloop.middleware.call import ToolMiddleware
from glassloop.middleware.idempotency import Idempotency
from glassloop.middleware.reasons import Reasons
from glassloop.middleware.stack import tool_stack
from glassloop.models.model import ToolSpec
from glassloop.models.prices import load_prices
from glassloop.options import RunOptions
from glassloop.run import Run
from glassloop.tools.output import check_names
from glassloop.tools.toolset import ToolIndex
from glassloop.tree import Driving

if TYPE_CHECKING:
    from glassloop.agent import Agent
    from glassloop.memory.composing import Views


async def assemble(agent: Agent, driving: Driving) -> Run:
    """What the loop needs to drive a run of an agent.

    Raises:
        ConfigurationError: the model cannot be resolved.
    """
    run = await _seat(agent, driving)
    others = handoffs_of(agent)

    async def seat(name: str) -> Run:
        other = await _seat(others.get(name, agent), driving)
        driving.rates = other.prices.rates
        return other

    run.seat = seat
    run.agent = agent.name
    run.left = driving.allowance
    run.letting_go, run.close_below = driving.letting_go, driving.close_below
    driving.rates = run.prices.rates
    return run


def handoffs_of(agent: Agent) -> dict[str, Agent]:
    """The agents that a conversation with this one can be handed to, and those that they can hand it to."""
    found, due = {agent.name: agent}, [agent]
    while due:
        for tool in due.pop().tools.always:
            target: Agent | None = getattr(tool.function, "hands_off_to", None)
            if target is not None and target.name not in found:
                found[target.name] = target
                due.append(target)
    return found


async def ask_about_held(agent: Agent, run: Run, driving: Driving) -> None:
    """Let the human at hand, if there is one, decide on the calls that an earlier driver left held."""
    approval = _bound_approval(agent.approval, driving)
    state, now = run.recorder.state, now_ms()
    asked = [held for call_id in state.open_calls if (held := state.held_by(call_id)) is not None]
    open_ones = [one for one in asked if one.expires_at is None or one.expires_at > now]
    if approval.approver is None or not open_ones:
        return
    try:
        await run.recorder.commit()  # claimed, so that nobody takes the run over while the human thinks
        calls = [pending_of(state, one, state.open_calls[one.call_id].provider_id) for one in open_ones]
        for answer in await asyncio.gather(*map(approval.ask, calls)):
            if answer is not None:
                run.recorder.record(answer)
    except asyncio.CancelledError:
        await run.interrupted()
        raise


async def _seat(agent: Agent, driving: Driving) -> Run:
    """What the loop needs to drive the run by this agent."""
    recorder, options, store = driving.recorder, driving.options, driving.tree.store
    own = agent.name == driving.started.agent and driving.run_id == root_of(driving.run_id)
    model = agent.model_for(options if own or agent.model is None else RunOptions())
    context = RunContext(
        options.get("deps"), recorder.state.run_id, recorder.state.identity, store=store, below=driving
    )
    layers = [_bound(layer, driving) for layer in agent.layers]
    reasons = next((layer for layer in layers if isinstance(layer, Reasons)), None)
    return Run(
        recorder=recorder,
        requests=RequestLog(recorder),
        model=model,
        ask=agent.ask,
        call=tool_stack(layers),
        tools=_ToolsOfTheMoment(agent, context, recorder, reasons),
        context=context,
        instructions=await agent.instructions_for(context),
        settings=agent.settings,
        prices=await load_prices(model.name, agent.settings.price),
        view=await _views(agent, context, recorder),
        output=agent.output,
    )


async def _views(agent: Agent, context: RunContext[Any], recorder: Recorder) -> Views | None:
    if not agent.memory:
        return None
    from glassloop.memory.composing import Views

    views = Views(agent.memory, context)
    await views.prepare(recorder)
    return views


class _ToolsOfTheMoment:
    """The run's tools: looked up before each model request, the same until its calls have their results."""

    def __init__(self, agent: Agent, context: RunContext[Any], recorder: Recorder, reasons: Reasons | None) -> None:
        self.agent, self.context, self.recorder, self.reasons = agent, context, recorder, reasons
        self.known: tuple[ToolIndex, tuple[ToolSpec, ...]] | None = None

    async def __call__(self) -> tuple[ToolIndex, tuple[ToolSpec, ...]]:
        if self.known is not None and self.recorder.state.open_calls:
            return self.known
        index = await self.agent.tools.resolve(self.context)
        if self.known is None or index is not self.known[0]:
            check_names(self.agent.output, index.by_name)
            self.known = index, index.specs if self.reasons is None else self.reasons.specs(index.specs)
        return self.known


def _bound(layer: ToolMiddleware, driving: Driving) -> ToolMiddleware:
    """A layer with what only the run knows: who is asked, and where claims stand."""
    match layer:
        case Approval():
            return _bound_approval(layer, driving)
        case Idempotency(ledger=None):
            return Idempotency(driving.tree.store.ledger, layer.ttl)
        case _:
            return layer


def _bound_approval(layer: Approval, driving: Driving) -> Approval:
    also = [name.strip() for name in os.environ.get("APPROVE_TOOLS", "").split(",") if name.strip()]
    return layer.bound(driving.options.get("approve"), driving.started.approvals, also)
