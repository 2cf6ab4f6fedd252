"""Who is asked about a held call: now, when the run goes on, or later."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest

from glassloop import Agent, Identity, LimitReached, Limits, ToolError, tool
from glassloop.core.errors import ConfigurationError, ToolDefinitionError
from glassloop.core.messages import ToolResult, UserMessage
from glassloop.core.result import Decision, PendingApproval
from glassloop.middleware.approval import Approval
from glassloop.models.anthropic import Anthropic
from glassloop.models.openai_chat import OpenAIChat
from glassloop.models.scripted import ScriptedModel, call
from glassloop.runtime import Runtime
from glassloop.stores import Store, open_store
from glassloop.teams import agent_tool
from glassloop.testing import ModelServer, ask


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    async with open_store(f"sqlite:///{tmp_path / 'runs.db'}") as opened:
        yield opened


def payer(*amounts: int, middleware: Any = ()) -> tuple[Agent, list[int]]:
    """An agent that wants to pay these amounts, and what was paid."""
    paid: list[int] = []

    @tool(effect="write", approval=lambda arguments: "supervisor" if arguments["amount"] > 500 else True)
    def pay(amount: int) -> str:
        """Pay."""
        paid.append(amount)
        return f"paid {amount}"

    def answer(request: Any) -> Any:
        done = [message for message in request.messages if isinstance(message, ToolResult)]
        return [call("pay", amount=one) for one in amounts] if not done else "; ".join(one.content for one in done)

    return Agent(ScriptedModel(answer), [pay], name="desk", middleware=middleware), paid


async def test_a_call_that_is_parked_is_asked_about_when_the_run_goes_on(store: Store) -> None:
    agent, paid = payer(1, 2, 3)
    waiting = await agent.run("go", store=store)
    assert (waiting.outcome, paid) == ("waiting", [])
    asked: list[PendingApproval] = []

    async def approve(pending: PendingApproval) -> Decision | bool:
        asked.append(pending)
        if pending.arguments["amount"] == 2:
            return Decision("edit", arguments={"amount": 20}, by="ann")
        return pending.arguments["amount"] == 1

    result = await agent.resume(waiting.run_id, store=store, approve=approve)
    assert result.outcome == "completed"
    assert [one.status for one in result.tool_executions] == ["ok", "ok", "denied"]
    assert sorted(paid) == [1, 20]
    assert sorted(asked, key=str) == sorted(waiting.pending, key=str)


async def test_what_is_decided_already_is_not_asked_about(store: Store) -> None:
    agent, paid = payer(1, 2)
    waiting = await agent.run("go", store=store)
    first, second = waiting.pending
    asked: list[str] = []

    def approve(pending: PendingApproval) -> bool:
        asked.append(pending.approval_id)
        return True

    await agent.resume(waiting.run_id, decisions={first.approval_id: False}, store=store, approve=approve)
    assert asked == [second.approval_id]
    assert paid == [2]


async def test_one_who_leaves_the_decision_to_another_parks_the_run(store: Store) -> None:
    agent, paid = payer(1, 900)

    def approve(pending: PendingApproval) -> Any:
        return "park" if pending.role else True

    for result in (
        await agent.run("go", identity=Identity("ann"), store=store, approve=approve),
        await agent.resume((await store.journal.runs())[0].id, store=store, approve=approve),
    ):
        assert (result.outcome, paid) == ("waiting", [1])
        assert [one.arguments for one in result.pending] == [{"amount": 900}]
    async with Runtime(agent, store=store) as runtime:
        sam = Identity("sam", roles=("supervisor",))
        await runtime.decide(result.pending[0].approval_id, Decision(), by=sam)
        assert (await runtime.wait(result.run_id)).outcome == "completed"
    assert paid == [1, 900]


async def test_a_human_who_does_not_answer_when_the_run_goes_on_denies(store: Store) -> None:
    agent, paid = payer(1, middleware=[Approval(seconds=0.01)])
    waiting = await agent.run("go", store=store)

    async def approve(pending: PendingApproval) -> bool:
        await asyncio.sleep(60)
        return True

    result = await agent.resume(waiting.run_id, store=store, approve=approve)
    assert (result.tool_executions[0].status, paid) == ("denied", [])
    assert "nobody answered within 0.01 s" in result.tool_executions[0].content


async def test_a_deferred_call_is_not_decided_by_going_on_with_the_run(store: Store) -> None:
    agent, paid = payer(1)
    done = await agent.run("go", store=store, approvals="defer")
    assert done.outcome == "completed"
    with pytest.raises(ConfigurationError, match="has no approval"):
        await agent.resume(done.run_id, decisions={done.pending[0].approval_id: True}, store=store)
    async with Runtime(agent, store=store) as runtime:
        await runtime.decide(done.pending[0].approval_id, Decision(), by=Identity())
    assert paid == [1]


async def test_an_approval_that_has_expired_is_not_asked_about(store: Store) -> None:
    agent, paid = payer(1, middleware=[Approval(expires=0.001)])
    waiting = await agent.run("go", store=store)
    await asyncio.sleep(0.01)
    result = await agent.resume(waiting.run_id, store=store, approve=lambda pending: True)
    assert (result.outcome, paid) == ("waiting", [])


async def test_a_decision_that_comes_too_late_is_refused_wherever_it_is_given(store: Store) -> None:
    """synaptent/aragora#1995: only one of two ways to decide looks at the time."""
    agent, paid = payer(1, middleware=[Approval(expires=0.001)])
    top = Agent(ScriptedModel([call("desk", task="pay"), "done"]), [agent_tool(agent)], name="top")
    for runs in (agent, top):
        waiting = await runs.run("go", store=store)
        await asyncio.sleep(0.01)
        with pytest.raises(ConfigurationError, match="time to decide has passed"):
            await runs.resume(waiting.run_id, store=store, decisions={waiting.pending[0].approval_id: True})
        status = next(row.status for row in await store.journal.runs() if row.id == waiting.run_id)
        assert (status, paid) == ("waiting", [])


@pytest.mark.parametrize("answer", ["no", 1, {"approved": False}])
async def test_only_true_and_a_decision_approve(answer: Any, store: Store) -> None:
    """pydantic/pydantic-ai#8060: a value that is no decision let the call run."""
    agent, paid = payer(1)
    waiting = await agent.run("go", store=store, approve=lambda _: answer)
    assert (waiting.outcome, paid) == ("waiting", [])
    held = waiting.pending[0].approval_id
    wrongs: list[Any] = [None, answer]
    for wrong in wrongs:
        with pytest.raises(ConfigurationError, match="True, False or a Decision"):
            await agent.resume(waiting.run_id, store=store, decisions={held: wrong})
    assert paid == []
    done = await agent.resume(waiting.run_id, store=store, decisions={held: True})
    assert (done.outcome, paid) == ("completed", [1])


def test_who_says_which_calls_ask_is_not_async() -> None:
    """openai/openai-agents-python#5066: what the predicate looks at, and gives, must be what is acted upon."""

    async def large(*_: Any) -> bool:
        return False

    with pytest.raises(ToolDefinitionError, match="approval must not be async"):
        tool(len, name="count", approval=cast("Any", large))
    with pytest.raises(ConfigurationError, match="must not be async"):
        Approval(cast("Any", large))


async def test_a_run_that_is_cancelled_while_the_human_thinks_is_cancelled(store: Store) -> None:
    agent, paid = payer(1)
    waiting = await agent.run("go", store=store)
    thinking = asyncio.Event()

    async def approve(pending: PendingApproval) -> bool:
        thinking.set()
        await asyncio.sleep(60)
        return True

    task = asyncio.create_task(agent.resume(waiting.run_id, store=store, approve=approve))
    await thinking.wait()
    [row] = await store.journal.runs()
    assert row.owner is not None  # nobody takes it over meanwhile
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    [row] = await store.journal.runs()
    assert (row.status, row.owner, paid) == ("cancelled", None, [])


FAILURES = [EOFError("EOF when reading a line"), TimeoutError("the chat did not answer"), asyncio.CancelledError()]


@pytest.mark.parametrize("failure", FAILURES)
async def test_an_approver_that_fails_has_decided_nothing(store: Store, failure: BaseException) -> None:
    """openJiuwen-ai/agent-core#971, mpfaffenberger/code_puppy#777: a callback that crashed was taken for a yes. Nor is
    it a no, or a failure of the tool: a human still decides."""
    agent, paid = payer(1)

    async def approve(pending: PendingApproval) -> bool:
        raise failure

    waiting = await agent.run("go", store=store, approve=approve)
    again = await agent.resume(waiting.run_id, store=store, approve=approve)
    assert (waiting.outcome, again.outcome, paid) == ("waiting", "waiting", [])
    [row] = await store.journal.runs()
    assert (row.status, row.owner) == ("waiting", None)
    done = await agent.resume(waiting.run_id, store=store, decisions={again.pending[0].approval_id: True})
    assert (done.outcome, paid) == ("completed", [1])


async def test_an_approver_may_say_why_not_by_raising(store: Store) -> None:
    agent, paid = payer(1)

    def approve(pending: PendingApproval) -> bool:
        raise ToolError("Not on Fridays")

    result = await agent.run("go", store=store, approve=approve)
    assert paid == []
    assert result.output == "Denied: pay was not run. Reason: Not on Fridays. Do not try it again."


async def test_what_a_human_takes_is_none_of_the_seconds_of_a_run() -> None:
    """1ay1/agentty#40: whoever takes long to approve sees the call fail for having taken too long."""
    agent, paid = payer(1, 2)

    async def approve(pending: PendingApproval) -> bool:
        await asyncio.sleep(1.2 * pending.arguments["amount"])
        return True

    result = await agent.run("go", approve=approve, limits=Limits(seconds=2))
    assert (result.outcome, sorted(paid)) == ("completed", [1, 2])
    assert result.seconds < 2


async def test_the_seconds_of_a_run_go_on_once_a_human_has_answered() -> None:
    agent, _ = payer(1)

    @tool
    async def wait() -> str:
        """Wait."""
        await asyncio.sleep(60)
        return "waited"

    slow = Agent(ScriptedModel([call("pay", amount=1), call("wait")]), [*agent.tools.always, wait])
    with pytest.raises(LimitReached) as caught:
        await slow.run("go", approve=lambda _: True, limits=Limits(seconds=0.3))
    assert caught.value.limit == "seconds"


@pytest.mark.parametrize("vague", [None, 0, "", ()])
async def test_only_a_false_says_that_nobody_need_be_asked(store: Store, vague: Any) -> None:
    """openai/openai-agents-js#1808, openai/openai-agents-python#4845: a branch without a value let the call run."""
    paid: list[int] = []

    @tool(effect="write", approval=lambda _: vague)
    def pay(amount: int) -> str:
        """Pay."""
        paid.append(amount)
        return "paid"

    result = await Agent(ScriptedModel([call("pay", amount=1)]), [pay]).run("go", store=store)
    assert (result.outcome, paid) == ("waiting", [])


@pytest.mark.parametrize("wire", ["chat", "messages"])
async def test_a_model_reads_what_a_human_made_of_its_call(wire: str) -> None:
    """langchain-ai/langchain#33787, dust-tt/dust#26943: it told the user of the amount that it had asked for itself, or
    tried again what a human had corrected."""
    agent, paid = payer()
    async with ModelServer(script=[ask(call("pay", amount=100)), "done"]) as server:
        url = server.url if wire == "chat" else server.anthropic_url
        agent.model = (OpenAIChat if wire == "chat" else Anthropic)("test", base_url=url, api_key="k")
        await agent.run("go", approve=lambda _: Decision("edit", arguments={"amount": 5}))
    assert paid == [5]
    conversation = server.requests[-1].conversation
    assert conversation is not None
    [told] = conversation.results
    assert told.text == 'paid 5\n[A human changed this call before it ran. Its arguments were {"amount":5}]'
    assert told.arguments == {"amount": 100}


async def test_a_session_reads_what_a_human_made_of_a_deferred_call(store: Store) -> None:
    agent, paid = payer(100)
    ann = Identity("ann", session="s")
    async with Runtime(agent, store=store) as runtime:
        [held] = (await runtime.run("desk", "go", identity=ann, approvals="defer")).pending
        sam = Identity("ann", roles=("supervisor",))
        done = await runtime.decide(held.approval_id, Decision("edit", arguments={"amount": 5}), by=sam)
        assert done is not None
        assert (done.output, paid) == ("paid 5", [5])
        last = (await store.sessions.load("s"))[-1]
    assert isinstance(last, UserMessage)
    assert last.text == (
        "[A human decided on the held call of pay. paid 5\n"
        '[A human changed this call before it ran. Its arguments were {"amount":5}]]'
    )


@pytest.mark.parametrize("mode", ["wait", "park"])
async def test_nobody_is_asked_twice_about_what_they_have_denied(store: Store, mode: str) -> None:
    """nearai/ironclaw#5192, egonSchiele/agency-lang#986: a model that does not take no for an answer asks for ever."""
    paid: list[int] = []
    asked: list[int] = []

    @tool(effect="write", approval=True)
    def pay(amount: int) -> str:
        """Pay."""
        paid.append(amount)
        return "paid"

    def deny(pending: PendingApproval) -> Decision:
        asked.append(pending.arguments["amount"])
        return Decision("deny", reason="Not today")

    agent = Agent(ScriptedModel([call("pay", amount=each) for each in (1, 1, 2)] + ["done"]), [pay])
    result = await agent.run("go", store=store, approve=deny if mode == "wait" else None)
    while result.outcome == "waiting":
        decisions = {one.approval_id: deny(one) for one in result.pending}
        result = await agent.resume(result.run_id, store=store, decisions=decisions)
    assert (asked, paid) == ([1, 2], [])
    assert [one.status for one in result.tool_executions] == ["denied", "denied", "denied"]
    assert result.tool_executions[1].content == result.tool_executions[0].content
