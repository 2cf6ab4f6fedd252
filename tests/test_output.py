"""Agents with a typed output, over the wire: by the server's own schema, by a tool, again where it does not fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field, field_validator

from glassloop import Agent, ConfigurationError, LimitReached, Limits, ModelError, Output, ToolDefinitionError, tool
from glassloop.core.events import ModelRequested, Nudged, RunFinished, ToolFinished
from glassloop.core.messages import Reply, Text, ToolCall, UserMessage
from glassloop.journal.requests import rebuild_request
from glassloop.models.anthropic import Anthropic
from glassloop.models.model import Model
from glassloop.models.openai_chat import OpenAIChat
from glassloop.models.scripted import ScriptedModel
from glassloop.runtime import Runtime
from glassloop.stores import open_store
from glassloop.teams import handoff, sequence
from glassloop.testing import Conversation, ModelServer, Reaction, call, say
from glassloop.tools.toolset import DynamicToolset


class Weather(BaseModel):
    city: str
    degrees: float = Field(ge=-90, le=60)

    @field_validator("city")
    @classmethod
    def _exists(cls, city: str) -> str:
        if city == "Atlantis":
            raise ValueError("there is no such place")
        return city


OSLO = '{"city":"Oslo","degrees":3}'
BAD = '{"city":"Oslo","degrees":99}'
WIRES = ["openai", "anthropic"]


def model_of(server: ModelServer, wire: str = "openai", **options: Any) -> Model:
    if wire == "anthropic":
        return Anthropic("stand-in", base_url=server.anthropic_url, api_key="k")
    return OpenAIChat("stand-in", base_url=server.url, api_key="k", **options)


def look_up(city: str) -> str:
    """Look the weather up."""
    return f"{city}: 3 degrees"


@tool(effect="write")
def note_down(text: str) -> str:
    """Write something down."""
    return text


# Over the wire


@pytest.mark.parametrize("mode", ["native", "tool"])
@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_comes_out_as_a_value(wire: str, mode: Literal["native", "tool"], stream: bool) -> None:
    def brain(conversation: Conversation) -> Reaction:
        if mode == "native":
            assert conversation.schema is not None
            assert not conversation.tools
            return OSLO
        assert conversation.schema is None
        assert conversation.offers("final_answer")
        return call("final_answer", city="Oslo", degrees=3)

    async with ModelServer(brain) as server:
        agent = Agent(model_of(server, wire), output=Output(Weather, mode=mode, description="The weather there."))
        if stream:
            watched = agent.stream("Oslo?")
            types = [event.type async for event in watched]
            result = watched.result
            assert types.count("text_delta") > 1
            assert "tool_started" not in types
        else:
            result = await agent.run("Oslo?")
    assert server.violations == []
    assert result.value == Weather(city="Oslo", degrees=3)
    assert (result.outcome, result.output, result.steps, result.tool_executions) == ("completed", OSLO, 1, ())


@pytest.mark.parametrize("wire", WIRES)
async def test_tools_come_before_the_answer_and_its_tool_is_no_effect(wire: str) -> None:
    def brain(conversation: Conversation) -> Reaction:
        if not conversation.results:
            return call("look_up", city="Oslo")
        return call("final_answer", city="Oslo", degrees=3)

    async with ModelServer(brain) as server:
        store = open_store("memory:")
        agent = Agent(model_of(server, wire), [look_up], output=Weather)
        result = await agent.run("Oslo?", store=store)
        assert [offered["name"] for offered in _tools(server.requests[0].body)] == ["look_up", "final_answer"]
    assert result.value == Weather(city="Oslo", degrees=3)
    assert [done.tool for done in result.tool_executions] == ["look_up"]
    events = await store.journal.read(result.run_id)
    assert [event.data.result.name for event in events if isinstance(event.data, ToolFinished)] == ["look_up"]
    assert not any(event.type in ("effect_started", "approval_asked") for event in events)


def _tools(body: Any) -> list[Any]:
    return [entry.get("function", entry) for entry in body.get("tools", [])]


@pytest.mark.parametrize(
    ("profile", "tools", "constrained"),
    [
        ("openai", True, True),
        ("openai", False, True),
        ("default", True, False),  # Ollama and llama.cpp would never call a tool
        ("default", False, True),
        ("deepseek", False, False),
    ],
)
async def test_what_is_known_of_the_server_decides(profile: str, tools: bool, constrained: bool) -> None:
    def brain(conversation: Conversation) -> Reaction:
        assert (conversation.schema is not None, conversation.offers("final_answer")) == (constrained, not constrained)
        return OSLO if constrained else call("final_answer", city="Oslo", degrees=3)

    async with ModelServer(brain) as server:
        agent = Agent(model_of(server, profile=profile), [look_up] if tools else [], output=Weather)
        assert (await agent.run("Oslo?")).value == Weather(city="Oslo", degrees=3)
    assert server.violations == []


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("mode", ["native", "tool"])
async def test_what_is_no_object_is_wrapped_and_unwrapped(wire: str, mode: Literal["native", "tool"]) -> None:
    def brain(_: Conversation) -> Reaction:
        return '{"result": [1, 2]}' if mode == "native" else call("final_answer", result=[1, 2])

    async with ModelServer(brain) as server:
        result = await Agent(model_of(server, wire), output=Output(list[int], mode=mode)).run("Count.")
    assert result.value == [1, 2]
    assert result.output in ("[1,2]", "[1, 2]")


async def test_a_server_that_constrains_without_telling_has_it_told() -> None:
    async with ModelServer(lambda _: OSLO) as server:
        await Agent(model_of(server), output=Weather, instructions="Be brief.").run("Oslo?")
        (asked,) = server.requests
        assert asked.conversation is not None
        assert asked.conversation.system.startswith("Be brief.\n\nAnswer with one JSON object that fits")
        assert '"degrees":{"type":"number"' in asked.conversation.system


# Answers that do not fit


@pytest.mark.parametrize("wire", WIRES)
async def test_a_wrong_answer_goes_back_with_the_reason(wire: str) -> None:
    def brain(conversation: Conversation) -> Reaction:
        if "degrees: should be less than or equal to 60" in conversation.user:
            return '{"city":"Atlantis","degrees":3}'
        return OSLO if "city: there is no such place" in conversation.user else BAD

    async with ModelServer(brain) as server:
        result = await Agent(model_of(server, wire), output=Output(Weather, mode="native")).run("Oslo?")
    assert result.value == Weather(city="Oslo", degrees=3)
    assert (result.nudges, result.steps) == (("bad_output", "bad_output"), 3)
    assert server.violations == []


@pytest.mark.parametrize("retries", [0, 1, 2])
async def test_wrong_answers_are_bounded(retries: int) -> None:
    model = ScriptedModel([BAD] * (retries + 1))
    with pytest.raises(ModelError, match=r"does not fit the agent's output type") as caught:
        await Agent(model, output=Output(Weather, retries=retries)).run("Oslo?")
    model.assert_exhausted()
    result = caught.value.result
    assert result is not None
    assert (result.outcome, result.error_kind, result.output) == ("failed", "output", BAD)
    assert (result.value, result.nudges) == (None, ("bad_output",) * retries)


async def test_the_bound_is_for_wrong_answers_in_a_row() -> None:
    model = ScriptedModel([BAD, call("look_up", city="Oslo"), BAD, OSLO])
    result = await Agent(model, [look_up], output=Output(Weather, retries=1)).run("Oslo?")
    assert (result.outcome, result.nudges) == ("completed", ("bad_output", "bad_output"))


async def test_a_run_that_failed_for_its_answers_can_go_on() -> None:
    store, model = open_store("memory:"), ScriptedModel([BAD, OSLO])
    agent = Agent(model, output=Output(Weather, retries=0))
    with pytest.raises(ModelError) as caught:
        await agent.run("Oslo?", store=store)
    assert caught.value.result is not None
    with pytest.raises(ModelError):
        await agent.resume(caught.value.result.run_id, store=store)
    again = Agent(model, output=Output(Weather, retries=1))
    assert (await again.resume(caught.value.result.run_id, store=store)).value == Weather(city="Oslo", degrees=3)


async def test_words_instead_of_an_answer_are_sent_back_and_promises_are_told_apart() -> None:
    model = ScriptedModel(["It is mild.", "I'll look that up.", OSLO])
    result = await Agent(model, [look_up], output=Weather).run("Oslo?")
    assert (result.value, result.nudges) == (Weather(city="Oslo", degrees=3), ("bad_output", "promised"))


class Step(BaseModel):
    name: str
    arguments: dict[str, int]
    note: Literal["let me check that"] = "let me check that"


async def test_an_answer_that_looks_like_a_call_is_an_answer() -> None:
    text = '{"name":"look_up","arguments":{"a":1},"note":"let me check that"}'
    result = await Agent(ScriptedModel([text]), [look_up], output=Step).run("Plan.")
    assert (result.nudges, result.value) == ((), Step(name="look_up", arguments={"a": 1}))


async def test_a_wrong_answer_that_looks_like_a_call_is_a_wrong_answer_unless_it_names_a_tool() -> None:
    script = ['{"name":"pay","arguments":{"a":"x"}}', '{"name":"look_up","arguments":{"city":"Oslo"}}']
    result = await Agent(ScriptedModel([*script, OSLO]), [look_up], output=Weather).run("Oslo?")
    assert result.nudges == ("bad_output", "call_as_text")
    assert result.tool_executions == ()


async def test_a_failed_run_undoes_its_writes_and_keeps_the_text() -> None:
    undone: list[str] = []

    def take_back(arguments: dict[str, Any], _: str) -> None:
        undone.append(arguments["text"])

    @tool(effect="write", undo=take_back)
    def write(text: str) -> str:
        """Write."""
        return text

    model = ScriptedModel([call("write", text="a"), BAD])
    with pytest.raises(ModelError) as caught:
        await Agent(model, [write], output=Output(Weather, retries=0)).run("Oslo?")
    assert undone == ["a"]
    assert caught.value.result is not None
    assert caught.value.result.output == BAD


async def test_what_could_not_be_undone_is_said_and_the_text_stays() -> None:
    def break_down(arguments: dict[str, Any], _: str) -> None:
        raise OSError

    note = tool(note_down.function, effect="write", undo=break_down)
    model = ScriptedModel([call("note_down", text="a"), BAD])
    result = await Agent(model, [note], output=Output(Weather, retries=0)).run("Oslo?")
    assert (result.outcome, result.output, result.value) == ("partly_rolled_back", BAD, None)


async def test_the_words_of_a_wrong_answer_promise_nothing() -> None:
    model = ScriptedModel(['{"city":"Let me check that for you."}', OSLO])
    assert (await Agent(model, [look_up], output=Weather).run("Oslo?")).nudges == ("bad_output",)


# Several answers, and calls beside them


async def test_the_first_of_several_answers_that_fits_counts() -> None:
    bad, good = call("final_answer", city="Oslo"), call("final_answer", city="Oslo", degrees=3)
    async with ModelServer(script=[[bad, good, call("final_answer", city="Rome", degrees=9)]]) as server:
        result = await Agent(model_of(server), output=Output(Weather, mode="tool")).run("Oslo?")
    assert result.value == Weather(city="Oslo", degrees=3)


async def test_calls_beside_an_answer_run_and_the_answer_is_given_again() -> None:
    script = [[call("note_down", text="x"), call("final_answer", city="Rome", degrees=9)], OSLO]
    async with ModelServer(script=script) as server:
        result = await Agent(model_of(server), [note_down], output=Weather).run("Oslo?")
    assert server.violations == []
    assert [done.tool for done in result.tool_executions] == ["note_down"]
    assert result.value == Weather(city="Oslo", degrees=3)


async def test_the_name_of_the_answers_tool_leaks_like_any_other() -> None:
    model = ScriptedModel([[ToolCall("", "functions.final_answer<|channel|>json", OSLO)]])
    assert (await Agent(model, output=Weather).run("Oslo?")).value == Weather(city="Oslo", degrees=3)


def test_no_tool_may_have_the_name_of_the_answers() -> None:
    named = tool(look_up, name="final_answer")
    with pytest.raises(ToolDefinitionError, match="rename the one in its tools"):
        Agent(tools=[named], output=Weather)
    assert Agent(tools=[named]).output is None


async def test_no_tool_of_the_moment_may_have_it_either() -> None:
    tools = DynamicToolset(lambda _: [tool(look_up, name="final_answer")])
    with pytest.raises(ToolDefinitionError, match="rename the one in its tools"):
        await Agent(ScriptedModel([OSLO]), [tools], output=Weather).run("Oslo?")


# What keeps its meaning


@pytest.mark.parametrize(
    ("stop", "outcome"), [("length", "truncated"), ("refusal", "refused"), ("content_filter", "filtered")]
)
async def test_an_answer_that_is_none_keeps_its_outcome(stop: Any, outcome: str) -> None:
    result = await Agent(ScriptedModel([Reply((Text(OSLO),), stop=stop)]), output=Weather).run("Oslo?")
    assert (result.outcome, result.value, result.nudges) == (outcome, None, ())


async def test_an_empty_reply_is_told_apart() -> None:
    result = await Agent(ScriptedModel(["", OSLO]), output=Weather).run("Oslo?")
    assert (result.nudges, result.value) == (("empty_reply",), Weather(city="Oslo", degrees=3))


@pytest.mark.parametrize(("text", "value"), [(OSLO, Weather(city="Oslo", degrees=3)), ("Ran out.", None)])
async def test_the_last_call_at_a_limit_is_asked_for_the_answer_too(text: str, value: Weather | None) -> None:
    def brain(conversation: Conversation) -> Reaction:
        if not conversation.results:
            return call("look_up", city="Oslo")
        assert [offered.name for offered in conversation.tools] == []
        assert conversation.schema is not None
        return text

    async with ModelServer(brain) as server:
        limits = Limits(steps=1, on_limit="answer")
        result = await Agent(model_of(server), [look_up], output=Weather, limits=limits).run("Oslo?")
    assert (result.outcome, result.output, result.value) == ("limited", text, value)


async def test_a_limit_without_an_answer_has_no_value() -> None:
    with pytest.raises(LimitReached) as caught:
        await Agent(ScriptedModel([call("look_up", city="x")]), [look_up], output=int, limits=Limits(steps=1)).run("Q")
    assert caught.value.result is not None
    assert caught.value.result.value is None


# The journal


async def test_a_run_read_back_has_the_same_value(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/runs.db")
    agent = Agent(ScriptedModel([BAD, OSLO]), output=Weather)
    result = await agent.run("Oslo?", store=store)
    again = await agent.resume(result.run_id, store=store)
    assert again.value == result.value == Weather(city="Oslo", degrees=3)
    async with Runtime(agent, store=store) as runtime:
        read = await runtime.result(result.run_id)
        assert read is not None
        assert read.value == result.value
    await store.close()


async def test_a_run_of_a_runtime_has_its_value() -> None:
    async with Runtime(Agent(ScriptedModel([OSLO]), output=Weather), store="memory:") as runtime:
        result = await runtime.wait(await runtime.start("agent", "Oslo?"))
        assert result.value == Weather(city="Oslo", degrees=3)


async def test_a_run_that_was_cut_off_between_answer_and_reason_goes_on(tmp_path: Path) -> None:
    """Every prefix of the journal leads to the same value."""
    store = open_store("memory:")
    whole = await Agent(ScriptedModel([BAD, OSLO]), output=Weather).run("Oslo?", store=store)
    events = await store.journal.read(whole.run_id)
    for length in range(2, len(events)):
        copy = open_store("memory:")
        await copy.journal.append(whole.run_id, events[:length], after=0, epoch=None)
        answered = sum(event.type == "model_replied" for event in events[:length])
        agent = Agent(ScriptedModel([BAD, OSLO][answered:]), output=Weather)
        result = await agent.resume(whole.run_id, store=copy)
        assert (result.value, result.nudges) == (whole.value, whole.nudges), events[length - 1].type


async def test_the_exact_request_can_be_rebuilt() -> None:
    store, model = open_store("memory:"), ScriptedModel([BAD, OSLO])
    result = await Agent(model, [look_up], output=Output(Weather, mode="tool", description="d")).run(
        "Oslo?", store=store
    )
    for step, request in enumerate(model.requests, 1):
        assert await rebuild_request(store.journal, result.run_id, step) == ("scripted", request)
    assert model.requests[0].output is not None


async def test_the_reason_stands_in_the_journal_as_a_nudge() -> None:
    store = open_store("memory:")
    result = await Agent(ScriptedModel([BAD, OSLO]), output=Weather).run("Oslo?", store=store)
    events = await store.journal.read(result.run_id)
    (nudge,) = [event.data for event in events if isinstance(event.data, Nudged)]
    assert nudge.reason == "bad_output"
    assert nudge.message.origin == "nudge"
    end = events[-1].data
    assert isinstance(end, RunFinished)
    assert end.output == OSLO


async def test_a_request_of_an_agent_without_output_type_is_recorded_as_before() -> None:
    store = open_store("memory:")
    result = await Agent(ScriptedModel(["hi"])).run("q", store=store)
    asked = [event.data for event in await store.journal.read(result.run_id) if isinstance(event.data, ModelRequested)]
    assert [one.output for one in asked] == [None]
    assert result.value is None


async def test_the_session_has_the_text() -> None:
    store, model = open_store("memory:"), ScriptedModel([OSLO, '{"city":"Rome","degrees":9}'])
    agent = Agent(model, output=Weather)
    await agent.run("Oslo?", store=store, session="s")
    result = await agent.run("Rome?", store=store, session="s")
    assert [getattr(message, "text", "") for message in model.requests[1].messages] == ["Oslo?", OSLO, "Rome?"]
    assert result.value == Weather(city="Rome", degrees=9)


async def test_another_type_is_another_agent_and_an_old_answer_has_no_value_of_it() -> None:
    store = open_store("memory:")
    result = await Agent(ScriptedModel([OSLO]), output=Weather).run("Oslo?", store=store)
    other = Agent(ScriptedModel([]), output=list[int])
    assert (await other.resume(result.run_id, store=store)).value is None
    one, two = (Agent(ScriptedModel([]), output=type_).fingerprint_for({}) for type_ in (Weather, int))
    assert one != two
    assert Agent(ScriptedModel([])).fingerprint_for({}) not in (one, two)


# Hand-offs and runs below


async def test_after_a_handoff_the_value_is_of_the_agent_that_answers() -> None:
    counter = Agent(ScriptedModel(["3"]), name="counter", output=int)
    desk = Agent(ScriptedModel([call("hand_to_counter")]), [handoff(counter)], name="desk", output=Weather)
    result = await desk.run("How many?", store=open_store("memory:"))
    assert (result.agent, result.value) == ("counter", 3)


async def test_a_part_of_a_flow_comes_to_a_value_also_when_it_is_read_back() -> None:
    seen: list[Any] = []

    def keep(state: dict[str, Any]) -> str:
        seen.append(state["weather"])
        return "kept"

    store, fails = open_store("memory:"), ModelError("away", kind="payment")
    weather = Agent(ScriptedModel([OSLO]), name="weather", output=Weather)
    flow = sequence(weather, keep, Agent(ScriptedModel([fails, "done"]), name="last"))
    with pytest.raises(ModelError) as caught:
        await flow.run("Oslo?", store=store)
    assert caught.value.result is not None
    assert (await flow.resume(caught.value.result.run_id, store=store)).output == "done"
    assert seen == [Weather(city="Oslo", degrees=3)] * 2


# While it comes


@pytest.mark.parametrize("mode", ["native", "tool"])
@pytest.mark.parametrize("wire", WIRES)
async def test_a_partial_answer_grows(wire: str, mode: Literal["native", "tool"]) -> None:
    def brain(conversation: Conversation) -> Reaction:
        if "corrected" not in conversation.user:
            return say('{"city":"Os', piece=2)
        good = call("final_answer", city="Oslo", degrees=3)
        return say(OSLO, piece=2) if mode == "native" else good

    async with ModelServer(brain) as server:
        stream = Agent(model_of(server, wire), output=Output(Weather, mode=mode)).stream("Oslo?")
        seen = [value async for value in stream.partial()]
    assert {"city": "O"} in seen or mode == "tool"
    assert {} in seen
    assert seen[-1] == {"city": "Oslo", "degrees": 3}
    assert stream.result.value == Weather(city="Oslo", degrees=3)
    assert stream.result.nudges == ("bad_output",)


async def test_only_a_typed_answer_has_parts() -> None:
    with pytest.raises(ConfigurationError, match=r"Agent\(output=\.\.\.\)"):
        await anext(Agent(ScriptedModel(["hi"])).stream("q").partial())


async def test_leaving_a_partial_answer_cancels_the_run() -> None:
    async with ModelServer(lambda _: say(OSLO, piece=1, gap=0.01, endless=True)) as server:
        stream = Agent(model_of(server), output=Weather).stream("Oslo?")
        async with stream:
            parts = stream.partial()
            assert await anext(parts) == {}
            await parts.aclose()
        assert stream.result.outcome == "cancelled"


def test_an_output_shows_what_it_is_of() -> None:
    assert repr(Output(Weather)) == "Output(Weather)"
    assert repr(Output(int | str)) == "Output(int | str)"
    assert repr(Output(list[int])) == "Output(list[int])"


def test_an_answer_of_code_that_is_not_async() -> None:
    agent: Agent[Weather] = Agent(ScriptedModel([OSLO]), output=Weather)
    value: Weather = agent.run_sync(UserMessage("Oslo?"), store="memory:").value
    assert value.city == "Oslo"
