"""The measuring operations, run inside a peer's process.

CPU is user + system time of the whole process with all its threads (`time.process_time`).  Each operation
does one warm-up run and one `gc.collect()` before the clock starts, and checks the final text of every run.
"""

import asyncio
import gc
import os
import resource
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from bench.common import NAPS, Peer, model_name

Result = dict[str, Any]
WARM_CHUNKS = 50


class WrongAnswer(AssertionError):
    """The run ended with something else than the server's final text."""


async def _run(peer: Peer, model: str, tool: str, k: int) -> None:
    """One run whose final text must be that of `k` rounds."""
    text = await peer.run(model, tool)
    if not str(text).startswith(f"done {k}"):
        raise WrongAnswer(f"wrong final text {text!r}")


@dataclass
class _Clock:
    """Wall and CPU seconds since it was made."""

    wall0: float = field(default_factory=time.perf_counter)
    cpu0: float = field(default_factory=time.process_time)

    def read(self) -> tuple[float, float]:
        return time.perf_counter() - self.wall0, time.process_time() - self.cpu0


async def single(peer: Peer, k: int, p: int = 1, tool: str = "add", n: int = 1) -> Result:
    """`n` runs one after the other: seconds of one run."""
    await _run(peer, model_name(1, p, tool=tool), tool, 1)
    model = model_name(k, p, tool=tool)
    gc.collect()
    clock = _Clock()
    for _ in range(n):
        await _run(peer, model, tool, k)
    wall, cpu = clock.read()
    return {"wall": wall / n, "cpu": cpu / n}


async def concurrent(peer: Peer, runs: int, at_once: int, k: int, delay_ms: int) -> Result:
    """Many runs, `at_once` at a time: throughput, CPU, latency and memory of the whole batch."""
    await _run(peer, model_name(1), "add", 1)
    model, gate = model_name(k, d=delay_ms), asyncio.Semaphore(at_once)
    seconds: list[float] = []
    errors: list[str] = []

    async def job() -> None:
        async with gate:
            start = time.perf_counter()
            try:
                await _run(peer, model, "add", k)
            except Exception as error:  # noqa: BLE001 - counted, whatever it is
                errors.append(repr(error)[:300])
            seconds.append(time.perf_counter() - start)

    gc.collect()
    _forget_peak()
    before = _resident_kb()
    clock = _Clock()
    await asyncio.gather(*(job() for _ in range(runs)))
    wall, cpu = clock.read()
    seconds.sort()
    return {
        "wall": wall,
        "runs_per_s": (runs - len(errors)) / wall,
        "cpu_per_run": cpu / runs,
        "p50": seconds[runs // 2],
        "p99": seconds[int(runs * 0.99)],
        "kb_per_run": (_peak_kb() - before) / at_once,
        "errors": len(errors),
        "first_error": errors[0] if errors else None,
    }


async def stream(peer: Peer, chunks: int, n: int = 1) -> Result:
    """A streamed final answer of `chunks` chunks: medians of CPU, wall and time to the first text."""
    await _stream_once(peer, min(chunks, WARM_CHUNKS))
    samples = [await _stream_once(peer, chunks) for _ in range(n)]
    names = ("wall", "cpu", "first_text")
    middle = {name: sorted(sample[name] for sample in samples)[n // 2] for name in names}
    return {**middle, "events": samples[-1]["events"]}


async def _stream_once(peer: Peer, chunks: int) -> dict[str, float]:
    arrived = 0
    pieces: list[str] = []

    def on_text(text: str) -> None:
        nonlocal arrived
        if not pieces:
            arrived = time.monotonic_ns()
        pieces.append(text)

    model = model_name(0, c=chunks)
    gc.collect()
    clock = _Clock()
    await peer.stream(model, "add", on_text)
    wall, cpu = clock.read()
    text = "".join(pieces)
    if not text.startswith("T") or len(text) < 4 * (chunks - 1):
        raise WrongAnswer(f"wrong streamed text {text[:40]!r}, {len(text)} characters")
    sent = int(text[1 : text.index(";")])  # the server's clock, in its first chunk of text
    return {"wall": wall, "cpu": cpu, "first_text": (arrived - sent) / 1e9, "events": len(pieces)}


async def tools(peer: Peer, tool: str, p: int = 8) -> Result:
    """One round of `p` calls of a 0.1 s tool: first start to last end, and the longest stall of the loop."""
    await _run(peer, model_name(1, tool=tool), tool, 1)
    NAPS.clear()
    async with _StallWatch() as watch:
        clock = _Clock()
        await _run(peer, model_name(1, p, tool=tool), tool, 1)
        wall, _ = clock.read()
    spans = NAPS.spans
    return {
        "wall": wall,
        "span": max(end for _, end in spans) - min(start for start, _ in spans),
        "overlap": max(sum(other[0] <= start < other[1] for other in spans) for start, _ in spans),
        "threads": len(NAPS.threads),
        "on_main_thread": threading.main_thread().ident in NAPS.threads,
        "stall": watch.longest,
    }


class _StallWatch:
    """The longest time for which the event loop did not come round, seen by a 5 ms ticker."""

    TICK = 0.005

    def __init__(self) -> None:
        self.longest = 0.0

    async def __aenter__(self) -> "_StallWatch":
        self._task = asyncio.create_task(self._tick())
        await asyncio.sleep(4 * self.TICK)
        self.longest = 0.0
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.sleep(4 * self.TICK)
        self._task.cancel()

    async def _tick(self) -> None:
        last = time.perf_counter()
        while True:
            await asyncio.sleep(self.TICK)
            now = time.perf_counter()
            self.longest = max(self.longest, now - last - self.TICK)
            last = now


async def disk(peer: Peer, k: int, tool: str = "blob", n: int = 2) -> Result:
    """Bytes that one durable run of `k` rounds leaves behind, everything in its folder counted.

    What an open database keeps in its log at that moment is no measure: it is brought into the file before each look.
    """
    if peer.data_dir is None:
        raise ValueError(f"{peer.name} writes nothing")
    await _run(peer, model_name(1, tool=tool), tool, 1)
    await peer.settle()
    before = _bytes_in(peer.data_dir)
    for _ in range(n):
        await _run(peer, model_name(k, tool=tool), tool, k)
    await peer.settle()
    return {"bytes": (_bytes_in(peer.data_dir) - before) / n}


def _bytes_in(folder: str) -> int:
    return sum(os.path.getsize(os.path.join(at, name)) for at, _, names in os.walk(folder) for name in names)


def _resident_kb() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize() // 1024


def _forget_peak() -> None:
    """Makes the kernel count the peak of resident memory afresh."""
    with open("/proc/self/clear_refs", "w") as clear_refs:
        clear_refs.write("5")


def _peak_kb() -> int:
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))


OPERATIONS: dict[str, Callable[..., Awaitable[Result]]] = {
    "single": single,
    "concurrent": concurrent,
    "stream": stream,
    "tools": tools,
    "disk": disk,
}
