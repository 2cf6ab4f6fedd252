"""A tree of runs over HTTP: one run in the list, its stream, and approvals wherever in it they are."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from glassloop import Agent, tool
from glassloop.models.model import ModelRequest
from glassloop.runtime import Runtime
from glassloop.teams import agent_tool, sequence
from glassloop.testing import ScriptedModel, call


class Team:
    """A front agent that has a clerk, who has a cashier, who refunds; and what was refunded."""

    def __init__(self, amount: int = 100) -> None:
        self.amount = amount
        self.refunds: list[tuple[str, int]] = []

    def agent(self) -> Agent:
        """The front agent."""

        @tool(effect="write", approval=lambda arguments: "supervisor" if arguments["amount"] > 500 else True)
        def refund(order: str, amount: int) -> str:
            """Refund an order."""
            self.refunds.append((order, amount))
            return f"refunded {amount}"

        @tool(name="refund", effect="write")
        def other(reason: str) -> str:
            """Another tool of that name, of another agent."""
            return reason

        def asks(name: str) -> Callable[[ModelRequest], Any]:
            return lambda request: call(name, task="refund it") if is_new(request) else said(request)

        def wants(request: ModelRequest) -> Any:
            return call("refund", order="A-1", amount=self.amount) if is_new(request) else said(request)

        cashier = Agent(ScriptedModel(wants), [refund], name="cashier")
        clerk = Agent(ScriptedModel(asks("cashier")), [agent_tool(cashier)], name="clerk")
        return Agent(ScriptedModel(asks("clerk")), [agent_tool(clerk), other], name="front")


def is_new(request: ModelRequest) -> bool:
    """Whether nothing has been done."""
    return request.messages[-1].role == "user"


def said(request: ModelRequest) -> str:
    """What the tool has said."""
    return str(getattr(request.messages[-1], "content", ""))


async def held(user: Any, **options: Any) -> tuple[str, str]:
    """Start a run that stops at an approval below it: the ids of both."""
    run_id = await user.run("go", **options)
    run = await user.rested(run_id)
    assert run["status"] == "waiting"
    [pending] = run["pending_approvals"]
    assert pending["tool"] == "refund"
    return run_id, pending["approval_id"]


async def test_a_tree_is_one_run_in_the_list(serve: Callable[..., Any]) -> None:
    site = await serve(Team().agent())
    run_id, approval = await held(site.alice, session="s1")
    runs = (await site.alice.get("/v1/runs")).json["runs"]
    assert [(row["run_id"], row["status"], row["agent"]) for row in runs] == [(run_id, "waiting", "front")]
    assert (await site.alice.get("/v1/runs?session=s1&status=waiting")).json["runs"] == runs
    [asked] = (await site.alice.get("/v1/approvals")).json["approvals"]
    assert (asked["approval_id"], asked["agent"], asked["session"]) == (approval, "cashier", "s1")
    assert asked["run_id"].startswith(f"{run_id}.")
    assert (await site.alice.get(f"/v1/runs/{asked['run_id']}")).json["agent"] == "cashier"
    assert (await site.bob.get(f"/v1/runs/{asked['run_id']}")).status == 404


async def test_an_approval_at_depth_is_decided_after_a_restart(serve: Callable[..., Any], store: str) -> None:
    before, after = Team(), Team()
    run_id, approval = await held((await serve(before.agent())).alice)
    site = await serve(Runtime(after.agent(), store=store))
    assert (await site.alice.post(f"/v1/approvals/{approval}", {"decision": "approve"})).status == 200
    run = await site.alice.rested(run_id)
    assert (run["status"], run["output"]) == ("completed", "refunded 100")
    assert (before.refunds, after.refunds) == ([], [("A-1", 100)])
    assert (await site.alice.post(f"/v1/approvals/{approval}", {"decision": "deny"})).status == 409


async def test_only_those_whom_it_concerns_decide_at_depth(serve: Callable[..., Any]) -> None:
    team = Team(amount=501)
    site = await serve(team.agent())
    run_id, approval = await held(site.alice)
    path = f"/v1/approvals/{approval}"
    assert (await site.bob.get(path)).status == 404
    assert (await site.bob.post(path, {"decision": "approve"})).status == 404
    refused = await site.alice.post(path, {"decision": "approve"})
    assert (refused.status, refused.problem["code"]) == (403, "approval_forbidden")
    assert [row["approval_id"] for row in (await site.sam.get("/v1/approvals")).json["approvals"]] == [approval]
    assert (await site.sam.post(path, {"decision": "approve"})).status == 200
    assert (await site.alice.rested(run_id))["output"] == "refunded 501"
    assert team.refunds == [("A-1", 501)]


async def test_edited_arguments_are_checked_against_the_tool_of_the_agent_that_asks(serve: Callable[..., Any]) -> None:
    team = Team()
    site = await serve(sequence(team.agent(), name="office"))
    run_id, approval = await held(site.alice)
    path = f"/v1/approvals/{approval}"
    for wrong in ({"order": "A-1", "amount": "much"}, {"reason": "as the other tool has it"}):
        answer = await site.alice.post(path, {"decision": "edit", "args": wrong})
        assert (answer.status, answer.problem["code"]) == (422, "approval_invalid")
    large = await site.alice.post(path, {"decision": "edit", "args": {"order": "A-1", "amount": 900}})
    assert (large.status, large.problem["code"]) == (403, "approval_forbidden")
    right = await site.alice.post(path, {"decision": "edit", "args": {"order": "A-1", "amount": 50}})
    assert right.status == 200
    assert (await site.alice.rested(run_id))["output"].startswith("refunded 50\n[A human changed this call")
    assert team.refunds == [("A-1", 50)]


async def test_a_call_that_is_deferred_at_depth_runs_by_itself(serve: Callable[..., Any], store: str) -> None:
    before, after = Team(), Team()
    site = await serve(before.agent())
    run_id = await site.alice.run("go", approvals="defer", session="s1")
    run = await site.alice.rested(run_id)
    assert run["status"] == "completed"
    [pending] = run["pending_approvals"]
    assert pending["approval_id"] in run["output"]
    site = await serve(Runtime(after.agent(), store=store))
    path = f"/v1/approvals/{pending['approval_id']}"
    decided = await site.alice.post(path, {"decision": "approve"})
    assert (decided.json["result"]["outcome"], decided.json["result"]["output"]) == ("completed", "refunded 100")
    assert (before.refunds, after.refunds) == ([], [("A-1", 100)])
    assert (await site.alice.post(path, {"decision": "approve"})).status == 409
    assert (await site.alice.get(f"/v1/runs/{run_id}")).json["pending_approvals"] == []
    runs = (await site.alice.get("/v1/runs")).json["runs"]
    assert [(row["agent"], row["status"]) for row in runs] == [("cashier", "completed"), ("front", "completed")]


async def test_an_approval_of_a_run_that_has_ended_is_withdrawn(serve: Callable[..., Any]) -> None:
    team = Team()
    site = await serve(team.agent())
    run_id, approval = await held(site.alice)
    assert (await site.alice.post(f"/v1/runs/{run_id}/cancel")).status == 202
    assert (await site.alice.rested(run_id))["status"] == "cancelled"
    assert (await site.alice.get("/v1/approvals")).json["approvals"] == []
    path = f"/v1/approvals/{approval}"
    assert (await site.alice.get(path)).json["status"] == "withdrawn"
    [listed] = (await site.alice.get("/v1/approvals?status=withdrawn")).json["approvals"]
    assert listed["approval_id"] == approval
    refused = await site.alice.post(path, {"decision": "approve"})
    assert (refused.status, refused.problem["code"]) == (409, "approval_decided")
    assert refused.problem["detail"] == "The run that asked for this has ended: there is nothing left to decide."
    assert team.refunds == []


async def test_a_stream_has_the_runs_below_if_asked_for_them(serve: Callable[..., Any]) -> None:
    go = asyncio.Event()

    async def slow(_: ModelRequest) -> str:
        await go.wait()
        return "late"

    below = Agent(ScriptedModel(slow), name="below")
    site = await serve(Agent(ScriptedModel([call("below", task="x"), "done"] * 2), [agent_tool(below)], name="top"))
    for tree in (True, False):
        go.clear()
        run_id = await site.alice.run("go")
        path = f"/v1/runs/{run_id}/events"
        async with site.alice.stream("GET", f"{path}?tree=true" if tree else path) as stream:
            await stream.until("run_started")
            go.set()
            frames = await stream.all()
        assert frames[-1].data == {"run_id": run_id, "status": "completed"}
        others = [frame for frame in frames if frame.data["run_id"] != run_id]
        assert {frame.id for frame in others} == ({None} if tree else set())
        assert ("run_finished" in [frame.event for frame in others]) == tree
        assert [frame.id for frame in frames if frame.id] == list(range(2, 2 + sum(bool(f.id) for f in frames)))
