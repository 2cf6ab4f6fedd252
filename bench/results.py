"""Raw rows -> the figures of `results.json`: medians, and ratios formed within a repetition."""

import json
import os
import platform
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from bench.registry import ENTRIES, REFERENCE
from bench.session import RAW
from bench.stages import STAGES

Row = dict[str, Any]
Figures = dict[str, Any]
SHOWN_VERSIONS = ("glassloop", "aiohttp", "openai", "pydantic-ai-slim", "openai-agents")


def read(stage: str) -> list[Row]:
    """The rows of one stage, failed ones included."""
    path = RAW / f"{stage}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def median(values: Iterable[float]) -> float | None:
    """The median, or None of nothing."""
    held = list(values)
    return statistics.median(held) if held else None


def rounded(value: float | None, scale: float = 1.0) -> float | None:
    """Four significant digits: enough to read, few enough for a quiet diff."""
    return None if value is None else float(f"{value * scale:.4g}")


class Samples:
    """One measured value by peer, case and repetition."""

    def __init__(self, rows: list[Row], value: str) -> None:
        self._held: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
        for row in rows:
            if row.get(value) is not None and "error" not in row:
                self._held[row["peer"], row["case"]][row.get("rep", "")] = row[value]

    def of(self, peer: str, case: str) -> dict[str, float]:
        """Repetition -> value."""
        return self._held.get((peer, case), {})

    def peers(self, case: str) -> list[str]:
        """Who has values, in the order of the registry."""
        return [peer for peer in ENTRIES if self.of(peer, case)]

    def median(self, peer: str, case: str, scale: float = 1.0) -> float | None:
        return rounded(median(self.of(peer, case).values()), scale)

    def fastest(self, peer: str, case: str, scale: float = 1.0) -> float | None:
        return rounded(min(self.of(peer, case).values(), default=None), scale)

    def ratio(self, peer: str, case: str, reference: str = REFERENCE) -> float | None:
        """Median over the repetitions of peer / reference in the same repetition."""
        return rounded(median(_paired(self.of(peer, case), self.of(reference, case), lambda a, b: a / b)))

    def difference(self, peer: str, case: str, reference: str, scale: float) -> float | None:
        """Median over the repetitions of peer - reference in the same repetition."""
        differences = _paired(self.of(peer, case), self.of(reference, case), lambda a, b: a - b)
        return rounded(median(differences), scale)


def _paired(left: dict[str, float], right: dict[str, float], combine: Callable[[float, float], float]) -> list[float]:
    return [combine(left[rep], right[rep]) for rep in left if rep in right]


def collect() -> Figures:
    """Everything that has been measured, as `results.json` holds it."""
    cpu = Samples(read("step") + read("long"), "cpu")
    rounds = ["1", "10", "50", "200"]
    milliseconds = {k: 1e3 / (int(k) + 1) for k in rounds}
    figures: Figures = {
        "about": _about(),
        "cpu_ms_per_step": _by_case(cpu, rounds, lambda peer, k: cpu.median(peer, k, milliseconds[k])),
        "cpu_ms_per_step_fastest": _by_case(cpu, rounds, lambda peer, k: cpu.fastest(peer, k, milliseconds[k])),
        "cpu_ratio_per_step": _by_case(cpu, rounds, cpu.ratio),
        "journal_cpu_ms_per_step": {
            k: cpu.difference("glassloop_sqlite", k, "glassloop", milliseconds[k])
            for k in rounds
            if cpu.of("glassloop_sqlite", k)
        },
        "stream": _stream(read("stream")),
        "concurrency": _concurrency(read("concurrency"), "200"),
        "crowd": _concurrency(read("crowd"), "1000"),
        "tools": _tools(read("tools")),
        "disk_kb_per_run": _disk(read("disk")),
        "weight": _weight(read("import")),
        "errors": _errors(),
    }
    return {name: value for name, value in figures.items() if value}


def _by_case(
    samples: Samples, cases: list[str], figure: Callable[[str, str], float | None]
) -> dict[str, dict[str, float | None]]:
    found = {peer: {case: figure(peer, case) for case in cases if samples.of(peer, case)} for peer in ENTRIES}
    return {peer: values for peer, values in found.items() if values}


def _stream(rows: list[Row]) -> Figures:
    """Cost of one more chunk: the run of 2,000 chunks less the run of one in the same repetition."""
    cpu, first = Samples(rows, "cpu"), Samples(rows, "first_text")

    def per_chunk(peer: str) -> dict[str, float]:
        long, short = cpu.of(peer, "2000"), cpu.of(peer, "1")
        return {rep: (long[rep] - short[rep]) / 1999 for rep in long if rep in short}

    reference = per_chunk(REFERENCE)
    return {
        peer: {
            "cpu_us_per_chunk": rounded(median(per_chunk(peer).values()), 1e6),
            "ratio": rounded(median(_paired(per_chunk(peer), reference, lambda a, b: a / b))),
            "first_text_ms": first.median(peer, "1", 1e3),
            "first_text_of_burst_ms": first.median(peer, "2000", 1e3),
        }
        for peer in cpu.peers("2000")
    }


def _concurrency(rows: list[Row], case: str) -> Figures:
    names = ("runs_per_s", "cpu_per_run", "p50", "p99", "kb_per_run", "errors")
    held = {name: Samples(rows, name) for name in names}
    return {
        peer: {
            "runs_per_s": held["runs_per_s"].median(peer, case),
            "runs_per_s_ratio": held["runs_per_s"].ratio(peer, case),
            "cpu_ms_per_run": held["cpu_per_run"].median(peer, case, 1e3),
            "cpu_ratio": held["cpu_per_run"].ratio(peer, case),
            "p50_s": held["p50"].median(peer, case),
            "p99_s": held["p99"].median(peer, case),
            "kb_per_concurrent_run": held["kb_per_run"].median(peer, case),
            "errors": max(held["errors"].of(peer, case).values()),
        }
        for peer in held["errors"].peers(case)
    }


def _tools(rows: list[Row]) -> Figures:
    span, stall = Samples(rows, "span"), Samples(rows, "stall")
    return {
        peer: {
            "async_s": span.median(peer, "nap_async"),
            "sync_s": span.median(peer, "nap_sync"),
            "sync_fastest_s": span.fastest(peer, "nap_sync"),
            "loop_stall_ms": stall.median(peer, "nap_sync", 1e3),
            "loop_stall_least_ms": stall.fastest(peer, "nap_sync", 1e3),
        }
        for peer in span.peers("nap_sync")
    }


def _disk(rows: list[Row]) -> Figures:
    held = Samples(rows, "bytes")
    return {peer: held.median(peer, "50", 1 / 1024) for peer in held.peers("50")}


def _weight(rows: list[Row]) -> Figures:
    cpu, modules = Samples(rows, "cpu"), Samples(rows, "modules")
    resident = Samples(rows, "resident_kb")
    held = {row["peer"]: row for row in rows if row["case"] == "weight"}
    return {
        peer: {
            "packages": len(held[peer]["packages"]),
            "mb": rounded(held[peer]["mb"]),
            "modules": modules.median(peer, "import"),
            "import_cpu_s": cpu.median(peer, "import"),
            "import_ratio": cpu.ratio(peer, "import"),
            "import_ratio_to_pydantic_ai": cpu.ratio(peer, "import", "pydantic_ai"),
            "resident_mb": resident.median(peer, "import", 1 / 1024),
        }
        for peer in cpu.peers("import")
        if peer in held
    }


def _about() -> Figures:
    """When, where and how often; which versions."""
    stages = {name: read(name) for name in [*(stage.name for stage in STAGES), "import"]}
    rows = [row for held in stages.values() for row in held]
    versions: dict[str, str] = {}
    for row in stages["import"]:
        versions |= row.get("packages", {})
    return {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "load": rounded(median(row["load"] for row in rows)),
        "repetitions": {name: _repetitions(held) for name, held in stages.items() if held},
        "versions": {name: versions[name] for name in SHOWN_VERSIONS if name in versions},
    }


def _repetitions(rows: list[Row]) -> int:
    return len({row["rep"] for row in rows if "rep" in row})


def _errors() -> list[str]:
    """Each failure once; a session without any has no such list."""
    found = {
        f"{row['peer']}, {stage.name} {row['case']}: {row.get('error') or row.get('first_error')}": None
        for stage in STAGES
        for row in read(stage.name)
        if row.get("error") or row.get("first_error")
    }
    return list(found)
