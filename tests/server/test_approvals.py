"""Decisions over HTTP: by whom, once, in time, about exactly what was shown."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from glassloop import Agent, ask_human, tool
from glassloop.runtime import Runtime
from glassloop.server import make_auth
from glassloop.server.auth import Auth
from glassloop.server.keys import hash_key
from glassloop.testing import ScriptedModel, call


class Desk:
    """An agent that wants to refund, and what it has refunded."""

    def __init__(self) -> None:
        self.refunds: list[tuple[str, int]] = []

        @tool(effect="write", approval=lambda arguments: "supervisor" if arguments["amount"] > 500 else True)
        def refund(order: str, amount: int) -> str:
            """Refund an order."""
            self.refunds.append((order, amount))
            return f"refunded {amount}"

        self.tool = refund

    def agent(self, amount: int = 100) -> Agent:
        """An agent that wants to refund so much."""
        model = ScriptedModel(
            lambda request: (
                call("refund", order="A-1", amount=amount)
                if request.messages[-1].role == "user"
                else f"The tool said: {getattr(request.messages[-1], 'content', '')}"
            )
        )
        return Agent(model, [self.tool], name="desk")


@pytest.fixture
def desk() -> Desk:
    """An agent that wants to refund."""
    return Desk()


async def held(user: Any, **options: Any) -> tuple[str, str]:
    """Start a run that stops at an approval: the ids of both."""
    run_id = await user.run("refund it", **options)
    run = await user.rested(run_id)
    return run_id, run["pending_approvals"][0]["approval_id"]


async def test_a_session_that_waits_for_a_human_can_refuse_the_next_run(serve: Callable[..., Any], desk: Desk) -> None:
    site = await serve(desk.agent())
    run_id, approval = await held(site.alice, session="s1")
    refused = await site.alice.post("/v1/runs", {"input": "more", "session": "s1", "when_busy": "refuse"})
    assert refused.status == 409
    told = refused.json
    assert (told["code"], told["run_id"], told["approval_id"]) == ("session_busy", run_id, approval)
    assert approval in told["detail"]
    other = await site.alice.post("/v1/runs", {"input": "more", "session": "s2", "when_busy": "refuse"})
    assert other.status == 202


async def test_an_approval_lets_exactly_this_call_run(serve: Callable[..., Any], desk: Desk) -> None:
    site = await serve(desk.agent())
    run_id, approval = await held(site.alice, session="s1")
    assert (await site.alice.get(f"/v1/runs/{run_id}")).json["status"] == "waiting"
    shown = (await site.alice.get(f"/v1/approvals/{approval}")).json
    assert (shown["tool"], shown["arguments"]) == ("refund", {"order": "A-1", "amount": 100})
    assert (shown["status"], shown["run_id"], shown["user"], shown["session"]) == ("pending", run_id, "alice", "s1")
    assert (await site.alice.get("/v1/approvals")).json == {"approvals": [shown], "next": None}
    assert desk.refunds == []
    decided = await site.alice.post(f"/v1/approvals/{approval}", {"decision": "approve"})
    assert (decided.status, decided.json["decision"]) == (200, "approve")
    assert (await site.alice.rested(run_id))["output"] == "The tool said: refunded 100"
    assert desk.refunds == [("A-1", 100)]
    assert (await site.alice.get("/v1/approvals")).json["approvals"] == []
    after = (await site.alice.get(f"/v1/approvals/{approval}")).json
    assert (after["status"], after["decided_by"]) == ("approved", "alice")


async def test_a_stream_ends_where_a_run_waits_and_goes_on_after_the_decision(
    serve: Callable[..., Any], desk: Desk
) -> None:
    site = await serve(desk.agent())
    async with site.alice.stream("POST", "/v1/runs", {"input": "refund it", "stream": True}) as stream:
        frames = await stream.all()
    assert (frames[-1].event, frames[-1].data["status"]) == ("end", "waiting")
    assert "error" not in [frame.event for frame in frames]
    asked = next(frame for frame in frames if frame.event == "approval_asked")
    await asyncio.sleep(2.5)  # a run that waits belongs to no stream
    approval, run_id = asked.data["data"]["approval_id"], asked.data["run_id"]
    assert (await site.alice.post(f"/v1/approvals/{approval}", {"decision": "approve"})).status == 200
    last = max(frame.id or 0 for frame in frames)
    async with site.alice.stream("GET", f"/v1/runs/{run_id}/events", Last_Event_ID=str(last)) as stream:
        rest = await stream.all()
    assert next(frame.event for frame in rest if frame.id) == "approval_decided"
    assert rest[-1].data["status"] == "completed"
    assert desk.refunds == [("A-1", 100)]


async def test_a_denial_reaches_the_model_with_its_reason(serve: Callable[..., Any], desk: Desk) -> None:
    site = await serve(desk.agent())
    run_id, approval = await held(site.alice)
    await site.alice.post(f"/v1/approvals/{approval}", {"decision": "deny", "reason": "refunded already"})
    run = await site.alice.rested(run_id)
    assert "refunded already" in run["output"]
    assert run["tool_executions"][0]["status"] == "denied"
    assert desk.refunds == []


async def test_edited_arguments_are_checked_and_run(serve: Callable[..., Any], desk: Desk) -> None:
    site = await serve(desk.agent())
    run_id, approval = await held(site.alice)
    path = f"/v1/approvals/{approval}"
    wrong = await site.alice.post(path, {"decision": "edit", "args": {"order": "A-1", "amount": "much"}})
    assert (wrong.status, wrong.problem["code"]) == (422, "approval_invalid")
    assert "amount" in wrong.problem["detail"]
    right = await site.alice.post(path, {"decision": "edit", "args": {"order": "A-1", "amount": 50}})
    assert right.status == 200
    await site.alice.rested(run_id)
    assert desk.refunds == [("A-1", 50)]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "decision"),
        ({"decision": "yes"}, "decision"),
        ({"decision": "edit"}, "body"),
        ({"decision": "approve", "args": {}}, "body"),
        ({"decision": "approve", "by": "sam"}, "by"),
        ({"decision": "approve", "approved_calls": ["delete_row"]}, "approved_calls"),
    ],
)
async def test_a_wrong_decision_names_the_field(serve: Callable[..., Any], desk: Desk, body: Any, field: str) -> None:
    site = await serve(desk.agent())
    _, approval = await held(site.alice)
    answer = await site.alice.post(f"/v1/approvals/{approval}", body)
    assert (answer.status, answer.problem["errors"][0]["field"]) == (422, field)
    assert desk.refunds == []


async def test_only_the_owner_decides(serve: Callable[..., Any], desk: Desk) -> None:
    site = await serve(desk.agent())
    _, approval = await held(site.alice)
    for stranger in (site.bob, site.sam):
        assert (await stranger.get(f"/v1/approvals/{approval}")).status == 404
        answer = await stranger.post(f"/v1/approvals/{approval}", {"decision": "approve"})
        assert (answer.status, answer.problem["code"]) == (404, "approval_not_found")
        assert (await stranger.get("/v1/approvals")).json["approvals"] == []
    assert desk.refunds == []


async def test_e21_an_id_that_is_made_up_is_refused(serve: Callable[..., Any], desk: Desk) -> None:
    site = await serve(desk.agent())
    await held(site.alice)
    answer = await site.alice.post("/v1/approvals/appr_forged", {"decision": "approve"})
    assert answer.status == 404
    assert desk.refunds == []


async def test_a_large_refund_needs_the_role(serve: Callable[..., Any], desk: Desk) -> None:
    site = await serve(desk.agent(amount=501))
    run_id, approval = await held(site.alice)
    path = f"/v1/approvals/{approval}"
    assert (await site.alice.get(path)).json["role"] == "supervisor"
    refused = await site.alice.post(path, {"decision": "approve"})
    assert (refused.status, refused.problem["code"]) == (403, "approval_forbidden")
    assert (await site.bob.post(path, {"decision": "approve"})).status == 404
    assert [row["approval_id"] for row in (await site.sam.get("/v1/approvals")).json["approvals"]] == [approval]
    assert (await site.sam.post(path, {"decision": "approve"})).status == 200
    await site.alice.rested(run_id)
    assert desk.refunds == [("A-1", 501)]


async def test_a_supervisor_of_another_tenant_is_a_stranger(serve: Callable[..., Any], desk: Desk) -> None:
    from glassloop import Identity

    keys = dict(make_auth({}, demo=True).keys)
    keys[hash_key("eve")] = Identity("eve", "other", ("supervisor",))
    site = await serve(desk.agent(amount=501), auth=Auth(keys))
    _, approval = await held(site.alice)
    eve = site.client("eve")
    assert (await eve.get("/v1/approvals")).json["approvals"] == []
    assert (await eve.get(f"/v1/approvals/{approval}")).status == 404
    assert (await eve.post(f"/v1/approvals/{approval}", {"decision": "approve"})).status == 404


async def test_a_decision_counts_once(serve: Callable[..., Any], desk: Desk) -> None:
    site = await serve(desk.agent())
    run_id, approval = await held(site.alice)
    body = {"decision": "approve"}
    answers = await asyncio.gather(*(site.alice.post(f"/v1/approvals/{approval}", body) for _ in range(8)))
    assert sorted(answer.status for answer in answers) == [200, *[409] * 7]
    await site.alice.rested(run_id)
    late = await site.alice.post(f"/v1/approvals/{approval}", {"decision": "deny"})
    assert (late.status, late.problem["code"]) == (409, "approval_decided")
    assert desk.refunds == [("A-1", 100)]


async def test_a_deferred_call_runs_when_it_is_approved(serve: Callable[..., Any], desk: Desk) -> None:
    site = await serve(desk.agent())
    run_id, approval = await held(site.alice, approvals="defer")
    run = (await site.alice.get(f"/v1/runs/{run_id}")).json
    assert run["status"] == "completed"
    assert approval in run["output"]
    assert desk.refunds == []
    decided = await site.alice.post(f"/v1/approvals/{approval}", {"decision": "approve"})
    assert decided.status == 200
    assert (decided.json["result"]["outcome"], decided.json["result"]["output"]) == ("completed", "refunded 100")
    assert desk.refunds == [("A-1", 100)]
    again = await site.alice.post(f"/v1/approvals/{approval}", {"decision": "approve"})
    assert again.status == 409


async def test_a_deferred_call_expires(serve: Callable[..., Any], desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    site = await serve(desk.agent())
    _, approval = await held(site.alice, approvals="defer")
    shown = (await site.alice.get(f"/v1/approvals/{approval}")).json
    assert shown["expires_at"] - shown["asked_at"] == 15 * 60 * 1000
    for place in ("glassloop.runtime.runtime.now_ms", "glassloop.server.approvals.now_ms"):
        monkeypatch.setattr(place, lambda: shown["expires_at"])
    answer = await site.alice.post(f"/v1/approvals/{approval}", {"decision": "approve"})
    assert (answer.status, answer.problem["code"]) == (410, "approval_expired")
    assert (await site.alice.get(f"/v1/approvals/{approval}")).json["status"] == "expired"
    assert (await site.alice.get("/v1/approvals")).json["approvals"] == []
    assert [row["approval_id"] for row in (await site.alice.get("/v1/approvals?status=expired")).json["approvals"]] == [
        approval
    ]
    assert desk.refunds == []


async def test_approvals_are_listed_page_by_page(serve: Callable[..., Any], desk: Desk) -> None:
    site = await serve(desk.agent())
    ids = [(await held(site.alice))[1] for _ in range(3)]
    first = (await site.alice.get("/v1/approvals?limit=2")).json
    assert [row["approval_id"] for row in first["approvals"]] == ids[:0:-1]
    second = (await site.alice.get(f"/v1/approvals?limit=2&before={first['next']}")).json
    assert ([row["approval_id"] for row in second["approvals"]], second["next"]) == (ids[:1], None)


async def test_a_run_that_waits_is_decided_after_a_restart(serve: Callable[..., Any], desk: Desk, store: str) -> None:
    before = await serve(desk.agent())
    run_id, approval = await held(before.alice)
    after = await serve(Runtime(desk.agent(), store=store))
    assert (await after.alice.post(f"/v1/approvals/{approval}", {"decision": "approve"})).status == 200
    assert (await after.alice.rested(run_id))["status"] == "completed"
    assert desk.refunds == [("A-1", 100)]


async def test_what_was_decided_is_listed(serve: Callable[..., Any], desk: Desk) -> None:
    site = await serve(desk.agent())
    held_ones = [await held(site.alice) for _ in range(3)]
    for (run_id, approval), decision in zip(held_ones, ("approve", "deny"), strict=False):
        await site.alice.post(f"/v1/approvals/{approval}", {"decision": decision})
        await site.alice.rested(run_id)
    first, second, third = (approval for _, approval in held_ones)

    async def listed(query: str, who: Any = site.alice) -> list[str]:
        return [row["approval_id"] for row in (await who.get(f"/v1/approvals?{query}")).json["approvals"]]

    assert await listed("status=approved") == [first]
    assert await listed("status=denied") == [second]
    assert await listed("status=decided") == [second, first]
    assert await listed("status=any") == [third, second, first]
    assert await listed("status=any&limit=1") == [third]
    assert await listed(f"status=any&run_id={held_ones[1][0]}") == [second]
    assert await listed("status=pending") == await listed("") == [third]
    assert await listed("status=any", site.bob) == []
    assert (await site.alice.get("/v1/approvals?status=lost")).status == 422


# Questions


def painter() -> Agent:
    """An agent whose tool asks which colour, and then what for."""

    def paint() -> str:
        """Paint."""
        colour = ask_human("Which colour?", choices=["red", "blue"])
        return f"{colour} for {ask_human('What for?')}"

    def brain(request: Any) -> Any:
        last = request.messages[-1]
        return call("paint") if last.role == "user" else f"The tool said: {getattr(last, 'content', '')}"

    return Agent(ScriptedModel(brain), [paint], name="painter")


async def test_a_question_is_listed_with_its_choices_and_answered(serve: Callable[..., Any]) -> None:
    site = await serve(painter())
    run_id, asked = await held(site.alice)
    [pending] = (await site.alice.get(f"/v1/runs/{run_id}")).json["pending_approvals"]
    assert (pending["kind"], pending["summary"], pending["choices"]) == ("question", "Which colour?", ["red", "blue"])
    [listed] = (await site.alice.get("/v1/approvals")).json["approvals"]
    assert (listed["kind"], listed["choices"], listed["answer"]) == ("question", ["red", "blue"], None)
    decided = await site.alice.post(f"/v1/approvals/{asked}", {"decision": "answer", "answer": "blue"})
    assert (decided.status, decided.json["decision"]) == (200, "answer")
    [second] = (await site.alice.rested(run_id))["pending_approvals"]
    assert (second["summary"], second["choices"]) == ("What for?", [])
    await site.alice.post(f"/v1/approvals/{second['approval_id']}", {"decision": "answer", "answer": "我的房子"})
    assert (await site.alice.rested(run_id))["output"] == "The tool said: blue for 我的房子"
    [last, first] = (await site.alice.get("/v1/approvals?status=answered")).json["approvals"]
    assert (first["answer"], first["decided_by"], last["answer"]) == ("blue", "alice", "我的房子")
    assert [each["approval_id"] for each in (await site.alice.get("/v1/approvals?status=decided")).json["approvals"]]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"decision": "approve"}, "decision"),
        ({"decision": "edit", "args": {}}, "decision"),
        ({"decision": "answer", "answer": "green"}, "answer"),
        ({"decision": "answer", "answer": "  "}, "answer"),
        ({"decision": "answer"}, "body"),
        ({"decision": "deny", "answer": "red"}, "body"),
    ],
)
async def test_what_is_no_answer_to_a_question_is_refused(
    serve: Callable[..., Any], body: dict[str, Any], field: str
) -> None:
    site = await serve(painter())
    _, asked = await held(site.alice)
    refused = await site.alice.post(f"/v1/approvals/{asked}", body)
    problem = refused.problem
    assert refused.status == 422
    assert [error["field"] for error in problem["errors"]] == [field]
    assert (await site.alice.get(f"/v1/approvals/{asked}")).json["status"] == "pending"


async def test_only_the_owner_answers_and_only_a_question_is_answered(serve: Callable[..., Any], desk: Desk) -> None:
    site = await serve([painter(), desk.agent()])
    _, asked = await held(site.alice, agent="painter")
    said = {"decision": "answer", "answer": "red"}
    assert (await site.bob.post(f"/v1/approvals/{asked}", said)).status == 404
    _, call_held = await held(site.alice, agent="desk")
    refused = await site.alice.post(f"/v1/approvals/{call_held}", said)
    assert (refused.status, refused.problem["code"]) == (422, "approval_invalid")
    assert desk.refunds == []
