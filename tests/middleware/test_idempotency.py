"""The same write twice runs once: what that means where the first was undone, or cancelled."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from glassloop import Agent, tool
from glassloop.core.errors import FatalToolError
from glassloop.journal.ledger import DAY, Claim, MemoryLedger, Owner
from glassloop.middleware.idempotency import Idempotency
from glassloop.middleware.start import Start
from glassloop.models.scripted import ScriptedModel, call
from glassloop.stores import open_store

SECONDS = 30.0
"""How long a test waits at most; a claim that nobody is at would hold it up for 90."""


@pytest.mark.parametrize("again", ["the same run", "the next run"])
async def test_a_write_that_was_undone_is_done_again(again: str) -> None:
    log: list[str] = []

    def void(arguments: Any, result: Any) -> None:
        log.append("void")

    @tool(effect="write", undo=void)
    def book(room: str) -> str:
        log.append("book")
        return f"booked {room}"

    def pay() -> str:
        raise FatalToolError("The bank is closed.")

    script = [call("book", room="hall"), call("pay"), call("book", room="hall"), call("book", room="hall"), "done"]
    agent, store = Agent(ScriptedModel(script), [book, pay]), open_store("memory:")
    with pytest.raises(FatalToolError) as failed:
        await agent.run("go", session="s", store=store)
    assert failed.value.result is not None
    if again == "the same run":
        result = await agent.resume(failed.value.result.run_id, store=store)
    else:
        result = await agent.run("once more", session="s", store=store)
    assert log == ["book", "void", "book"]
    assert [one.replayed for one in result.tool_executions if one.tool == "book"][-2:] == [False, True]


async def test_a_write_that_was_cancelled_holds_up_no_other() -> None:
    begun, log = asyncio.Event(), list[str]()

    @tool(effect="write")
    async def send(text: str) -> str:
        log.append(text)
        begun.set()
        await asyncio.Event().wait()
        return "sent"

    script = [call("send", text="hi"), call("send", text="hi"), "done"]
    agent, store = Agent(ScriptedModel(script), [send], middleware=[Start(grace=0.01)]), open_store("memory:")
    running = asyncio.create_task(agent.run("go", store=store))
    async with asyncio.timeout(SECONDS):
        await begun.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError) as cancelled:
            await running
        run: Any = cancelled.value
        result = await agent.resume(run.result.run_id, store=store)
    assert ([one.status for one in result.tool_executions], log) == (["unknown", "unknown"], ["hi"])


class _Interrupted(MemoryLedger):
    """A ledger whose first claim is made, and not told."""

    def __init__(self) -> None:
        super().__init__()
        self.made = asyncio.Event()

    async def claim(self, key: str, owner: Owner, lease: float, ttl: float = DAY) -> Claim:
        claim = await super().claim(key, owner, lease, ttl)
        if not self.made.is_set():
            self.made.set()
            await asyncio.Event().wait()
        return claim


async def test_a_write_that_was_cancelled_before_it_began_is_none() -> None:
    log, ledger = list[str](), _Interrupted()

    @tool(effect="write")
    async def send(text: str) -> str:
        log.append(text)
        return "sent"

    script = [call("send", text="hi"), call("send", text="hi"), "done"]
    agent, store = Agent(ScriptedModel(script), [send], middleware=[Idempotency(ledger)]), open_store("memory:")
    running = asyncio.create_task(agent.run("go", store=store))
    async with asyncio.timeout(SECONDS):
        await ledger.made.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError) as cancelled:
            await running
        run: Any = cancelled.value
        result = await agent.resume(run.result.run_id, store=store)
    assert ([one.status for one in result.tool_executions], log) == (["cancelled", "ok"], ["hi"])
