"""Limits where servers do not help: the usage of a reply is missing, or is said to be nothing."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from glassloop import Agent, LimitReached, Limits, Tool
from glassloop.core.errors import ModelError
from glassloop.core.events import TextDelta
from glassloop.core.messages import Reply, ToolCall
from glassloop.core.usage import Usage
from glassloop.journal.state import fold
from glassloop.models.anthropic import Anthropic
from glassloop.models.openai_chat import OpenAIChat
from glassloop.models.scripted import ScriptedModel
from glassloop.models.scripted import call as call_of
from glassloop.results import result_of
from glassloop.runtime import Runtime
from glassloop.stores import open_store
from glassloop.teams import agent_tool
from glassloop.testing import Answer, Conversation, ModelServer, ask, call, fail, say


def look_up(page: int) -> str:
    """Read a page."""
    return f"page {page}: " + "words " * 500


def next_page(conversation: Conversation, usage: Usage | None) -> Answer:
    page = call("look_up", page=len(conversation.messages))
    return ask(page, report_usage=False) if usage is None else ask(page, usage=usage)


@pytest.mark.parametrize("usage", [None, Usage(0, 0, requests=1), Usage(0, 20, requests=1)])
@pytest.mark.parametrize("wire", ["chat", "messages"])
async def test_tokens_are_limited_though_the_server_does_not_count_them(wire: str, usage: Usage | None) -> None:
    """NousResearch/hermes-agent#12023, MiXaiLL76/auto_ai_router#142: 0 tokens, whatever the conversation grows to."""
    async with ModelServer(lambda conversation: next_page(conversation, usage)) as server:
        url = server.url if wire == "chat" else server.anthropic_url
        model = (OpenAIChat if wire == "chat" else Anthropic)("test", base_url=url, api_key="k")
        agent = Agent(model, [look_up], limits=Limits(total_tokens=20_000, on_limit="return"))
        result = await agent.run("Read it all.")
    assert (result.outcome, result.limit) == ("limited", "total_tokens")
    assert 3 <= result.steps <= 10


async def test_a_tree_counts_what_no_server_has_counted() -> None:
    """defilantech/LLMKube#1852: what is not reported is charged to nobody."""

    def brain(conversation: Conversation) -> Answer:
        if conversation.system == "You read.":
            return next_page(conversation, None)
        return ask(call("reader", task="again"), report_usage=False) if conversation.tools else say("never")

    limits = Limits(total_tokens=30_000, steps=None, repetition=None, on_limit="return")
    async with ModelServer(brain) as server:
        model = OpenAIChat("test", base_url=server.url, api_key="k")
        reader = Agent(model, [look_up], name="reader", instructions="You read.")
        result = await Agent(model, [agent_tool(reader)], limits=limits).run("Read it all.")
    assert (result.outcome, result.limit) == ("limited", "total_tokens")
    assert len(server.requests) < 20


async def test_a_tool_that_has_had_its_calls_stops_no_other() -> None:
    def jot(word: str) -> str:
        """Write a word down."""
        return word

    def read() -> str:
        """Read what was written."""
        return "a b"

    model = ScriptedModel([call_of("jot", word="a"), call_of("jot", word="b"), call_of("read"), "done"])
    agent = Agent(model, [jot, read], limits=Limits(steps=2, on_limit="return"))
    stopped = await agent.run("go")
    went_on = await agent.resume(stopped.run_id, limits=Limits(calls_per_tool={"jot": 1}))
    assert (went_on.outcome, went_on.tool_executions[-1].value) == ("completed", "a b")


async def test_a_call_that_was_cut_off_has_been_read_all_the_same() -> None:
    """openai/openai-agents-js#995, langgenius/dify#40937: what a cancelled call has cost is counted by nobody."""
    store = open_store("memory:")
    async with ModelServer(lambda _: Answer("words ", endless=True)) as server:
        model = OpenAIChat("test", base_url=server.url, api_key="k")
        agent = Agent(model, limits=Limits(total_tokens=15_000, output_tokens=100))
        async with agent.stream("word " * 6_000, store=store) as stream:
            async for event in stream:
                if isinstance(event.data, TextDelta):
                    break
        [row] = await store.journal.runs()
        with pytest.raises(LimitReached) as caught:
            await agent.resume(row.id, store=store)
    assert (caught.value.limit, len(server.requests)) == ("total_tokens", 1)


@pytest.mark.parametrize("wire", ["chat", "messages"])
@pytest.mark.parametrize("how", ["seconds", "cancelled", "broken"])
async def test_what_was_said_before_a_run_was_stopped_is_its_output(wire: str, how: str) -> None:
    """nbramia/LifeOS#611, openai/openai-agents-python#4160: what the user has read is gone once the run is stopped."""
    store = open_store("memory:")
    said = (
        replace(fail(500, "oops"), text="one two three") if how == "broken" else Answer("one two three", endless=True)
    )
    async with ModelServer(lambda _: said if len(server.requests) == 1 else say("Again.")) as server:
        url = server.url if wire == "chat" else server.anthropic_url
        model = (OpenAIChat if wire == "chat" else Anthropic)("test", base_url=url, api_key="k")
        agent = Agent(model, limits=Limits(seconds=2 if how == "seconds" else 600))
        with suppress(LimitReached, ModelError):
            async with agent.stream("Count.", store=store, session="s") as stream:
                async for event in stream:
                    if isinstance(event.data, TextDelta) and how == "cancelled":
                        break
        [row] = await store.journal.runs()
        result = result_of(fold(await store.journal.read(row.id)))
        assert result.outcome == {"seconds": "limited", "cancelled": "cancelled", "broken": "failed"}[how]
        assert (result.output or "").startswith("one two three")
        again = await agent.run("And?", store=store, session="s")  # it is no reply: the model has not finished it
    assert again.output == "Again."
    assert not [message for message in again.messages[:-1] if isinstance(message, Reply)]
    assert not [received.violations for received in server.requests if received.violations]


async def test_a_run_that_was_let_go_of_in_the_middle_of_a_reply_asks_again(tmp_path: Path) -> None:
    store, endless = f"sqlite:///{tmp_path / 'runs.db'}", Answer("one two", endless=True)
    async with ModelServer(lambda _: endless if len(server.requests) == 1 else say("Again.")) as server:
        agent = Agent(OpenAIChat("test", base_url=server.url, api_key="k"))
        async with Runtime(agent, store=store) as runtime:
            run_id = await runtime.start("agent", "Count.")
            async for event in runtime.watch(run_id):
                if isinstance(event.data, TextDelta):
                    break
        async with Runtime(agent, store=store) as runtime:
            result = await runtime.wait(run_id)
    assert (result.outcome, result.output) == ("completed", "Again.")


@pytest.mark.parametrize("wire", ["chat", "messages"])
async def test_an_absurd_usage_fails_no_store(wire: str, tmp_path: Path) -> None:
    """stacklok/mecatl#1726: a number of tokens that no integer of a database holds."""
    async with ModelServer(script=[Answer("Hello.", usage=Usage(10**30, 10**30, requests=1))]) as server:
        url = server.url if wire == "chat" else server.anthropic_url
        model = (OpenAIChat if wire == "chat" else Anthropic)("test", base_url=url, api_key="k")
        result = await Agent(model).run("go", store=f"sqlite:///{tmp_path / 'runs.db'}")
    assert (result.outcome, result.output) == ("completed", "Hello.")
    assert result.usage.total > 10**9


@pytest.mark.parametrize("raw", [False, True])
async def test_the_same_call_is_the_same_however_it_is_written(raw: bool) -> None:
    """open-multi-agent/open-multi-agent#49, shaun0927/openchrome#1091: other blanks, or fields in another order, hid
    that a model goes round in circles."""

    def find(word: str, page: int) -> str:
        """Find a word."""
        return f"{word} is not on page {page}"

    fields: dict[str, Any] = {"word": {"type": "string"}, "page": {"type": "integer"}}
    schema = {"type": "object", "properties": fields, "required": ["word", "page"]}
    tool = Tool.from_schema("find", "Find a word.", schema, find) if raw else find

    def brain(conversation: Conversation) -> ToolCall:
        turn = len(conversation.results)
        first, second = ('"page":1', '"word":"x"') if turn % 2 else ('"word":"x"', '"page":1')
        return ToolCall(f"c{turn}", "find", f"{{{first},{' ' * turn}{second}}}")

    async with ModelServer(brain) as server:
        model = OpenAIChat("test", base_url=server.url, api_key="k")
        result = await Agent(model, [tool], limits=Limits(on_limit="return")).run("go")
    assert (result.outcome, result.limit, result.nudges) == ("limited", "repetition", ("repetition",))
    assert len(server.requests) < 8
