"""Code that goes on in spite of its cancellation: it holds up neither the run nor the end of the process."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from typing import Any, cast

import pytest

from glassloop import Agent, FatalToolError, Limits, Tool, tool
from glassloop.core import insist
from glassloop.core.result import PendingApproval, RunResult
from glassloop.middleware.approval import Approval
from glassloop.middleware.start import Start
from glassloop.models.scripted import ScriptedModel, call
from glassloop.runtime import Runtime
from glassloop.stores import open_store
from glassloop.teams import agent_tool

GRACE = 0.3
DEADLINE = 15.0
STUBBORN_S = 40.0
"""How long it goes on: not for ever, so that a test that fails comes to an end."""

begun: list[str] = []


@pytest.fixture(autouse=True)
def short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(insist, "GRACE_SECONDS", GRACE)
    begun.clear()


def stays(name: str) -> Iterator[None]:
    """Note that it has begun, and let it go on."""
    begun.append(name)
    end = time.monotonic() + STUBBORN_S
    while time.monotonic() < end:
        yield


async def have_begun(count: int) -> None:
    async with asyncio.timeout(DEADLINE):
        while len(begun) < count:  # noqa: ASYNC110 - what begins is in many places
            await asyncio.sleep(0.01)


async def for_ever(name: str = "") -> None:
    for _ in stays(name):
        with suppress(BaseException):
            await asyncio.sleep(STUBBORN_S)


async def turning() -> str:
    """Never waits for anything."""
    for _ in stays("turning"):
        with suppress(BaseException):
            await asyncio.sleep(0)
    return "never"


async def sleeping() -> str:
    """Catches everything."""
    await for_ever("sleeping")
    return "never"


async def beginning_anew() -> str:
    """Waits for a task, and makes another."""
    for _ in stays("beginning_anew"):
        with suppress(BaseException):
            await asyncio.create_task(asyncio.sleep(STUBBORN_S))
    return "never"


async def yielding() -> AsyncIterator[str]:
    """Reports progress."""
    yield "one"
    await for_ever("yielding")


def sync_with_a_coroutine() -> Awaitable[None]:
    """Is sync, but what it returns is not."""
    return for_ever()


STUBBORN: list[Callable[..., Any]] = [turning, sleeping, beginning_anew, yielding, sync_with_a_coroutine]


def agent(*tools: Callable[..., Any] | Tool, middleware: tuple[Any, ...] = (), **more: Any) -> Agent:
    """Calls each of its tools once, in one step, then answers."""
    known = [one if isinstance(one, Tool) else tool(one, timeout=0.2) for one in tools]
    calls = [call(one.name) for one in known]
    return Agent(ScriptedModel([calls, "done"]), known, middleware=middleware, **more)


async def within(work: Awaitable[Any]) -> Any:
    """What comes of it in time; it is left to itself where nothing does."""
    task = asyncio.ensure_future(work)
    done, _ = await asyncio.wait([task], timeout=DEADLINE)
    assert done, "it is held up"
    return task.result()


async def cancelled(work: Awaitable[Any], count: int) -> RunResult:
    """What a run has come to that is cancelled once `count` of its tools have begun."""
    task = asyncio.ensure_future(work)
    await have_begun(count)
    task.cancel()
    done, _ = await asyncio.wait([task], timeout=DEADLINE)
    assert done, "it is held up"
    with pytest.raises(asyncio.CancelledError) as caught:
        await task
    result = cast("RunResult", caught.value.result)  # type: ignore[attr-defined] - documented
    assert result.outcome == "cancelled"
    return result


async def test_a_tool_that_catches_everything_times_out_all_the_same(caplog: pytest.LogCaptureFixture) -> None:
    result: RunResult = await within(agent(*STUBBORN).run("go"))
    assert (result.outcome, result.output) == ("completed", "done")
    assert [done.status for done in result.tool_executions] == ["timeout"] * len(STUBBORN)
    for function in STUBBORN:
        assert f"{function.__name__} did not end when it was cancelled, and was stopped" in caplog.text


async def test_nor_does_it_save_a_run_that_is_cancelled() -> None:
    for functions in (STUBBORN, [sleeping]):
        begun.clear()
        patient = agent(*[tool(one, timeout=600) for one in functions])
        result = await cancelled(patient.run("go"), len(functions))
        assert {done.status for done in result.tool_executions} == {"cancelled"}


async def test_nor_one_whose_time_is_up_or_that_another_call_has_ended() -> None:
    forever = tool(sleeping, timeout=600)
    result: RunResult = await within(agent(forever).run("go", limits=Limits(seconds=0.2, on_limit="return")))
    assert (result.outcome, result.limit) == ("limited", "seconds")

    async def fatal() -> str:
        """Stop."""
        await have_begun(2)
        raise FatalToolError("The account is locked.")

    with pytest.raises(FatalToolError, match="locked"):
        await within(agent(forever, fatal).run("go"))


async def test_a_write_that_catches_everything_is_of_unknown_outcome() -> None:
    result: RunResult = await within(agent(tool(sleeping, effect="write", timeout=0.1)).run("go"))
    assert (result.outcome, result.tool_executions[0].status) == ("completed", "unknown")

    writing = agent(tool(sleeping, effect="write"), middleware=(Start(grace=0.1),))
    result = await cancelled(writing.run("go"), 2)
    assert result.tool_executions[0].status == "unknown"


async def test_what_it_holds_is_let_go_and_nothing_of_it_runs_on() -> None:
    lock, log, last = asyncio.Lock(), list[str](), asyncio.Event()

    async def holding() -> str:
        """Holds a lock."""
        async with lock:
            for _ in stays("holding"):
                try:
                    await asyncio.wait_for(last.wait(), STUBBORN_S)
                    log.append("went on")
                except asyncio.CancelledError:
                    log.append("cancelled")
        return "never"

    result: RunResult = await within(agent(holding).run("go"))
    assert (result.outcome, lock.locked(), log) == ("completed", False, ["cancelled"])
    last.set()
    for _ in range(10):
        await asyncio.sleep(0)
    assert log == ["cancelled"]


async def test_tidying_up_is_given_its_time(caplog: pytest.LogCaptureFixture) -> None:
    log: list[str] = []

    async def tidy() -> str:
        """Ends in its own way."""
        try:
            await asyncio.sleep(600)
        finally:
            await asyncio.sleep(0.1)
            log.append("tidy")
        return "never"

    result: RunResult = await within(agent(tidy).run("go"))
    assert (result.tool_executions[0].status, log, caplog.text) == ("timeout", ["tidy"], "")


async def test_a_tool_that_cancels_a_part_of_itself_goes_on_as_long_as_it_may(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A TaskGroup that fails leaves its cancellation on the task before Python 3.13 (python/cpython#116720)."""

    async def failing() -> None:
        await asyncio.sleep(0)
        raise ValueError

    async def careful() -> str:
        """Tries a fast way first."""
        try:
            async with asyncio.timeout(0.05):
                await asyncio.sleep(600)
        except TimeoutError:
            await asyncio.sleep(0)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(failing())
        except* ValueError:
            pass
        await asyncio.sleep(3 * GRACE)
        return "the slow way"

    result: RunResult = await within(agent(tool(careful)).run("go"))
    assert (result.tool_executions[0].value, caplog.text) == ("the slow way", "")


async def test_a_run_below_ends_first(caplog: pytest.LogCaptureFixture) -> None:
    store = open_store("memory:")
    below = Agent(
        ScriptedModel([[call("sleeping"), call("turning")], "done"]),
        [tool(sleeping, timeout=600), tool(turning, timeout=600)],
        name="below",
    )
    above = Agent(ScriptedModel([[call("below", task="a"), call("other")], "done"]), [agent_tool(below), tool(other)])
    await cancelled(above.run("go", store=store), 3)
    assert {row.status for row in await store.journal.runs()} == {"cancelled"}
    warned = sorted(record.getMessage().partition(" ")[0] for record in caplog.records)
    assert warned == ["sleeping", "turning"]


async def other() -> str:
    """Wait."""
    begun.append("other")
    await asyncio.sleep(600)
    return "never"


async def test_leaving_a_runtime_lets_go_of_a_run_that_such_a_tool_holds() -> None:
    store = open_store("memory:")
    runtime = Runtime(agent(tool(sleeping, timeout=600)), store=store)
    runtime.stop_seconds = 0.05
    await runtime.__aenter__()
    run_id = await runtime.start("agent", "go")
    await have_begun(1)
    await within(runtime.__aexit__(None, None, None))
    assert [row.status for row in await store.journal.runs() if row.id == run_id] == ["running"]


async def test_a_human_at_hand_whose_code_catches_everything_is_not_waited_for() -> None:
    async def ask(_: PendingApproval) -> bool:
        await for_ever()
        return True

    held = agent(tool(sleeping, approval=True), middleware=(Approval(seconds=0.1),))
    result: RunResult = await within(held.run("go", approve=ask))
    assert (result.outcome, result.tool_executions[0].status) == ("completed", "denied")
    assert "nobody answered" in result.tool_executions[0].content


async def test_nor_is_one_hurried_who_stops_asking_in_one_way_and_asks_in_another() -> None:
    async def ask(_: PendingApproval) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(0.05):
                try:
                    await asyncio.sleep(STUBBORN_S)
                finally:
                    await asyncio.sleep(0.01)  # takes the question back
        await asyncio.sleep(3 * GRACE)
        return True

    def pay() -> str:
        """Pay."""
        return "paid"

    result: RunResult = await within(agent(tool(pay, approval=True)).run("go", approve=ask))
    assert (result.outcome, result.tool_executions[0].value) == ("completed", "paid")


PROGRAM = """
    import asyncio, sys
    from glassloop import Agent, tool
    from glassloop.core import insist
    from glassloop.models.scripted import ScriptedModel, call

    insist.GRACE_SECONDS = 0.3

    async def stuck() -> str:
        "Catches everything."
        while True:
            try:
                await asyncio.sleep(600)
            except BaseException:
                pass

    agent = Agent(ScriptedModel([call("stuck"), "done"]), [tool(stuck, timeout=float(sys.argv[1]))])
"""


@pytest.mark.parametrize(
    "way", ["print(asyncio.run(agent.run('go')).output)", "print(agent.run_sync('go').output)"], ids=["async", "sync"]
)
def test_the_process_ends(way: str) -> None:
    """The garbage collector would resume such a coroutine to close it, with no loop to wait in: for ever."""
    program = textwrap.dedent(PROGRAM) + way
    done = subprocess.run([sys.executable, "-c", program, "0.1"], capture_output=True, text=True, timeout=DEADLINE)
    assert (done.returncode, done.stdout) == (0, "done\n")
    assert done.stderr == "stuck did not end when it was cancelled, and was stopped after 0.3 s.\n"
