"""What becomes of a tool that fails in unusual ways: one result for the model, and the run goes on."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from glassloop import Agent, FatalToolError, ToolError, tool
from glassloop.core.encoding import dumps
from glassloop.middleware.error import Errors
from glassloop.models.scripted import ScriptedModel, call
from glassloop.stores import open_store
from glassloop.tools.results import CAP


async def fails_side_by_side(*errors: Exception) -> None:
    async def one(error: Exception) -> None:
        raise error

    async with asyncio.TaskGroup() as group:
        for error in errors:
            group.create_task(one(error))


def asked_twice(function: Any, **more: Any) -> Agent:
    """An agent that calls the function, and answers when it has the result."""
    return Agent(ScriptedModel([call("work"), "done"]), [tool(function, name="work")], **more)


async def test_a_task_group_that_fails_inside_a_tool_fails_this_call_and_not_the_run() -> None:
    """python/cpython#95289, #116720: before Python 3.13 it can leave its own cancellation on the task that it is in."""

    async def work() -> str:
        await fails_side_by_side(ToolError("The month must be 1 to 12."))
        return "never"

    result = await asked_twice(work).run("go")
    assert (result.outcome, result.output) == ("completed", "done")
    assert (result.tool_executions[0].status, result.tool_executions[0].content) == (
        "error",
        "The month must be 1 to 12.",
    )


async def test_a_tool_that_gets_over_its_failed_task_group_has_its_result() -> None:
    """python/cpython#116720, where the tool handles the failure itself."""

    async def work() -> str:
        try:
            await fails_side_by_side(ValueError("one"))
        except* ValueError:
            pass
        return "with a default"

    result = await asked_twice(work).run("go")
    assert (result.outcome, result.tool_executions[0].content) == ("completed", "with a default")


@pytest.mark.parametrize(
    ("errors", "told"),
    [
        ((ToolError("No such city."), ToolError("No such day.")), "No such city. No such day."),
        ((ValueError("postgres://u:pw@db"), ToolError("No such city.")), "No such city."),
        ((ValueError("postgres://u:pw@db"), KeyError("x")), "The tool failed with ValueError"),
    ],
)
async def test_of_failures_side_by_side_the_model_is_told_what_is_meant_for_it(
    errors: tuple[Exception, ...], told: str
) -> None:
    """livekit/agents#4302: that errors in a group were unhandled is all that anybody is told."""

    async def work() -> None:
        await fails_side_by_side(*errors)

    content = (await asked_twice(work).run("go")).tool_executions[0].content
    assert content.startswith(told)
    assert "pw" not in content


async def test_a_fatal_error_stops_the_run_from_inside_a_task_group() -> None:
    """crewAIInc/crewAI#6712: a deliberate stop is folded into an ordinary failure of what ran in parallel."""

    async def work() -> None:
        await fails_side_by_side(ValueError("first"), FatalToolError("The till is open."))

    with pytest.raises(FatalToolError, match="The till is open"):
        await asked_twice(work).run("go")


@pytest.mark.parametrize("in_thread", [True, False])
async def test_what_is_no_exception_is_a_failure_of_the_tool_all_the_same(in_thread: bool) -> None:
    """aws-deadline/deadline-cloud-worker-agent#1026, PyO3/pyo3#2880: a panic in Rust code is a BaseException, passes
    `except Exception`, and the session dies in silence."""

    class PanicException(BaseException):
        pass

    def blocking() -> None:
        raise PanicException("index out of bounds")

    async def waiting() -> None:
        raise PanicException("index out of bounds")

    store = open_store("memory:")
    result = await asked_twice(blocking if in_thread else waiting).run("go", store=store)
    assert (result.outcome, result.tool_executions[0].status) == ("completed", "error")
    events = await store.journal.read(result.run_id)
    assert "PanicException" in next(event.private["traceback"] for event in events if event.private)


async def test_an_error_that_cannot_be_shown_is_an_error_like_any_other() -> None:
    """smallest-inc/smallest-python-sdk#118: `str()` of an exception is trusted to say something."""

    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no words")

        __repr__ = __str__

    def work() -> None:
        raise Mute

    content = (await asked_twice(work).run("go")).tool_executions[0].content
    assert content.startswith("The tool failed with Mute")


async def test_a_huge_error_is_cut_and_kept_whole_for_the_operator() -> None:
    """HKUDS/nanobot#2343: one tool's output of a megabyte, here in an error, makes every later request too long."""

    def work() -> None:
        raise ToolError("page " * 100_000)

    store = open_store("memory:")
    result = await asked_twice(work).run("go", store=store)
    assert result.outcome == "completed"
    assert len(result.tool_executions[0].content) <= CAP
    [private] = [event.private for event in await store.journal.read(result.run_id) if event.private]
    assert private["message"] == "page " * 100_000


async def test_an_error_handler_that_fails_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """openai/openai-agents-js#1520: a handler of errors must not throw, or the run ends."""

    def work() -> None:
        raise ValueError("secret-address")

    def handler(error: Exception, call: Any) -> str:
        raise KeyError("a bug")

    with caplog.at_level(logging.ERROR, "glassloop.tools"):
        result = await asked_twice(work, middleware=[Errors(handler)]).run("go")
    assert (result.outcome, result.tool_executions[0].content[:31]) == ("completed", "The tool failed with ValueError")
    assert "error handler failed" in caplog.text


async def test_an_error_handler_may_say_it_by_raising_and_the_operator_still_sees_the_cause() -> None:
    """langchain-ai/deepagents#3804: what the model is told of an error takes its place, also for who looks for it."""

    def work() -> None:
        raise ValueError("secret-address")

    def handler(error: Exception, call: Any) -> str:
        raise ToolError("The warehouse does not answer.")

    store = open_store("memory:")
    result = await asked_twice(work, middleware=[Errors(handler)]).run("go", store=store)
    assert result.tool_executions[0].content == "The warehouse does not answer."
    events = await store.journal.read(result.run_id)
    assert any("secret-address" in str(event.private) for event in events if event.private)
    assert "secret-address" not in dumps(list(result.messages)).decode()


@pytest.mark.parametrize("effect", ["read", "write"])
async def test_a_call_is_late_whatever_it_makes_of_its_cancellation(effect: Any) -> None:
    """agno-agi/agno#8928, NousResearch/hermes-agent#17428: a client library turns the cancellation into its own error,
    the time-out is taken for an ordinary failure, and the write is done again."""
    done: list[int] = []

    @tool(effect=effect, timeout=0.05)
    async def send(to: int) -> str:
        """Send."""
        done.append(to)
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            raise ConnectionError("aborted") from None
        return "sent"

    result = await Agent(ScriptedModel([call("send", to=1), call("send", to=1), "done"]), [send]).run("go")
    statuses = [execution.status for execution in result.tool_executions]
    assert statuses == (["unknown", "unknown"] if effect == "write" else ["timeout", "timeout"])
    assert done == ([1] if effect == "write" else [1, 1])


async def test_nothing_of_a_write_goes_on_after_a_run_that_is_cancelled_twice() -> None:
    """pydantic/pydantic-ai#3960: the second Ctrl-C left the tool to itself, and its effect came after the end."""
    began = asyncio.Event()
    done: list[str] = []

    @tool(effect="write")
    async def send(to: int) -> str:
        """Send."""
        began.set()
        await asyncio.sleep(0.2)
        done.append("sent")
        return "sent"

    task = asyncio.create_task(Agent(ScriptedModel([call("send", to=1)]), [send]).run("go"))
    await began.wait()
    for _ in range(2):
        task.cancel()
        await asyncio.sleep(0.02)
    with pytest.raises(asyncio.CancelledError):
        await task
    left = asyncio.all_tasks() - {asyncio.current_task()}
    assert (left, done) == (set(), [])
