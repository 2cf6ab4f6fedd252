"""A6: the ticket desk decides three times, and writes nothing before a human has said yes."""

from __future__ import annotations

import json
import re
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from glassloop.cli.target import Target
from glassloop.core.result import Decision, PendingApproval, RunResult
from glassloop.testing import ModelServer, call
from glassloop.testing import say as text

Load = Callable[[str], Target]
Talk = Callable[..., RunResult]
Example = Callable[..., Any]
Start = Callable[..., Any]
COMPLAINT = "Customer complains that order 2024001 was never shipped"


@pytest.fixture
def talk(load: Load, file: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Talk]:
    """Hand a complaint in; what needs a human is approved, or decided as `how` says."""
    store = f"sqlite:///{file}"
    monkeypatch.setenv("STORE", store)
    target = load("ticket")

    def ask(text: str, how: Decision | bool | None = True) -> RunResult:
        def decide(_: PendingApproval) -> Decision | bool | None:
            return how

        options: dict[str, Any] = {"approvals": "defer"} if how is None else {"approve": decide}
        return target.agent.run_sync(text, model=chosen.model, store=store, user="ann", **options)

    with target.stand_in.serve() as chosen:
        yield ask


def tools(result: RunResult) -> list[str]:
    return [done.tool for done in result.tool_executions]


def rows(file: Path, table: str = "tickets") -> list[dict[str, Any]]:
    with closing(sqlite3.connect(file)) as connection:
        connection.row_factory = sqlite3.Row
        return [dict(row) for row in connection.execute(f"SELECT * FROM {table} ORDER BY id")]


# What its stand-in decides

HANDLED = ["query_order_detail", "search_policy", "create_ticket"]
REFUNDED = ["query_order_detail", "search_policy", "submit_refund"]


@pytest.mark.parametrize(
    ("complaint", "order", "priority", "told"),
    [
        (
            COMPLAINT,
            "2024001",
            "high",
            "Policy P-01 (Late shipping) applies. Ticket TK-0001 is open with priority high.",
        ),
        (
            "客户投诉订单2024001一直没发货",
            "2024001",
            "high",
            "适用规定P-01（发货时效）。工单TK-0001已创建，优先级：高。",
        ),
        ("Order 2024005 never arrived", "2024005", "urgent", "shipped on 2024-03-12 with JD Logistics"),
        ("客户说2024005没收到", "2024005", "urgent", "适用规定P-05（包裹未送达）"),
        ("The lamp of 2024002 arrived broken", "2024002", "normal", "Policy P-03 (Damaged or faulty goods)"),
        ("2024003发错货了", "2024003", "normal", "适用规定P-04"),
        ("Customer complains about order A-1017", "A-1017", "normal", "Ticket TK-0001 is open"),
    ],
)
def test_order_then_policy_then_ticket(
    talk: Talk, file: Path, complaint: str, order: str, priority: str, told: str
) -> None:
    result = talk(complaint)
    assert (result.outcome, result.steps, tools(result)) == ("completed", 4, HANDLED)
    assert told in (result.output or "")
    (row,) = rows(file)
    assert (row["number"], row["order_id"], row["priority"], row["status"]) == ("TK-0001", order, priority, "open")
    assert row["opened_by"] == "ann"
    assert complaint in row["description"]


@pytest.mark.parametrize(
    ("wish", "amount", "reason"),
    [
        ("Refund 300 yuan for order 2024001", 300, "customer asks for a refund"),
        ("Order 2024003 arrived broken, the customer wants 800 yuan back", 800, "damaged or faulty"),
        ("2024002台灯坏了，要求退款200元", 200, "商品损坏"),
        ("客户要求全额退款，订单2024005", 1680, "客户要求退款"),
        (
            "Customer complains that order 2024001 was never shipped and wants a refund of ¥1,000.50",
            1000.5,
            "never shipped",
        ),
    ],
)
def test_who_wants_money_back_gets_a_refund(talk: Talk, file: Path, wish: str, amount: float, reason: str) -> None:
    result = talk(wish)
    assert tools(result) == REFUNDED
    (row,) = rows(file, "refunds")
    assert (row["number"], row["amount_cny"], row["reason"], row["status"]) == ("RF-0001", amount, reason, "submitted")
    assert "RF-0001" in (result.output or "")
    assert rows(file) == []


def test_a_ticket_and_a_refund_are_asked_for_in_one_step(talk: Talk, file: Path) -> None:
    result = talk("订单A-1025未发货，请建工单并退款")
    assert tools(result) == ["query_order_detail", "search_policy", "submit_refund", "create_ticket"]
    assert (len(rows(file)), len(rows(file, "refunds"))) == (1, 1)


@pytest.mark.parametrize(
    ("question", "called", "told"),
    [
        ("What is with order 2024002?", ["query_order_detail"], "(Desk lamp, 259 yuan): delivered on 2024-03-06"),
        ("How long does a refund take?", ["search_policy"], "within 3 working days"),
        ("退款多久到账？", ["search_policy"], "3个工作日内"),
        ("What is the policy on pets?", ["search_policy"], "no policy on that"),
        ("Order 2099999 was never shipped", ["query_order_detail"], "There is no order '2099999'"),
        ("It was never shipped!", [], "For which order?"),
        ("hello", [], "Tell me the order number"),
        ("你好", [], "请告诉我订单号"),
    ],
)
def test_another_question_makes_other_calls(
    talk: Talk, file: Path, question: str, called: list[str], told: str
) -> None:
    result = talk(question)
    assert (result.outcome, tools(result)) == ("completed", called)
    assert told in (result.output or "")


def test_a_denial_is_told_with_its_reason_and_leaves_nothing(talk: Talk, file: Path) -> None:
    result = talk(COMPLAINT, Decision("deny", reason="the warehouse has it already"))
    assert result.outcome == "completed"
    assert "The ticket was not made. Denied: " in (result.output or "")
    assert "the warehouse has it already" in (result.output or "")
    assert rows(file) == []


def test_a_held_action_is_told_with_its_confirmation_id(talk: Talk, file: Path) -> None:
    result = talk(COMPLAINT, None)
    (pending,) = result.pending
    assert result.output is not None
    assert f"The ticket waits for confirmation {pending.approval_id}; until then nothing is done." in result.output
    assert rows(file) == []


def test_more_than_is_left_is_not_refunded(talk: Talk, file: Path) -> None:
    talk("Refund 200 yuan for order 2024002")
    result = talk("Refund 100 yuan for order 2024002")
    assert "has 59 yuan left to refund, not 100" in (result.output or "")
    assert tools(talk("Refund order 2024002 please")) == REFUNDED
    assert [row["amount_cny"] for row in rows(file, "refunds")] == [200, 59]
    assert (talk("Refund order 2024002 please").output or "").startswith("That order has been refunded in full")


# At the terminal

PROMPT = "Run it? [y]es, [n]o, [e]dit the arguments: "
START = ("-m", "examples.ticket", "--trace")


def test_it_handles_the_complaint_asks_and_shows_the_row(terminal: Start, file: Path) -> None:
    desk = terminal(*START)
    shown = desk.expect(PROMPT)
    kinds = ["thinking", "thought", "action", "observation"] * 3
    lines = [line.split()[2] for line in shown.splitlines() if line.startswith("step ")]
    assert lines == [*kinds[:-1], "approval"]
    assert re.findall(r"action +(\w+)\(", shown) == HANDLED
    assert "create_ticket needs your yes (risk high)" in shown
    assert "Table tickets: 0 rows." in shown
    assert rows(file) == []
    desk.type("y\n")
    shown = desk.rest()
    assert desk.process.returncode == 0, shown
    assert "Ticket TK-0001 is open with priority high." in shown
    assert shown.index("Ticket TK-0001 is open") < shown.index("Table tickets:")
    (row,) = rows(file)
    for column in ("number", "order_id", "title", "priority", "status"):
        assert f"{row[column]}\n" in shown
    assert (row["order_id"], row["opened_by"]) == ("2024001", "ann")


def test_killed_at_the_prompt_it_asks_again_and_writes_one_row(terminal: Start, file: Path) -> None:
    for attempt in range(3):
        desk = terminal(*START)
        shown = desk.expect(PROMPT)
        assert ("Going on with run" in shown) == (attempt > 0)
        assert ("query_order_detail(" in shown) == (attempt == 0), "what was looked up is not looked up again"
        assert rows(file) == []
        desk.kill()
    desk = terminal(*START)
    desk.expect(PROMPT)
    desk.type("y\n")
    assert "TK-0001" in desk.rest()
    assert desk.process.returncode == 0
    assert len(rows(file)) == 1
    desk = terminal(*START)
    assert "Going on with run" not in desk.expect(PROMPT), "the next one is another complaint"


def test_killed_after_the_yes_it_has_one_row_at_the_end(terminal: Start, example: Example, file: Path) -> None:
    desk = terminal(*START)
    desk.expect(PROMPT)
    desk.type("y\n")
    desk.expect("y\n")
    desk.kill()
    (run,) = json.loads(example("-m", "glassloop", "runs", "list", "--json").out)
    if run["status"] != "completed":
        desk = terminal(*START)
        desk.type("y\n")  # read only where the first yes had not been recorded
        shown = desk.rest()
        assert desk.process.returncode == 0, shown
    assert len(rows(file)) == 1


def test_a_no_is_told_to_the_model_with_its_reason(terminal: Start, file: Path) -> None:
    desk = terminal(*START, "客户投诉订单2024001一直没发货")
    desk.expect(PROMPT)
    desk.type("n\n")
    desk.expect("Why not")
    desk.type("仓库已处理\n")
    shown = desk.rest()
    assert desk.process.returncode == 0
    assert "工单没有执行" in shown
    assert "仓库已处理" in shown
    assert "Table tickets" not in shown
    assert rows(file) == []


def test_edited_arguments_are_validated_and_run(terminal: Start, file: Path) -> None:
    desk = terminal(*START)
    desk.expect(PROMPT)
    for priority in ("soon", "urgent"):
        desk.type("e\n")
        desk.expect("Arguments as JSON: ")
        given = {"order_id": "2024001", "title": "late", "description": "late", "priority": priority}
        desk.type("\x15" + json.dumps(given) + "\n")
        if priority == "soon":
            desk.expect("priority: should be 'low', 'normal', 'high' or 'urgent'")
            desk.expect(PROMPT)
    shown = desk.rest()
    assert desk.process.returncode == 0, shown
    assert [row["priority"] for row in rows(file)] == ["urgent"]


@pytest.mark.parametrize(("key", "code"), [("\x04", 4), ("\x03", 130)])
def test_leaving_at_the_prompt_leaves_the_run_waiting(terminal: Start, file: Path, key: str, code: int) -> None:
    desk = terminal(*START)
    desk.expect(PROMPT)
    desk.type(key)
    assert "The run waits; start this again to decide." in desk.rest()
    assert desk.process.returncode == code
    desk = terminal(*START)
    assert "Going on with run" in desk.expect(PROMPT)
    assert rows(file) == []


def test_hanging_up_at_the_prompt_is_no_answer(terminal: Start, file: Path) -> None:
    desk = terminal(*START)
    desk.expect(PROMPT)
    desk.hang_up()
    assert desk.process.wait(20) == 130
    shown = terminal(*START).expect(PROMPT)
    assert "Going on with run" in shown
    assert rows(file) == []


@pytest.mark.parametrize("seen", ["step 1  action", "step 2  observation", "step 3  thinking"])
def test_killed_while_it_works_it_goes_on_where_it_was(terminal: Start, file: Path, seen: str) -> None:
    desk = terminal(*START)
    shown = desk.expect(seen)
    desk.kill()
    desk = terminal(*START)
    shown += desk.expect(PROMPT)
    assert "Going on with run" in shown
    desk.type("y\n")
    shown += desk.rest()
    assert desk.process.returncode == 0, shown
    assert len(rows(file)) == 1


def test_ctrl_c_while_the_model_works_cancels_the_run(terminal: Start) -> None:
    with ModelServer(lambda _: text("thinking ", endless=True)) as model:
        desk = terminal(*START, MODEL="openai:m", MODEL_ENDPOINT=model.url, MODEL_API_KEY="k")
        desk.expect("step 1  thinking")
        assert model.wait_for_requests(1)
        desk.type("\x03")
        assert "Cancelled." in desk.rest()
        assert desk.process.returncode == 130
        (request,) = model.requests
        assert request.wait(10)
        assert request.disconnected_at is not None
    desk = terminal(*START)
    assert "Going on with run" not in desk.expect(PROMPT)


def test_with_a_provider_the_same_calls_are_held(example: Example, file: Path) -> None:
    held = call("create_ticket", order_id="2024001", title="late", description="late", priority="high")
    with ModelServer(script=[call("query_order_detail", order_id="2024001"), held], api_key="sk-right") as model:
        ended = example(*START, "?", OPENAI_API_KEY="sk-right", OPENAI_BASE_URL=model.url)
    assert (ended.code, model.violations) == (4, [])
    assert rows(file) == []


def test_a_store_that_is_no_file_is_told_in_one_sentence(example: Example) -> None:
    ended = example(*START, STORE="memory:")
    assert ended.code == 1
    assert "Error: The shop's tables stand in an SQLite file: set STORE=sqlite:///file.db" in ended.err
    assert "Traceback" not in ended.err


def test_without_a_terminal_it_says_what_waits_and_how_to_go_on(example: Example, file: Path) -> None:
    waiting = example(*START)
    assert waiting.code == 4
    assert "create_ticket" in waiting.err
    assert rows(file) == []
    again = example(*START)
    assert again.code == 4
    (run,) = {*re.findall(r"runs resume (run_\w+)", waiting.err + again.err)}
    command = re.search(r"glassloop (runs resume \S+ \S+ --approve \S+)", again.err)
    assert command is not None, again.err
    approved = example("-m", "glassloop", *command[1].split())
    assert approved.code == 0, approved.err
    assert "Ticket TK-0001 is open" in approved.answer
    assert len(rows(file)) == 1
    assert run in waiting.err


def test_another_complaint_is_another_run(terminal: Start, file: Path) -> None:
    terminal(*START).expect(PROMPT)
    desk = terminal(*START, "Order 2024005 never arrived")
    assert "Going on with run" not in desk.expect(PROMPT)
    desk.type("y\n")
    assert desk.rest().count("Table tickets:") == 1
    assert [row["order_id"] for row in rows(file)] == ["2024005"]


def test_more_than_500_yuan_needs_a_supervisor(terminal: Start, file: Path) -> None:
    wish = "Refund 800 yuan for order 2024001"
    desk = terminal(*START, wish)
    desk.expect(PROMPT)
    desk.type("y\n")
    assert "start this again with --role supervisor" in desk.rest()
    assert desk.process.returncode == 4
    assert rows(file, "refunds") == []
    desk = terminal(*START, "--role", "supervisor")
    desk.expect(PROMPT)
    desk.type("y\n")
    assert "Refund RF-0001 of 800 yuan is submitted." in desk.rest()
    assert [row["amount_cny"] for row in rows(file, "refunds")] == [800]


# Over HTTP


def handle(server: Any, task: str = COMPLAINT, key: str = "demo-alice", **more: str) -> dict[str, Any]:
    status, answer = server.post("/api/v1/ticket-agent/handle", {"task": task, **more}, key)
    assert status == 200, answer
    return answer


def confirm(server: Any, action: str, body: object = None, key: str = "demo-alice") -> tuple[int, Any]:
    return server.post(f"/api/v1/agent/confirm/{action}", body, key)


@pytest.fixture
def server(served: Start) -> Any:
    """The ticket desk's server, with demonstration keys."""
    return served("examples/ticket:app", "--demo")


def test_handle_then_confirm(server: Any, file: Path) -> None:
    answer = handle(server)
    assert answer["success"] is True
    assert answer["traceId"].startswith("run_")
    assert [(step["index"], step["toolName"]) for step in answer["steps"]] == [*enumerate(HANDLED, 1)]
    first, _, held = answer["steps"]
    assert first["args"] == {"order_id": "2024001"}
    assert first["observation"]["status"] == "paid"
    assert held["observation"].startswith("Held for approval")
    assert all(isinstance(step["costMs"], float) for step in answer["steps"])
    assert answer["tokens"] > 0
    assert answer["elapsedMs"] > 0
    assert answer["cost"] is None, "nobody knows the price of the stand-in"
    (action,) = answer["pendingActions"]
    assert action["toolName"] == "create_ticket"
    assert action["args"]["order_id"] == "2024001"
    assert action["riskLevel"] == "high"
    left = datetime.fromisoformat(action["expiresAt"]) - datetime.now(UTC)
    assert timedelta(minutes=14) < left <= timedelta(minutes=15)
    assert action["actionId"] in answer["answer"]
    assert rows(file) == [], "nothing before the yes"

    status, done = confirm(server, action["actionId"])
    assert (status, done["ok"]) == (200, True)
    assert done["result"] == {"ticket": "TK-0001", "order_id": "2024001", "priority": "high", "status": "open"}
    (row,) = rows(file)
    assert (row["number"], row["opened_by"]) == ("TK-0001", "alice")
    assert confirm(server, action["actionId"])[0] == 409
    assert len(rows(file)) == 1


def test_only_its_owner_confirms_an_action(server: Any, file: Path) -> None:
    (action,) = handle(server)["pendingActions"]
    assert confirm(server, action["actionId"], key="demo-bob")[0] == 404
    assert confirm(server, "appr_unknown")[0] == 404
    assert confirm(server, action["actionId"], key="demo-eve")[0] == 401
    assert rows(file) == []
    assert confirm(server, action["actionId"], {})[0] == 200


def test_more_than_500_yuan_is_a_supervisors_over_http(server: Any, file: Path) -> None:
    (action,) = handle(server, "Refund 800 yuan for order 2024001")["pendingActions"]
    assert (action["toolName"], action["role"]) == ("submit_refund", "supervisor")
    status, problem = confirm(server, action["actionId"])
    assert (status, problem["status"]) == (403, 403)
    assert "supervisor" in problem["detail"]
    assert confirm(server, action["actionId"], key="demo-bob")[0] == 404
    status, done = confirm(server, action["actionId"], key="demo-sam")
    assert (status, done["ok"], done["result"]["refund"]) == (200, True, "RF-0001")
    assert [(row["amount_cny"], row["requested_by"]) for row in rows(file, "refunds")] == [(800, "alice")]


def test_a_small_refund_is_its_owners(server: Any, file: Path) -> None:
    (action,) = handle(server, "Refund 500 yuan for order 2024001")["pendingActions"]
    assert confirm(server, action["actionId"], {"decision": "approve"})[0] == 200
    assert len(rows(file, "refunds")) == 1


def test_an_edit_over_500_yuan_is_a_supervisors_too(server: Any, file: Path) -> None:
    (action,) = handle(server, "Refund 100 yuan for order 2024001")["pendingActions"]
    edited = {"decision": "edit", "args": {"order_id": "2024001", "amount": 900, "reason": "x"}}
    assert confirm(server, action["actionId"], edited)[0] == 403
    assert rows(file, "refunds") == []


def test_a_denial_over_http(server: Any, file: Path) -> None:
    (action,) = handle(server)["pendingActions"]
    status, done = confirm(server, action["actionId"], {"decision": "deny", "reason": "known already"})
    assert (status, done["ok"], done["result"]) == (200, True, None)
    assert "known already" in done["message"]
    assert confirm(server, action["actionId"])[0] == 409
    assert rows(file) == []


NO_DECISIONS: tuple[dict[str, Any], ...] = (
    {"decision": "edit", "args": {"order_id": "2024001", "title": "x", "description": "y", "priority": "soon"}},
    {"decision": "edit", "args": {"priority": "low"}},
    {"decision": "edit"},
    {"decision": "approve", "args": {}},
    {"decision": "perhaps"},
    {"decison": "deny"},
)


def test_a_decision_that_is_none_changes_nothing(server: Any, file: Path) -> None:
    (action,) = handle(server)["pendingActions"]
    for body in NO_DECISIONS:
        status, problem = confirm(server, action["actionId"], body)
        assert (status, problem["status"]) == (422, 422)
        assert problem["detail"]
    assert rows(file) == []
    edited = {"order_id": "2024001", "title": "x", "description": "y", "priority": "low"}
    assert confirm(server, action["actionId"], {"decision": "edit", "args": edited})[0] == 200
    assert [row["priority"] for row in rows(file)] == ["low"]


def test_what_the_tool_refuses_is_told_and_nothing_is_written(server: Any, file: Path) -> None:
    (first,) = handle(server, "Refund 259 yuan for order 2024002")["pendingActions"]
    (second,) = handle(server, "Refund 259 yuan for order 2024002")["pendingActions"]
    assert confirm(server, first["actionId"])[1]["ok"] is True
    status, done = confirm(server, second["actionId"])
    assert (status, done["ok"], done["result"]) == (200, False, None)
    assert "has 0 yuan left to refund" in done["message"]
    assert len(rows(file, "refunds")) == 1


def test_killing_the_server_between_handle_and_confirm_loses_nothing(served: Start, file: Path) -> None:
    first = served("examples/ticket:app", "--demo")
    (action,) = handle(first, sessionId="monday")["pendingActions"]
    first.kill()
    second = served("examples/ticket:app", "--demo")
    assert confirm(second, action["actionId"], key="demo-bob")[0] == 404
    assert confirm(second, action["actionId"])[0] == 200
    assert len(rows(file)) == 1
    second.kill()
    third = served("examples/ticket:app", "--demo")
    assert confirm(third, action["actionId"])[0] == 409
    told = handle(third, "What is its status?", sessionId="monday")
    assert "Tickets: TK-0001" in told["answer"], "the session remembers which order it was about"
    assert len(rows(file)) == 1


def test_after_its_time_an_action_is_gone(served: Start, file: Path, tmp_path: Path) -> None:
    short = tmp_path / "short.py"
    short.write_text(
        "from examples.ticket import STAND_IN, agent, app\n"
        "from glassloop.middleware.approval import Approval\n"
        "agent.middleware = (Approval(mode='defer', expires=0.2),)\n",
        "utf-8",
    )
    server = served(f"{short}:app", "--demo", PYTHONPATH=".")
    (action,) = handle(server)["pendingActions"]
    until = datetime.fromisoformat(action["expiresAt"]).timestamp()
    while time.time() < until + 1:
        time.sleep(0.1)
    assert confirm(server, action["actionId"])[0] == 410
    assert rows(file) == []


def test_sessions_of_two_users_are_two(server: Any) -> None:
    handle(server, sessionId="monday")
    assert "For which order?" in handle(server, "It was never shipped!", "demo-bob", sessionId="monday")["answer"]


def test_a_model_that_fails_is_an_infrastructure_error(served: Start) -> None:
    with ModelServer(lambda _: "never", api_key="sk-right") as model:
        variables = {"MODEL": "openai:m", "MODEL_ENDPOINT": model.url, "MODEL_API_KEY": "sk-wrong"}
        server = served("examples/ticket:app", "--demo", **variables)
        status, answer = server.post("/api/v1/ticket-agent/handle", {"task": COMPLAINT})
    assert (status, answer["success"], answer["outcome"]) == (502, False, "failed")
    assert answer["message"]
    assert len(model.requests) == 1


def test_a_wrong_request_is_told_in_one_sentence(server: Any) -> None:
    for body in (None, {}, {"task": ""}, {"task": "x", "sessionId": "a/b"}, {"task": "x", "user": "bob"}):
        status, problem = server.post("/api/v1/ticket-agent/handle", body)
        assert (status, problem["code"]) == (422, "invalid")
        assert problem["detail"]


def test_the_server_says_loudly_that_it_is_a_demonstration(server: Any) -> None:
    assert any("DEMO" in line for line in server.said)
    assert server.url.startswith("http://127.0.0.1:")
