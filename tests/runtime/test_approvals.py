"""The inbox of a runtime: what is listed, to whom, and what becomes of a decision that a process was cut off in."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from glassloop import Agent, Identity, RunContext, tool
from glassloop.core.errors import StoreError
from glassloop.core.events import ApprovalDecided, Event
from glassloop.core.messages import ToolResult
from glassloop.core.result import Decision
from glassloop.models.scripted import ScriptedModel, call
from glassloop.runtime import ApprovalProblem, Runtime
from glassloop.stores import Store, open_store
from glassloop.tools.tool import Tool
from glassloop.tools.toolset import DynamicToolset

ANN = Identity("ann", "acme")
BOB = Identity("bob", "acme")


@pytest.fixture(params=["memory:", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    url = f"sqlite:///{tmp_path / 'runs.db'}" if request.param == "sqlite" else request.param
    async with open_store(url) as opened:
        yield opened


def payer(*people: str) -> tuple[Agent, list[str]]:
    """An agent that wants to pay these people, and who was paid."""
    paid: list[str] = []

    @tool(effect="write", risk="high")
    def pay(to: str) -> str:
        """Pay."""
        paid.append(to)
        return f"paid {to}"

    def answer(request: Any) -> Any:
        done = [message for message in request.messages if isinstance(message, ToolResult)]
        return [call("pay", to=one) for one in people] if not done else "done"

    return Agent(ScriptedModel(answer), [pay], name="desk"), paid


async def test_an_edit_needs_the_role_also_for_tools_that_are_made_for_each_run(store: Store) -> None:
    """vinhnx/VTCode#749: arguments that were edited run under the decision that was asked for those before."""
    paid: list[int] = []

    @tool(effect="write", approval=lambda arguments: "supervisor" if arguments["amount"] > 500 else True)
    def refund(amount: int) -> str:
        """Pay back."""
        paid.append(amount)
        return f"refunded {amount}"

    def tools_of(context: RunContext) -> list[Tool]:
        return [refund] if context.tenant == "acme" else []

    agent = Agent(ScriptedModel([call("refund", amount=100), "done"]), [DynamicToolset(tools_of)], name="desk")
    async with Runtime(agent, store=store) as runtime:
        result = await runtime.run("desk", "go", identity=ANN)
        held = result.pending[0].approval_id
        for arguments, kind in (({"amount": 900}, "forbidden"), ({"amount": "much"}, "invalid")):
            with pytest.raises(ApprovalProblem) as refused:
                await runtime.decide(held, Decision("edit", arguments=arguments), by=ANN)
            assert refused.value.kind == kind
        await runtime.decide(held, Decision("edit", arguments={"amount": 400}), by=ANN)
        assert (await runtime.wait(result.run_id)).outcome == "completed"
    assert paid == [400]


async def test_a_call_that_is_held_already_is_not_asked_about_again(store: Store) -> None:
    """curie-eng/curie#2885: the model asks once more, and a human has the same card twice."""
    agent, paid = payer("eve", "eve", "dan")
    async with Runtime(agent, store=store) as runtime:
        result = await runtime.run("desk", "go", identity=ANN, approvals="defer")
        assert [one.arguments for one in result.pending] == [{"to": "eve"}, {"to": "dan"}]
        first, again, other = (one.content for one in result.tool_executions)
        assert first == again != other
        await runtime.decide(result.pending[0].approval_id, Decision(), by=ANN)
        assert paid == ["eve"]


async def test_what_was_decided_is_listed_newest_first(store: Store) -> None:
    agent, _ = payer("eve", "dan", "kim", "lea")
    async with Runtime(agent, store=store) as runtime:
        result = await runtime.run("desk", "go", identity=ANN)
        held = {one.arguments["to"]: one.approval_id for one in result.pending}
        edit = Decision("edit", arguments={"to": "joe"})
        for name, decision in (("eve", Decision()), ("dan", Decision("deny", reason="no")), ("kim", edit)):
            await runtime.decide(held[name], decision, by=ANN)

        async def listed(status: Any, **more: Any) -> list[str]:
            rows = await runtime.approvals(identity=ANN, status=status, **more)
            return [row.approval_id for row in rows]

        assert [await listed(one) for one in ("pending", "approved", "denied", "edited", "expired")] == [
            *([held[name]] for name in ("lea", "eve", "dan", "kim")),
            [],
        ]
        decided = await listed("decided")
        assert decided == sorted((held[name] for name in ("eve", "dan", "kim")), reverse=True)
        assert await listed(None) == sorted(held.values(), reverse=True)
        assert await listed("decided", limit=1) == decided[:1]
        assert await listed("decided", before=decided[0]) == decided[1:]
        assert await listed("decided", run_id="run_other") == []
        assert await runtime.approvals(identity=BOB, status=None) == []
        [denied] = await runtime.approvals(status="denied")
        assert (denied.decided_by, denied.reason) == ("ann", "no")


async def held_for_later(store: Store, agent: Agent) -> tuple[str, str]:
    """A run whose call was deferred, and the approval."""
    async with Runtime(agent, store=store) as runtime:
        result = await runtime.run("desk", "go", identity=ANN, approvals="defer")
    return result.run_id, result.pending[0].approval_id


async def cut_off(store: Store, agent: Agent, approval: str, patch: pytest.MonkeyPatch) -> None:
    """Decide, in a process that ends after the call's own run was written and before the run that asked is told."""
    append = store.journal.append

    async def append_until(run_id: str, events: Sequence[Event], **more: Any) -> int:
        if isinstance(events[0].data, ApprovalDecided):
            raise StoreError("The process ended here.")
        return await append(run_id, events, **more)

    async with Runtime(agent, store=store) as runtime:
        with patch.context() as cut:
            cut.setattr(store.journal, "append", append_until)
            with pytest.raises(StoreError):
                await runtime.decide(approval, Decision(), by=ANN)


async def test_a_decision_that_was_cut_off_reaches_the_run_that_asked(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent, paid = payer("eve")
    run_id, approval = await held_for_later(store, agent)
    await cut_off(store, agent, approval, monkeypatch)
    assert "approval_decided" not in [event.type for event in await store.journal.read(run_id)]
    async with Runtime(agent, store=store) as runtime:
        with pytest.raises(ApprovalProblem, match="already"):
            await runtime.decide(approval, Decision("deny"), by=ANN)
        result = await runtime.wait(f"run_{approval.partition('_')[2]}")
        assert (result.outcome, paid) == ("completed", ["eve"])
        asked = await runtime.result(run_id)
        assert asked is not None
        assert asked.pending == ()
        row = await runtime.row(run_id)
        assert row is not None
        assert row.pending == 0
        assert await runtime.approvals(status="pending") == []
    answers = [event.data for event in await store.journal.read(run_id) if isinstance(event.data, ApprovalDecided)]
    assert [(one.decision, one.by) for one in answers] == [("approve", "ann")]


async def test_the_agent_alone_finishes_a_decision_that_was_cut_off(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent, paid = payer("eve")
    run_id, approval = await held_for_later(store, agent)
    await cut_off(store, agent, approval, monkeypatch)
    result = await agent.resume(f"run_{approval.partition('_')[2]}", store=store)
    assert (result.outcome, paid) == ("completed", ["eve"])
    assert [event.type for event in await store.journal.read(run_id)].count("approval_decided") == 1
