"""Checks of what was executed, how the run ended and what it reports."""

from __future__ import annotations

from collections import Counter
from typing import Any

from judge.evidence import Evidence, Verdict, as_json, check, execution, messages, short, text_of
from judge.shape import mapping


def _wanted(want: Any) -> list[Any]:
    return [execution(*item) for item in want]


def _counts(seen: Evidence) -> Counter[str]:
    return Counter(item[0] for item in seen.log)


@check
def executed(seen: Evidence, want: Any) -> Verdict:
    return seen.log == _wanted(want), f"executed {short(seen.log)}, wanted {short(_wanted(want))}"


@check
def executed_any_order(seen: Evidence, want: Any) -> Verdict:
    wanted = sorted(_wanted(want), key=as_json)
    return sorted(seen.log, key=as_json) == wanted, f"executed {short(seen.log)}, wanted {short(wanted)} in any order"


@check
def executed_count(seen: Evidence, want: Any) -> Verdict:
    counts = _counts(seen)
    return all(counts[name] == n for name, n in want.items()), f"executed {dict(counts)}, wanted {want}"


@check
def executed_count_max(seen: Evidence, want: Any) -> Verdict:
    counts = _counts(seen)
    return all(counts[name] <= n for name, n in want.items()), f"executed {dict(counts)}, at most {want}"


@check
def turns_run(seen: Evidence, want: Any) -> Verdict:
    prompts = {seen.case["input"].get("prompt"), seen.case["input"].get("follow_up")}
    users = [m for request in seen.requests for m in messages(request) if m.get("role") == "user"]
    turns = len({text_of(message.get("content")) for message in users} & prompts)
    return turns >= want, f"only {turns} of {want} user turns reached the model"


@check
def not_executed(seen: Evidence, want: Any) -> Verdict:
    bad = [item for item in seen.log if item[0] in want]
    return not bad, f"executed {short(bad)}"


@check
def not_executed_args(seen: Evidence, want: Any) -> Verdict:
    name, arguments = want
    bad = [item for item in seen.log if item[0] == name and all(item[1].get(k) == v for k, v in arguments.items())]
    return not bad, f"executed {short(bad)}"


@check
def side_effects(seen: Evidence, want: Any) -> Verdict:
    have = {"OUTBOX": len(seen.outbox), "DELETED": len(seen.deleted), **_counts(seen)}
    return all(have.get(name, 0) == n for name, n in want.items()), f"side effects {have}, wanted {want}"


@check
def tool_errors(seen: Evidence, want: Any) -> Verdict:
    """Chat Completions has no error flag: an error is a result without a successful execution behind it."""
    succeeded, results = len(seen.log) - seen.raised, len(seen.tool_results())
    errors = results - succeeded
    said = f"{errors} error results ({results} results, {succeeded} successful executions), wanted {want}"
    return errors == want, said


@check
def tool_results(seen: Evidence, want: Any) -> Verdict:
    results = len(seen.tool_results())
    return results == want, f"{results} tool results, wanted {want}"


@check
def final_text(seen: Evidence, want: Any) -> Verdict:
    text = seen.result.get("final_text")
    return text == want, f"final text {short(text)} (outcome {seen.result.get('outcome')}{seen.error}), wanted {want!r}"


@check
def final_text_not(seen: Evidence, want: Any) -> Verdict:
    return seen.result.get("final_text") != want, f"final text is {want!r}"


@check
def text_contains(seen: Evidence, want: Any) -> Verdict:
    text = " ".join(str(seen.result.get(key) or "") for key in ("final_text", "refusal", "error"))
    return want.lower() in text.lower(), f"{want!r} not in {short(text)}"


@check
def outcome(seen: Evidence, want: Any) -> Verdict:
    have = seen.result.get("outcome")
    return have == want, f"outcome {have}{seen.error}, wanted {want}"


@check
def error_contains(seen: Evidence, want: Any) -> Verdict:
    return want in (seen.result.get("error") or ""), f"error {short(seen.result.get('error'))} lacks {want!r}"


@check
def partial_text(seen: Evidence, want: Any) -> Verdict:
    text = seen.result.get("partial_text")
    return None if text is None else text == want, f"partial text {text!r}, wanted {want!r}"


@check
def active_agent(seen: Evidence, want: Any) -> Verdict:
    return seen.result.get("active_agent") == want, f"active agent {seen.result.get('active_agent')!r}"


@check
def model_requests(seen: Evidence, want: Any) -> Verdict:
    return len(seen.requests) == want, f"{len(seen.requests)} model requests, wanted {want}{seen.error}"


@check
def model_requests_max(seen: Evidence, want: Any) -> Verdict:
    return len(seen.requests) <= want, f"{len(seen.requests)} model requests, at most {want} wanted"


@check
def flagged(seen: Evidence, want: Any) -> Verdict:
    have = bool(seen.result.get("flags")) or seen.result.get("outcome") not in ("completed", None)
    return have == want, f"not flagged: outcome {seen.result.get('outcome')}"


@check
def result_object_full(seen: Evidence, want: Any) -> Verdict:
    size = seen.result.get("tool_value_len")
    return None if size is None else (size >= 5_000_000) == want, f"full value in result object: {size}"


def _usage(usage: Any, want: Any) -> Verdict:
    if want is None:
        return usage is None or usage.get("input") is None, f"usage {usage}, wanted unknown"
    if usage is None:
        return False, "no usage"
    return all(usage.get(key) == n for key, n in want.items()), f"usage {usage}, wanted {want}"


@check
def usage(seen: Evidence, want: Any) -> Verdict:
    return _usage(seen.result.get("usage"), want)


@check
def usage_turn1(seen: Evidence, want: Any) -> Verdict:
    per_request = seen.result.get("usage_per_request")
    return _usage(per_request[0] if per_request else None, want)


@check
def usage_min(seen: Evidence, want: Any) -> Verdict:
    have = mapping(seen.result.get("usage"))
    return all((have.get(key) or 0) >= n for key, n in want.items()), f"usage {have}, wanted at least {want}"


@check
def requests(seen: Evidence, want: Any) -> Verdict:
    have = mapping(seen.result.get("usage")).get("requests")
    return have == want, f"usage.requests {have!r}"


@check
def events_not_contain(seen: Evidence, want: Any) -> Verdict:
    events = seen.result.get("events")
    if events is None:
        return True, "events not observed"
    return not any(word in as_json(events) for word in want), "events leak"


@check
def event_invariant(seen: Evidence, want: Any) -> Verdict:
    events = seen.result.get("events")
    if events is None:
        return None, "events not observed"
    started = Counter(event[1] for event in events if event[0] == "started")
    finished = Counter(event[1] for event in events if event[0] == "finished")
    ends = [i for i, event in enumerate(events) if event[0] == "terminal"]
    if started != finished:
        return False, f"started {dict(started)}, finished {dict(finished)}"
    return ends == [len(events) - 1] and bool(started), f"events {short(events)}"
