"""Limits where servers do not help: the usage of a reply is missing, or is said to be nothing."""

from __future__ import annotations

import pytest

from glassloop import Agent, Limits
from glassloop.core.usage import Usage
from glassloop.models.anthropic import Anthropic
from glassloop.models.openai_chat import OpenAIChat
from glassloop.models.scripted import ScriptedModel
from glassloop.models.scripted import call as call_of
from glassloop.teams import agent_tool
from glassloop.testing import Answer, Conversation, ModelServer, ask, call, say


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
