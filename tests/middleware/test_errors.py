"""What becomes of a tool that fails in unusual ways: one result for the model, and the run goes on."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from glassloop import Agent, FatalToolError, RunContext, ToolError, tool
from glassloop.core.encoding import dumps
from glassloop.journal.ledger import DAY, Claim, MemoryLedger, Owner
from glassloop.middleware.error import Errors
from glassloop.middleware.idempotency import Idempotency
from glassloop.middleware.retry import LONGEST_PAUSE_SECONDS, Retry
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


@pytest.mark.parametrize("said", ["", "  \n", "\u200b"])
async def test_an_error_without_words_is_told_in_some(said: str) -> None:
    """spring-projects/spring-ai#4518: a result that is blank reads as if the tool had found nothing."""

    async def work() -> str:
        raise ToolError(said)

    result = await asked_twice(work).run("go")
    (execution,) = result.tool_executions
    assert (execution.status, execution.content) == ("error", "The tool reported an error without saying which.")

    async def breaks() -> str:
        raise ValueError("secret")

    result = await asked_twice(breaks, middleware=[Errors(lambda error, call: said)]).run("go")
    assert result.tool_executions[0].content == "The tool reported an error without saying which."


@pytest.mark.parametrize("where", ["predicate", "layer", "function"])
async def test_only_a_write_that_was_begun_may_have_happened(where: str) -> None:
    """Whoever reads that it may have happened goes and looks, or tells the user so, though nothing was ever sent."""

    @tool(effect="write", approval=lambda arguments: arguments["amount"] > 500 if where == "predicate" else False)
    def pay(sum: int) -> str:
        """Pay."""
        raise ConnectionError("broken pipe")

    async def layer(call: Any, next: Any) -> Any:
        if where == "layer":
            raise KeyError("policy")
        return await next(call)

    result = await Agent(ScriptedModel([call("pay", sum=1), "done"]), [pay], middleware=[layer]).run("go")
    [done] = result.tool_executions
    assert done.status == "error"
    assert ("may have taken effect" in done.content) is (where == "function")


@pytest.mark.parametrize("effect", ["read", "write"])
async def test_a_call_that_timed_out_is_repeated_where_a_repetition_does_no_harm(effect: Any) -> None:
    """ahmadrosid/nakama#449, dust-tt/dust#15731: of all failures a time-out is the one that a retry is for."""
    tries: list[bool] = []

    @tool(effect=effect, idempotent=True, retries=9, timeout=1)
    async def fetch(context: RunContext[None]) -> str:
        """Fetch."""
        tries.append(context.cancelled.is_set())
        if len(tries) == 1:
            await asyncio.sleep(60)
        return "fetched"

    result = await Agent(ScriptedModel([call("fetch"), "done"]), [fetch]).run("go")
    assert [done.content for done in result.tool_executions] == ["fetched"]
    assert len(tries) > 1
    assert not any(tries)


async def test_a_call_that_is_always_late_is_repeated_as_often_as_it_says() -> None:
    tries: list[int] = []

    @tool(retries=1, timeout=0.05)
    async def fetch() -> str:
        """Fetch."""
        tries.append(1)
        await asyncio.sleep(60)
        return "fetched"

    result = await Agent(ScriptedModel([call("fetch"), "done"]), [fetch]).run("go")
    assert [done.status for done in result.tool_executions] == ["timeout"]
    assert len(tries) == 2


@pytest.mark.parametrize("late", [True, False])
async def test_nothing_is_repeated_once_the_run_is_cancelled(late: bool) -> None:
    """A write in flight is waited for; one that has failed, and pauses before the next try, is in flight no more."""
    tries: list[int] = []
    paused = asyncio.Event()

    @tool(effect="write", idempotent=True, retries=9, timeout=0.05)
    async def send() -> str:
        """Send."""
        tries.append(1)
        try:
            await asyncio.sleep(60 if late else 0)
            raise ConnectionError("broken pipe")
        finally:
            paused.set()

    agent = Agent(ScriptedModel([call("send"), "done"]), [send], middleware=[Retry(delay=1)])
    task = asyncio.create_task(agent.run("go"))
    await paused.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(tries) == 1


async def test_a_claim_lasts_as_long_as_all_attempts_may_take() -> None:
    leases: list[float] = []

    class Watched(MemoryLedger):
        async def claim(self, key: str, owner: Owner, lease: float, ttl: float = DAY) -> Claim:
            leases.append(lease)
            return await super().claim(key, owner, lease, ttl)

    @tool(effect="write", idempotent=True, retries=20, timeout=1)
    def pay() -> str:
        """Pay."""
        return "paid"

    agent = Agent(ScriptedModel([call("pay"), "done"]), [pay], middleware=[Idempotency(Watched())])
    assert (await agent.run("go")).output == "done"
    assert leases
    assert min(leases) >= 21 * 1 + 20 * LONGEST_PAUSE_SECONDS
