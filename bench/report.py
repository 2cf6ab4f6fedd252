"""Writes `results.json`, and from it the tables of `RESULTS.md`."""

import json
from collections.abc import Sequence
from typing import Any

from bench.environments import BENCH
from bench.results import Figures, collect

NAMES = {
    "glassloop": "**Glassloop, memory journal**",
    "glassloop_sqlite": "**Glassloop, SQLite journal**",
    "raw_aiohttp": "raw aiohttp",
    "raw_openai": "raw openai SDK",
    "pydantic_ai": "pydantic-ai",
    "openai_agents": "openai-agents",
}
Column = tuple[str, str, int]
"""Heading, key in the figures, decimals."""


def write() -> None:
    """Both files, from the raw rows."""
    figures = collect()
    (BENCH / "results.json").write_text(json.dumps(figures, indent=2) + "\n")
    (BENCH / "RESULTS.md").write_text(render(figures))
    print("bench/RESULTS.md and bench/results.json written")


def render(figures: Figures) -> str:
    """The report in Markdown; what was not measured is left out."""
    parts = [
        _head(figures["about"]),
        _steps(figures),
        _section(figures, "stream", *STREAM),
        _section(figures, "concurrency", *CONCURRENCY),
        _section(figures, "crowd", CROWD, "", CONCURRENCY[2]),
        _section(figures, "tools", *TOOLS),
        _disk(figures),
        _section(figures, "weight", *WEIGHT),
        _failures(figures),
    ]
    return "\n".join(part for part in parts if part)


STREAM: tuple[str, str, Sequence[Column]] = (
    "Streaming a final answer of 2,000 chunks",
    "CPU of one more chunk. First text: after the server's first chunk, for one chunk and in a burst.",
    [
        ("ratio", "ratio", 2),
        ("CPU µs per chunk", "cpu_us_per_chunk", 0),
        ("first text, ms", "first_text_ms", 2),
        ("first text of a burst, ms", "first_text_of_burst_ms", 2),
    ],
)
CONCURRENCY: tuple[str, str, Sequence[Column]] = (
    "200 runs of K=5, 50 at a time, model delay 50 ms (ideal 1.2 s)",
    "A fresh process for each measurement; memory is the peak over the idle process, per concurrent run.",
    [
        ("runs/s ÷ raw SDK", "runs_per_s_ratio", 2),
        ("CPU ÷ raw SDK", "cpu_ratio", 2),
        ("runs/s", "runs_per_s", 1),
        ("CPU ms per run", "cpu_ms_per_run", 1),
        ("p99 s", "p99_s", 2),
        ("KB per concurrent run", "kb_per_concurrent_run", 0),
        ("errors", "errors", 0),
    ],
)
CROWD = "1,000 runs of K=5, all at once, model delay 500 ms (ideal 3 s)"
TOOLS: tuple[str, str, Sequence[Column]] = (
    "Eight parallel 0.1 s tools (ideal 0.10 s)",
    "From the first start to the last end. Stall: longest standstill of the loop while blocking tools ran.",
    [
        ("async, s", "async_s", 3),
        ("blocking, s", "sync_s", 3),
        ("least", "sync_fastest_s", 3),
        ("stall, ms", "loop_stall_ms", 1),
        ("least", "loop_stall_least_ms", 1),
    ],
)
WEIGHT: tuple[str, str, Sequence[Column]] = (
    "Weight",
    "What the virtual environment holds; what the imports at the top of a program cost in a fresh process.",
    [
        ("import CPU ÷ raw SDK", "import_ratio", 2),
        ("÷ pydantic-ai", "import_ratio_to_pydantic_ai", 2),
        ("import CPU s", "import_cpu_s", 2),
        ("modules", "modules", 0),
        ("resident MB", "resident_mb", 0),
        ("packages", "packages", 0),
        ("disk MB", "mb", 0),
    ],
)


def _head(about: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    repetitions = ", ".join(f"{stage} {count}" for stage, count in about["repetitions"].items())
    return (
        "# Results\n\n"
        "Written by `python -m bench`; method in [README.md](README.md). **Read the ratios, not the absolute"
        " times**: they are formed against the raw openai SDK loop within each repetition, then the median is"
        " taken.\n\n"
        f"{about['date']}, Python {about['python']}, {about['cores']} cores, median load {about['load']}."
        f" {versions}. Repetitions: {repetitions}.\n"
    )


def _steps(figures: Figures) -> str:
    """Ratio, median and fastest milliseconds side by side for each K."""
    milliseconds = figures.get("cpu_ms_per_step", {})
    if not milliseconds:
        return ""
    rounds = sorted({k for values in milliseconds.values() for k in values}, key=int)
    head = ["", *(f"ratio K={k}" for k in rounds), *(f"K={k} ms (fastest)" for k in rounds)]
    ratios, fastest = figures["cpu_ratio_per_step"], figures["cpu_ms_per_step_fastest"]
    body = [
        [
            NAMES[peer],
            *(_number(ratios[peer].get(k), 3) for k in rounds),
            *(f"{_number(values.get(k), 2)} ({_number(fastest[peer].get(k), 2)})" for k in rounds),
        ]
        for peer, values in milliseconds.items()
    ]
    text = f"## CPU of the client process per step, tiny tool\n\n{_table(head, body)}"
    journal = figures.get("journal_cpu_ms_per_step")
    if journal:
        added = ", ".join(f"{_number(value, 2)} at K={k}" for k, value in journal.items())
        text += f"\nWhat the SQLite journal adds to the memory journal, ms of CPU per step: {added}.\n"
    return text


def _section(figures: Figures, key: str, title: str, note: str, columns: Sequence[Column]) -> str:
    held = figures.get(key)
    if not held:
        return ""
    head = ["", *(heading for heading, _, _ in columns)]
    body = [
        [NAMES[peer], *(_number(values.get(name), digits) for _, name, digits in columns)]
        for peer, values in held.items()
    ]
    return f"## {title}\n\n{note}{2 * chr(10) if note else ''}{_table(head, body)}"


def _disk(figures: Figures) -> str:
    held = figures.get("disk_kb_per_run", {})
    lines = [f"{NAMES[peer]}: {_number(value, 0)} KB.\n" for peer, value in held.items()]
    title = "## Disk for one run of 50 rounds with 4 KiB results (200 KB of data)\n\n"
    return title + "".join(lines) if lines else ""


def _failures(figures: Figures) -> str:
    lines = [f"- {line}\n" for line in figures.get("errors", [])]
    return "## Failures\n\n" + "".join(lines) if lines else ""


def _number(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:,.{digits}f}"


def _table(head: list[str], body: list[list[str]]) -> str:
    rows = [head, ["---"] * len(head), *body]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)
