"""What holds for every run, whatever the model does: checked over random models, tools, limits and crashes."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from glassloop import Agent, Limits, ToolError, ask_human, tool
from glassloop.core.errors import RunError
from glassloop.core.events import (
    ApprovalAsked,
    EffectStarted,
    Event,
    ModelReplied,
    ModelRequested,
    RunFinished,
    ToolFinished,
)
from glassloop.core.messages import Reply, StopReason, Text, ToolCall, ToolResult
from glassloop.core.result import Decision, PendingApproval, RunResult
from glassloop.core.usage import Usage
from glassloop.journal.requests import rebuild_request
from glassloop.journal.state import fold
from glassloop.models.chat_request import ChatRenderer
from glassloop.models.messages_request import MessagesRenderer
from glassloop.models.model import ModelRequest
from glassloop.models.profiles import as_profile
from glassloop.models.scripted import ScriptedModel
from glassloop.results import result_of
from glassloop.stores import Store, open_store
from glassloop.testing.chat_rules import chat_violations
from glassloop.testing.messages_rules import messages_violations
from glassloop.testing.seals import Seals

CHAT = ChatRenderer("m", "chat", as_profile(None, "model.example"))
MESSAGES = MessagesRenderer("m", "messages", False)
HEADERS = {"anthropic-version": "2023-06-01"}

CALLS = st.builds(
    ToolCall,
    id=st.just(""),
    name=st.sampled_from(["read", "write", "fails", "alone", "asks", "books", "nope", " read\n", "write<|x|>"]),
    arguments=st.sampled_from(['{"n": 1}', '{"n": 2}', "", "null", "{", '"{\\"n\\": 3}"', '{"n": "x"}', "[]"]),
    provider_id=st.sampled_from(["", "c1", "c1", "c2", "bad id!", "x" * 80]),
)
TEXTS = st.sampled_from(["", " ", "done", "I'll look that up.", '{"name": "read", "arguments": {}}', "天气"])
STOPS: st.SearchStrategy[StopReason] = st.sampled_from(["stop", "stop", "stop", "length", "refusal", "content_filter"])


@st.composite
def replies(draw: st.DrawFn) -> Reply:
    """Any reply that a model may give."""
    parts = (Text(draw(TEXTS)), *draw(st.lists(CALLS, max_size=3)))
    usage = Usage(draw(st.integers(0, 60)), draw(st.integers(0, 40)), requests=1)
    return Reply(tuple(part for part in parts if part != Text("")), draw(STOPS), usage=usage)


LIMITS = st.builds(
    Limits,
    steps=st.integers(1, 6),
    total_tokens=st.one_of(st.none(), st.integers(50, 3_000)),
    output_tokens=st.sampled_from([16, 500]),
    calls_per_step=st.integers(1, 3),
    calls_per_tool=st.sampled_from([{}, {"read": 2}]),
    repetition=st.sampled_from([2, 3]),
    on_limit=st.sampled_from(["raise", "answer", "return"]),
)


@dataclass
class World:
    """The tools and what they did."""

    effects: Counter[str] = field(default_factory=Counter[str])

    def tools(self) -> list[Any]:
        """One of each kind."""

        async def read(n: int = 0) -> int:
            await asyncio.sleep(0)
            return n

        @tool(effect="write")
        async def write(n: int = 0) -> str:
            self.effects[str(n)] += 1
            return f"wrote {n}"

        async def fails(n: int = 0) -> str:
            raise ToolError(f"no {n}") if n else RuntimeError("secret")

        @tool(sequential=True)
        async def alone(n: int = 0) -> list[int]:
            return []

        async def asks(n: int = 0) -> str:
            try:
                return ask_human(f"What of {n}?")
            except Exception:  # noqa: BLE001 - what leaves the function is none
                return "swallowed"

        @tool(effect="write")
        async def books(n: int = 0) -> str:
            seats = [ask_human(f"Which seat, {place}?", choices=["A", "B"]) for place in range(n + 1)]
            self.effects[f"book {n}"] += 1
            return f"booked {seats}"

        return [read, write, fails, alone, asks, books]


def model_of(script: Sequence[Reply]) -> ScriptedModel:
    """A model that is a function of the conversation, so that a resumed run meets the same one."""

    def answer(request: ModelRequest) -> Reply:
        said = sum(isinstance(message, Reply) for message in request.messages)
        return script[said] if said < len(script) else Reply((Text("the end"),), usage=Usage(1, 1, requests=1))

    return ScriptedModel(answer)


async def rest(running: Awaitable[RunResult]) -> RunResult:
    """The result, whatever the outcome."""
    try:
        return await running
    except RunError as error:
        if error.result is None:
            raise
        return error.result


def said(held: PendingApproval) -> Decision:
    """What a human says: an answer to a question, and a no to what may have happened."""
    return Decision("answer", answer="A") if held.kind == "question" else Decision("deny")


async def play(agent: Agent, store: Store, approve: Any = None) -> RunResult:
    """Run to the end: what is asked is answered by `approve`, or once the run waits."""
    return await settled(await rest(agent.run("go", store=store, approve=approve)), agent, store)


async def settled(result: RunResult, agent: Agent, store: Store) -> RunResult:
    """The result once everything is decided that the run waits for."""
    while result.outcome == "waiting":
        assert {held.kind for held in result.pending} <= {"question", "doubt"}
        decisions = {held.approval_id: said(held) for held in result.pending}
        result = await rest(agent.resume(result.run_id, decisions=decisions, store=store))
    return result


def check_every_call_has_one_result(result: RunResult) -> None:
    """Each call of each reply is answered once, in request order, before anything else is said."""
    messages = list(result.messages)
    for number, message in enumerate(messages):
        if isinstance(message, Reply) and message.calls:
            after = messages[number + 1 : number + 1 + len(message.calls)]
            assert [m.call_id for m in after if isinstance(m, ToolResult)] == [call.id for call in message.calls]
    answered = Counter(m.call_id for m in messages if isinstance(m, ToolResult))
    assert set(answered.values()) <= {1}


def check_requests_are_sendable(requests: Sequence[ModelRequest]) -> None:
    """Both wires accept every request."""
    for request in requests:
        assert chat_violations(json.loads(CHAT.body(request))) == []
        assert messages_violations(json.loads(MESSAGES.body(request)), HEADERS, Seals(), set()) == []


def check_reservations_fit(events: Sequence[Event], limits: Limits) -> None:
    """No model call starts whose reservation does not fit into what is left."""
    spent = 0
    for event in events:
        match event.data:
            case ModelRequested(reserved=reserved):
                assert limits.total_tokens is None or spent + reserved <= limits.total_tokens
            case ModelReplied(reply=reply):
                spent += reply.usage.total
            case _:
                pass


@settings(max_examples=60, deadline=None)
@given(st.lists(replies(), max_size=7), LIMITS, st.sampled_from([None, said]))
def test_a_run_is_sound_whatever_the_model_does(script: list[Reply], limits: Limits, approve: Any) -> None:
    async def check() -> None:
        store, world, model = open_store("memory:"), World(), model_of(script)
        result = await play(Agent(model, world.tools(), limits=limits), store, approve)
        events = await store.journal.read(result.run_id)
        assert result.outcome != "waiting"
        assert isinstance(events[-1].data, RunFinished)
        assert [event.seq for event in events] == list(range(1, len(events) + 1))
        check_every_call_has_one_result(result)
        check_requests_are_sendable(model.requests)
        check_reservations_fit(events, limits)
        assert len(model.requests) <= (limits.steps or 0) + 1
        refolded = result_of(fold(events))
        assert refolded.messages == result.messages
        assert (refolded.outcome, refolded.output, refolded.usage) == (result.outcome, result.output, result.usage)
        assert [e.content for e in refolded.tool_executions] == [e.content for e in result.tool_executions]
        assert set(world.effects.values()) <= {1}, "the same write ran twice"

    asyncio.run(check())


@settings(max_examples=40, deadline=None)
@given(st.lists(replies(), min_size=1, max_size=5), LIMITS, st.data())
def test_a_run_cut_off_anywhere_goes_on_from_its_journal(
    script: list[Reply], limits: Limits, data: st.DataObject
) -> None:
    async def check() -> None:
        store, world = open_store("memory:"), World()
        whole = await play(Agent(model_of(script), world.tools(), limits=limits), store)
        events = await store.journal.read(whole.run_id)
        keep = data.draw(st.integers(2, len(events) - 1), label="events before the crash")

        crashed, again = open_store("memory:"), World()
        await crashed.journal.append(whole.run_id, events[:keep], after=0, epoch=1)
        model = model_of(script)
        agent = Agent(model, again.tools(), limits=limits)
        result = await settled(await rest(agent.resume(whole.run_id, store=crashed)), agent, crashed)
        written = await crashed.journal.read(whole.run_id)
        assert isinstance(written[-1].data, RunFinished)
        check_every_call_has_one_result(result)
        check_requests_are_sendable(model.requests)
        doubtful = in_doubt(events[:keep])
        assert {e.status for e in result.tool_executions if e.call_id in doubtful} <= {"unknown"}, "repeated in doubt"
        asked = [event.data for event in written if isinstance(event.data, ApprovalAsked)]
        assert {data.call_id for data in asked if data.kind == "doubt"} <= doubtful, "in doubt without need"
        assert set(again.effects.values()) <= {1}, "the same write ran twice"

    asyncio.run(check())


def in_doubt(events: Sequence[Event]) -> set[str]:
    """Calls that were begun, have no result, and have not left to ask a human."""
    begun: set[str] = set()
    for event in events:
        match event.data:
            case EffectStarted(call_id=call_id):
                begun.add(call_id)
            case ToolFinished(call_id=call_id) | ApprovalAsked(call_id=call_id, kind="question"):
                begun.discard(call_id)
            case _:
                pass
    return begun


@settings(max_examples=30, deadline=None)
@given(st.lists(replies(), max_size=5), LIMITS)
def test_the_exact_request_of_every_step_can_be_rebuilt(script: list[Reply], limits: Limits) -> None:
    async def check() -> None:
        store, model = open_store("memory:"), model_of(script)
        result = await play(Agent(model, World().tools(), instructions="Be brief.", limits=limits), store)
        assert result.steps == len(model.requests)
        for step, sent in enumerate(model.requests, 1):
            name, rebuilt = await rebuild_request(store.journal, result.run_id, step)
            assert name == model.name
            assert CHAT.body(rebuilt) == CHAT.body(sent)

    asyncio.run(check())
