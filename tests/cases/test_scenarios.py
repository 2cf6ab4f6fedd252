"""Public failures of agent loops that need more than one run, a cancellation, or two machines: one test for each.

Their steps stand in cases.jsonl under the same id. Everything goes through the public API and over the wire.
"""

from __future__ import annotations

import asyncio
import copy
import json
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
from judge.replies import Item, text_answer
from judge.server import Server
from judge.shape import mapping, sequence
from scenario import add, chat, conversation_of, results_in

from glassloop import Agent, FatalToolError, Media, RunContext, Tool, ToolDefinitionError, tool
from glassloop.core.events import ToolFinished
from glassloop.core.messages import Message, Reply, Thinking, ToolResult, UserMessage
from glassloop.core.result import Decision, PendingApproval, RunResult
from glassloop.core.usage import Usage
from glassloop.memory import Summary
from glassloop.models.anthropic import Anthropic
from glassloop.stores import open_store
from glassloop.testing import Answer, Conversation, ModelServer, ask, call, say


async def cancelled(run: asyncio.Task[RunResult]) -> RunResult:
    """Cancel a run as its caller would; what it had come to."""
    run.cancel()
    with pytest.raises(asyncio.CancelledError) as caught:
        await run
    result: RunResult | None = getattr(caught.value, "result", None)
    assert result is not None
    assert result.outcome == "cancelled"
    return result


# C: history


@pytest.mark.parametrize("keep", range(1, 9))
async def test_C03_a_call_that_is_still_pending_is_never_summarised_away(keep: int) -> None:
    @tool(approval=True)
    def get_weather(city: str) -> str:
        """Weather of a city."""
        return f"sunny in {city}"

    asked = [call("get_weather", city="A"), call("get_weather", city="B")]
    approved: list[str] = []

    def approve(pending: PendingApproval) -> Literal[True, "park"]:
        approved.append(pending.call_id)
        return True if len(approved) <= len(asked) else "park"

    def brain(conversation: Conversation) -> Answer:
        if conversation.system.startswith("You summarise"):
            return say("They asked about A, B and C.")
        said = sum(isinstance(message, Reply) for message in conversation.messages)
        return [ask(*asked), ask(call("get_weather", city="C"))][said] if approved[2:] == [] else say("mid")

    async with ModelServer(brain) as server:
        agent = Agent(chat(server), [get_weather], memory=[Summary(keep, keep, unit="messages")])
        store = open_store("memory:")
        first = await agent.run("q", session="s", store=store, approve=approve)
        assert first.outcome == "waiting"
        for prompt in ("q2", "q3"):
            assert (await agent.run(prompt, session="s", store=store)).output == "mid"
    assert [received.violations for received in server.requests if received.violations] == []
    assert "Held for approval" in "".join(results_in(server.requests[-1])["get_weather"])


async def test_C04_a_cancelled_turn_leaves_a_session_that_works() -> None:
    async def slow(seconds: float) -> str:
        """Sleep."""
        await asyncio.sleep(seconds)
        return "slept"

    script = [[call("slow", seconds=30), call("add", a=1, b=2)], "hello to you"]
    async with ModelServer(script=script) as server:
        agent = Agent(chat(server), [slow, add])
        stream = agent.stream("go", session="s")
        async with stream:
            async for event in stream:
                if isinstance(event.data, ToolFinished) and event.data.result.content == "3":
                    break
        result = await agent.run("hello", session="s")
    assert result.output == "hello to you"
    told = results_in(server.requests[-1])
    assert told["add"] == ["3"]
    assert re.search("(?i)interrupt|cancel", told["slow"][0])
    assert len(told["slow"]) == 1


async def test_C09_unsigned_thinking_is_left_out_and_signed_thinking_stays_even_without_text() -> None:
    script = [Answer("first", thinking=Thinking("", signature="S2")), "second"]
    async with ModelServer(script=script) as server:
        agent = Agent(Anthropic("scripted", base_url=server.anthropic_url, api_key="sk-fake"))
        first = await agent.run("q")
        history = [_with_unsigned_thinking(message) for message in first.messages]
        assert (await agent.run("go on", history=history)).output == "second"
    blocks = [block for message in server.requests[-1].body["messages"] for block in message["content"]]
    signatures = [block["signature"] for block in blocks if block["type"] == "thinking"]
    assert signatures == ["S2"]


def _with_unsigned_thinking(message: Message) -> Message:
    """As a stream leaves it that broke off while the model thought."""
    return replace(message, parts=(Thinking("abc"), *message.parts)) if isinstance(message, Reply) else message


async def test_C12_what_one_provider_needs_is_kept_from_another_and_there_when_it_is_back() -> None:
    foreign = ("reasoning_content", "extra_content")
    here, there = Server(), Server()
    a, b = here.new_run(_reasoning_script()), there.new_run(answer=lambda body, wire: text_answer(wire, "from B"))
    agent = Agent(tools=[add])
    first = await agent.run("2+3", model=chat(a))
    second = await agent.run("and now?", model=chat(b), history=first.messages)
    third = await agent.run("and back?", model=chat(a), history=second.messages)
    here.close()
    there.close()
    assert [first.output, second.output, third.output] == ["5", "from B", "back on A"]
    assert [violation for request in [*a.requests, *b.requests] for violation in request.wire] == []
    assert not [word for word in foreign if word.encode() in b.requests[0].raw]
    assert [word for word in foreign if word.encode() in a.requests[-1].raw] == list(foreign)


def _reasoning_script() -> list[Item]:
    first = text_answer("openai", None)
    choice = first["json"]["choices"][0]
    function = {"name": "add", "arguments": '{"a": 2, "b": 3}'}
    signed = {"google": {"thought_signature": "SIG"}}
    choice["finish_reason"] = "tool_calls"
    choice["message"] |= {
        "reasoning_content": "I should add",
        "tool_calls": [{"id": "c1", "type": "function", "function": function, "extra_content": signed}],
    }
    return [first, text_answer("openai", "5"), text_answer("openai", "back on A")]


async def test_C19_a_history_given_and_loaded_from_the_session_counts_once() -> None:
    deleted: list[int] = []

    @tool(approval=True)
    def delete_row(row_id: int) -> str:
        """Delete a row."""
        deleted.append(row_id)
        return f"deleted {row_id}"

    async with ModelServer(script=[call("delete_row", row_id=1), "done", "you are welcome"]) as server:
        agent, store = Agent(chat(server), [delete_row]), open_store("memory:")
        paused = await agent.run("delete row 1", session="s", store=store)
        assert paused.outcome == "waiting"
        (held,) = paused.pending
        resumed = await agent.resume(paused.run_id, decisions={held.approval_id: Decision("approve")}, store=store)
        await agent.run("thanks", session="s", history=resumed.messages, store=store)
    assert deleted == [1]
    messages = conversation_of(server.requests[-1]).messages
    stored = await store.sessions.load("s")
    for conversation in (messages, stored):
        calls = Counter(one.name for reply in conversation if isinstance(reply, Reply) for one in reply.calls)
        texts = [message.content for message in conversation if isinstance(message, ToolResult)]
        users = [message.text for message in conversation if isinstance(message, UserMessage)]
        assert calls == {"delete_row": 1}
        assert texts == ["deleted 1"]
        assert users == ["delete row 1", "thanks"]


# D: tools

NAMES = ("docs.open", "docs/open", "docs_open", "查询天气", "x" * 90, "x" * 89 + "y")


def named(name: str) -> Tool:
    def say_name() -> str:
        """Say the name of this tool."""
        return f"I am {name}"

    return tool(say_name, name=name)


async def wire_names(names: Sequence[str]) -> list[str]:
    """What the model calls the tools; asserts that each call reaches the tool that it means."""

    def call_all(asked: Conversation) -> Any:
        return "done" if asked.results else [call(offered.name) for offered in asked.tools]

    async with ModelServer(call_all) as server:
        await Agent(chat(server), [named(name) for name in names]).run("go")
    first, last = map(conversation_of, server.requests)
    assert [result.text for result in last.results] == [f"I am {name}" for name in names]
    return [offered.name for offered in first.tools]


async def test_D14_any_name_has_a_wire_name_of_its_own_the_same_everywhere() -> None:
    known = await wire_names(NAMES)
    assert [name for name in known if not re.fullmatch("[a-zA-Z0-9_-]{1,64}", name)] == []
    assert len(set(known)) == len(NAMES)
    assert await wire_names(NAMES[::-1]) == known[::-1]
    assert await asyncio.to_thread(_wire_names_of_another_process) == known


def _wire_names_of_another_process() -> list[str]:
    code = "import asyncio, json, test_scenarios as t; print(json.dumps(asyncio.run(t.wire_names(t.NAMES))))"
    folder = Path(__file__).parent
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


async def test_D21_images_are_bounded_on_the_wire_and_stored_once(tmp_path: Path) -> None:
    png = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 8192

    def screenshot(page: int) -> Media:
        """Take a screenshot."""
        return Media.of(png, "image/png", "screen.png")

    usage = Usage(1000, 10)
    shots = [ask(call("screenshot", page=page), usage=usage) for page in range(10)]
    script = [*shots, say("ten of them", usage=usage), say("you are welcome", usage=usage)]
    async with ModelServer(script=script) as server:
        agent, store = Agent(chat(server), [screenshot]), open_store(f"sqlite:///{tmp_path}/runs.db")
        taken = await agent.run("take ten", session="s", store=store)
        await agent.run("thanks", session="s", store=store)
        events = await store.journal.read(taken.run_id)
        await store.close()
    assert max(len(request.raw) for request in server.requests) < 8_000_000
    assert b"image_url" in server.requests[1].raw
    texts = [text for text in _texts(server.requests[-1].body["messages"]) if re.search("[A-Za-z0-9+/=]{1000}", text)]
    assert texts == []
    assert sum(len(json.dumps(event.as_dict())) for event in events) < 100_000
    assert _size_of(tmp_path) < 3 * len(png)


def _size_of(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.iterdir())


def _texts(value: Any) -> list[str]:
    """Every text in a request, other than the addresses of images."""
    parts = [part for key, part in mapping(value).items() if key != "image_url"] + sequence(value)
    return [value] if isinstance(value, str) else [text for part in parts for text in _texts(part)]


def total(**numbers: int) -> int:
    return sum(numbers.values())


async def test_D25_a_schema_is_never_changed_by_those_who_send_it() -> None:
    schema: dict[str, Any] = {
        "type": "object",
        "title": "Add",
        "properties": {"a": {"$ref": "#/$defs/N"}, "b": {"type": ["integer", "null"], "default": None, "title": "B"}},
        "required": ["a"],
        "$defs": {"N": {"type": "integer", "title": "N"}},
    }
    before = copy.deepcopy(schema)
    one = Tool.from_schema("add", "Add two numbers.", schema, total)
    seen: list[tuple[str, Any]] = []
    for wires in (("openai", "anthropic"), ("anthropic", "openai")):
        for wire in wires:
            async with ModelServer(script=[call("add", a=1, b=2), "3"]) as server:
                model = chat(server) if wire == "openai" else _anthropic(server)
                await Agent(model, [one]).run("1+2")
            seen += [(wire, conversation_of(request).tools[0].schema) for request in server.requests]
    assert schema == before
    for wire in ("openai", "anthropic"):
        sent = [parameters for name, parameters in seen if name == wire]
        assert sent == [sent[0]] * 4


def _anthropic(server: ModelServer) -> Anthropic:
    return Anthropic("scripted", base_url=server.anthropic_url, api_key="sk-fake")


# E: running


async def test_E05_a_fatal_error_ends_the_calls_beside_it_before_the_run_returns() -> None:
    written: list[str] = []
    stopped = asyncio.Event()

    async def slow_write() -> str:
        """Write, slowly."""
        try:
            await asyncio.sleep(0.2)
        except asyncio.CancelledError:
            stopped.set()
            raise
        written.append("late")
        return "written"

    async def fatal() -> str:
        """Stop everything."""
        await asyncio.sleep(0.02)
        raise FatalToolError("the account is locked")

    with ModelServer(script=[[call("slow_write"), call("fatal")]]) as server:
        before = asyncio.all_tasks()
        with pytest.raises(FatalToolError, match="the account is locked") as caught:
            await Agent(chat(server), [slow_write, fatal]).run("go")
        assert stopped.is_set()
        assert asyncio.all_tasks() == before
    assert written == []
    assert caught.value.result is not None
    assert [done.tool for done in caught.value.result.tool_executions] == ["slow_write", "fatal"]


async def test_E06_blocking_tools_overlap_and_leave_the_event_loop_alone() -> None:
    together, release = threading.Barrier(2), threading.Event()
    loop = asyncio.get_running_loop()

    def block() -> bool:
        """Block a thread until the other call is there too, and the loop has had its turn."""
        if together.wait(30) == 0:
            loop.call_soon_threadsafe(loop.call_later, 0.05, release.set)
        return release.wait(30)

    with ModelServer(script=[[call("block"), call("block")], "done"]) as server:
        result = await Agent(chat(server), [block]).run("go")
    assert result.output == "done"
    assert [execution.value for execution in result.tool_executions] == [True, True]


async def test_E11_a_call_that_timed_out_is_really_over() -> None:
    log: list[str] = []
    release, ended = threading.Event(), threading.Event()

    async def sleeper() -> str:
        """Sleep, then write."""
        await asyncio.sleep(5)
        log.append("async")
        return "slept"

    def thread(context: RunContext[Any]) -> str:
        """Wait in a thread, then return late."""
        release.wait(10)
        log.append(f"told {context.cancelled.is_set()}")
        ended.set()
        return "late"

    tools = [tool(sleeper, timeout=0.2), tool(thread, timeout=0.2)]
    async with ModelServer(script=[[call("sleeper"), call("thread")], "done"]) as server:
        store = open_store("memory:")
        began = time.perf_counter()
        result = await Agent(chat(server), tools).run("go", store=store)
        assert time.perf_counter() - began < 4
        written = await store.journal.read(result.run_id)
        release.set()
        assert await asyncio.to_thread(ended.wait, 5)
        assert await store.journal.read(result.run_id) == written
    assert log == ["told True"]
    told = results_in(server.requests[-1])
    assert {name: len(texts) for name, texts in told.items()} == {"sleeper": 1, "thread": 1}
    assert [done.status for done in result.tool_executions] == ["timeout", "timeout"]
    assert re.search("(?i)may still", told["thread"][0])


async def test_E13_a_tool_that_swallows_the_cancellation_does_not_save_the_run() -> None:
    running = asyncio.Event()

    async def stubborn() -> str:
        """Do not be cancelled."""
        running.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            return "cancelled"
        return "slept"

    async with ModelServer(script=[call("stubborn"), "hello again"]) as server:
        agent = Agent(chat(server), [stubborn])
        task = asyncio.create_task(agent.run("go", session="s"))
        await asyncio.wait_for(running.wait(), 5)
        await cancelled(task)
        assert len(server.requests) == 1
        assert (await agent.run("hello", session="s")).output == "hello again"
    assert server.violations == []


async def test_E14_cancelling_the_run_cancels_its_tools() -> None:
    ticks: list[float] = []
    ticking = asyncio.Event()

    async def tick() -> str:
        """Tick for ever."""
        while True:
            await asyncio.sleep(0.01)
            ticks.append(time.perf_counter())
            if len(ticks) == 3:
                ticking.set()

    async with ModelServer(script=[call("tick")]) as server:
        task = asyncio.create_task(Agent(chat(server), [tick]).run("go"))
        await asyncio.wait_for(ticking.wait(), 5)
        await cancelled(task)
        returned = time.perf_counter()
        await asyncio.sleep(0.05)
    assert [at for at in ticks if at > returned] == []


@pytest.mark.parametrize("streamed", [False, True])
async def test_E14_cancelling_the_run_closes_the_connection_to_the_model(streamed: bool) -> None:
    answer = Answer("word " * 50, endless=True) if streamed else Answer("late", delay=60)
    with ModelServer(script=[answer]) as server:
        agent = Agent(chat(server))
        run = _read(agent) if streamed else agent.run("go")
        task = asyncio.ensure_future(run)
        assert await asyncio.to_thread(server.wait_for_requests, 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        request = server.requests[0]
        assert await asyncio.to_thread(request.wait, 2)
        assert request.disconnected_at is not None


async def _read(agent: Agent) -> RunResult:
    async with agent.stream("go") as stream:
        async for _ in stream:
            pass
        return stream.result


def test_E25_two_tools_of_one_name_are_refused_and_both_are_named() -> None:
    @tool(approval=True)
    def delete_row(row_id: int) -> str:
        """Delete a row, after a human's yes."""
        return f"deleted {row_id}"

    other = _other_delete_row()
    with pytest.raises(ToolDefinitionError) as caught:
        Agent(tools=[delete_row, other])
    message = str(caught.value)
    assert "delete_row" in message
    assert test_E25_two_tools_of_one_name_are_refused_and_both_are_named.__name__ in message
    assert _other_delete_row.__name__ in message
    Agent(tools=[delete_row, delete_row])
    Agent(tools=[add, add])


def _other_delete_row() -> Any:
    def delete_row(row_id: int) -> str:
        """Delete a row, just like that."""
        return f"deleted {row_id}"

    return delete_row


# F: concurrency


async def test_F03_one_agent_serves_many_users_and_mixes_nothing_up() -> None:
    def repeat(asked: Conversation) -> str:
        return " | ".join(message.text for message in asked.messages if isinstance(message, UserMessage))

    async def user(agent: Agent, number: int, session: str | None) -> RunResult:
        await agent.run(f"my secret is s{number:02d}", session=session)
        return await agent.run(f"what is my secret, {number:02d}?", session=session)

    async with ModelServer(repeat) as server:
        agent = Agent(chat(server))
        kept = await asyncio.gather(*(user(agent, n, f"session {n}") for n in range(20)))
        alone = await asyncio.gather(*(user(agent, n, None) for n in range(20, 40)))
    assert [result.output for result in kept] == [
        f"my secret is s{n:02d} | what is my secret, {n:02d}?" for n in range(20)
    ]
    assert [result.output for result in alone] == [f"what is my secret, {n:02d}?" for n in range(20, 40)]
    for request in server.requests:
        assert len(set(re.findall(rb"s\d\d", request.raw))) <= 1


class Broken(Exception):
    """An error that holds what no encoder knows."""

    def __init__(self) -> None:
        super().__init__("the lock is held")
        self.lock = threading.Lock()


@pytest.mark.parametrize("url", ["memory:", "sqlite:///{folder}/runs.db"])
async def test_F13_what_cannot_be_stored_does_not_hide_what_happened(url: str, tmp_path: Path) -> None:
    def fails() -> str:
        """Fail."""
        raise Broken

    store = open_store(url.format(folder=tmp_path))
    async with ModelServer(script=[call("fails"), "it failed"]) as server:
        result = await Agent(chat(server), [fails]).run("go", deps=threading.Lock(), store=store)
        events = await store.journal.read(result.run_id)
    await store.close()
    assert result.output == "it failed"
    assert "Broken" in results_in(server.requests[-1])["fails"][0]
    assert events[-1].type == "run_finished"


def test_every_text_of_a_request_is_looked_at() -> None:
    request = {"content": ["a", {"text": "b", "image_url": {"url": "c"}}], "n": 1}
    assert _texts(request) == ["a", "b"]
