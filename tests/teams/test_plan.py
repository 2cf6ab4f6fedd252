"""Plan first: checked before anything runs, reviewed by a human, carried out once, planned anew where a step fails."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from glassloop import Agent, Identity, ModelError, ToolError, tool
from glassloop.core.encoding import dumps
from glassloop.core.messages import Reply, UserMessage
from glassloop.core.result import Decision, RunResult
from glassloop.models.model import ModelRequest
from glassloop.models.scripted import ScriptedModel
from glassloop.runtime import ApprovalProblem, Runtime
from glassloop.stores import open_store
from glassloop.teams import planned

SAM = Identity("sam", roles=("supervisor",))
ANN = Identity("ann")


class Shop:
    """An agent that plans as it is told, with tools that note what they do."""

    def __init__(self, *plans: Any, **options: Any) -> None:
        self.did: list[str] = []
        self.asked: list[ModelRequest] = []
        self.plans = list(plans)
        self.broken: set[str] = set()
        self.agent = Agent(ScriptedModel(self.answer), self.tools(), name="shop", instructions="You are a shop.")
        self.flow = planned(self.agent, **options)

    def answer(self, request: ModelRequest) -> str:
        self.asked.append(request)
        if "Make a plan" in request.instructions:
            return dumps({"steps": self.plans.pop(0)}).decode()
        return f"Report: {said(request)}"

    def tools(self) -> list[Any]:
        def order(number: int) -> dict[str, Any]:
            """Look an order up."""
            self.did.append(f"order {number}")
            return {"id": f"A-{number}", "left": [3, 5]}

        @tool(effect="write", risk="high")
        def ticket(title: str) -> str:
            """Open a ticket."""
            if title in self.broken:
                raise ToolError(f"{title} cannot be ticketed.")
            self.did.append(f"ticket {title}")
            return f"T-{title}"

        @tool(effect="write", approval=lambda arguments: "supervisor" if arguments["amount"] > 500 else False)
        def refund(order: str, amount: int) -> str:
            """Refund."""
            self.did.append(f"refund {order} {amount}")
            return "refunded"

        return [order, ticket, refund]


def said(request: ModelRequest) -> str:
    return "\n".join(message.text for message in request.messages if isinstance(message, UserMessage))


def step(n: int, action: str, risk: str = "low", needs: Any = (), /, **arguments: Any) -> dict[str, Any]:
    return {
        "step": n,
        "action": action,
        "arguments": arguments,
        "description": f"do {action}",
        "risk": risk,
        "depends_on": list(needs),
    }


LOOK = step(1, "order", number=7)
OPEN = step(2, "ticket", "high", title="lost")


async def decided(shop: Shop, result: RunResult, decision: Decision | bool = True, **more: Any) -> RunResult:
    return await shop.flow.resume(result.run_id, decisions={result.pending[0].approval_id: decision}, **more)


async def test_a_plan_is_reviewed_and_then_carried_out() -> None:
    shop, store = Shop([LOOK, OPEN]), open_store("memory:")
    result = await shop.flow.run("Order 7 is lost.", store=store)
    assert (result.outcome, shop.did) == ("waiting", [])
    [held] = result.pending
    assert held.tool == "review_plan"
    assert held.arguments["plan"]["steps"][1]["risk"] == "high"
    result = await decided(shop, result, store=store)
    assert result.outcome == "completed"
    assert sorted(shop.did) == ["order 7", "ticket lost"]
    assert 'Step 2, ticket({"title":"lost"}), is done and came to: T-lost' in (result.output or "")


async def test_a_plan_that_cannot_be_carried_out_goes_back_before_anything_runs() -> None:
    wrong = [step(1, "ordr", number=7), step(2, "ticket"), step(3, "refund", "low", [4], order="$1.id")]
    shop = Shop(wrong, [LOOK, OPEN], review="never")
    result = await shop.flow.run("x")
    assert result.outcome == "waiting"  # nobody has approved the ticket
    told = said(shop.asked[1])
    for words in ("no tool 'ordr'", "order, ticket, refund", "step 2", "title", "amount: missing, and required"):
        assert words in told
    assert "step 3 needs step 4, which does not come before it" in told


async def test_a_plan_of_one_step_is_none() -> None:
    shop = Shop([LOOK], [LOOK, OPEN])
    assert (await shop.flow.run("x")).outcome == "waiting"
    assert "a plan has 2 to 8 steps, this one 1" in said(shop.asked[1])


async def test_a_step_uses_what_an_earlier_one_came_to() -> None:
    refund = step(2, "refund", "low", [1], order="$1.id", amount="$1.left.1")
    shop = Shop([LOOK, refund], review="risky")
    result = await shop.flow.run("x")
    assert (result.outcome, shop.did) == ("completed", ["order 7", "refund A-7 5"])


async def test_a_rejected_plan_runs_nothing() -> None:
    shop, store = Shop([LOOK, OPEN]), open_store("memory:")
    result = await shop.flow.run("x", store=store)
    result = await decided(shop, result, Decision("deny", reason="not today"), store=store)
    assert (result.outcome, result.message) == ("cancelled", "The plan was denied: not today.")
    assert shop.did == []
    again = await shop.flow.resume(result.run_id, store=store)
    assert (again.outcome, shop.did) == ("cancelled", [])


async def test_a_denial_of_a_new_plan_says_what_is_done() -> None:
    shop, store = Shop([LOOK, OPEN], [step(3, "ticket", title="second")]), open_store("memory:")
    shop.broken.add("lost")
    result = await decided(shop, await shop.flow.run("x", store=store), store=store)
    result = await decided(shop, result, Decision("deny", by="ann"), store=store)
    assert result.message == "The plan was denied by ann. Done before: step 1 (order)."
    assert shop.did == ["order 7"]


async def test_an_edited_plan_is_checked_again_and_runs_as_edited() -> None:
    shop = Shop([LOOK, OPEN])
    async with Runtime(shop.flow, store="memory:") as runtime:
        result = await runtime.run("shop-plan", "x", identity=ANN)
        [row] = await runtime.approvals(identity=ANN)
        for wrong, why in (({"name": "x"}, "step 2: title: missing"), ({"title": "$3.id"}, "step 2 needs step 3")):
            edit = Decision("edit", arguments={"plan": {"steps": [LOOK, {**OPEN, "arguments": wrong}]}})
            with pytest.raises(ApprovalProblem, match=why):
                await runtime.decide(row.approval_id, edit, by=ANN)
        edit = Decision("edit", arguments={"plan": {"steps": [LOOK, {**OPEN, "arguments": {"title": "found"}}]}})
        await runtime.decide(row.approval_id, edit, by=ANN)
        result = await runtime.wait(result.run_id)
    assert result.outcome == "completed"
    assert sorted(shop.did) == ["order 7", "ticket found"]


async def test_who_approves_the_plan_must_have_the_role_of_its_steps() -> None:
    shop = Shop([LOOK, step(2, "refund", order="A-7", amount=900)])
    async with Runtime(shop.flow, store="memory:") as runtime:
        result = await runtime.run("shop-plan", "x", identity=ANN)
        [row] = await runtime.approvals()
        assert row.role == "supervisor"
        with pytest.raises(ApprovalProblem, match="supervisor"):
            await runtime.decide(row.approval_id, Decision(), by=ANN)
        await runtime.decide(row.approval_id, Decision(), by=SAM)
        assert (await runtime.wait(result.run_id)).outcome == "completed"
    assert "refund A-7 900" in shop.did


async def test_arguments_that_the_plan_did_not_show_are_asked_about() -> None:
    named = step(2, "ticket", "high", [1], title="$1.id")
    shop, store = Shop([LOOK, named]), open_store("memory:")
    result = await decided(shop, await shop.flow.run("x", store=store), store=store)
    assert result.outcome == "waiting"
    [held] = result.pending
    assert (held.tool, held.arguments) == ("ticket", {"title": "A-7"})
    assert (await decided(shop, result, store=store)).outcome == "completed"


async def test_a_failed_step_leads_to_a_new_plan_that_keeps_what_is_done() -> None:
    again = [step(3, "ticket", "high", [1], title="second")]
    shop, store = Shop([LOOK, OPEN], again), open_store("memory:")
    shop.broken.add("lost")
    result = await decided(shop, await shop.flow.run("x", store=store), store=store)
    assert result.outcome == "waiting"
    told = said(next(request for request in reversed(shop.asked) if "Make a plan" in request.instructions))
    assert 'Step 1, order({"number":7}), is done and came to: {"id":"A-7","left":[3,5]}' in told
    assert 'Step 2, ticket({"title":"lost"}), failed: lost cannot be ticketed.' in told
    assert "with step numbers from 3" in told
    result = await decided(shop, result, store=store)
    assert (result.outcome, shop.did) == ("completed", ["order 7", "ticket second"])


async def test_new_plans_are_bounded() -> None:
    shop = Shop([LOOK, OPEN], [step(3, "ticket", title="lost")], [step(4, "ticket", title="lost")], replans=2)
    shop.broken.add("lost")
    with pytest.raises(ModelError, match="failed after 2 new plans: step 4: lost cannot be ticketed"):
        await shop.flow.run("x", approve=lambda _: True)
    assert shop.did == ["order 7"]


async def test_steps_that_do_not_depend_on_each_other_run_side_by_side() -> None:
    both = asyncio.Barrier(2)

    async def meet(name: str) -> str:
        """Meet another."""
        async with asyncio.timeout(5):
            await both.wait()
        return name

    plan = dumps({"steps": [step(1, "meet", name="a"), step(2, "meet", name="b")]}).decode()
    model = ScriptedModel(lambda request: plan if "Make a plan" in request.instructions else "met")
    flow = planned(Agent(model, [meet], name="pair"), review="risky")
    assert (await flow.run("x")).output == "met"


async def test_an_edit_cannot_bring_in_what_needs_another_role() -> None:
    costly = {"plan": {"steps": [LOOK, step(2, "refund", order="A-7", amount=900)]}}
    shop = Shop([LOOK, OPEN])
    async with Runtime(shop.flow, store="memory:") as runtime:
        await runtime.run("shop-plan", "x", identity=ANN)
        [row] = await runtime.approvals(identity=ANN)
        with pytest.raises(ApprovalProblem, match="needs the role 'supervisor'"):
            await runtime.decide(row.approval_id, Decision("edit", arguments=costly), by=ANN)


async def test_an_edit_by_code_that_asks_nobody_for_roles_does_not_pass_for_one() -> None:
    costly = {"plan": {"steps": [LOOK, step(2, "refund", order="A-7", amount=900)]}}
    shop, store = Shop([LOOK, OPEN]), open_store("memory:")
    result = await shop.flow.run("x", store=store)
    result = await decided(shop, result, Decision("edit", arguments=costly), store=store)
    assert (result.outcome, shop.did) == ("waiting", ["order 7"])
    assert [(held.tool, held.role) for held in result.pending] == [("refund", "supervisor")]


async def test_an_edited_plan_that_cannot_be_carried_out_runs_nothing() -> None:
    shop, store = Shop([LOOK, OPEN]), open_store("memory:")
    result = await shop.flow.run("x", store=store)
    with pytest.raises(ModelError, match=r"cannot be carried out as it was edited: .*no tool 'open'") as failed:
        await decided(shop, result, Decision("edit", arguments={"plan": {"steps": [step(1, "open")]}}), store=store)
    assert failed.value.result is not None
    assert (failed.value.result.outcome, shop.did) == ("failed", [])


async def test_a_human_may_leave_steps_out_and_edit_the_rest_of_a_plan() -> None:
    shop, store = Shop([LOOK, OPEN], [step(3, "ticket", "high", [1], title="second")]), open_store("memory:")
    shop.broken.add("lost")
    result = await decided(shop, await shop.flow.run("x", store=store), store=store)
    shown: Any = result.pending[0].arguments["plan"]
    assert shown["done"] == [1]
    edited = {**shown, "steps": [{**shown["steps"][0], "step": 2, "arguments": {"title": "third"}}]}
    result = await decided(shop, result, Decision("edit", arguments={"plan": edited}), store=store)
    assert (result.outcome, shop.did) == ("completed", ["order 7", "ticket third"])


async def test_a_task_that_needs_no_tool_is_answered() -> None:
    shop = Shop([])
    result = await shop.flow.run("hello")
    assert (result.outcome, result.pending) == ("completed", ())
    assert "No step was needed, or possible." in (result.output or "")


async def test_a_failure_that_nothing_can_be_done_about_is_reported() -> None:
    shop = Shop([LOOK, step(2, "ticket", "low", title="lost"), step(3, "order", "low", [2], number=8)], [])
    shop.broken.add("lost")
    result = await shop.flow.run("x", approve=lambda _: True)
    assert (result.outcome, shop.did) == ("completed", ["order 7"])
    assert "failed: lost cannot be ticketed." in (result.output or "")
    assert 'Step 3, order({"number":8}), was not begun' in (result.output or "")


async def test_while_a_step_waits_the_others_go_on() -> None:
    named = step(2, "ticket", "high", [1], title="$1.id")
    after = [step(3, "order", "low", [1], number=8), step(4, "order", "low", [3], number=9)]
    shop, store = Shop([LOOK, named, *after], review="never"), open_store("memory:")
    result = await shop.flow.run("x", store=store)
    assert (result.outcome, shop.did) == ("waiting", ["order 7", "order 8", "order 9"])
    assert (await decided(shop, result, store=store)).outcome == "completed"
    assert shop.did[3:] == ["ticket A-7"]


async def test_the_arguments_that_are_known_are_checked_beside_those_that_are_not() -> None:
    wrong = step(2, "refund", "low", [1], order="$1.id", amount="much", why="x")
    shop = Shop([LOOK, wrong], [LOOK, OPEN])
    assert (await shop.flow.run("x")).outcome == "waiting"
    told = said(shop.asked[1])
    assert "step 2: amount: should be a valid integer" in told
    assert "step 2: why: there is no such" in told
    assert "order:" not in told


async def test_a_result_that_is_kept_apart_is_used_after_a_rest_too() -> None:
    def look() -> dict[str, Any]:
        """Look."""
        return {"all": "x" * 50_000, "id": "A-7"}

    opened: list[str] = []

    @tool(effect="write", risk="high")
    def ticket(title: str) -> str:
        """Open a ticket."""
        opened.append(title)
        return title

    steps = [step(1, "look"), step(2, "ticket", "high", title="first"), step(3, "ticket", "low", [1, 2], title="$1.id")]
    plan = dumps({"steps": steps}).decode()
    model = ScriptedModel(lambda request: plan if "Make a plan" in request.instructions else "done")
    flow, store = planned(Agent(model, [look, ticket], name="shop"), review="never"), open_store("memory:")
    result = await flow.run("x", store=store)
    while result.outcome == "waiting":
        decisions = {held.approval_id: True for held in result.pending}
        result = await flow.resume(result.run_id, decisions=decisions, store=store)
    assert (result.outcome, opened) == ("completed", ["first", "A-7"])


async def test_in_a_run_that_defers_its_calls_a_plan_waits_all_the_same() -> None:
    shop = Shop([LOOK, OPEN])
    async with Runtime(shop.flow, store="memory:") as runtime:
        result = await runtime.run("shop-plan", "x", identity=ANN, approvals="defer")
        assert (result.outcome, [held.tool for held in result.pending]) == ("waiting", ["review_plan"])
        await runtime.decide(result.pending[0].approval_id, Decision(), by=ANN)
        assert (await runtime.wait(result.run_id)).outcome == "completed"


async def test_what_a_human_is_asked_is_one_line() -> None:
    shop = Shop([LOOK, OPEN])
    [held] = (await shop.flow.run("x")).pending
    assert held.summary == "a plan of 2 steps: order, ticket (high risk)"


async def test_a_step_is_shown_with_the_risk_of_its_tool_whatever_the_model_says() -> None:
    shop = Shop([LOOK, step(2, "ticket", "low", title="lost")], review="risky")
    [held] = (await shop.flow.run("x")).pending
    assert [one["risk"] for one in held.arguments["plan"]["steps"]] == ["low", "high"]


async def test_a_plan_whose_tool_is_gone_when_it_is_approved_runs_nothing() -> None:
    shop, store = Shop([LOOK, OPEN]), open_store("memory:")
    result = await shop.flow.run("x", store=store)
    later = Shop()
    later.flow = planned(Agent(ScriptedModel(later.answer), later.tools()[:1], name="shop"))
    with pytest.raises(ModelError, match=r"cannot be carried out any more: .*no tool 'ticket'"):
        await decided(later, result, store=store)
    assert later.did == []


async def test_a_plan_that_no_longer_fits_the_tools_is_still_one() -> None:
    named, again = step(2, "ticket", "high", [1], title="$1.id"), [step(3, "order", number=8)]
    shop, store = Shop([LOOK, named], review="never"), open_store("memory:")
    result = await shop.flow.run("x", store=store)
    later = Shop(again, review="never")
    later.flow = planned(Agent(ScriptedModel(later.answer), later.tools()[:1], name="shop"), review="never")
    assert (await decided(later, result, store=store)).outcome == "completed"
    assert "Step 2" in said(later.asked[0])
    assert "There is no tool 'ticket'" in said(later.asked[0])
    assert later.did == ["order 8"]


async def test_the_answer_joins_the_session() -> None:
    shop, store = Shop([LOOK, OPEN]), open_store("memory:")
    result = await shop.flow.run("Order 7 is lost.", store=store, session="monday")
    result = await decided(shop, result, store=store)
    asked, answer = await store.sessions.load("monday")
    assert isinstance(asked, UserMessage)
    assert isinstance(answer, Reply)
    assert (asked.text, answer.text) == ("Order 7 is lost.", result.output)
    assert result.messages == (asked, answer)


async def test_a_plan_that_was_cancelled_before_anybody_decided_is_asked_about_again() -> None:
    shop = Shop([LOOK, OPEN])
    async with Runtime(shop.flow, store="memory:") as runtime:
        result = await runtime.run("shop-plan", "x", identity=ANN)
        await runtime.cancel(result.run_id)
        assert (await runtime.wait(result.run_id)).outcome == "cancelled"
        await runtime.resume(result.run_id)
        result = await runtime.wait(result.run_id)
        assert (result.outcome, [held.tool for held in result.pending]) == ("waiting", ["review_plan"])
        await runtime.decide(result.pending[0].approval_id, Decision(), by=ANN)
        assert (await runtime.wait(result.run_id)).outcome == "completed"
    assert (sorted(shop.did), len(shop.asked)) == (["order 7", "ticket lost"], 2)
