"""The judge itself: what it takes for a violation, and what it takes for a pass."""

from __future__ import annotations

from typing import Any

import pytest
from judge.checks import evaluate
from judge.evidence import Evidence, execution
from judge.server import Request
from judge.wire import strict_loads, wire_anthropic, wire_openai

Json = dict[str, Any]
USER: Json = {"role": "user", "content": "q"}
TOOLS: list[Json] = [{"type": "function", "function": {"name": "add"}}]


def call(id: Any, arguments: Any = "{}", name: str = "add") -> Json:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def result(id: Any, content: Any = "x") -> Json:
    return {"role": "tool", "tool_call_id": id, "content": content}


def assistant(*calls: Json, content: Any = None) -> Json:
    return {"role": "assistant", "content": content, "tool_calls": list(calls)}


def body(*messages: Json, **more: Any) -> Json:
    return {"messages": list(messages), **more}


@pytest.mark.parametrize(
    "request_body",
    [
        body(USER),
        body(USER, assistant(call("1"), call("2")), result("2"), result("1"), USER),
        body(
            *(USER, assistant(call("1")), result("1"), assistant(call("2")), result("2")),
            tools=TOOLS,
            tool_choice="auto",
        ),
        body(USER, {"role": "assistant", "content": "x"}, USER),
    ],
)
def test_a_sound_chat_request_has_no_violation(request_body: Json) -> None:
    assert wire_openai(request_body) == []


@pytest.mark.parametrize(
    ("rule", "request_body"),
    [
        ("(0)", body()),
        ("(1)", body(USER, result("1"))),
        ("(1)", body(USER, assistant(call("1")), result("1"), USER, result("1"))),
        ("(1)", body(USER, assistant(call("1")), USER, result("1"))),
        ("(1)", body(USER, assistant(call("1")), result("1"), result("9"))),
        ("(2)", body(USER, assistant(call("1")))),
        ("(2)", body(USER, assistant(call("1"), call("2")), result("1"), USER)),
        ("(2)", body(USER, assistant(call("1")), result("1"), result("1"))),
        ("(2)", body(USER, assistant(call("1")), USER, result("1"))),
        ("(3)", body(USER, assistant(call("")), result(""))),
        ("(3)", body(USER, assistant(call("1"), call("1")), result("1"), result("1"))),
        ("(3)", body(USER, assistant(call("1")), result("1"), assistant(call("1")), result("1"))),
        ("(3)", body(USER, assistant(call(None)), result(None))),
        ("(4)", body(USER, assistant(call("1", "{")), result("1"))),
        ("(4)", body(USER, assistant(call("1", "[]")), result("1"))),
        ("(4)", body(USER, assistant(call("1", {"a": 1})), result("1"))),
        ("(4)", body(USER, assistant(call("1", "")), result("1"))),
        ("(4)", body(USER, assistant(call("1", '{"a": NaN}')), result("1"))),
        ("(5)", body(USER, tools=[])),
        ("(5)", body(USER, {"role": "assistant", "content": "x", "tool_calls": []})),
        ("(5)", body(USER, tool_choice="auto")),
        ("(5)", body(USER, parallel_tool_calls=True)),
        ("(6)", body(USER, assistant(call("1")), result("1", None))),
        ("(6)", body(USER, {"role": "assistant", "content": None})),
        ("(6)", body(USER, {"role": "assistant", "content": ""})),
        ("(7)", body(USER, assistant(call("1", name="a.b")), result("1"))),
        ("(7)", body(USER, tools=[{"type": "function", "function": {"name": "x y"}}])),
        ("(7)", body(USER, assistant(call("1", name="")), result("1"))),
        ("(8)", []),
    ],
)
def test_each_rule_of_the_chat_format_is_noticed(rule: str, request_body: Any) -> None:
    assert [violation for violation in wire_openai(request_body) if violation.startswith(rule)]


@pytest.mark.parametrize("raw", [b'{"a": NaN}', b'{"a": Infinity}', b'{"a": "\xff"}', b"{"])
def test_loose_json_is_refused(raw: bytes) -> None:
    with pytest.raises(ValueError, match=r"strict JSON|decode|Expecting"):
        strict_loads(raw)


def use(id: str, input: Any = None) -> Json:
    return {"type": "tool_use", "id": id, "name": "add", "input": {} if input is None else input}


def answer(id: str) -> Json:
    return {"type": "tool_result", "tool_use_id": id, "content": "x"}


def text(words: str) -> Json:
    return {"type": "text", "text": words}


def user(*blocks: Json) -> Json:
    return {"role": "user", "content": list(blocks)}


def says(*blocks: Json) -> Json:
    return {"role": "assistant", "content": list(blocks)}


THOUGHT: Json = {"type": "thinking", "thinking": "7", "signature": "S"}


@pytest.mark.parametrize(
    ("request_body", "served"),
    [
        (body(user(text("q")), says(use("1"), use("2")), user(answer("1"), answer("2"), text("z"))), []),
        (body(user(text("q")), says(THOUGHT, use("1")), user(answer("1"))), [[THOUGHT, use("1")]]),
    ],
)
def test_a_sound_messages_request_has_no_violation(request_body: Json, served: list[Any]) -> None:
    assert wire_anthropic(request_body, served) == []


@pytest.mark.parametrize(
    "request_body",
    [
        body(says(text("q"))),
        body(user(text("q")), user(text("r"))),
        body(user(text("q")), says(use("1"), use("2")), user(answer("1"))),
        body(user(text("q")), says(use("1")), user(text("z"), answer("1"))),
        body(user(text("q")), says(use("a:b")), user(answer("a:b"))),
        body(user(text("q")), says(text(""))),
        body(user(text("q")), says()),
        body(user(text("q")), says(use("1", "x")), user(answer("1"))),
        body(user(text("q")), says(use("1"))),
        body(user(answer("1"))),
        body(user(text("q")), says(use("1")), user(answer("1")), says(use("1")), user(answer("1"))),
        body(user(text("q")), says({**THOUGHT, "signature": "X"}, use("1")), user(answer("1"))),
        body(user(text("q")), tools=[]),
        [],
    ],
)
def test_each_rule_of_the_messages_format_is_noticed(request_body: Any) -> None:
    assert wire_anthropic(request_body, [[THOUGHT, use("1")]])


def evidence(checks: Json, **result: Any) -> Evidence:
    request = Request(0.0, b"{}", body(USER, assistant(call("c1")), result_of("c1")), [])
    return Evidence({"id": "X", "checks": checks, "input": {}}, result, [request], log=[execution("add", {"a": None})])


def result_of(id: str) -> Json:
    return result(id, '{"sum": 5}')


VERDICTS: list[tuple[Json, str]] = [
    ({"executed": [["add", {}]]}, "pass"),
    ({"executed": [["add", {"a": 1}]]}, "fail"),
    ({"final_text": "done", "outcome": "completed"}, "pass"),
    ({"final_text": "other", "outcome": "completed"}, "fail"),
    ({"one_of": [{"final_text": "other"}, {"tool_results": 1}]}, "pass"),
    ({"one_of": [{"final_text": "other"}, {"tool_results": 2}]}, "fail"),
    ({"request[0].tool_result_contains": "sum"}, "pass"),
    ({"request[1].tool_result_contains": "sum"}, "fail"),
    ({"partial_text": "x"}, "manual"),
    ({"partial_text": "x", "final_text": "other"}, "fail"),
    ({"not_a_check": 1}, "manual"),
    ({}, "manual"),
]


@pytest.mark.parametrize(("checks", "status"), VERDICTS)
def test_verdicts(checks: Json, status: str) -> None:
    assert evaluate(evidence(checks, outcome="completed", final_text="done"))[0] == status


def test_what_a_runtime_does_not_have_is_not_a_failure() -> None:
    assert evaluate(evidence({"final_text": "done"}, outcome="na", error="no such feature")) == (
        "na",
        "no such feature",
    )


def test_a_run_that_does_not_end_is_a_failure() -> None:
    seen = evidence({"final_text": "done"}, outcome="timeout", final_text="done")
    seen.timed_out = True
    assert evaluate(seen) == ("fail", "timed out")
