"""A question to a human from inside a tool: how a function is left, when it runs again, and what is never in doubt."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from desks import ANN, answer, answered, desk
from glassloop import Agent, Identity, ask_human, tool
from glassloop.core.errors import ConfigurationError
from glassloop.core.events import ApprovalAsked, ApprovalDecided, decode_data
from glassloop.core.messages import ToolResult
from glassloop.core.result import Decision, PendingApproval
from glassloop.middleware.approval import Approval
from glassloop.middleware.call import Pending
from glassloop.middleware.hooks import ToolHooks
from glassloop.middleware.stack import guard
from glassloop.models.scripted import ScriptedModel, call
from glassloop.runtime import ApprovalProblem, Runtime
from glassloop.stores import Store, open_store
from glassloop.teams import agent_tool


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    async with open_store(f"sqlite:///{tmp_path / 'runs.db'}") as opened:
        yield opened


# However a function asks


def plainly() -> str:
    """A function that asks."""
    try:
        return ask_human("Which?")
    except Exception:  # noqa: BLE001 - what the test is about
        return "swallowed"


def _deeper(depth: int) -> str:
    return ask_human("Which?") if depth == 0 else _deeper(depth - 1)


def deep_down() -> str:
    """A function whose helpers ask."""
    return _deeper(20)


async def awaiting() -> str:
    """An async function that asks."""
    await asyncio.sleep(0)
    return ask_human("Which?")


async def in_a_group() -> str:
    """A function that asks in a task of its own, beside another one."""
    async with asyncio.TaskGroup() as group:
        group.create_task(asyncio.sleep(0.01))
        asks = group.create_task(awaiting())
    return asks.result()


async def in_another_thread() -> str:
    """A function that asks in a thread of its own."""
    return await asyncio.to_thread(ask_human, "Which?")


def generator() -> Iterator[str]:
    """A generator that asks."""
    yield "first"
    yield ask_human("Which?")


async def async_generator() -> AsyncIterator[str]:
    """An async generator that asks."""
    yield "first"
    yield ask_human("Which?")


def catching_everything() -> str:
    """A function that lets nothing through."""
    try:
        return ask_human("Which?")
    except:  # noqa: E722 - what the test is about
        return "swallowed"


class Helper:
    """An object whose method is a tool."""

    def method(self) -> str:
        """A method that asks."""
        return ask_human("Which?")


@pytest.mark.parametrize(
    ("asks", "told"),
    [
        (plainly, "blue"),
        (deep_down, "blue"),
        (awaiting, "blue"),
        (in_a_group, "blue"),
        (in_another_thread, "blue"),
        (generator, '["first","blue"]'),
        (async_generator, '["first","blue"]'),
        (catching_everything, "blue"),
        (Helper().method, "blue"),
        (tool(plainly, effect="write"), "blue"),
        (tool(awaiting, effect="write", idempotent=True, retries=3), "blue"),
        (tool(plainly, retries=3, timeout=20), "blue"),
        (tool(plainly, approval=False, sequential=True), "blue"),
    ],
)
async def test_a_function_is_left_by_its_question_and_runs_again_with_the_answer(asks: Any, told: str) -> None:
    store, agent = open_store("memory:"), desk(asks)
    waiting = await agent.run("go", store=store)
    assert (waiting.outcome, waiting.tool_executions) == ("waiting", ())
    [held] = waiting.pending
    assert (held.kind, held.summary, held.choices, held.run_id) == ("question", "Which?", (), waiting.run_id)
    result = await answer(agent, waiting, "blue", store=store)
    assert (result.outcome, result.output, len(result.tool_executions)) == ("completed", told, 1)


async def test_what_catches_exceptions_does_not_see_that_a_function_is_left() -> None:
    seen: list[str] = []

    def careful() -> str:
        """Ask, and note every error."""
        try:
            return ask_human("Which?")
        except Exception as error:
            seen.append(repr(error))
            raise
        finally:
            seen.append("left")

    waiting = await desk(careful).run("go")
    assert (waiting.outcome, seen) == ("waiting", ["left"])


async def test_what_stands_before_a_question_is_done_again_and_each_question_has_its_own_answer() -> None:
    done: list[str] = []

    def book() -> str:
        """Book."""
        done.append("looked up")
        day = ask_human("Which day?", choices=["Monday", "Friday"])
        seat = ask_human(f"Which seat on {day}?")
        done.append("booked")
        return f"{seat} on {day}"

    store, agent = open_store("memory:"), desk(book)
    waiting = await agent.run("go", store=store)
    assert waiting.pending[0].choices == ("Monday", "Friday")
    waiting = await answer(agent, waiting, "Friday", store=store)
    assert waiting.pending[0].summary == "Which seat on Friday?"
    result = await answer(agent, waiting, "12A", store=store)
    assert result.output == "12A on Friday"
    assert done == ["looked up", "looked up", "looked up", "booked"]
    said = [event.data for event in await store.journal.read(result.run_id) if isinstance(event.data, ApprovalDecided)]
    assert [(each.by, each.decision, each.answer) for each in said] == [
        ("ann", "answer", "Friday"),
        ("ann", "answer", "12A"),
    ]


async def test_a_question_whose_words_have_changed_is_asked_anew() -> None:
    price = [10]

    def buy() -> str:
        """Buy."""
        first = ask_human(f"Buy for {price[0]}?")
        return f"{first}, {ask_human('Anything else?')}, at {price[0]}"

    store, agent = open_store("memory:"), desk(buy)
    waiting = await answer(agent, await agent.run("go", store=store), "yes", store=store)
    price[0] = 20  # what was answered to the second question, too, was about another first one
    result = await answer(agent, waiting, "no", store=store)
    assert [held.summary for held in result.pending] == ["Buy for 20?"]
    result = await answer(agent, result, "yes", "not at all", store=store)
    assert result.output == "yes, not at all, at 20"


async def test_a_question_with_half_a_character_is_the_same_once_it_is_read_back(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'runs.db'}"
    agent = desk(tool(lambda: ask_human("Which \ud83d?", choices=["a\ud83d", "b"]), name="pick"))
    async with open_store(url) as store:
        waiting = await agent.run("go", store=store)
        assert waiting.pending[0].choices == ("a?", "b")
    async with open_store(url) as store:
        assert (await answer(agent, waiting, "a?", store=store)).output == "a?"


async def test_an_answer_that_is_no_longer_a_choice_is_asked_for_again() -> None:
    choices = ["red", "blue"]
    store, agent = open_store("memory:"), desk(tool(lambda: ask_human("Which?", choices=choices), name="pick"))
    waiting = await agent.run("go", store=store)
    choices.remove("red")
    result = await answer(agent, waiting, "red", store=store)
    assert [held.choices for held in result.pending] == [("blue",)]


async def test_a_function_that_asks_without_end_is_stopped() -> None:
    asked: list[str] = []

    def insist() -> str:
        """Ask and ask."""
        asked.append(ask_human(f"And now, after {len(asked)}?"))
        return insist()

    result = await desk(insist).run("go", approve=lambda pending: answered("yes"))
    assert result.outcome == "completed"
    assert result.tool_executions[0].status == "error"
    assert "it has asked a human 100 times and come to no end" in result.tool_executions[0].content


# Who answers, and how


async def test_an_approver_at_hand_is_asked_at_once() -> None:
    asked: list[PendingApproval] = []

    async def approve(pending: PendingApproval) -> Decision | bool:
        asked.append(pending)
        return True if pending.kind == "call" else answered(pending.choices[0])

    @tool(effect="write", risk="high")
    def paint(wall: str) -> str:
        """Paint."""
        return f"{wall}: {ask_human('Which colour?', choices=['blue', 'red'])}"

    result = await desk(paint, calls=[call("paint", wall="north")]).run("go", approve=approve)
    assert (result.outcome, result.output) == ("completed", "north: blue")
    assert [(each.kind, each.summary, each.arguments) for each in asked] == [
        ("call", 'paint(wall="north")', {"wall": "north"}),
        ("question", "Which colour?", {"wall": "north"}),
    ]


async def test_an_approver_given_later_is_asked_about_what_is_parked(store: Store) -> None:
    waiting = await desk(plainly).run("go", store=store)
    result = await desk(plainly).resume(waiting.run_id, store=store, approve=lambda pending: answered("blue"))
    assert result.output == "blue"


@pytest.mark.parametrize(
    "said", [True, False, Decision(), Decision("answer"), Decision("answer", answer="green"), "park"]
)
async def test_an_approver_whose_answer_is_none_leaves_the_question_to_somebody_else(said: Any) -> None:
    agent, store = desk(tool(lambda: ask_human("Which?", choices=["red"]), name="pick")), open_store("memory:")
    waiting = await agent.run("go", store=store, approve=lambda pending: said)
    assert (waiting.outcome, [held.summary for held in waiting.pending]) == ("waiting", ["Which?"])
    assert (await answer(agent, waiting, "red", store=store)).output == "red"


@pytest.mark.parametrize("said", [None, Decision("deny", reason="ask Bob")])
async def test_an_approver_who_denies_or_says_nothing_ends_the_call(said: Any) -> None:
    result = await desk(plainly).run("go", approve=lambda pending: said)
    assert (result.outcome, result.tool_executions[0].status) == ("completed", "denied")
    assert (
        result.output
        == f"Denied: plainly asked a human and was stopped.{' Reason: ask Bob.' if said else ''} Do not try it again."
    )


async def test_a_denied_question_ends_the_call_and_nothing_runs_again(store: Store) -> None:
    runs: list[int] = []

    @tool(effect="write")
    def act() -> str:
        """Act."""
        runs.append(1)
        return ask_human("Really?")

    agent = desk(act)
    waiting = await agent.run("go", store=store)
    denial = {waiting.pending[0].approval_id: Decision("deny", reason="too late", by="ann")}
    result = await agent.resume(waiting.run_id, decisions=denial, store=store)
    assert (result.tool_executions[0].status, runs) == ("denied", [1])
    assert "Reason: too late" in result.tool_executions[0].content


@pytest.mark.parametrize(
    ("decision", "why"),
    [
        (True, 'decide "answer" and say what the answer is'),
        (False, 'decide "answer" and say what the answer is'),
        (Decision("approve"), 'decide "answer" and say what the answer is'),
        (Decision("edit", arguments={}), 'decide "answer" and say what the answer is'),
        (Decision("answer"), 'decide "answer" and say what the answer is'),
        (Decision("answer", answer=" "), 'decide "answer" and say what the answer is'),
        (Decision("answer", answer="green"), "must be one of these: red, blue"),
    ],
)
async def test_a_decision_that_is_no_answer_is_refused(decision: Any, why: str, store: Store) -> None:
    agent = desk(tool(lambda: ask_human("Which?", choices=["red", "blue"]), name="pick"))
    waiting = await agent.run("go", store=store)
    [held] = waiting.pending
    before = await store.journal.read(waiting.run_id)
    with pytest.raises(ConfigurationError, match=why):
        await agent.resume(waiting.run_id, decisions={held.approval_id: decision}, store=store)
    assert await store.journal.read(waiting.run_id) == before
    if isinstance(decision, Decision):
        async with Runtime(agent, store=store) as runtime:
            with pytest.raises(ApprovalProblem, match=why) as refused:
                await runtime.decide(held.approval_id, decision, by=Identity())
            assert refused.value.kind == "invalid"
    assert (await answer(agent, waiting, "blue", store=store)).output == "blue"


async def test_a_call_that_wants_a_yes_takes_no_answer(store: Store) -> None:
    agent = desk(tool(lambda: "done", name="act", risk="high"))
    waiting = await agent.run("go", store=store)
    with pytest.raises(ConfigurationError, match="nothing to answer here"):
        await agent.resume(waiting.run_id, decisions={waiting.pending[0].approval_id: answered("yes")}, store=store)
    parked = await agent.run("go", store=store, approve=lambda pending: answered("yes"))
    assert (parked.outcome, parked.pending[0].kind) == ("waiting", "call")


async def test_a_runtime_takes_the_answer_of_the_owner_once(store: Store) -> None:
    async with Runtime(desk(plainly), store=store) as runtime:
        waiting = await runtime.run("desk", "go", identity=ANN)
        assert waiting.outcome == "waiting"
        [row] = await runtime.approvals(identity=ANN)
        assert (row.kind, row.summary, row.choices, row.status(0)) == ("question", "Which?", "[]", "pending")
        with pytest.raises(ApprovalProblem):
            await runtime.decide(row.approval_id, answered("red"), by=Identity("bob"))
        await runtime.decide(row.approval_id, Decision("answer", answer="blue"), by=ANN)
        with pytest.raises(ApprovalProblem, match="answered already by ann") as late:
            await runtime.decide(row.approval_id, answered("red"), by=ANN)
        assert late.value.kind == "decided"
        assert (await runtime.wait(waiting.run_id)).output == "blue"
        [row] = await runtime.approvals(identity=ANN, status="answered")
        assert (row.answer, row.decided_by) == ("blue", "ann")


async def test_the_same_answer_again_changes_nothing(store: Store) -> None:
    agent = desk(plainly)
    waiting = await agent.run("go", store=store)
    said = {waiting.pending[0].approval_id: answered("blue")}
    first = await agent.resume(waiting.run_id, decisions=said, store=store)
    second = await agent.resume(waiting.run_id, decisions=said, store=store)
    assert first.output == second.output == "blue"
    other = {waiting.pending[0].approval_id: answered("red")}
    with pytest.raises(ConfigurationError, match="has no approval"):
        await agent.resume(waiting.run_id, decisions=other, store=store)


# Beside approvals, siblings, other runs


@pytest.mark.parametrize("mode", ["park", "defer"])
async def test_a_call_may_need_a_yes_and_then_ask(mode: Any, store: Store) -> None:
    paid: list[str] = []

    @tool(effect="write", approval=True)
    def pay(amount: int) -> str:
        """Pay."""
        account = ask_human(f"From which account are the {amount}?")
        paid.append(f"{amount} from {account}")
        return paid[-1]

    async with Runtime(desk(pay, calls=[call("pay", amount=5)]), store=store) as runtime:
        first = await runtime.run("desk", "go", identity=ANN, approvals=mode)
        [asked] = await runtime.approvals(identity=ANN)
        edit = Decision("edit", arguments={"amount": 7})
        await runtime.decide(asked.approval_id, edit, by=ANN)
        await runtime.wait(first.run_id)
        [question] = await runtime.approvals(identity=ANN)
        assert (question.kind, question.summary, question.mode) == (
            "question",
            "From which account are the 7?",
            "park",
        )
        assert paid == []
        await runtime.decide(question.approval_id, answered("B"), by=ANN)
        assert (await runtime.wait(question.run_id)).outcome == "completed"
    assert paid == ["7 from B"]


async def test_siblings_finish_while_one_asks() -> None:
    done: list[str] = []

    @tool(effect="write")
    async def note(text: str) -> str:
        """Note."""
        await asyncio.sleep(0.01)
        done.append(text)
        return f"noted {text}"

    calls = [call("note", text="a"), call("plainly"), call("note", text="b")]
    store, agent = open_store("memory:"), desk(note, plainly, calls=calls)
    waiting = await agent.run("go", store=store)
    assert sorted(done) == ["a", "b"]
    assert [(one.tool, one.status) for one in waiting.tool_executions] == [("note", "ok"), ("note", "ok")]
    result = await answer(agent, waiting, "blue", store=store)
    assert result.output == "noted a; blue; noted b"
    assert sorted(done) == ["a", "b"]


async def test_in_defer_mode_a_question_parks() -> None:
    store, agent = open_store("memory:"), desk(plainly, middleware=[Approval(mode="defer")])
    waiting = await agent.run("go", store=store)
    assert (waiting.outcome, waiting.pending[0].expires_at) == ("waiting", None)
    assert (await answer(agent, waiting, "blue", store=store)).output == "blue"


async def test_an_agent_that_is_a_tool_may_have_tools_that_ask(store: Store) -> None:
    def team() -> Agent:
        inner = desk(tool(lambda: ask_human("Which?", choices=["red", "blue"]), name="pick"), name="inner")
        return desk(agent_tool(inner), calls=[call("inner", task="pick one")], name="outer")

    waiting = await team().run("go", store=store)
    [held] = waiting.pending
    assert (held.kind, held.agent, held.choices) == ("question", "inner", ("red", "blue"))
    with pytest.raises(ConfigurationError, match="must be one of these"):
        await team().resume(waiting.run_id, decisions={held.approval_id: answered("green")}, store=store)
    result = await team().resume(waiting.run_id, decisions={held.approval_id: answered("red")}, store=store)
    assert (result.outcome, result.output) == ("completed", "red")


async def test_the_next_turn_of_a_session_reads_what_is_asked_and_later_what_came_of_it(store: Store) -> None:
    def brain(request: Any) -> Any:
        return call("plainly") if len(request.messages) == 1 else "mid"

    agent = Agent(ScriptedModel(brain), [plainly])
    waiting = await agent.run("go", session="s", store=store)
    turn = await agent.run("and?", session="s", store=store)
    [told] = [message for message in turn.messages if isinstance(message, ToolResult)]
    assert told.status == "held"
    assert "has asked a human" in told.content
    assert "Which?" in told.content
    await answer(agent, waiting, "blue", store=store)
    last = await agent.run("now?", session="s", store=store)
    assert "[A human decided on the held call of plainly. blue]" in [getattr(one, "text", "") for one in last.messages]


# Layers, and no layers


async def test_a_hook_after_the_call_sees_only_what_it_came_to() -> None:
    seen: list[Any] = []
    store = open_store("memory:")

    def after(call: Any, value: Any) -> None:
        seen.append(value)

    agent = desk(plainly, middleware=[ToolHooks(after=after)])
    await answer(agent, await agent.run("go", store=store), "blue", store=store)
    assert seen == ["blue"]


async def test_a_guarded_function_asks_whom_its_layers_ask() -> None:
    def pick(first: str) -> str:
        return f"{first}: {ask_human('Which?')}, {ask_human('Sure?')}"

    asked: list[str] = []

    def approve(pending: PendingApproval) -> Decision:
        asked.append(pending.summary)
        return answered("blue")

    assert await guard(pick, Approval(approver=approve))(first="x") == "x: blue, blue"
    assert asked == ["Which?", "Sure?"]
    held = await guard(pick, Approval())(first="x")
    assert isinstance(held, Pending)
    assert held.approval_id.startswith("appr_")
    held = await guard(pick)(first="x")
    assert isinstance(held, Pending)
    assert held.question is not None
    assert held.question.text == "Which?"


async def test_outside_a_tool_there_is_nobody_to_ask() -> None:
    with pytest.raises(ConfigurationError, match="called outside a tool"):
        ask_human("Which?")
    late: list[asyncio.Task[str]] = []

    async def starts_something() -> str:
        late.append(asyncio.create_task(later()))
        return "started"

    async def later() -> str:
        await asyncio.sleep(0.01)
        return ask_human("Which?")

    assert (await desk(starts_something).run("go")).output == "started"
    with pytest.raises(ConfigurationError, match="called outside a tool"):
        await late[0]
    with pytest.raises(ConfigurationError, match="called outside a tool"):
        ask_human("Which?")  # also where a run was driven in this very task


@pytest.mark.parametrize("given", [{"question": " "}, {"question": "Which?", "choices": "yes"}])
async def test_what_cannot_be_asked_is_an_error_of_the_tool(given: dict[str, Any]) -> None:
    result = await desk(tool(lambda: ask_human(**given), name="pick")).run("go")
    assert (result.outcome, result.tool_executions[0].status) == ("completed", "error")


def test_what_earlier_versions_wrote_is_read() -> None:
    old = '{"approval_id":"a","call_id":"c","tool":"t","arguments":"{}","fingerprint":"f","summary":"s"}'
    asked = decode_data("approval_asked", 1, old)
    assert isinstance(asked, ApprovalAsked)
    assert (asked.kind, asked.choices, asked.place) == ("call", (), 0)
    decided = decode_data("approval_decided", 1, json.dumps({"approval_id": "a", "decision": "deny"}))
    assert isinstance(decided, ApprovalDecided)
    assert decided.answer is None
