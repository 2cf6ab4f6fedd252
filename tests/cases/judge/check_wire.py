"""Checks of what was sent to the model."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from judge.evidence import (
    Evidence,
    Verdict,
    as_json,
    at_path,
    check,
    last_assistant,
    last_calls,
    messages,
    short,
    text_of,
    tool_results,
)
from judge.server import Request
from judge.shape import mapping, mappings


def _violations(requests: list[Request]) -> Verdict:
    bad = [f"request[{i}] {violation}" for i, request in enumerate(requests) for violation in request.wire]
    return not bad, "wire: " + "; ".join(bad[:2])


@check
def wire(seen: Evidence, want: Any) -> Verdict:
    return _violations(seen.requests) if seen.requests else (False, "no request was sent" + seen.error)


@check
def history_wire(seen: Evidence, want: Any) -> Verdict:
    return _violations(seen.probe_requests) if seen.probe_requests else (False, "no history usable after the failure")


@check
def follow_up_works(seen: Evidence, want: Any) -> Verdict:
    if not seen.probe_requests:
        return seen.result.get("outcome") == "completed", "no follow-up possible after the failure"
    fine, why = _violations(seen.probe_requests)
    size = len(seen.probe_requests[-1].raw)
    if fine and size > 1_000_000:
        return False, f"follow-up request still has {size} bytes"
    return fine, why


@check
def every_assistant_message(seen: Evidence, want: Any) -> Verdict:
    bad = [
        i
        for i, request in enumerate(seen.requests)
        for message in messages(request)
        if message.get("role") == "assistant" and not message.get("tool_calls") and not text_of(message.get("content"))
    ]
    return not bad, f"request {bad} has an assistant message without content or calls"


def _user_texts(request: Request) -> list[str]:
    return [text_of(message.get("content")) for message in messages(request) if message.get("role") == "user"]


@check
def every_request_contains_user(seen: Evidence, want: Any) -> Verdict:
    bad = [i for i, request in enumerate(seen.requests) if not any(want in text for text in _user_texts(request))]
    return not bad, f"requests without the user message: {bad}"


@check
def request_contains_user(seen: Evidence, want: Any) -> Verdict:
    return bool(seen.requests) and want in _user_texts(seen.requests[-1]), f"user message {want!r} missing"


@check
def no_request_contains(seen: Evidence, want: Any) -> Verdict:
    texts = [request.raw.decode("utf-8", "replace") for request in seen.requests]
    bad = [(i, word) for i, text in enumerate(texts) for word in want if word in text]
    return not bad, f"leaked: {bad[:3]}"


@check
def request_not_contains(seen: Evidence, want: Any) -> Verdict:
    return no_request_contains(seen, want)


def _last_messages(seen: Evidence) -> str:
    return as_json(messages(seen.requests[-1])) if seen.requests else ""


@check
def contains_in_order(seen: Evidence, want: Any) -> Verdict:
    text, position = _last_messages(seen), -1
    for word in want:
        position = text.find(word, position + 1)
        if position < 0:
            return False, f"{word!r} missing or out of order"
    return True, ""


@check
def not_contains(seen: Evidence, want: Any) -> Verdict:
    bad = [word for word in want if word in _last_messages(seen)]
    return not bad, f"contains {bad}"


@check
def gaps_s_min(seen: Evidence, want: Any) -> Verdict:
    gaps = [after.t - before.t for before, after in zip(seen.requests, seen.requests[1:], strict=False)]
    long_enough = all(gap >= wanted - 0.03 for gap, wanted in zip(gaps, want, strict=False))
    return len(gaps) >= len(want) and long_enough, f"gaps {[round(gap, 2) for gap in gaps]}, wanted at least {want}"


@check
def server_disconnect_within_s(seen: Evidence, want: Any) -> Verdict:
    broke, closed = seen.result.get("break_t"), seen.disconnect_t
    if broke is None:
        return None, "adapter cannot break out of the stream"
    if closed is None:
        return False, "server never saw the connection close"
    if closed < broke:
        return False, "stream ended before the client left"
    return closed - broke <= want, f"server saw the close after {closed - broke:.1f} s"


@check
def strict(seen: Evidence, want: Any) -> Verdict:
    roles = [message.get("role") for message in messages(seen.requests[0])] if seen.requests else []
    return roles == want["roles"], f"roles {roles}"


@check
def for_all_limits(seen: Evidence, want: Any) -> Verdict:
    runs = seen.result.get("sub_runs")
    return runs == len(want), f"{runs} of {len(want)} windows ran{seen.error}"


@check
def for_all_keep(seen: Evidence, want: Any) -> Verdict:
    return for_all_limits(seen, want)


@check
def ids_match_target_pattern(seen: Evidence, want: Any) -> Verdict:
    sent = [message for request in seen.requests for message in messages(request)]
    bad = [call["id"] for message in sent for call in mappings(message.get("tool_calls")) if len(call["id"]) > 64]
    blocks = [block for message in sent for block in mappings(message.get("content"))]
    calls = [block["id"] for block in blocks if block.get("type") == "tool_use"]
    bad += [call for call in calls if not re.match(r"^[a-zA-Z0-9_-]+$", call)]
    return (False, f"ids {short(bad)}") if bad else (bool(seen.requests), "no request" + seen.error)


# request[n].<rest>


def nth_request(seen: Evidence, n: int, rest: str, want: Any) -> Verdict:
    """The check of a property of the n-th request."""
    if n >= len(seen.requests):
        sent = len(seen.requests)
        return False, f"no request[{n}] ({sent} requests, outcome {seen.result.get('outcome')}{seen.error})"
    request = seen.requests[n]
    if rest == "tool_result_for":
        return _result_for(seen, n, want)
    if rest in _OF_RESULTS:
        return _OF_RESULTS[rest]([text for _, text in tool_results(request)], want)
    if rest in _OF_REQUEST:
        return _OF_REQUEST[rest](request, want)
    if rest.startswith("assistant."):
        message = last_assistant(request, with_calls=True) or last_assistant(request)
        value = at_path(message, rest.removeprefix("assistant."))
        return value == want, f"{rest} is {short(value)}"
    if rest.startswith("tool_calls"):
        value = at_path({"tool_calls": last_calls(request)}, rest)
        return value == want, f"{rest} is {short(value)}"
    value = at_path(request.body, rest)
    return value == want, f"request[{n}].{rest} is {short(value)}, wanted {short(want)}"


def _result_for(seen: Evidence, n: int, want: Any) -> Verdict:
    """Results are found by the script's call id, or by the call's place where the runtime gave it an id of its own."""
    results = tool_results(seen.requests[n])
    texts, by_id = [text for _, text in results], dict(results)
    path = f"script.[{n - 1}].json.choices.[0].message.tool_calls"
    order = [call.get("id") for call in mappings(at_path(seen.case["input"], path))]
    for call, wanted in want.items():
        text = by_id.get(call)
        if text is None and call in order and len(texts) == len(order):
            text = texts[order.index(call)]
        if text is None:
            return False, f"no result for {call}"
        if wanted not in text:
            return False, f"result for {call} is {short(text)}, wanted {wanted!r}"
    return True, ""


def _joined(texts: list[str]) -> str:
    return "\n".join(texts)


def _strict_json(texts: list[str], want: Any) -> Verdict:
    def refuse(constant: str) -> Any:
        raise ValueError(constant)

    if not texts:
        return False, "no tool result"
    for text in texts:
        try:
            json.loads(text, parse_constant=refuse)
        except ValueError:
            return False, f"tool content {short(text)} is not strict JSON"
        if re.search(r"0x[0-9a-f]{8,}", text):
            return False, f"memory address in {short(text)}"
    return True, ""


def _lacks(texts: list[str], want: Any) -> Verdict:
    missing = [word for word in want if word not in _joined(texts)]
    return not missing, f"tool result {short(_joined(texts))} lacks {missing}"


def _echoes(texts: list[str], want: Any) -> Verdict:
    bad = [word for word in want if word in _joined(texts)]
    return not bad, f"tool result echoes {short(bad, 60)}"


def _longest(texts: list[str], want: Any) -> Verdict:
    size = max(map(len, texts), default=0)
    return size <= want, f"tool result has {size} characters"


def _any_matches(texts: list[str], want: Any) -> Verdict:
    matches = any(re.search(want, text) for text in texts)
    return matches, f"tool result {short(_joined(texts))} does not match {want}"


def _any_contains(texts: list[str], want: Any) -> Verdict:
    return any(want in text for text in texts), f"tool result {short(_joined(texts))} lacks {want!r}"


_OF_RESULTS: dict[str, Callable[[list[str], Any], Verdict]] = {
    "tool_messages": lambda texts, want: (len(texts) == want, f"{len(texts)} tool messages, wanted {want}"),
    "tool_result_matches": _any_matches,
    "tool_result_contains": _any_contains,
    "tool_result_contains_all": _lacks,
    "tool_result_chars_max": _longest,
    "not_in_tool_result": _echoes,
    "tool_content_nonempty": lambda texts, want: (
        bool(texts) and all(text.strip() for text in texts),
        f"tool contents {short(texts)}",
    ),
    "strict_json_in_tool_content": _strict_json,
}


def _called_names(request: Request) -> list[str]:
    return [call["function"]["name"] for call in last_calls(request)]


def _all_named(request: Request, want: Any) -> Verdict:
    names = _called_names(request)
    return bool(names) and all(name == want for name in names), f"replayed names {names}"


def _all_names_match(request: Request, want: Any) -> Verdict:
    names = _called_names(request)
    return all(re.search(want, name) for name in names), f"replayed names {names}"


def _assistant_says(request: Request, want: Any) -> Verdict:
    said = [text_of(m.get("content")) for m in messages(request) if m.get("role") == "assistant"]
    return any(want in text for text in said), f"{want!r} not in assistant content"


def _first_arguments(request: Request, want: Any) -> Verdict:
    try:
        arguments = json.loads(last_calls(request)[0]["function"]["arguments"])
    except (IndexError, ValueError, TypeError):
        arguments = None
    return arguments == want, f"replayed arguments {short(arguments)}"


def _blocks(request: Request) -> list[dict[str, Any]]:
    return mappings(mapping(last_assistant(request)).get("content"))


def _block_types(request: Request, want: Any) -> Verdict:
    types = [block.get("type") for block in _blocks(request)]
    return types == want, f"assistant blocks {types}"


def _signatures(request: Request, want: Any) -> Verdict:
    signatures = [block.get("signature") for block in _blocks(request) if block.get("type") == "thinking"]
    return signatures == [want], f"signatures {signatures}"


def _absent(request: Request, want: Any) -> Verdict:
    bad = [key for key in want if key in request.body]
    return not bad, f"keys present: {bad}"


def _has_key(request: Request, want: Any) -> Verdict:
    message = last_assistant(request, with_calls=True) or last_assistant(request)
    return message is not None and want in message, f"assistant message keys {sorted(message or [])}"


_OF_REQUEST: dict[str, Callable[[Request, Any], Verdict]] = {
    "assistant_tool_name": _all_named,
    "assistant_tool_name_matches": _all_names_match,
    "assistant_content_contains": _assistant_says,
    "assistant_arguments": _first_arguments,
    "assistant_blocks": _block_types,
    "signature": _signatures,
    "bytes_max": lambda request, want: (len(request.raw) <= want, f"request has {len(request.raw)} bytes"),
    "tools_contain": lambda request, want: (
        want in as_json(mapping(request.body).get("tools")),
        f"tools lack {want!r}",
    ),
    "absent_keys": _absent,
    "assistant.has_key": _has_key,
}
