from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextvars import ContextVar
from functools import partial
from typing import Any

import pytest

from glassloop import Agent
from glassloop.core.messages import ToolResult
from glassloop.models.model import ModelRequest
from glassloop.models.scripted import ScriptedModel, call
from glassloop.tools.threads import MOST_THREADS, Threads, run_in_thread

WHO: ContextVar[str] = ContextVar("WHO", default="nobody")


def worker_threads() -> int:
    return sum(thread.name == "glassloop-tool" for thread in threading.enumerate())


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110 - threads know no asyncio.Event
            await asyncio.sleep(0.005)


async def test_it_runs_elsewhere_on_a_daemon_with_the_callers_context_variables() -> None:
    WHO.set("me")
    name, daemon, who = await run_in_thread(
        lambda: (threading.current_thread().ident, threading.current_thread().daemon, WHO.get())
    )
    assert name != threading.get_ident()
    assert daemon
    assert who == "me"


async def test_blocking_jobs_overlap_and_the_loop_goes_on() -> None:
    together, release = threading.Barrier(8), threading.Event()

    def block() -> bool:
        together.wait(30)
        return release.wait(30)

    asyncio.get_running_loop().call_later(0.05, release.set)
    assert await asyncio.gather(*(run_in_thread(block) for _ in range(8))) == 8 * [True]


async def test_exceptions_come_back() -> None:
    with pytest.raises(ZeroDivisionError):
        await run_in_thread(lambda: 1 // 0)


async def test_stop_iteration_cannot_pass_through_a_future_and_is_told_all_the_same() -> None:
    with pytest.raises(RuntimeError, match="StopIteration"):
        await run_in_thread(lambda: next(iter(())))


async def test_a_cancelled_caller_does_not_wait_and_the_late_result_is_dropped() -> None:
    threads, go = Threads(most=1), threading.Event()
    begun = threading.Event()

    def stubborn() -> str:
        begun.set()
        go.wait(10)
        return "late"

    task = asyncio.create_task(threads.run(stubborn))
    await until(begun.is_set)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    # its thread still hangs, and yet another job gets one
    assert await threads.run(lambda: "next") == "next"
    go.set()


async def test_a_job_that_is_cancelled_before_its_turn_never_runs() -> None:
    threads, go = Threads(most=1), threading.Event()
    ran: list[str] = []
    first = asyncio.create_task(threads.run(lambda: go.wait(10)))
    second = asyncio.create_task(threads.run(lambda: ran.append("second")))
    third = asyncio.create_task(threads.run(lambda: ran.append("third")))
    await asyncio.sleep(0)
    second.cancel()
    await asyncio.sleep(0)
    go.set()
    await asyncio.gather(first, third)
    assert ran == ["third"]


async def test_jobs_beyond_the_most_wait_for_their_turn() -> None:
    threads = Threads(most=2)
    at_once, lock, most = 0, threading.Lock(), 0

    def job() -> None:
        nonlocal at_once, most
        with lock:
            at_once += 1
            most = max(most, at_once)
        time.sleep(0.01)
        with lock:
            at_once -= 1

    await asyncio.gather(*(threads.run(job) for _ in range(20)))
    assert most == 2


async def test_a_waiting_job_gets_the_place_of_a_lost_thread() -> None:
    threads, go, begun = Threads(most=1), threading.Event(), threading.Event()
    lost = asyncio.create_task(threads.run(lambda: (begun.set(), go.wait(10))))
    await until(begun.is_set)
    waiting = asyncio.create_task(threads.run(lambda: "served"))
    await asyncio.sleep(0)
    lost.cancel()
    assert await asyncio.wait_for(waiting, 5) == "served"
    go.set()


@pytest.mark.parametrize("how", ["a loop of its own", "run_sync"])
async def test_jobs_that_wait_for_jobs_of_their_own_do_not_wait_for_ever(how: str) -> None:
    """academy-agents/academy#99, pydantic/pydantic-ai#4663: once every thread runs a tool that runs an agent, none is
    left for that agent's tools."""
    together = threading.Barrier(MOST_THREADS)

    def leaf() -> str:
        """Do it."""
        return "done"

    def answer(request: ModelRequest) -> Any:
        last = request.messages[-1]
        return last.content if isinstance(last, ToolResult) else call("leaf")

    inner = Agent(ScriptedModel(answer), [leaf])

    def job() -> str | None:
        together.wait(30)
        return inner.run_sync("go").output if how == "run_sync" else asyncio.run(run_in_thread(leaf))

    async with asyncio.timeout(60):
        results = await asyncio.gather(*(run_in_thread(job) for _ in range(MOST_THREADS)))
    assert results == ["done"] * MOST_THREADS


async def test_idle_threads_end() -> None:
    before = worker_threads()
    threads = Threads(idle_seconds=0.02)
    await asyncio.gather(*(threads.run(lambda: time.sleep(0.01)) for _ in range(4)))
    await until(lambda: worker_threads() <= before)
    assert await threads.run(lambda: 1) == 1


def test_one_pool_serves_several_loops() -> None:
    threads = Threads()

    async def twice() -> list[int]:
        return [await threads.run(partial(abs, number)) for number in range(2)]

    assert [asyncio.run(twice()) for _ in range(3)] == [[0, 1]] * 3


def test_a_loop_that_is_gone_hurts_nobody() -> None:
    threads, go, done = Threads(), threading.Event(), threading.Event()

    def slow() -> None:
        go.wait(10)
        done.set()

    async def leave() -> None:
        task = asyncio.create_task(threads.run(slow))
        await asyncio.sleep(0.01)
        task.cancel()

    asyncio.run(leave())
    go.set()
    assert done.wait(5)


FORK = """
import asyncio, os
from glassloop.tools.threads import run_in_thread
asyncio.run(run_in_thread(lambda: None))
child = os.fork()
if child == 0:
    os._exit(asyncio.run(asyncio.wait_for(run_in_thread(lambda: 7), 5)))
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_forked_child_has_threads_of_its_own() -> None:
    run = subprocess.run([sys.executable, "-W", "ignore", "-c", FORK], capture_output=True, text=True, timeout=30)
    assert run.stdout.strip() == "7", run.stderr
