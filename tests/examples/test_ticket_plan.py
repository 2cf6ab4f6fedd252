"""A6, plan first: a plan is shown and reviewed, then carried out once, whenever the program is killed."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from glassloop.cli.target import Target
from glassloop.core.messages import UserMessage
from glassloop.core.result import Decision, PendingApproval, RunResult
from glassloop.models.openai_chat import OpenAIChat
from glassloop.testing import Answer, Conversation, ModelServer, Reaction

Load = Callable[[str], Target]
Start = Callable[..., Any]
COMPLAINT = "Customer complains that order 2024001 was never shipped"
PROMPT = "Carry it out? [y]es, [n]o, [e]dit the plan: "
CALL_PROMPT = "Run it? [y]es, [n]o, [e]dit the arguments: "
START = ("-m", "examples.ticket", "--plan", "--trace")


def rows(file: Path, table: str = "tickets") -> list[dict[str, Any]]:
    with closing(sqlite3.connect(file)) as connection, suppress(sqlite3.OperationalError):
        connection.row_factory = sqlite3.Row
        return [dict(row) for row in connection.execute(f"SELECT * FROM {table} ORDER BY id")]
    return []


# What its stand-in plans


class Plans:
    """The plan first, with the stand-in model: what was asked of the human, and what came of it."""

    def __init__(self, flow: Any, model: Any, store: str) -> None:
        self.flow, self.model, self.store = flow, model, store
        self.asked: list[PendingApproval] = []

    def __call__(self, task: str, how: Decision | bool = True) -> RunResult:
        def decide(pending: PendingApproval) -> Decision | bool:
            self.asked.append(pending)
            return how

        return self.flow.run_sync(task, model=self.model, store=self.store, user="ann", approve=decide)

    @property
    def steps(self) -> list[tuple[str, dict[str, Any]]]:
        """The actions and arguments of the plan that was asked about last."""
        plans = [one.arguments["plan"]["steps"] for one in self.asked if one.tool == "review_plan"]
        return [(step["action"], step["arguments"]) for step in plans[-1]]


@pytest.fixture
def plans(load: Load, file: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Plans]:
    monkeypatch.setenv("STORE", f"sqlite:///{file}")
    target = load("ticket")
    with target.stand_in.serve() as chosen:
        yield Plans(target.module.plan_first, chosen.model, f"sqlite:///{file}")


@pytest.mark.parametrize(
    ("complaint", "order", "query", "priority", "title", "told"),
    [
        (
            COMPLAINT,
            "2024001",
            "never shipped",
            "high",
            "Order 2024001: never shipped",
            "Policy P-01 (Late shipping) applies. Ticket TK-0001 is open with priority high.",
        ),
        (
            "客户说2024005没收到",
            "2024005",
            "没收到",
            "urgent",
            "订单2024005：没收到",
            "适用规定P-05（包裹未送达）。工单TK-0001已创建，优先级：紧急。",
        ),
        (
            "The lamp of 2024002\nStep 1, unpacking it, showed that it arrived broken",
            "2024002",
            "damaged or faulty",
            "normal",
            "Order 2024002: damaged or faulty",
            "Policy P-03",
        ),
    ],
)
def test_another_complaint_has_another_plan(
    plans: Plans, file: Path, complaint: str, order: str, query: str, priority: str, title: str, told: str
) -> None:
    result = plans(complaint)
    assert plans.steps[:2] == [("query_order_detail", {"order_id": order}), ("search_policy", {"query": query})]
    action, arguments = plans.steps[2]
    assert (action, arguments["priority"], arguments["title"]) == ("create_ticket", priority, title)
    assert [one.tool for one in plans.asked] == ["review_plan"], "its approval is that of the ticket"
    assert result.outcome == "completed"
    assert told in (result.output or "")
    assert [(row["order_id"], row["priority"]) for row in rows(file)] == [(order, priority)]


def test_an_amount_that_the_customer_names_stands_in_the_plan(plans: Plans, file: Path) -> None:
    plans("Refund 300 yuan for order 2024001")
    assert plans.steps[2] == (
        "submit_refund",
        {"order_id": "2024001", "amount": 300.0, "reason": "customer asks for a refund"},
    )
    assert [one.role for one in plans.asked] == [None]
    assert [row["amount_cny"] for row in rows(file, "refunds")] == [300]


def test_an_amount_that_the_order_tells_is_asked_about_once_it_is_known(plans: Plans, file: Path) -> None:
    result = plans("客户要求全额退款，订单2024005")
    assert plans.steps[2][1]["amount"] == "$1.amount_cny"
    assert [(one.tool, one.role) for one in plans.asked] == [("review_plan", None), ("submit_refund", "supervisor")]
    assert plans.asked[1].arguments["amount"] == 1680
    assert "退款RF-0001已提交，金额1680元" in (result.output or "")
    assert len(rows(file, "refunds")) == 1


def test_a_ticket_and_a_refund_are_two_steps(plans: Plans, file: Path) -> None:
    plans("订单A-1025未发货，请建工单并退款100元")
    assert [action for action, _ in plans.steps] == [
        "query_order_detail",
        "search_policy",
        "submit_refund",
        "create_ticket",
    ]
    assert (len(rows(file)), len(rows(file, "refunds"))) == (1, 1)


def test_a_step_that_fails_is_planned_anew_from_what_is_known(plans: Plans, file: Path) -> None:
    plans("Refund 200 yuan for order 2024002")
    result = plans("Refund order 2024002 please")
    assert plans.steps == [
        ("submit_refund", {"order_id": "2024002", "amount": 59.0, "reason": "customer asks for a refund"})
    ]
    assert "has 59 yuan left to refund, not 259" in (result.output or "")
    assert "Refund RF-0002 of 59 yuan is submitted." in (result.output or "")
    assert [row["amount_cny"] for row in rows(file, "refunds")] == [200, 59]


def test_an_order_that_does_not_exist_is_told_and_nothing_is_written(plans: Plans, file: Path) -> None:
    result = plans("Order 2099999 was never shipped")
    assert result.outcome == "completed"
    assert "There is no order '2099999'" in (result.output or "")
    assert rows(file) == []


@pytest.mark.parametrize(
    ("question", "told"),
    [
        ("It was never shipped!", "For which order?"),
        ("How long does a refund take?", "needs no plan"),
        ("What is with order 2024002?", "needs no plan"),
        ("你好", "这不需要计划"),
    ],
)
def test_what_needs_no_plan_is_answered_without(plans: Plans, question: str, told: str) -> None:
    result = plans(question)
    assert (result.outcome, plans.asked) == ("completed", [])
    assert told in (result.output or "")


def test_a_plan_that_was_wrong_is_made_anew(load: Load) -> None:
    brain: Any = load("ticket").stand_in.brain
    flow: Any = load("ticket").module.plan_first
    requests: list[Conversation] = []

    def clumsy(conversation: Conversation) -> Reaction:
        requests.append(conversation)
        if len(requests) > 1:
            return brain(conversation)
        steps = json.loads(brain(conversation))["steps"]
        steps[3]["arguments"]["priority"] = "soon"
        return conversation.answer(steps=steps)

    wish = "Order 2024001 was never shipped, open a ticket and refund 10 yuan"
    with ModelServer(clumsy) as server:
        model = OpenAIChat("m", base_url=server.url, api_key="k")
        result = flow.run_sync(wish, model=model, store="memory:")
    told = [message.text for message in requests[1].messages if isinstance(message, UserMessage)]
    assert "step 4: priority: should be" in told[-1]
    (held,) = result.pending
    assert [step["action"] for step in held.arguments["plan"]["steps"]] == [
        "query_order_detail",
        "search_policy",
        "submit_refund",
    ]


# At the terminal


def test_it_shows_the_plan_asks_carries_it_out_and_shows_the_row(terminal: Start, file: Path) -> None:
    desk = terminal(*START, COMPLAINT)
    shown = desk.expect(PROMPT)
    table = [line.split() for line in shown.splitlines() if re.match(r"[ !] +\d  ", line)]
    assert [(line[-1] if line[0] != "!" else "!", *line[:4]) for line in table] == [
        ("up.", "1", "query_order_detail", "low", "-"),
        ("applies.", "2", "search_policy", "low", "-"),
        ("!", "!", "3", "create_ticket", "high"),
    ]
    assert "create_ticket       high  1, 2   Open a ticket for the after-sales team." in shown
    assert '        title: "Order 2024001: never shipped"' in shown
    assert "1 step is of high risk (!)." in shown
    assert "The plan needs your yes" in shown
    assert "Table tickets: 0 rows." in shown
    assert (rows(file), "query_order_detail(" in shown) == ([], False), "nothing is done before the yes"
    desk.type("y\n")
    shown = desk.rest()
    assert desk.process.returncode == 0, shown
    assert re.findall(r"action +(\w+)\(", shown) == ["query_order_detail", "search_policy", "create_ticket"]
    assert "approved by ann" in shown
    assert "Ticket TK-0001 is open with priority high." in shown
    assert shown.index("Ticket TK-0001 is open") < shown.index("Table tickets:")
    (row,) = rows(file)
    for column in ("number", "order_id", "title", "priority", "status"):
        assert f"{row[column]}\n" in shown
    assert (row["order_id"], row["opened_by"]) == ("2024001", "ann")


def test_risks_are_coloured_on_a_terminal_that_has_colours(terminal: Start) -> None:
    shown = terminal(*START, TERM="xterm").expect("[e]dit the plan")
    assert "\x1b[32mlow " in shown
    assert "\x1b[1;31mhigh" in shown


def test_killed_at_the_review_it_asks_again_and_writes_one_row(terminal: Start, file: Path) -> None:
    for attempt in range(3):
        desk = terminal(*START)
        shown = desk.expect(PROMPT)
        assert ("Going on with run" in shown) == (attempt > 0)
        assert ("ticket-planner" in shown) == (attempt == 0), "the plan is made once"
        assert "create_ticket       high" in shown
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


@pytest.fixture
def slow(load: Load) -> Iterator[ModelServer]:
    """The stand-in model, which takes too long over the answer."""
    brain: Any = load("ticket").stand_in.brain

    def think(conversation: Conversation) -> Reaction:
        said = brain(conversation)
        return Answer(said, delay=60) if conversation.wanted is None else said

    with ModelServer(think) as model:
        yield model


@pytest.mark.parametrize("seen", ["y\n", "query_order_detail(", "create_ticket(", "observation create_ticket", None])
def test_killed_while_it_executes_it_goes_on_and_the_ticket_exists_once(
    terminal: Start, slow: ModelServer, file: Path, seen: str | None
) -> None:
    desk = terminal(*START, MODEL="openai:m", MODEL_ENDPOINT=slow.url, MODEL_API_KEY="k")
    desk.expect(PROMPT)
    desk.type("y\n")
    if seen is not None:
        desk.expect(seen)
    else:
        assert slow.wait_for_requests(2, 30), "it writes the answer"
    desk.kill()
    written = len(rows(file))
    assert written == 1 or seen is not None
    desk = terminal(*START)
    desk.type("y\n")  # read only where the first yes had not been recorded
    shown = desk.rest()
    assert desk.process.returncode == 0, shown
    assert "Going on with run" in shown
    assert shown.count("Ticket TK-0001 is open with priority high.") == 1
    assert "Table tickets:" in shown
    assert len(rows(file)) == 1


def test_a_no_is_told_with_its_reason_and_nothing_is_done(terminal: Start, file: Path) -> None:
    desk = terminal(*START, "客户投诉订单2024001一直没发货")
    assert 'description: "客户投诉订单2024001一直没发货"' in desk.expect(PROMPT)
    desk.type("n\n")
    desk.expect("Why not")
    desk.type("仓库已处理\n")
    shown = desk.rest()
    assert desk.process.returncode == 130
    assert "Cancelled: The plan was denied by ann: 仓库已处理." in shown
    assert "Table tickets:\n" not in shown
    assert rows(file) == []
    desk = terminal(*START)
    assert "Going on with run" not in desk.expect(PROMPT)


def test_an_edited_plan_is_checked_and_carried_out_as_edited(terminal: Start, file: Path) -> None:
    desk = terminal(*START)
    desk.expect(PROMPT)
    ticket: dict[str, Any] = {"order_id": "2024001", "title": "late", "description": "late"}
    for priority in ("soon", "urgent"):
        desk.type("e\n")
        assert '"action": "create_ticket"' in desk.expect('"done": []}'), "the plan is there to be edited"
        step = {"step": 1, "action": "create_ticket", "arguments": {**ticket, "priority": priority}}
        edited: dict[str, Any] = {"steps": [{**step, "description": "at once", "risk": "high", "depends_on": []}]}
        desk.type("\x15" + json.dumps(edited) + "\n")
        if priority == "soon":
            desk.expect("step 1: priority: should be 'low', 'normal', 'high' or 'urgent'")
            desk.expect(PROMPT)
    shown = desk.rest()
    assert desk.process.returncode == 0, shown
    assert [row["priority"] for row in rows(file)] == ["urgent"]
    assert "query_order_detail(" not in shown


def test_the_command_line_of_any_agent_reviews_its_plan(terminal: Start, file: Path) -> None:
    desk = terminal("-m", "glassloop", "run", "examples/ticket:plan_first", COMPLAINT)
    assert "!    3  create_ticket       high  1, 2" in desk.expect(PROMPT)
    desk.type("e\n")
    desk.expect('"done": []}')
    desk.type('\x15{"steps": []}\n')
    desk.expect("a plan without steps is none: deny it")
    desk.expect(PROMPT)
    desk.type("y\n")
    assert "Ticket TK-0001 is open" in desk.rest()
    assert len(rows(file)) == 1


@pytest.mark.parametrize(("key", "code"), [("\x04", 4), ("\x03", 130)])
def test_leaving_at_the_review_leaves_the_run_waiting(terminal: Start, file: Path, key: str, code: int) -> None:
    desk = terminal(*START)
    desk.expect(PROMPT)
    desk.type(key)
    assert "The run waits; start this again to decide." in desk.rest()
    assert desk.process.returncode == code
    assert "Going on with run" in terminal(*START).expect(PROMPT)
    assert rows(file) == []


def test_without_a_terminal_it_shows_the_plan_and_says_how_to_go_on(example: Start, file: Path) -> None:
    waiting = example(*START)
    assert waiting.code == 4
    assert "create_ticket       high  1, 2" in waiting.err
    command = re.search(r"glassloop (runs resume \S+ \S+ --approve \S+)", waiting.err)
    assert command is not None, waiting.err
    approved = example("-m", "glassloop", *command[1].split())
    assert approved.code == 0, approved.err
    assert "Ticket TK-0001 is open" in approved.answer
    assert len(rows(file)) == 1


def test_a_plan_and_the_same_complaint_without_one_are_two_runs(terminal: Start, file: Path) -> None:
    terminal(*START).expect(PROMPT)
    desk = terminal("-m", "examples.ticket")
    assert "Going on with run" not in desk.expect(CALL_PROMPT)
    desk.type("y\n")
    assert "TK-0001" in desk.rest()
    assert "Going on with run" in terminal(*START).expect(PROMPT)
    assert len(rows(file)) == 1


def test_a_plan_with_more_than_500_yuan_needs_a_supervisor(terminal: Start, file: Path) -> None:
    desk = terminal(*START, "Refund 800 yuan for order 2024001")
    assert "The plan needs your yes, needs the role supervisor" in desk.expect(PROMPT)
    desk.type("y\n")
    assert "start this again with --role supervisor" in desk.rest()
    assert desk.process.returncode == 4
    assert rows(file, "refunds") == []
    desk = terminal(*START, "--role", "supervisor")
    desk.expect(PROMPT)
    desk.type("y\n")
    shown = desk.rest()
    assert "Refund RF-0001 of 800 yuan is submitted." in shown
    assert "Table refunds:" in shown
    assert [row["amount_cny"] for row in rows(file, "refunds")] == [800]


# Over HTTP


@pytest.fixture
def server(served: Start) -> Any:
    """The ticket desk's server, with demonstration keys."""
    return served("examples/ticket:app", "--demo")


def handle(server: Any, task: str = COMPLAINT, **more: Any) -> dict[str, Any]:
    status, answer = server.post("/api/v1/ticket-agent/handle", {"task": task, "plan": True, **more})
    assert status == 200, answer
    return answer


def confirm(server: Any, action: str, body: object = None, key: str = "demo-alice") -> tuple[int, Any]:
    return server.post(f"/api/v1/agent/confirm/{action}", body, key)


def test_a_plan_is_a_pending_action_and_confirmed_as_one(server: Any, file: Path) -> None:
    answer = handle(server, sessionId="monday")
    assert (answer["success"], answer["outcome"], answer["answer"], answer["steps"]) == (True, "waiting", None, [])
    assert answer["tokens"] > 0
    (action,) = answer["pendingActions"]
    assert (action["toolName"], action["riskLevel"], action["role"]) == ("review_plan", "high", None)
    assert action["summary"] == "a plan of 3 steps: query_order_detail, search_policy, create_ticket (high risk)"
    assert [step["action"] for step in action["args"]["plan"]["steps"]][2] == "create_ticket"
    assert action["expiresAt"] is None
    assert confirm(server, action["actionId"], key="demo-bob")[0] == 404
    assert rows(file) == [], "nothing before the yes"

    status, done = confirm(server, action["actionId"])
    assert (status, done["ok"]) == (200, True)
    assert "Ticket TK-0001 is open" in done["message"]
    result = done["result"]
    assert (result["traceId"], result["outcome"], result["pendingActions"]) == (answer["traceId"], "completed", [])
    looked_up = {step["toolName"] for step in result["steps"][:2]}
    assert (looked_up, result["steps"][2]["toolName"]) == ({"query_order_detail", "search_policy"}, "create_ticket")
    assert result["steps"][2]["observation"]["ticket"] == "TK-0001"
    assert result["tokens"] > answer["tokens"]
    (row,) = rows(file)
    assert (row["number"], row["opened_by"]) == ("TK-0001", "alice")
    assert confirm(server, action["actionId"])[0] == 409
    told = handle(server, "What is its status?", sessionId="monday", plan=False)
    assert "Tickets: TK-0001" in told["answer"], "the session knows the complaint and its answer"
    assert len(rows(file)) == 1


def test_a_plan_with_more_than_500_yuan_is_a_supervisors_over_http(server: Any, file: Path) -> None:
    (action,) = handle(server, "Refund 800 yuan for order 2024001")["pendingActions"]
    assert action["role"] == "supervisor"
    assert confirm(server, action["actionId"])[0] == 403
    status, done = confirm(server, action["actionId"], key="demo-sam")
    assert (status, done["ok"]) == (200, True)
    assert [(row["amount_cny"], row["requested_by"]) for row in rows(file, "refunds")] == [(800, "alice")]


def test_an_action_that_the_plan_did_not_show_is_confirmed_after_it(server: Any, file: Path) -> None:
    (action,) = handle(server, "The customer of 2024002 wants a refund")["pendingActions"]
    status, done = confirm(server, action["actionId"])
    assert (status, done["ok"], done["message"]) == (200, True, "1 more to be confirmed.")
    (action,) = done["result"]["pendingActions"]
    assert (action["toolName"], action["args"]["amount"]) == ("submit_refund", 259)
    assert rows(file, "refunds") == []
    assert "RF-0001" in confirm(server, action["actionId"])[1]["message"]
    assert len(rows(file, "refunds")) == 1


def test_a_plan_is_edited_or_denied_over_http(server: Any, file: Path) -> None:
    (action,) = handle(server)["pendingActions"]
    plan = action["args"]["plan"]
    plan["steps"][2]["arguments"]["priority"] = "soon"
    status, problem = confirm(server, action["actionId"], {"decision": "edit", "args": {"plan": plan}})
    assert status == 422
    assert "step 3: priority: should be" in problem["detail"]
    refund = {"order_id": "2024001", "amount": 900, "reason": "x"}
    costly: dict[str, Any] = {
        "steps": [{**plan["steps"][2], "action": "submit_refund", "arguments": refund, "depends_on": []}]
    }
    assert confirm(server, action["actionId"], {"decision": "edit", "args": {"plan": costly}})[0] == 403
    plan["steps"][2]["arguments"]["priority"] = "low"
    assert confirm(server, action["actionId"], {"decision": "edit", "args": {"plan": plan}})[1]["ok"] is True
    assert [row["priority"] for row in rows(file)] == ["low"]
    (action,) = handle(server)["pendingActions"]
    status, done = confirm(server, action["actionId"], {"decision": "deny", "reason": "known already"})
    assert (status, done["ok"], done["message"]) == (200, True, "The plan was denied by alice: known already.")
    assert len(rows(file)) == 1


def test_killing_the_server_between_the_plan_and_its_confirmation_loses_nothing(served: Start, file: Path) -> None:
    first = served("examples/ticket:app", "--demo")
    (action,) = handle(first)["pendingActions"]
    first.kill()
    second = served("examples/ticket:app", "--demo")
    assert confirm(second, action["actionId"])[1]["ok"] is True
    assert len(rows(file)) == 1
