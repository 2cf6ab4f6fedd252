"""Plays the cases against one adapter: `python tests/cases/judge/run.py [--adapter FILE] [--ids A01 ...] [-v]`.

Prints pass, fail, manual or na for each case, totals, and a last line; exits 1 on a failure. Run it with the
interpreter of the environment in which the runtime under test is installed.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from judge.checks import evaluate  # the path above makes it importable
from judge.evidence import Case, Evidence, short  # see above
from judge.play import CASES, Child, Player, read_cases  # see above
from judge.server import Request, Server  # see above

MODES = "openai,anthropic,python,history"
ORDER = ("pass", "fail", "manual", "na")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--adapter", type=Path, default=CASES.with_name("adapter.py"))
    parser.add_argument("--file", type=Path, default=CASES)
    parser.add_argument("--ids", nargs="*")
    parser.add_argument("--modes", default=MODES)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--timeout", type=float, default=30)
    parser.add_argument("-v", dest="verbose", action="store_true")
    return parser.parse_args()


def _row(case: Case, seen: Evidence, seconds: float) -> dict[str, Any]:
    status, reason = evaluate(seen)
    return {
        "id": case["id"],
        "kind": case["kind"],
        "mode": case["input"]["mode"],
        "status": status,
        "reason": reason,
        **{key: seen.result.get(key) for key in ("outcome", "error", "final_text")},
        "requests": len(seen.requests),
        "executed": seen.log,
        "wire": [[i, violation] for i, request in enumerate(seen.requests) for violation in request.wire],
        "seconds": round(seconds, 2),
        "overrun": seen.overrun,
    }


def _show(title: str, requests: list[Request]) -> None:
    for i, request in enumerate(requests):
        print(f"   {title}[{i}] {short(request.raw.decode('utf-8', 'replace'), 2500)}\n      wire {request.wire}")


def _show_details(seen: Evidence) -> None:
    _show("request", seen.requests)
    _show("probe", seen.probe_requests)
    print("   result", short({key: value for key, value in seen.result.items() if key != "trace"}, 1500))
    print("   trace", seen.result.get("trace", "")[-1500:])


def _totals(rows: list[dict[str, Any]], by: str) -> None:
    print(f"\n{by:<45} " + " ".join(f"{status:>7}" for status in ORDER))
    for key in [*sorted({row[by] for row in rows}), "all"]:
        counts = Counter(row["status"] for row in rows if key in (row[by], "all"))
        print(f"{key:<45} " + " ".join(f"{counts[status]:>7}" for status in ORDER))


def main() -> int:
    """Returns the exit code."""
    options = _arguments()
    wanted = options.modes.split(",")
    cases = [case for case in read_cases(options.file) if case["input"]["mode"] in wanted]
    if options.ids is not None:
        cases = [case for case in cases if case["id"] in options.ids]
    server, child = Server(), Child(options.adapter)
    player, rows = Player(server, child, options.timeout), list[dict[str, Any]]()
    for case in cases:
        began = time.monotonic()
        seen = player.play(case)
        row = _row(case, seen, time.monotonic() - began)
        rows.append(row)
        reason = short(row["reason"], 230).replace("\n", " ")
        print(f"{row['status']:<6} {row['id']} {row['mode']:<9} {reason}", flush=True)
        if options.verbose:
            _show_details(seen)
    child.close()
    server.close()
    _totals(rows, "kind")
    _totals(rows, "mode")
    if options.json:
        result = {"adapter": str(options.adapter), "cases": rows}
        options.json.write_text(json.dumps(result, indent=1, ensure_ascii=False), "utf-8")
    counts = Counter(row["status"] for row in rows)
    print("\n{} passed, {} failed, {} manual, {} not applicable".format(*(counts[status] for status in ORDER)))
    return 1 if counts["fail"] else 0


if __name__ == "__main__":
    sys.exit(main())
