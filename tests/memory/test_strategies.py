"""What holds for every context strategy and every composition, whatever the conversation."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from itertools import count, pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from glassloop import Agent, Limits, ModelError, RunResult
from glassloop.core.errors import RunError
from glassloop.core.events import ModelRequested, Summarized
from glassloop.core.messages import Message, Reply, SystemMessage, Text, ToolCall, ToolResult, UserMessage
from glassloop.journal.requests import rebuild_request
from glassloop.memory import ContextStrategy, LastMessages, LastTurns, Offload, Summary, TokenWindow, TrimResults
from glassloop.models.model import ModelRequest
from glassloop.models.scripted import Line, ScriptedModel, call
from glassloop.models.sendable import sendable
from glassloop.stores import Store, open_store

Refusals = Callable[[ModelRequest], Sequence[str]]
Wire = Callable[[ModelRequest], bytes]

HEAVY = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
STRATEGIES: st.SearchStrategy[ContextStrategy] = st.one_of(
    st.builds(LastTurns, st.integers(1, 3), slack=st.integers(0, 2)),
    st.builds(LastMessages, st.integers(1, 8)),
    st.builds(TokenWindow, st.integers(600, 6_000), keep=st.sampled_from([0.0, 0.5, 1.0])),
    st.builds(TrimResults, st.integers(1, 500), keep=st.integers(0, 2), every=st.integers(1, 3)),
    st.builds(Offload, st.just(300), head=st.integers(0, 100), tail=st.integers(0, 100)),
    st.builds(Summary, st.integers(300, 900), st.integers(1, 300), tokens=st.just(60)),
    st.builds(Summary, st.integers(3, 6), st.integers(1, 3), unit=st.just("messages")),
)
SUMMARIES = st.sampled_from(
    ["They talked about the weather.", "晴", "", ModelError("no", kind="invalid_request", status=400)]
)
SAID = st.sampled_from(["done", "look", "look", "two", "promise"])


def look(n: int) -> str:
    """Look at something."""
    return "line of text " * (40 * n)


class Played(ScriptedModel):
    """A model that goes by a script, and by another where it is asked for a summary."""

    def __init__(self, said: Sequence[str], summaries: Sequence[Any]) -> None:
        self.steps: list[ModelRequest] = []
        self._said, self._summaries, self._asked = said, summaries, count()
        super().__init__(self._answer)

    def _answer(self, request: ModelRequest) -> Line:
        if is_summary(request):
            return self._summaries[next(self._asked) % len(self._summaries)]
        self.steps.append(request)
        number = len(self.steps) - 1
        match self._said[number] if number < len(self._said) else "done":
            case "look":
                return call("look", n=number % 3)
            case "two":
                return [call("look", n=1), call("nowhere")]
            case "promise":
                return "I'll look that up."
            case _:
                return "done"


def is_summary(request: ModelRequest) -> bool:
    return request.instructions.startswith("You summarise")


async def rest(agent: Agent, store: Store, history: Sequence[Message]) -> RunResult:
    """The result, whatever the outcome."""
    try:
        return await agent.run("And now?", history=history, store=store)
    except RunError as error:
        if error.result is None:
            raise
        return error.result


@HEAVY
@given(data=st.data())
def test_every_request_is_sendable_and_can_be_rebuilt(
    data: st.DataObject, any_history: st.SearchStrategy[list[Message]], refusals: Refusals, wire: Wire
) -> None:
    history = data.draw(any_history)
    memory = data.draw(st.lists(STRATEGIES, min_size=1, max_size=3, unique_by=type))
    model = Played(data.draw(st.lists(SAID, max_size=4)), data.draw(st.lists(SUMMARIES, min_size=1, max_size=3)))

    async def check() -> None:
        store = open_store("memory:")
        limits = Limits(steps=30, repetition=None)
        result = await rest(
            Agent(model, [look], memory=memory, limits=limits, instructions="Be brief."), store, history
        )
        assert result.outcome in ("completed", "unanswered") or result.limit == "window"
        assert result.steps == len(model.requests) <= 30
        check_what_stays(history, result, model.steps)
        for step, sent in enumerate(model.requests, 1):
            assert not refusals(sent)
            name, rebuilt = await rebuild_request(store.journal, result.run_id, step)
            assert name == "scripted"
            assert wire(rebuilt) == wire(sent)

    asyncio.run(check())


def check_what_stays(history: Sequence[Message], result: RunResult, requests: Sequence[ModelRequest]) -> None:
    """Calls and results stay together and replies as they were; the beginning, the input and held calls are there."""
    before = list(sendable([*history, UserMessage("And now?")]))
    replies = {id(message) for message in result.messages if isinstance(message, Reply)}
    first = next(message for message in before if isinstance(message, UserMessage) and message.origin == "user")
    leading = before[: next(n for n, message in enumerate(before) if not isinstance(message, SystemMessage))]
    held = {message.call_id for message in before if isinstance(message, ToolResult) and message.status == "held"}
    told = sum(isinstance(message, UserMessage) and message.origin == "note" for message in before)
    for request in requests:
        sent = list(request.messages)
        assert sent[: len(leading)] == leading
        assert first in sent or any(is_cut(message, first) for message in sent)
        assert UserMessage("And now?") in sent
        answered = [message.call_id for message in sent if isinstance(message, ToolResult)]
        assert [one.id for message in sent if isinstance(message, Reply) for one in message.calls] == answered
        unchanged = [message for message in sent if isinstance(message, Reply) and id(message) in replies]
        repaired = len([m for m in sendable(list(result.messages)) if isinstance(m, Reply) and id(m) not in replies])
        assert len(unchanged) >= len([m for m in sent if isinstance(m, Reply)]) - repaired
        assert len(held - set(answered)) <= told


def is_cut(message: Message, whole: UserMessage) -> bool:
    """Whether this is what a window leaves of a message that it has no room for."""
    return isinstance(message, UserMessage) and message.text.startswith(whole.text[:20])


def text_bytes(message: Message) -> int:
    """UTF-8 bytes of the texts of a message; four are a token, as a rule."""
    match message:
        case Reply():
            calls = "".join(one.name + one.arguments for one in message.calls)
            return len(f"{message.text}{message.thinking}{calls}".encode("utf-8", "replace"))
        case ToolResult():
            return len(message.content.encode("utf-8", "replace"))
        case _:
            return len(message.text.encode("utf-8", "replace"))


@HEAVY
@given(data=st.data(), tokens=st.integers(300, 3_000))
def test_no_request_is_bigger_than_the_window(
    data: st.DataObject, tokens: int, any_history: st.SearchStrategy[list[Message]]
) -> None:
    history = data.draw(any_history)
    others = data.draw(st.lists(STRATEGIES, max_size=1))
    model = Played(data.draw(st.lists(SAID, max_size=4)), ["They talked."])

    async def check() -> None:
        agent = Agent(model, [look], memory=[*others, TokenWindow(tokens)], limits=Limits(repetition=None))
        result = await rest(agent, open_store("memory:"), history)
        assert result.outcome in ("completed", "unanswered") or result.limit == "window"
        for sent in model.steps:
            assert sum(map(text_bytes, sent.messages)) // 4 <= tokens

    asyncio.run(check())


@HEAVY
@given(data=st.data(), summaries=st.lists(SUMMARIES, min_size=1, max_size=3))
def test_each_message_is_summarised_once(
    data: st.DataObject, summaries: Sequence[Any], any_history: st.SearchStrategy[list[Message]]
) -> None:
    """A summary covers what the one before it has covered and more; it is asked for once, also when it fails."""
    history = data.draw(any_history)
    model = Played(["look", "two", "look", "look"], summaries)

    async def check() -> None:
        store = open_store("memory:")
        agent = Agent(model, [look], memory=[Summary(400, 200, tokens=60)], limits=Limits(repetition=None))
        result = await rest(agent, store, history)
        events = [event.data for event in await store.journal.read(result.run_id)]
        made = [data for data in events if isinstance(data, Summarized)]
        asked = [data for data in events if isinstance(data, ModelRequested) and data.purpose == "summary"]
        assert len(asked) == len(made) == len([request for request in model.requests if is_summary(request)])
        assert [one.stop for one in made] == sorted({one.stop for one in made})
        assert len(made) <= len(result.messages)

    asyncio.run(check())


# A provider's prompt cache


def grown(turns: int) -> list[Message]:
    """A conversation of so many turns with one step each."""
    messages: list[Message] = []
    for turn in range(turns):
        calling = Reply((ToolCall(f"c{turn}", "look", '{"n": 1}'),))
        result = ToolResult(f"c{turn}", "look", f"line {turn} " * 100)
        messages += [UserMessage(f"question {turn}"), calling, result, Reply((Text(f"answer {turn}"),))]
    return messages


CALM: dict[str, tuple[ContextStrategy, int]] = {
    "turns": (LastTurns(6), 12),
    "messages": (LastMessages(24), 18),
    "tokens": (TokenWindow(4_000), 12),
    "trimmed": (TrimResults(200, keep=2, every=5), 8),
    "offloaded": (Offload(300, head=100, tail=50), 0),
}


@pytest.mark.parametrize(("strategy", "most"), CALM.values(), ids=CALM)
async def test_the_beginning_of_requests_stays_the_same_for_many_steps(strategy: ContextStrategy, most: int) -> None:
    model = ScriptedModel(lambda request: "ok")
    agent = Agent(model, memory=[strategy])
    for turns in range(1, 41):
        await agent.run("next", history=grown(turns))
    sent = [[m for m in request.messages if m != UserMessage("next")] for request in model.requests]
    moved = sum(after[: len(before)] != before for before, after in pairwise(sent))
    assert moved <= most
    assert most == 0 or moved > 0


async def test_a_strategy_of_ones_own_may_be_careless() -> None:
    """What it changes is recorded as it was sent, and what it tears apart is mended."""

    class Careless:
        async def view(self, pieces: Sequence[Any], moment: Any, /) -> Sequence[Any]:
            kept = [piece for piece in pieces if not isinstance(piece.message, Reply) or not piece.message.calls]
            return [type(kept[0])(UserMessage("shouted"), kept[0].at), *kept[1:]]

    model, store = ScriptedModel([call("look", n=1), "done"]), open_store("memory:")
    result = await Agent(model, [look], memory=[Careless()]).run("hi", store=store)
    assert result.output == "done"
    for step, sent in enumerate(model.requests, 1):
        _, rebuilt = await rebuild_request(store.journal, result.run_id, step)
        assert tuple(rebuilt.messages) == tuple(sent.messages)
        assert sent.messages[0] == UserMessage("shouted")
