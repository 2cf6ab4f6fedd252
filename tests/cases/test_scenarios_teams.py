"""Public failures of agent loops with more than one agent: hand-offs, and agents as tools. One test for each.

Their steps stand in cases.jsonl under the same id.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from durable import ANN, Desk, Start, Trace, team_agent
from pydantic import BaseModel
from scenario import conversation_of

from glassloop import Agent, Output, RunContext, ask_human, tool
from glassloop.core.messages import Message, Reply, Text, ToolResult, UserMessage
from glassloop.core.result import Decision
from glassloop.core.usage import Usage
from glassloop.journal.projection import RunFilter
from glassloop.memory import Moment, Piece
from glassloop.models.anthropic import Anthropic
from glassloop.models.model import ModelRequest
from glassloop.models.openai_chat import OpenAIChat
from glassloop.runtime import Runtime
from glassloop.stores import open_store
from glassloop.teams import agent_tool, delegate, handoff
from glassloop.testing import Answer, Conversation, ModelServer, ScriptedModel, ask, call, say
from glassloop.tools.toolset import DynamicToolset


class Without:
    """A view without some messages, as simple as somebody would write it.

    Args:
        left_out: what it leaves out: `results`, `calls`, or both.
    """

    def __init__(self, *left_out: str) -> None:
        self.left_out = left_out

    async def view(self, pieces: Sequence[Piece], moment: Moment, /) -> Sequence[Piece]:
        """See `ContextStrategy`."""
        return [piece for piece in pieces if not self._is_out(piece.message)]

    def _is_out(self, message: Message) -> bool:
        if isinstance(message, Reply):
            return "calls" in self.left_out and bool(message.calls)
        return isinstance(message, ToolResult) and "results" in self.left_out


def model_at(server: ModelServer, wire: str) -> OpenAIChat | Anthropic:
    """A model behind a server, which checks all that it is sent."""
    if wire == "chat":
        return OpenAIChat("test", base_url=server.url, api_key="k")
    return Anthropic("test", base_url=server.url, api_key="k")


@pytest.mark.parametrize("wire", ["chat", "messages"])
@pytest.mark.parametrize("left_out", [("results",), ("calls",), ("results", "calls")])
async def test_G02_a_filter_at_a_handoff_leaves_no_orphans_and_round_trips_repeat_nothing(
    left_out: tuple[str, ...], wire: str
) -> None:
    """A uses tools and thinks, hands to B, who reads no tool history, uses a tool and hands back; three times."""
    spoken: list[str] = []

    def brain(conversation: Conversation) -> Answer:
        who = conversation.system.removeprefix("You are ")
        turn = spoken.count(who)
        spoken.append(who)
        if turn < 6 and turn % 2 == 0:
            return ask(call(f"look_{who}", what=f"{who}{turn}"), thinking="Let me see.", text="One moment.")
        return say("done") if turn >= 6 else ask(call("hand_to_B" if who == "A" else "hand_to_A", reason="yours"))

    def look(what: str) -> str:
        """Look something up."""
        return f"found {what}"

    async with ModelServer(brain) as server:
        back: list[Any] = []
        filters = [Without(*left_out)]
        tools = [tool(look, name="look_B"), DynamicToolset(lambda _: back)]
        b = Agent(model_at(server, wire), tools, name="B", instructions="You are B", memory=filters)
        a = Agent(model_at(server, wire), [tool(look, name="look_A"), handoff(b)], name="A", instructions="You are A")
        back.append(handoff(a))
        result = await a.run("Help me.")
    assert (result.outcome, result.output, result.agent) == ("completed", "done", "A")
    assert spoken == ["A", "A", "B", "B"] * 3 + ["A"]
    assert [received.violations for received in server.requests if received.violations] == []
    for received, who in zip(server.requests, spoken, strict=True):
        messages = conversation_of(received).messages
        assert [message.text for message in messages if isinstance(message, UserMessage)] == ["Help me."]
        calls = Counter(each.id for message in messages if isinstance(message, Reply) for each in message.calls)
        answers = Counter(message.call_id for message in messages if isinstance(message, ToolResult))
        assert calls == answers
        assert set(calls.values()) <= {1}
        if who == "B" and "calls" in left_out:
            assert not any("found A" in str(message) for message in messages)
    assert len(conversation_of(server.requests[-1]).messages) == 1 + 2 * 12


async def test_G03_what_an_agent_as_a_tool_waits_for_is_listed_and_decided_in_another_process(
    start: Start, url: str, trace: Trace
) -> None:
    first = start("park_below", url, trace.path)
    run_id = await first.hear()
    await first.kill()
    async with Runtime(team_agent(Desk(trace)), store=url) as runtime:
        result = await runtime.result(run_id)
        assert result is not None
        [pending], [row] = result.pending, await runtime.approvals()
        assert (pending.tool, pending.arguments, pending.agent) == ("delete_row", {"row_id": 7}, "desk")
        assert pending.run_id == row.run_id
        assert pending.run_id.startswith(f"{run_id}.")  # the path: the run of `desk` is below that of `team`
        assert trace.lines() == []
        await runtime.decide(pending.approval_id, Decision(), by=ANN)
        result = await runtime.wait(run_id)
        assert (result.outcome, result.output) == ("completed", "done: done: deleted 7")
        assert trace.lines() == ["delete_row 7"]
        rows = await runtime.runs(RunFilter(limit=10))
        assert (result.spent.steps, result.spent.tokens) == (4, sum(each.tokens for each in rows))
        assert [each.steps for each in rows] == [2, 2]


@pytest.mark.parametrize(("seconds", "status"), [(5.0, "ok"), (0.05, "timeout")])
async def test_G03_the_time_out_of_the_outer_tool_is_its_own(seconds: float, status: str) -> None:
    """A sync tool inside has no time-out of its own: it is not cut off by one that is longer than it takes."""

    def inner() -> str:
        """Take a while."""
        time.sleep(0.2)
        return "inner is done"

    sub = Agent(ScriptedModel([call("inner"), "sub is done"]), [inner], name="sub")

    @tool(timeout=seconds)
    async def outer(context: RunContext) -> Any:
        """Ask the other agent."""
        return await delegate(context, sub, "x")

    store = open_store("memory:")
    result = await Agent(ScriptedModel([call("outer"), "all done"]), [outer], name="top").run("go", store=store)
    assert (result.outcome, result.output) == ("completed", "all done")
    [done] = result.tool_executions
    assert done.status == status
    assert ("sub is done" if status == "ok" else "timed out after 0.05 s") in done.content
    ended = {row.agent: row.status for row in await store.journal.runs()}
    assert ended == {"top": "completed", "sub": "completed" if status == "ok" else "cancelled"}


async def test_G03_and_E26_code_that_catches_everything_does_not_swallow_that_an_agent_waits() -> None:
    deleted: list[int] = []

    @tool(effect="write", approval=True)
    def delete_row(row_id: int) -> str:
        """Delete a row."""
        deleted.append(row_id)
        return "deleted"

    def answer(request: ModelRequest) -> Any:
        last = request.messages[-1]
        return getattr(last, "content", "") if isinstance(last, ToolResult) else call("delete_row", row_id=7)

    sub = Agent(ScriptedModel(answer), [delete_row], name="sub")

    @tool
    async def guarded(context: RunContext) -> Any:
        """Ask the other agent, whatever happens."""
        try:
            return await delegate(context, sub, "x")
        except Exception:  # noqa: BLE001 - as the case has it
            return "swallowed"

    agent = Agent(ScriptedModel([call("guarded"), "all done"]), [guarded], name="top")
    store = open_store("memory:")
    paused = await agent.run("go", store=store)
    assert (paused.outcome, deleted) == ("waiting", [])
    result = await agent.resume(paused.run_id, decisions={paused.pending[0].approval_id: True}, store=store)
    assert (result.output, result.tool_executions[0].value, deleted) == ("all done", "deleted", [7])


async def test_G22_what_agents_as_tools_have_spent_is_counted_once() -> None:
    """The parent asks its model three times and the same agent twice, which takes 10 tokens in and 5 out each time."""
    cost = Usage(10, 5, requests=1)
    sub = Agent(ScriptedModel(lambda _: Reply((Text("found"),), usage=cost)), name="sub")
    own = Usage(100, 20, requests=1)
    script = [Reply((call("sub", task=task),), usage=own) for task in ("a", "b")]
    top = Agent(ScriptedModel([*script, Reply((Text("done"),), usage=own)]), [agent_tool(sub)], name="top")
    store = open_store("memory:")
    result = await top.run("go", store=store)
    assert (result.usage.input, result.usage.output, result.usage.requests) == (300, 60, 3)
    assert (result.spent.steps, result.spent.tokens) == (5, 3 * 120 + 2 * 15)
    below = await store.journal.runs(RunFilter(below=result.run_id))
    assert [(row.steps, row.tokens) for row in below] == [(1, 15), (1, 15)]
    again = await top.resume(result.run_id, store=store)
    assert again.spent == result.spent


class City(BaseModel):
    """A typed answer."""

    name: str
    degrees: int


@pytest.mark.parametrize("wire", ["chat", "messages"])
async def test_E26_of_several_answers_beside_a_call_none_ends_the_run_and_the_next_reply_answers(wire: str) -> None:
    """The documented rule (docs/output.md): the calls run, and the answer is given again, with their results."""
    noted: list[str] = []

    @tool(effect="write")
    def note(text: str) -> str:
        """Note something."""
        noted.append(text)
        return "noted"

    bad, rome, oslo = ({"name": "Rome"}, {"name": "Rome", "degrees": 9}, {"name": "Oslo", "degrees": 3})
    first = ask(
        call("final_answer", **bad), call("note", text="x"), call("final_answer", **rome), call("note", text="y")
    )
    async with ModelServer(script=[first, ask(call("final_answer", **bad), call("final_answer", **oslo))]) as server:
        agent = Agent(model_at(server, wire), [note], output=Output(City, mode="tool"))
        result = await agent.run("Where?")
    assert server.violations == []
    assert (sorted(noted), result.outcome, result.value) == (["x", "y"], "completed", City(name="Oslo", degrees=3))
    [*_, last] = server.requests
    assert [m.content for m in conversation_of(last).messages if isinstance(m, ToolResult)] == ["noted", "noted"]


@pytest.mark.parametrize("wire", ["chat", "messages"])
async def test_E26_the_first_of_two_handoffs_counts_and_all_calls_beside_them_have_a_result(wire: str) -> None:
    """Ordinary calls of a reply that hands the conversation on run, and the agent that takes over reads what came."""
    script = [ask(call("look"), call("hand_to_a"), call("hand_to_b"), call("look"))]
    async with ModelServer(script=script) as server, ModelServer(script=["Here I am."]) as others:
        a, b = (Agent(model_at(others, wire), name=name) for name in ("a", "b"))
        look = tool(lambda: "seen", name="look")
        front = Agent(model_at(server, wire), [look, handoff(a), handoff(b)], output=City)
        result = await front.run("go")
    assert server.violations == others.violations == []
    assert (result.output, result.agent) == ("Here I am.", "a")
    told = [m.content for m in conversation_of(others.requests[0]).messages if isinstance(m, ToolResult)]
    assert told[:2] == ["seen", "a has the conversation now."]
    assert "The conversation has been handed to a already" in told[2]
    assert told[3:] == ["seen"]


@pytest.mark.parametrize("at_hand", [True, False])
async def test_E26_a_call_that_asks_beside_a_handoff_runs_again_where_it_was_made(at_hand: bool) -> None:
    def pick() -> str:
        """Pick."""
        return ask_human("Which?")

    def front() -> Agent:
        other = Agent(ScriptedModel(lambda request: f"heard: {request.messages[-2:]}"), name="other")
        return Agent(ScriptedModel([[call("hand_to_other"), call("pick")]]), [pick, handoff(other)], name="front")

    store, blue = open_store("memory:"), Decision("answer", answer="blue")
    result = await front().run("go", store=store, approve=(lambda pending: blue) if at_hand else None)
    if not at_hand:
        assert [(held.tool, held.kind, held.agent) for held in result.pending] == [("pick", "question", "front")]
        result = await front().resume(result.run_id, decisions={result.pending[0].approval_id: blue}, store=store)
    assert (result.outcome, result.agent) == ("completed", "other")
    assert [(one.tool, one.status) for one in result.tool_executions] == [("hand_to_other", "ok"), ("pick", "ok")]
    assert "blue" in (result.output or "")
