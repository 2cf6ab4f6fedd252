"""Agents as tools, supervisors and hand-offs: one tree, one purse, and approvals anywhere in it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from glassloop import Agent, FatalToolError, Identity, LimitReached, Limits, ModelError, ModelSettings, RunContext, tool
from glassloop.core.errors import ModelErrorKind
from glassloop.core.events import HandedOff
from glassloop.core.messages import Reply, Text, ToolResult, UserMessage
from glassloop.core.result import Decision
from glassloop.core.usage import Usage
from glassloop.models.model import ModelRequest
from glassloop.models.scripted import ScriptedModel, call
from glassloop.runtime import ApprovalProblem, Runtime
from glassloop.stores import open_store
from glassloop.teams import agent_tool, delegate, handoff, supervisor
from glassloop.tools.toolset import DynamicToolset, ToolSources

ANN = Identity("ann")


def results(request: ModelRequest) -> list[str]:
    return [message.content for message in request.messages if isinstance(message, ToolResult)]


def told(request: ModelRequest) -> str:
    return next(message.text for message in request.messages if isinstance(message, UserMessage))


@tool(effect="write", risk="high")
def pay(amount: int) -> str:
    """Pay something."""
    return f"paid {amount}"


def payer() -> Agent:
    def answer(request: ModelRequest) -> Any:
        return call("pay", amount=5) if not results(request) else f"Done: {results(request)[-1]}"

    return Agent(ScriptedModel(answer), [pay], name="payer", instructions="You pay bills.\n\nCarefully.")


async def test_an_agent_is_a_tool_of_another() -> None:
    echo = Agent(ScriptedModel(lambda request: f"echo {told(request)}"), name="echo")
    model = ScriptedModel([[call("echo", task="a"), call("echo", task="b")], "done"])
    result = await Agent(model, [agent_tool(echo)]).run("go")
    assert [one.value for one in result.tool_executions] == ["echo a", "echo b"]
    assert result.steps == 2
    assert result.spent.steps == 4


async def test_two_agents_of_one_tree_do_not_do_the_same_write_twice() -> None:
    opened: list[str] = []

    @tool(effect="write")
    def open_ticket(order: str) -> str:
        """Open a ticket."""
        opened.append(order)
        return f"ticket {len(opened)}"

    def answer(request: ModelRequest) -> Any:
        return call("open_ticket", order="1024") if not results(request) else results(request)[-1]

    clerks = [Agent(ScriptedModel(answer), [open_ticket], name=name) for name in ("ann", "bob")]
    model = ScriptedModel([[call("ann", task="go"), call("bob", task="go")], "done"])
    desk = Agent(model, [agent_tool(one) for one in clerks])
    result = await desk.run("order 1024 never came")
    assert (opened, [one.value for one in result.tool_executions]) == (["1024"], ["ticket 1", "ticket 1"])


async def test_what_the_model_is_told_of_it_is_the_beginning_of_its_instructions() -> None:
    model = ScriptedModel(["hm"])
    await Agent(model, [agent_tool(payer(), name="bills")]).run("go")
    [spec] = model.requests[0].tools
    assert (spec.name, spec.description) == ("bills", "You pay bills.")
    assert list(spec.parameters["properties"]) == ["task"]


async def test_an_agent_that_does_not_complete_is_an_error_for_the_model() -> None:
    def failing(_: object) -> str:
        raise ModelError("The server is away.", kind="invalid_request")

    broken = Agent(ScriptedModel(failing), name="broken")
    result = await Agent(ScriptedModel([call("broken", task="x"), "sorry"]), [agent_tool(broken)]).run("go")
    assert result.output == "sorry"
    assert "broken did not complete (failed): The server is away." in result.tool_executions[0].content


HOPELESS: list[ModelErrorKind] = ["auth", "payment", "not_found", "price"]


@pytest.mark.parametrize("kind", HOPELESS)
async def test_what_no_model_can_mend_ends_the_tree_and_is_said(kind: ModelErrorKind) -> None:
    """A key that is refused, in a team: its supervisor asked again and again, each time for money."""

    def failing(_: object) -> str:
        raise ModelError("The server wants a key.", kind=kind)

    store = open_store("memory:")
    broken = Agent(ScriptedModel(failing), name="broken")
    middle = Agent(ScriptedModel([call("broken", task="x")]), [agent_tool(broken)], name="middle")
    top = Agent(ScriptedModel([call("middle", task="x")]), [agent_tool(middle)], name="top")
    with pytest.raises(ModelError, match=r"^middle did not .* broken did not .* The server wants a key") as caught:
        await top.run("go", store=store)
    assert caught.value.result is not None
    assert (caught.value.kind, caught.value.result.spent.steps) == (kind, 3)
    assert {row.status for row in await store.journal.runs()} == {"failed"}


async def test_an_agent_below_that_is_not_configured_ends_the_tree() -> None:
    below = Agent("openai:gpt-5", name="below")
    top = Agent(ScriptedModel([call("below", task="x")]), [agent_tool(below)], name="top")
    with pytest.raises(ModelError, match=r"^below cannot be asked: .*OPENAI_API_KEY") as caught:
        await top.run("go")
    assert caught.value.kind == "configuration"


async def test_who_wants_to_go_on_without_says_so() -> None:
    def failing(_: object) -> str:
        raise ModelError("The server wants a key.", kind="auth")

    broken = Agent(ScriptedModel(failing), name="broken")

    @tool(timeout=60)
    async def ask(context: RunContext) -> Any:
        """Ask."""
        try:
            return await delegate(context, broken, "x")
        except FatalToolError:
            return "nobody is there"

    result = await Agent(ScriptedModel([call("ask"), "done"]), [ask]).run("go")
    assert (result.output, result.tool_executions[0].value) == ("done", "nobody is there")


async def test_an_agent_that_begins_itself_comes_to_an_end() -> None:
    def again(request: ModelRequest) -> Any:
        return results(request)[-1] if results(request) else call("me", task="again")

    me = Agent(ScriptedModel(again), name="me")
    me.tools = ToolSources([agent_tool(me)])
    result = await me.run("go")
    assert (result.outcome, result.output) == (
        "completed",
        "me was not begun: runs begin runs 8 deep at most. Do it without.",
    )


async def test_an_approval_below_parks_the_whole_tree_and_a_decision_goes_on_with_it() -> None:
    store = open_store("memory:")
    middle = Agent(ScriptedModel([call("payer", task="bill"), "middle is done"]), [agent_tool(payer())], name="middle")
    top = Agent(ScriptedModel([call("middle", task="bills"), "top is done"]), [agent_tool(middle)], name="top")
    result = await top.run("go", store=store, session="s")
    assert result.outcome == "waiting"
    [held] = result.pending
    assert (held.tool, held.arguments) == ("pay", {"amount": 5})
    assert {row.status for row in await store.journal.runs()} == {"waiting"}
    result = await top.resume(result.run_id, decisions={held.approval_id: True}, store=store)
    assert (result.outcome, result.output) == ("completed", "top is done")
    assert {row.status for row in await store.journal.runs()} == {"completed"}
    told = [m.text for m in await store.sessions.load("s") if isinstance(m, UserMessage | Reply)]
    assert told == ["go", "", "top is done"]


async def test_one_call_can_begin_several_runs_and_none_of_them_twice() -> None:
    looked: list[str] = []
    look = Agent(ScriptedModel(lambda request: looked.append(told(request)) or "5 is due"), name="look")
    pays = payer()

    @tool
    async def settle(context: RunContext) -> Any:
        """Settle what is due."""
        due = await delegate(context, look, "What is due?", key="look")
        paid = await delegate(context, pays, due, key="pay")
        return f"{due}. {paid}" if isinstance(paid, str) else paid

    store = open_store("memory:")
    top = Agent(ScriptedModel([call("settle"), "settled"]), [settle], name="top")
    result = await top.run("go", store=store)
    assert result.outcome == "waiting"
    result = await top.resume(result.run_id, decisions={result.pending[0].approval_id: True}, store=store)
    assert (result.output, result.tool_executions[0].value) == ("settled", "5 is due. Done: paid 5")
    assert looked == ["What is due?"]


async def test_a_human_at_hand_is_asked_wherever_the_call_is() -> None:
    asked: list[str] = []
    top = Agent(ScriptedModel([call("payer", task="bill"), "done"]), [agent_tool(payer())])
    result = await top.run("go", approve=lambda pending: asked.append(pending.tool) or True)
    assert (result.outcome, asked) == ("completed", ["pay"])
    assert result.tool_executions[0].value == "Done: paid 5"


async def test_a_supervisor_gives_tasks_and_recovers_from_a_member_that_does_not_exist() -> None:
    model = ScriptedModel(
        [call("give_task", member="bob", task="x"), call("give_task", member="payer", task="x"), "all done"]
    )
    boss = supervisor(model, {"pays": payer(), "talks": Agent(ScriptedModel(["hi"]), name="talker")})
    result = await boss.run("go", approve=lambda _: True)
    assert result.output == "all done"
    wrong, right = result.tool_executions
    assert wrong.status == "error"
    assert "payer" in wrong.content
    assert "talker" in wrong.content
    assert right.value == "Done: paid 5"
    assert "- payer: pays" in model.requests[0].instructions


async def test_a_handoff_moves_the_conversation() -> None:
    model = ScriptedModel(["I am billing."])
    billing = Agent(model, [pay], name="billing", instructions="You are billing.")
    front = Agent(ScriptedModel([call("hand_to_billing", reason="money")]), [handoff(billing)], name="front")
    store = open_store("memory:")
    result = await front.run("My bill is wrong.", store=store)
    assert (result.outcome, result.output, result.agent) == ("completed", "I am billing.", "billing")
    [request] = model.requests
    assert request.instructions == "You are billing."
    assert [spec.name for spec in request.tools] == ["pay"]
    assert told(request) == "My bill is wrong."
    events = await store.journal.read(result.run_id)
    assert [event.data.agent for event in events if isinstance(event.data, HandedOff)] == ["billing"]


async def test_a_conversation_that_was_handed_over_goes_on_with_the_same_agent_after_a_crash() -> None:
    def answer(request: ModelRequest) -> Any:
        return call("pay", amount=5) if len(results(request)) < 2 else "paid"

    def front() -> Agent:
        billing = Agent(ScriptedModel(answer), [pay], name="billing")
        return Agent(ScriptedModel([call("hand_to_billing")]), [handoff(billing)], name="front")

    store = open_store("memory:")
    result = await front().run("go", store=store)
    assert result.outcome == "waiting"
    result = await front().resume(result.run_id, decisions={result.pending[0].approval_id: True}, store=store)
    assert (result.output, result.agent) == ("paid", "billing")


@pytest.mark.parametrize("order", [("hand_to_talker", "pay"), ("pay", "hand_to_talker")])
async def test_a_call_that_waits_beside_a_handoff_is_run_with_the_tools_of_the_agent_that_made_it(
    order: tuple[str, str],
) -> None:
    """openai/openai-agents-js#1768, microsoft/agent-framework#8247: approved, and then looked for among the tools of
    the agent that the conversation had been handed to."""

    def front() -> Agent:
        talker = Agent(ScriptedModel(lambda request: f"heard: {results(request)}"), name="talker")
        calls = [call(name, **({"amount": 5} if name == "pay" else {})) for name in order]
        return Agent(ScriptedModel([calls]), [pay, handoff(talker)], name="front")

    store = open_store("memory:")
    waiting = await front().run("go", store=store)
    [pending] = waiting.pending
    assert (pending.tool, pending.agent) == ("pay", "front")
    result = await front().resume(waiting.run_id, decisions={pending.approval_id: True}, store=store)
    assert (result.outcome, result.agent) == ("completed", "talker")
    assert {one.tool: one.status for one in result.tool_executions} == {"pay": "ok", "hand_to_talker": "ok"}
    assert "paid 5" in (result.output or "")


async def test_a_deferred_call_runs_with_the_tools_of_the_agent_that_had_the_conversation() -> None:
    """microsoft/agent-framework#8247: the entry agent is asked to run what another one has called."""
    billing = Agent(ScriptedModel([call("pay", amount=5), "It waits."]), [pay], name="billing")
    front = Agent(ScriptedModel([call("hand_to_billing")]), [handoff(billing)], name="front")
    async with Runtime(front, store="memory:") as runtime:
        result = await runtime.run("front", "go", identity=ANN, approvals="defer")
        [pending] = result.pending
        wrong = Decision("edit", arguments={"amount": "much"})
        with pytest.raises(ApprovalProblem) as refused:
            await runtime.decide(pending.approval_id, wrong, by=ANN)
        assert refused.value.kind == "invalid"
        done = await runtime.decide(pending.approval_id, Decision("edit", arguments={"amount": 4}), by=ANN)
        assert done is not None
        assert (done.outcome, done.output) == ("completed", "paid 4")


async def test_ping_pong_stops_at_its_bound() -> None:
    tools: list[Any] = []
    ping = Agent(ScriptedModel(lambda _: call("hand_to_pong")), [DynamicToolset(lambda _: tools)], name="ping")
    pong = Agent(ScriptedModel(lambda _: call("hand_to_ping")), [handoff(ping)], name="pong")
    tools.append(handoff(pong))
    with pytest.raises(LimitReached, match="handed on 3 times") as reached:
        await ping.run("go", limits=Limits(handoffs=3, repetition=None))
    assert reached.value.limit == "handoffs"


async def test_two_handoffs_in_one_step_are_one() -> None:
    one, two = (Agent(ScriptedModel([f"I am {name}."]), name=name) for name in ("one", "two"))
    model = ScriptedModel([[call("hand_to_one"), call("hand_to_two")]])
    result = await Agent(model, [handoff(one), handoff(two)]).run("go")
    assert sorted(done.status for done in result.tool_executions) == ["error", "ok"]
    assert result.output == f"I am {result.agent}."


def spender(tokens: int, *, honest: bool = True) -> Any:
    """A model that answers with so many tokens, or as many as it may."""

    def answer(request: ModelRequest) -> Reply:
        most = request.settings.max_tokens or tokens
        return Reply((Text("x"),), usage=Usage(4, min(tokens, most) if honest else tokens, requests=1))

    return answer


async def test_a_tree_spends_from_the_limits_of_its_root() -> None:
    child = Agent(ScriptedModel(spender(900)), name="child", limits=Limits(total_tokens=10_000, output_tokens=900))
    model = ScriptedModel([[call("child", task=str(number)) for number in range(5)], "done"])
    limits = Limits(total_tokens=2_500, output_tokens=500)
    with pytest.raises(LimitReached) as reached:
        await Agent(model, [agent_tool(child)], settings=ModelSettings()).run("go", limits=limits)
    assert reached.value.limit == "total_tokens"
    assert reached.value.result is not None
    spent = reached.value.result.spent
    assert 1_000 < spent.tokens <= 2_500
    assert "and those it belongs to used" in reached.value.result.tool_executions[-1].content


async def test_cancelling_the_root_cancels_what_is_below() -> None:
    began, closed = asyncio.Event(), asyncio.Event()

    async def slow(_: object) -> str:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            closed.set()
        return ""

    store = open_store("memory:")
    child = Agent(ScriptedModel(slow), name="child")
    top = Agent(ScriptedModel([call("child", task="x")]), [agent_tool(child)], name="top")
    task = asyncio.create_task(top.run("go", store=store))
    await began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert closed.is_set()
    assert {row.status for row in await store.journal.runs()} == {"cancelled"}
