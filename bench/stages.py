"""What is measured: cases, how often, by whom."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bench.registry import Entry

Order = dict[str, Any]


@dataclass(frozen=True)
class Stage:
    """A group of cases that are measured one after the other in every repetition."""

    name: str
    cases: dict[str, Order]
    quick: int
    """Repetitions when QUICK."""
    full: int
    fresh: bool = False
    """Whether each measurement gets a process of its own (peak memory), or resident workers are asked."""
    takes: Callable[[Entry], bool] = lambda entry: True

    def repetitions(self, quick: bool) -> int:
        return self.quick if quick else self.full


def _single(k: int, n: int) -> Order:
    return {"op": "single", "k": k, "n": n}


def _concurrent(runs: int, at_once: int, delay_ms: int) -> Order:
    return {"op": "concurrent", "runs": runs, "at_once": at_once, "k": 5, "delay_ms": delay_ms}


STAGES = [
    Stage("step", {"1": _single(1, 8), "10": _single(10, 3), "50": _single(50, 1)}, quick=6, full=25),
    Stage("long", {"200": _single(200, 1)}, quick=0, full=5),
    Stage(
        "stream",
        {"1": {"op": "stream", "chunks": 1, "n": 5}, "2000": {"op": "stream", "chunks": 2000}},
        quick=4,
        full=15,
    ),
    Stage("tools", {tool: {"op": "tools", "tool": tool} for tool in ("nap_async", "nap_sync")}, quick=2, full=7),
    Stage("disk", {"50": {"op": "disk", "k": 50}}, quick=1, full=3, takes=lambda entry: entry.durable),
    Stage("concurrency", {"200": _concurrent(200, 50, 50)}, quick=2, full=7, fresh=True),
    Stage("crowd", {"1000": _concurrent(1000, 1000, 500)}, quick=0, full=2, fresh=True),
]
IMPORT_REPETITIONS = {True: 2, False: 7}
