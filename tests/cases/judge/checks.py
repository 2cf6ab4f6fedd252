"""The verdict on a case: pass, fail, manual (a check cannot be seen or is free text) or na (no such feature)."""

from __future__ import annotations

import re
from typing import Any, Literal

from judge import check_run, check_tools, check_wire
from judge.check_wire import nth_request
from judge.evidence import CHECKS, Case, Evidence, Verdict, check

Status = Literal["pass", "fail", "manual", "na"]

_FAMILIES = (check_run, check_tools, check_wire)
"""Imported for the checks that they register."""


@check
def one_of(seen: Evidence, want: Any) -> Verdict:
    reasons: list[str] = []
    for alternative in want:
        status, reason = judge(seen, alternative)
        if status == "pass":
            return True, ""
        reasons.append(reason)
    return False, "no alternative holds: " + " | ".join(reasons)


@check
def default(seen: Evidence, want: Any) -> Verdict:
    status, reason = judge(seen, want)
    return status == "pass", reason


@check
def opt_in(seen: Evidence, want: Any) -> Verdict:
    return True, "opt-in variant not run"


def verdict(seen: Evidence, key: str, want: Any) -> Verdict:
    """What one check says."""
    if found := re.match(r"^request\[(\d+)\]\.(.+)$", key):
        return nth_request(seen, int(found[1]), found[2], want)
    interpreter = CHECKS.get(key.replace(".", "_"))
    return interpreter(seen, want) if interpreter else (None, f"check {key!r} not interpreted")


def judge(seen: Evidence, checks: dict[str, Any]) -> tuple[Status, str]:
    """Whether all `checks` hold, and why not."""
    failed: list[str] = []
    unseen: list[str] = []
    for key, want in checks.items():
        holds, why = verdict(seen, key, want)
        if holds is None:
            unseen.append(f"? {key}: {why}")
        elif not holds:
            failed.append(f"{key}: {why}")
    if failed:
        return "fail", "; ".join(failed)
    return ("manual", "; ".join(unseen)) if unseen else ("pass", "")


def free_form(case: Case) -> bool:
    """Whether a case can only be played by hand."""
    return bool(set(case["checks"]) & {"stored_equal", "top", "zzz"} or case["input"].get("raw_store_rows"))


def evaluate(seen: Evidence) -> tuple[Status, str]:
    """The verdict on a played case, and the reason."""
    case = seen.case
    if seen.result.get("outcome") == "na":
        return "na", seen.result.get("error") or ""
    if not case["checks"]:
        return "manual", "no checks"
    if free_form(case):
        return "manual", "free-form check: " + ", ".join(case["checks"])
    status, reason = judge(seen, case["checks"])
    if not seen.timed_out:
        return status, reason
    return "fail", "TIMEOUT; " + reason if status == "fail" else "timed out"
