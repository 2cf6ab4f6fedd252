"""Tools as a constrained reply over the wire: the journal of the native mode, typed answers, switching over."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from pydantic import BaseModel, field_validator

from glassloop import Agent, Limits, ModelSettings, tool
from glassloop.core.events import Event, ModelReplied, ModelRequested, TextDelta, ToolFinished
from glassloop.core.messages import UserMessage
from glassloop.journal.journal import Journal
from glassloop.journal.requests import rebuild_request
from glassloop.models.anthropic import Anthropic
from glassloop.models.fallback import Fallback
from glassloop.models.openai_chat import OpenAIChat
from glassloop.models.scripted import ScriptedModel
from glassloop.stores import open_store
from glassloop.testing import Conversation, ModelServer, Reaction, call, fail

FORCED = ModelSettings(tool_mode="schema")
ANSWER = '{"next": {"action": "final_answer", "answer": "It is 3."}}'
CALL = '{"next": {"action": "add", "arguments": {"a": 1, "b": 2}}}'
OSLO = '{"city":"Oslo","degrees":3}'


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


class Weather(BaseModel):
    city: str
    degrees: float


class Place(Weather):
    @field_validator("city")
    @classmethod
    def _exists(cls, city: str) -> str:
        if city == "Atlantis":
            raise ValueError("no such place")
        return city


# Over the wire, with a server that refuses tools and holds its replies to the schema


def adding(conversation: Conversation) -> Reaction:
    match [result.value for result in conversation.results]:
        case []:
            return call("add", a=1, b=2)
        case [three]:
            return call("add", a=three, b=3)
        case values:
            return f"It is {values[-1]}."


def model_of(server: ModelServer, wire: str = "openai") -> Any:
    if wire == "anthropic":
        return Anthropic("m", base_url=server.anthropic_url, api_key="k")
    return OpenAIChat("m", base_url=server.url, api_key="k")


async def events_of(journal: Journal, run_id: str) -> list[Any]:
    """The events of a run without what is different every time."""
    return [_plain(event) for event in await journal.read(run_id)]


def _plain(event: Event) -> Any:
    match event.data:
        case ToolFinished(result=result, arguments=arguments):
            return event.step, event.type, result.name, result.status, result.content, arguments
        case ModelReplied(reply=reply):
            return event.step, event.type, [(one.name, one.arguments) for one in reply.calls], reply.text
        case _:
            return event.step, event.type


@pytest.mark.parametrize("stream", [False, True])
async def test_the_journal_is_that_of_the_native_mode(stream: bool) -> None:
    told: dict[str, Any] = {}
    for mode in ("native", "schema"):
        async with ModelServer(adding, tools=mode == "native") as server:
            store = open_store("memory:")
            agent = Agent(model_of(server), [add], settings=ModelSettings(tool_mode=mode))
            texts: list[str] = []
            if stream:
                watched = agent.stream("1 + 2 + 3?", store=store)
                texts = [event.data.text async for event in watched if isinstance(event.data, TextDelta)]
                result = watched.result
            else:
                result = await agent.run("1 + 2 + 3?", store=store)
        assert server.violations == []
        told[mode] = await events_of(store.journal, result.run_id), result.output, "".join(texts)
    assert told["native"] == told["schema"]
    assert told["schema"][1] == "It is 6."


async def test_several_calls_in_one_reply() -> None:
    def brain(conversation: Conversation) -> Reaction:
        if not conversation.results:
            return [call("add", a=1, b=2), call("add", a=3, b=4)]
        return " ".join(str(result.value) for result in conversation.results)

    async with ModelServer(brain, tools=False) as server:
        settings = ModelSettings(tool_mode="schema", parallel_tool_calls=True)
        result = await Agent(model_of(server), [add], settings=settings).run("q")
    assert (result.output, result.steps) == ("3 7", 2)
    assert server.violations == []


async def test_a_typed_answer_and_tools_at_once() -> None:
    def brain(conversation: Conversation) -> Reaction:
        return OSLO if conversation.results else call("add", a=1, b=2)

    async with ModelServer(brain, tools=False) as server:
        result = await Agent(model_of(server), [add], settings=FORCED, output=Weather).run("q")
    assert server.violations == []
    assert result.value == Weather(city="Oslo", degrees=3)
    assert [done.tool for done in result.tool_executions] == ["add"]


@pytest.mark.parametrize("mode", ["native", "tool"])
async def test_anthropics_format_carries_it_too(mode: str) -> None:
    """By its own schema, or as the arguments of the answer's tool where that cannot say it."""

    def brain(conversation: Conversation) -> Reaction:
        step = json.loads(ANSWER if "<result" in conversation.user else CALL)
        return json.dumps(step) if conversation.schema else call("final_answer", **step)

    def anything(items: dict[str, Any]) -> int:
        """Take anything."""
        return len(items)

    async with ModelServer(brain) as server:
        model = Anthropic("m", base_url=server.anthropic_url, api_key="k")
        tools = [add, anything] if mode == "tool" else [add]
        result = await Agent(model, tools, settings=FORCED).run("q")
        offered = [one["name"] for one in server.requests[0].body.get("tools", [])]
    assert offered == (["final_answer"] if mode == "tool" else [])
    assert server.violations == []
    assert result.output == "It is 3."
    assert [done.tool for done in result.tool_executions] == ["add"]


async def test_a_wrong_typed_answer_goes_back() -> None:
    def brain(conversation: Conversation) -> Reaction:
        return OSLO if "no such place" in conversation.user else '{"city":"Atlantis","degrees":3}'

    async with ModelServer(brain, tools=False) as server:
        result = await Agent(model_of(server), [add], settings=FORCED, output=Place).run("q")
    assert (result.value, result.nudges) == (Place(city="Oslo", degrees=3), ("bad_output",))
    assert server.violations == []


async def test_a_limit_ends_with_an_answer() -> None:
    def brain(conversation: Conversation) -> Reaction:
        return call("add", a=1, b=2) if conversation.tools else "Out of steps."

    async with ModelServer(brain, tools=False) as server:
        limits = Limits(steps=1, on_limit="answer")
        result = await Agent(model_of(server), [add], settings=FORCED, limits=limits).run("q")
    assert (result.outcome, result.output) == ("limited", "Out of steps.")
    assert server.violations == []


async def test_wrong_arguments_and_unknown_tools_go_back_like_native_ones() -> None:
    replies = iter(
        [
            '{"next": {"action": "add", "arguments": {"a": 1}}}',
            '{"next": {"action": "ad", "arguments": {"a": 1, "b": 2}}}',
            '{"next": 1}',
            ANSWER,
        ]
    )
    async with ModelServer(lambda _: next(replies)) as server:  # a server that holds nothing to the schema
        result = await Agent(model_of(server), [add], settings=FORCED).run("q")
    assert [(done.tool, done.status) for done in result.tool_executions] == [
        ("add", "error"),
        ("ad", "error"),
        ("unreadable", "skipped"),
    ]
    assert "b: missing" in result.tool_executions[0].content
    assert result.output == "It is 3."
    assert server.violations == []


async def test_a_session_goes_on_in_either_mode() -> None:
    store = open_store("memory:")
    for mode in ("schema", "native", "schema"):
        async with ModelServer(adding, tools=mode == "native") as server:
            agent = Agent(model_of(server), [add], settings=ModelSettings(tool_mode=mode))
            result = await agent.run("1 + 2 + 3?", store=store, session="s")
        assert (result.output, server.violations) == ("It is 6.", [])


async def test_the_mode_is_part_of_the_recorded_request() -> None:
    store = open_store("memory:")
    async with ModelServer(adding, tools=False) as server:
        result = await Agent(model_of(server), [add], settings=FORCED).run("q", store=store)
    _, request = await rebuild_request(store.journal, result.run_id, 2)
    assert (request.settings.tool_mode, [spec.name for spec in request.tools]) == ("schema", ["add"])


async def test_a_fallback_takes_either_mode() -> None:
    async with ModelServer(adding, tools=False) as local, ModelServer(lambda _: fail(503)) as broken:
        model = Fallback(model_of(broken), model_of(local))
        result = await Agent(model, [add], settings=FORCED).run("q")
    assert result.output == "It is 6."


# Switching over

WRITTEN = '<tool_call>{"name": "add", "arguments": {"a": 1, "b": 2}}</tool_call>'


def hopeless(conversation: Conversation) -> Reaction:
    """A model that writes its calls as text, unless its replies are held to a schema."""
    if conversation.schema is None:
        return WRITTEN
    asked = [message.text for message in conversation.messages if isinstance(message, UserMessage)]
    if not any("<result" in text for text in asked):
        return CALL
    return '{"next": {"action": "final_answer", "answer": "It is 3."}}'


async def test_auto_switches_over_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    store = open_store("memory:")
    async with ModelServer(hopeless) as server:
        agent = Agent(model_of(server), [add], settings=ModelSettings(tool_mode="auto"))
        with caplog.at_level(logging.WARNING, "glassloop"):
            result = await agent.run("1 + 2?", store=store)
        assert ["tools" in request.body for request in server.requests] == [True, False, False]
    assert (result.output, result.nudges, result.steps) == ("It is 3.", ("schema_mode",), 3)
    assert [(done.tool, done.value) for done in result.tool_executions] == [("add", 3)]
    assert "wrote a tool call as text; from here on its tools travel as a schema" in caplog.text
    events = await store.journal.read(result.run_id)
    modes = [
        (await rebuild_request(store.journal, result.run_id, event.step))[1].settings.tool_mode
        for event in events
        if isinstance(event.data, ModelRequested)
    ]
    assert modes == ["auto", "schema", "schema"]
    assert agent.settings.tool_mode == "auto"


async def test_a_call_found_in_text_is_never_executed() -> None:
    ran: list[int] = []

    @tool
    def pay(amount: int) -> str:
        """Pay."""
        ran.append(amount)
        return "paid"

    written = '{"name": "pay", "arguments": {"amount": 5}}'
    for mode in ("native", "auto"):
        settings = ModelSettings(tool_mode=mode)
        result = await Agent(ScriptedModel([written] * 3), [pay], settings=settings).run("q")
        assert result.outcome == "unanswered"
    assert ran == []


async def test_a_run_that_has_switched_stays_so_when_it_goes_on() -> None:
    store = open_store("memory:")
    async with ModelServer(hopeless) as server:
        agent = Agent(model_of(server), [add], settings=ModelSettings(tool_mode="auto"))
        whole = await agent.run("1 + 2?", store=store)
        events = await store.journal.read(whole.run_id)
        for length in range(4, len(events)):
            copy = open_store("memory:")
            await copy.journal.append(whole.run_id, events[:length], after=0, epoch=None)
            told = len(server.requests)
            result = await agent.resume(whole.run_id, store=copy)
            assert (result.output, result.nudges) == (whole.output, whole.nudges)
            assert not any("tools" in request.body for request in server.requests[told:] if length > 4)


async def test_what_calls_properly_is_never_switched() -> None:
    async with ModelServer(adding) as server:
        result = await Agent(model_of(server), [add], settings=ModelSettings(tool_mode="auto")).run("1 + 2 + 3?")
    assert (result.output, result.nudges) == ("It is 6.", ())


async def test_auto_tells_a_call_from_a_typed_answer() -> None:
    oslo = {"action": "final_answer", "answer": {"city": "Oslo", "degrees": 3}}
    replies = iter(['{"name": "add", "arguments": {"a": 1, "b": 2}}', json.dumps({"next": oslo})])
    async with ModelServer(lambda _: next(replies)) as server:
        agent = Agent(model_of(server), [add], settings=ModelSettings(tool_mode="auto"), output=Weather)
        result = await agent.run("q")
    assert (result.value, result.nudges) == (Weather(city="Oslo", degrees=3), ("schema_mode",))
