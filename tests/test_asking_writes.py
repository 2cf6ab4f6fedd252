"""Writes that ask a human: started again with the answer, never in doubt while they wait, and done once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from desks import ANN, answer, answered, desk
from glassloop import Agent, RunContext, ask_human, tool
from glassloop.core.errors import StoreError
from glassloop.core.events import ApprovalAsked, EffectStarted, Event
from glassloop.core.result import Decision, PendingApproval, RunResult
from glassloop.models.scripted import call
from glassloop.runtime import Runtime
from glassloop.stores import Store, open_store


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    async with open_store(f"sqlite:///{tmp_path / 'runs.db'}") as opened:
        yield opened


class Ledger:
    """A write that asks first, and what it did."""

    def __init__(self, **options: Any) -> None:
        self.effects: list[str] = []
        self.starts = 0

        @tool(effect="write", **options)
        async def transfer(amount: int) -> str:
            """Transfer."""
            self.starts += 1
            to = ask_human(f"To whom go the {amount}?")
            self.effects.append(f"{amount} to {to}")
            return self.effects[-1]

        self.tool = transfer

    def agent(self, *amounts: int) -> Agent:
        """An agent that transfers these, in one step."""
        return desk(self.tool, calls=[call("transfer", amount=amount) for amount in amounts or (5,)])


async def test_a_write_that_asked_is_started_again_and_acts_once(store: Store) -> None:
    bank = Ledger()
    waiting = await bank.agent().run("go", store=store)
    result = await answer(bank.agent(), waiting, "Bob", store=store)
    assert (result.output, bank.effects, bank.starts) == ("5 to Bob", ["5 to Bob"], 2)
    kinds = [event.data for event in await store.journal.read(result.run_id)]
    assert sum(isinstance(data, EffectStarted) for data in kinds) == 2


async def test_another_run_of_the_session_does_not_wait_for_a_claim_that_asks(store: Store) -> None:
    bank = Ledger()
    first = await bank.agent().run("go", session="s", store=store)
    second = await asyncio.wait_for(bank.agent().run("again", session="t", store=store), 10)
    assert (first.outcome, second.outcome) == ("waiting", "waiting")
    twin = await asyncio.wait_for(bank.agent(5, 5).run("go", store=store), 10)
    assert len(twin.pending) == 2
    decisions = {held.approval_id: answered("Bob") for held in twin.pending}
    result = await bank.agent(5, 5).resume(twin.run_id, decisions=decisions, store=store)
    assert [one.replayed for one in result.tool_executions].count(True) == 1
    assert bank.effects == ["5 to Bob"]


async def test_the_effects_of_a_transaction_that_asks_are_undone(store: Store) -> None:
    @tool(effect="write", transaction=True)
    def file(context: RunContext, title: str) -> str:
        """File."""
        context.transaction.execute("CREATE TABLE IF NOT EXISTS filed (title TEXT)")
        context.transaction.execute("INSERT INTO filed VALUES (?)", (title,))
        where = ask_human("Where?")
        rows = context.transaction.execute("SELECT count(*) FROM filed").fetchone()[0]
        return f"{rows} in {where}"

    agent = desk(file, calls=[call("file", title="x")])
    waiting = await agent.run("go", store=store)
    assert [held.summary for held in waiting.pending] == ["Where?"]
    result = await answer(agent, waiting, "A", store=store)
    assert (result.output, result.tool_executions[0].status) == ("1 in A", "ok")


async def test_the_effects_of_a_transaction_in_postgres_that_asks_are_undone(postgres_url: str) -> None:
    @tool(effect="write", transaction=True)
    def file(context: RunContext, title: str) -> str:
        """File."""
        context.transaction.execute(text("CREATE TABLE IF NOT EXISTS filed (title TEXT)"))
        context.transaction.execute(text("INSERT INTO filed VALUES (:title)"), {"title": title})
        where = ask_human("Where?")
        return f"{context.transaction.execute(text('SELECT count(*) FROM filed')).scalar()} in {where}"

    agent = desk(file, calls=[call("file", title="x")])
    async with open_store(postgres_url) as store:
        waiting = await agent.run("go", store=store)
        assert [held.summary for held in waiting.pending] == ["Where?"]
        assert (await answer(agent, waiting, "A", store=store)).output == "1 in A"


async def cut_off(whole: RunResult, store: Store, until: Callable[[Event], bool]) -> Store:
    """A store that has the run up to and with the last event of which this is true: the process ended right then."""
    events = await store.journal.read(whole.run_id)
    keep = max(number for number, event in enumerate(events, 1) if until(event))
    crashed = open_store("memory:")
    await crashed.journal.append(whole.run_id, events[:keep], after=0, epoch=1)
    return crashed


async def test_a_crash_between_a_question_and_its_answer_leaves_no_doubt() -> None:
    store, bank = open_store("memory:"), Ledger()
    waiting = await bank.agent().run("go", store=store)
    crashed = await cut_off(waiting, store, lambda event: isinstance(event.data, ApprovalAsked))
    again = await bank.agent().resume(waiting.run_id, store=crashed)
    assert [(held.kind, held.summary) for held in again.pending] == [("question", "To whom go the 5?")]
    assert (await answer(bank.agent(), again, "Bob", store=crashed)).output == "5 to Bob"
    assert bank.effects == ["5 to Bob"]


async def test_a_crash_after_the_start_that_follows_an_answer_is_in_doubt_as_ever() -> None:
    store, bank = open_store("memory:"), Ledger()
    whole = await answer(bank.agent(), await bank.agent().run("go", store=store), "Bob", store=store)
    crashed = await cut_off(whole, store, lambda event: isinstance(event.data, EffectStarted))
    again = await bank.agent().resume(whole.run_id, store=crashed)
    [doubt] = again.pending
    assert (doubt.kind, bank.effects) == ("doubt", ["5 to Bob"])
    result = await bank.agent().resume(whole.run_id, decisions={doubt.approval_id: True}, store=crashed)
    assert (result.output, bank.effects) == ("5 to Bob", ["5 to Bob", "5 to Bob"])


async def test_a_crash_between_a_start_and_its_question_is_in_doubt() -> None:
    store, bank = open_store("memory:"), Ledger()
    waiting = await bank.agent().run("go", store=store)
    crashed = await cut_off(waiting, store, lambda event: isinstance(event.data, EffectStarted))
    again = await bank.agent().resume(waiting.run_id, store=crashed)
    assert [held.kind for held in again.pending] == ["doubt"]
    asks = await bank.agent().resume(waiting.run_id, decisions={again.pending[0].approval_id: True}, store=crashed)
    assert (await answer(bank.agent(), asks, "Bob", store=crashed)).output == "5 to Bob"


async def test_a_write_that_asks_once_its_run_is_cancelled_troubles_nobody() -> None:
    began, asked = asyncio.Event(), list[str]()

    @tool(effect="write")
    async def stubborn() -> str:
        """Go on whatever comes."""
        began.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            return ask_human("What now?")
        return "done"

    def approve(pending: PendingApproval) -> Decision:
        asked.append(pending.summary)
        return answered("stop")

    task = asyncio.create_task(desk(stubborn).run("go", approve=approve))
    await began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError) as cancelled:
        await task
    result: RunResult = getattr(cancelled.value, "result", None) or await task
    assert ([one.status for one in result.tool_executions], asked) == (["cancelled"], [])


async def test_a_store_that_fails_beside_a_question_is_not_overheard() -> None:
    def unlucky() -> str:
        """Ask, and lose the store."""
        try:
            return ask_human("Which?")
        finally:
            raise StoreError("The disk is gone.")

    with pytest.raises(StoreError, match="disk is gone"):
        await desk(unlucky).run("go")


async def test_a_run_that_is_cancelled_while_it_asks_has_one_result_for_the_call(store: Store) -> None:
    async with Runtime(Ledger().agent(), store=store) as runtime:
        waiting = await runtime.run("desk", "go", identity=ANN)
        await runtime.cancel(waiting.run_id)
        result = await runtime.wait(waiting.run_id)
        assert [(one.tool, one.status) for one in result.tool_executions] == [("transfer", "cancelled")]
        assert [row.status(0) for row in await runtime.approvals(status=None)] == ["withdrawn"]
