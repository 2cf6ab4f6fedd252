"""Tool results that take less room: old ones are cut, big ones are offloaded to the journal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from glassloop import Agent, ConfigurationError, RunResult
from glassloop.core.messages import Message, Reply, ToolCall, ToolResult, UserMessage
from glassloop.memory import Offload, TrimResults
from glassloop.models.scripted import Line, ScriptedModel, call
from glassloop.stores import open_store

WHOLE = "BEGIN " + "".join(f"{number:07}" for number in range(10_000)) + " END"


def dump() -> str:
    """Give everything."""
    return WHOLE


def table() -> dict[str, Any]:
    """Give rows."""
    return {"rows": [{"id": number, "name": "名字"} for number in range(3_000)]}


def results(messages: Any) -> list[str]:
    """The texts of the tool results."""
    return [message.content for message in messages if isinstance(message, ToolResult)]


def history(steps: int, size: int = 2_000) -> list[Message]:
    """So many steps with a long result."""
    messages: list[Message] = [UserMessage("q")]
    for number in range(steps):
        messages += [Reply((ToolCall(f"c{number}", "dump"),)), ToolResult(f"c{number}", "dump", "x" * size)]
    return messages


async def test_results_of_older_steps_are_cut_several_at_once() -> None:
    cut: list[list[bool]] = []
    for steps in range(1, 9):
        model = ScriptedModel(["done"])
        await Agent(model, memory=[TrimResults(200, keep=2, every=3)]).run("now", history=history(steps))
        cut.append([len(content) <= 200 for content in results(model.requests[0].messages)])
    assert [sum(step) for step in cut] == [0, 0, 0, 0, 3, 3, 3, 6]
    assert cut[-1] == [True] * 6 + [False] * 2


async def test_short_results_and_the_conversation_itself_stay_as_they_are() -> None:
    model = ScriptedModel(["done"])
    result = await Agent(model, memory=[TrimResults(200, keep=0, every=1)]).run("now", history=history(3, size=150))
    assert results(model.requests[0].messages) == ["x" * 150] * 3
    assert len(results(result.messages)) == 3


async def ask(*lines: Line, memory: Offload, **options: Any) -> tuple[RunResult, list[str]]:
    """A run; and what the model read of its results at the end."""
    model = ScriptedModel([*lines, "done"])
    result = await Agent(model, [dump, table], memory=[memory]).run("go", **options)
    assert result.output == "done"
    return result, results(model.requests[-1].messages)


async def test_a_big_result_is_shown_by_head_and_tail_from_the_first_request_on() -> None:
    result, (shown,) = await ask(call("dump"), memory=Offload(2_000, head=100, tail=20))
    assert shown.startswith(WHOLE[:100] + "\n[... the middle is left out; read_result(id=")
    assert shown.endswith("...]\n" + WHOLE[-20:])
    assert len(shown) < 300
    assert result.tool_executions[0].value == WHOLE


async def test_the_model_reads_on_to_the_end_also_what_no_conversation_holds() -> None:
    """A result is capped before it enters the conversation; the journal has the whole."""
    read = ""

    def answer(request: Any) -> Line:
        nonlocal read
        texts = results(request.messages)
        if not texts:
            return call("dump")
        if len(texts) > 1:
            head, _, part = texts[-1].partition("\n")
            read += part
            if "read on" not in head:
                return "done"
        return call("read_result", id=texts[0].split('id="')[1].split('"')[0], offset=len(read), length=2_000_000)

    agent = Agent(ScriptedModel(answer), [dump], memory=[Offload(30_000, head=100, tail=20)])
    assert (await agent.run("go")).output == "done"
    assert read == WHOLE


async def test_json_is_read_as_the_model_would_have_read_it() -> None:
    store = open_store("memory:")
    first, _ = await ask(call("table"), memory=Offload(), store=store, session="s")
    wanted = call("read_result", id=first.tool_executions[0].call_id, length=60)
    _, (*_, shown) = await ask(wanted, memory=Offload(), store=store, session="s")
    whole = json.dumps(table(), ensure_ascii=False, separators=(",", ":"))
    head, _, part = shown.partition("\n")
    assert head.startswith(f"[characters 0 to 100 of {len(whole)}; read on with offset=100]")
    assert part == whole[:100]


async def test_results_of_earlier_runs_of_the_session_can_be_read_and_nobody_elses(tmp_path: Path) -> None:
    async with open_store(f"sqlite:///{tmp_path}/s.db") as store:
        first, _ = await ask(call("dump"), memory=Offload(), store=store, session="s")
        wanted = call("read_result", id=first.tool_executions[0].call_id, offset=6, length=100)
        _, (*_, mine) = await ask(wanted, memory=Offload(), store=store, session="s")
        assert mine.endswith(WHOLE[6:106])
        for options in ({"session": "other"}, {}):
            _, (*_, other) = await ask(wanted, memory=Offload(), store=store, **options)
            assert "There is no result" in other
            assert WHOLE[6:106] not in other


async def test_results_of_a_given_history_can_be_read() -> None:
    wanted = call("read_result", id="c0", offset=0, length=500)
    _, (shown, read) = await ask(wanted, memory=Offload(1_000, head=10, tail=10), history=history(1, 2_000))
    assert len(shown) < 200
    assert read == "[characters 0 to 500 of 2000; read on with offset=500]\n" + "x" * 500


async def test_what_was_erased_is_said_to_be_erased() -> None:
    store = open_store("memory:")
    first, _ = await ask(call("dump"), memory=Offload(), store=store, session="s")
    await store.journal.erase_blobs(first.run_id)
    wanted = call("read_result", id=first.tool_executions[0].call_id)
    _, (*_, shown) = await ask(wanted, memory=Offload(), store=store, session="s")
    assert "has been erased" in shown


@pytest.mark.parametrize("offset", [-1, len(WHOLE)])
async def test_an_offset_outside_of_the_result_is_turned_back(offset: int) -> None:
    store = open_store("memory:")
    first, _ = await ask(call("dump"), memory=Offload(), store=store, session="s")
    wanted = call("read_result", id=first.tool_executions[0].call_id, offset=offset)
    _, (*_, shown) = await ask(wanted, memory=Offload(), store=store, session="s")
    assert f"has {len(WHOLE):,} characters" in shown


async def test_both_go_together() -> None:
    """Offloaded first, then trimmed with age."""
    model = ScriptedModel(["done"])
    memory = [Offload(1_000, head=400, tail=100), TrimResults(150, keep=1, every=1)]
    await Agent(model, memory=memory).run("now", history=history(3))
    old, *_, new = results(model.requests[0].messages)
    assert len(old) <= 150
    assert 500 < len(new) < 700


MISTAKES: list[Any] = [
    lambda: TrimResults(0),
    lambda: TrimResults(keep=-1),
    lambda: TrimResults(every=0),
    lambda: Offload(0),
    lambda: Offload(100, head=90, tail=20),
    lambda: Offload(head=-1),
]


@pytest.mark.parametrize("mistake", MISTAKES)
def test_numbers_that_make_no_sense_are_refused(mistake: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"at least|negative"):
        mistake()
