"""Threads wake event loops up: every call arrives, on the loop, in order; a closed loop hurts nobody."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from glassloop.core.doorbell import Doorbell, doorbell


class Deaf(asyncio.SelectorEventLoop):
    """Watches no files, as the loop of Windows."""

    def add_reader(self, fd: Any, callback: Callable[..., Any], *args: Any) -> Any:
        raise NotImplementedError


async def hear(rings: int, threads: int) -> tuple[list[tuple[int, int]], set[int]]:
    """What many threads have rung, and where it was heard."""
    heard: list[tuple[int, int]] = []
    where: set[int] = set()
    done, bell = asyncio.Event(), doorbell()

    def call(thread: int, number: int) -> None:
        heard.append((thread, number))
        where.add(threading.get_ident())
        if len(heard) == rings * threads:
            done.set()

    def ring(thread: int) -> None:
        for number in range(rings):
            bell.ring(partial(call, thread, number))

    ringing = [threading.Thread(target=ring, args=(thread,)) for thread in range(threads)]
    for thread in ringing:
        thread.start()
    async with asyncio.timeout(20):
        await done.wait()
    return heard, where


@pytest.mark.parametrize("loop", [asyncio.SelectorEventLoop, Deaf])
def test_every_ring_is_heard_on_the_loop_and_in_the_order_of_its_thread(
    loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    with asyncio.Runner(loop_factory=loop) as runner:
        heard, where = runner.run(hear(500, 4))
    assert where == {threading.get_ident()}
    for thread in range(4):
        assert [number for who, number in heard if who == thread] == list(range(500))


@pytest.mark.parametrize("loop", [asyncio.SelectorEventLoop, Deaf])
def test_a_loop_that_is_closed_hears_nothing(loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    heard: list[int] = []

    async def bell() -> Doorbell:
        return doorbell()

    with asyncio.Runner(loop_factory=loop) as runner:
        late = runner.run(bell())
    late.ring(lambda: heard.append(1))
    assert heard == []


def test_bells_go_with_their_loops() -> None:
    def files() -> int:
        gc.collect()
        return len(list(Path("/dev/fd").iterdir()))

    asyncio.run(hear(1, 1))
    before = files()
    for _ in range(20):
        asyncio.run(hear(1, 1))
    assert files() <= before  # what earlier tests have left may go meanwhile
