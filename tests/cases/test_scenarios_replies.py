"""Public failures of agent loops that begin with an odd reply, played to the end of the run: one test for each kind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from judge.replies import Item, Wire, text_answer
from judge.server import Run, Server
from scenario import chat

from glassloop import Agent
from glassloop.models.anthropic import Anthropic
from glassloop.models.model import Model

NOTE = {"to": "me", "body": "x"}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


@pytest.fixture
def notes() -> list[str]:
    return []


def agent(run: Run, notes: list[str], wire: str) -> Agent[Any]:
    def send_note(to: str, body: str) -> str:
        """Send a note."""
        notes.append(body)
        return "sent"

    model: Model = chat(run)
    if wire == "anthropic":
        model = Anthropic("scripted", base_url=run.root, api_key="sk-fake")
    return Agent(model, [send_note])


def noting(wire: str, stop: str, arguments: str = '{"to": "me", "body": "x"}', **message: Any) -> Item:
    """A reply that sends a note and ends with `stop`."""
    item = text_answer("anthropic" if wire == "anthropic" else "openai", "So be it.")
    if wire == "anthropic":
        item["json"]["content"].append({"type": "tool_use", "id": "toolu_1", "name": "send_note", "input": NOTE})
        item["json"]["stop_reason"] = stop
        return item
    choice = item["json"]["choices"][0]
    function = {"name": "send_note", "arguments": arguments}
    choice["message"] |= {"tool_calls": [{"id": "c1", "type": "function", "function": function}], **message}
    choice["finish_reason"] = stop
    return item


@pytest.mark.parametrize(
    ("wire", "item", "outcome"),
    [
        ("openai", noting("openai", "content_filter"), "filtered"),
        ("openai", noting("openai", "stop", refusal="I can't."), "refused"),
        ("anthropic", noting("anthropic", "refusal"), "refused"),
    ],
    ids=["content filter", "refusal", "refusal of Anthropic's"],
)
async def test_calls_of_a_reply_that_was_refused_or_filtered_are_not_run(
    server: Server, notes: list[str], wire: str, item: Item, outcome: str
) -> None:
    """Public: HKUDS/nanobot#3249, pydantic/pydantic-ai#6520."""
    run = server.new_run([item, text_answer("anthropic" if wire == "anthropic" else "openai", "Hello.")])
    result = await agent(run, notes, wire).run("q")
    assert (result.outcome, len(run.requests), notes) == (outcome, 1, [])
    assert (await agent(run, notes, wire).run("go on", history=result.messages)).output == "Hello."
    assert [violation for request in run.requests for violation in request.wire] == []


async def test_a_paused_turn_is_sent_back_as_it_is_and_goes_on(server: Server, notes: list[str]) -> None:
    """Public: anthropics/anthropic-sdk-python#1174, dust-tt/dust#28390."""
    paused = text_answer("anthropic", "Let me search.")
    search = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}}
    paused["json"]["content"].append(search)
    paused["json"]["stop_reason"] = "pause_turn"
    run = server.new_run([paused, text_answer("anthropic", "Found it.")])
    result = await agent(run, notes, "anthropic").run("q")
    assert (result.outcome, result.output, result.steps) == ("completed", "Found it.", 2)
    sent = run.requests[-1].body["messages"]
    assert [message["role"] for message in sent] == ["user", "assistant"]
    assert sent[-1]["content"] == paused["json"]["content"]


async def test_a_call_that_ran_repaired_is_shown_to_the_model_as_it_ran(server: Server, notes: list[str]) -> None:
    """Public: vercel/ai#19274, OpenHands/software-agent-sdk#2887."""
    run = server.new_run([noting("openai", "tool_calls", "{'to': 'me', 'body': 'x',}"), text_answer("openai", "Done.")])
    assert (await agent(run, notes, "openai").run("q")).output == "Done."
    assert notes == ["x"]
    (call,) = run.requests[-1].body["messages"][-2]["tool_calls"]
    assert call["function"]["arguments"] == '{"to":"me","body":"x"}'


def for_a_call(wire: Wire, text: str) -> Item:
    """A reply that says `text` and ends as if a call were in it."""
    item = text_answer(wire, text)
    if wire == "anthropic":
        item["json"]["stop_reason"] = "tool_use"
    else:
        item["json"]["choices"][0]["finish_reason"] = "tool_calls"
    return item


@pytest.mark.parametrize("wire", ["openai", "anthropic"])
async def test_a_reply_that_ends_for_a_call_and_holds_none_is_no_answer(
    server: Server, notes: list[str], wire: Wire
) -> None:
    """Public: NousResearch/hermes-agent#75926, HKUDS/nanobot#1481, askui/python-sdk#278."""
    announced = for_a_call(wire, "Reading the brief file first.")
    run = server.new_run([announced, for_a_call(wire, "The brief says 5."), announced, announced])
    result = await agent(run, notes, wire).run("q")
    assert (result.output, result.nudges) == ("The brief says 5.", ("promised",))
    result = await agent(run, notes, wire).run("q")
    assert (result.outcome, result.output) == ("unanswered", "Reading the brief file first.")


async def test_a_call_in_an_unusual_dialect_is_no_answer(server: Server, notes: list[str]) -> None:
    """Public: xorbitsai/xagent#806."""
    said = '<｜｜DSML｜｜tool_calls> <｜｜DSML｜｜invoke name="send_note">'
    run = server.new_run([text_answer("openai", said), text_answer("openai", "Hello.")])
    result = await agent(run, notes, "openai").run("q")
    assert (result.output, result.nudges, notes) == ("Hello.", ("call_as_text",), [])
