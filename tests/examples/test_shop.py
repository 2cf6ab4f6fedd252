"""The shop's tables, and what the tools of both desks do with them, without a model."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from glassloop import FatalToolError, Identity, RunContext, ToolError
from glassloop.cli.target import Target

Load = Callable[[str], Target]


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the tables stand."""
    file = tmp_path / "shop.db"
    monkeypatch.setenv("STORE", f"sqlite:///{file}")
    return file


@pytest.fixture
def orders(load: Load) -> Any:
    """The tools of the order desk."""
    return load("orders").module.tools


@pytest.fixture
def desk(load: Load) -> Any:
    """The tools of the ticket desk."""
    return load("ticket").module.tools


@contextmanager
def writing(file: Path, session: str | None = "s", user: str = "ann") -> Generator[RunContext[Any]]:
    """What a write is given: a transaction that is committed at the end, or rolled back on an error."""
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        with connection:
            yield RunContext(None, "run_1", Identity(user, session=session), transaction=connection)


def rows(file: Path, table: str) -> list[dict[str, Any]]:
    with closing(sqlite3.connect(file)) as connection:
        connection.row_factory = sqlite3.Row
        return [dict(row) for row in connection.execute(f"SELECT * FROM {table}")]


# The tables


def test_the_first_use_makes_and_fills_the_tables_and_the_second_leaves_them_as_they_are(
    orders: Any, desk: Any, file: Path
) -> None:
    orders.get_order_status(RunContext(None), "A-1024")
    counts = {table: len(rows(file, table)) for table in ("orders", "policies", "tickets", "refunds")}
    assert counts == {"orders": 17, "policies": 7, "tickets": 0, "refunds": 0}
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("DELETE FROM orders WHERE order_id = 'A-1017'")
    desk.query_order_detail(RunContext(None), "2024001")
    with writing(file) as context:
        desk.create_ticket(context, "2024001", "late", "never shipped")
    assert len(rows(file, "orders")) == 16


def test_a_write_may_be_the_first_use(orders: Any, file: Path) -> None:
    with writing(file) as context:
        orders.create_work_order(context, "A-1024", "repair", "leaks")
    assert [row["number"] for row in rows(file, "tickets")] == ["WO-0001"]
    assert len(rows(file, "orders")) == 17


def test_processes_that_come_first_at_once_fill_the_tables_once(root: Path, file: Path) -> None:
    code = (
        "from examples._shop.tables import connected\n"
        "with connected() as file: print(*file.execute('SELECT count(*) FROM orders').fetchone())"
    )
    started = [
        subprocess.Popen([sys.executable, "-c", code], cwd=root, stdout=subprocess.PIPE, text=True) for _ in range(6)
    ]
    assert [process.communicate(timeout=60)[0] for process in started] == ["17\n"] * 6
    assert len(rows(file, "orders")) == 17


@pytest.mark.parametrize("url", ["memory:", "postgresql://localhost/x"])
def test_without_a_file_the_tools_say_what_to_set(orders: Any, monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("STORE", url)
    with pytest.raises(FatalToolError, match=r"set STORE=sqlite:///file\.db, not '(memory|postgresql)'"):
        orders.get_order_status(RunContext(None), "A-1024")


def test_without_store_the_file_is_in_the_working_directory(
    orders: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("STORE")
    monkeypatch.chdir(tmp_path)
    orders.get_order_status(RunContext(None), "A-1024")
    assert len(rows(tmp_path / "glassloop.db", "orders")) == 17


# The order desk


@pytest.mark.parametrize("written", ["A-1024", "a-1024", "#A1024", " A-1024 "])
def test_an_order_is_found_however_its_number_is_written(orders: Any, written: str) -> None:
    found = orders.get_order_status(RunContext(None), written)
    assert (found["order_id"], found["status"], found["place"]) == ("A-1024", "shipped", "Wuhan sorting centre")
    assert "delivered_on" not in found, "what is unknown is left out"


def test_an_unknown_order_is_told(orders: Any, desk: Any) -> None:
    for look in (orders.get_order_status, desk.query_order_detail):
        with pytest.raises(ToolError, match=r"no order 'A-9999'"):
            look(RunContext(None), "A-9999")


@pytest.mark.parametrize("agent", ["Guangdong Shenzhen", "shenzhen guangdong", "广东深圳", "深圳", "42"])
def test_an_agent_is_found_by_either_name_and_by_its_number(orders: Any, agent: str) -> None:
    found = orders.query_orders(RunContext(None), agent)
    assert (found["agent_id"], found["agent_zh"], found["count"]) == (42, "广东深圳", 9)
    assert sum(order["kind"] == "buyout" for order in found["orders"]) == 5
    assert "year" not in found


@pytest.mark.parametrize(("year", "month", "count"), [(2024, None, 9), (2024, 3, 5), (2024, 1, 2), (2023, None, 0)])
def test_a_period_narrows_the_list(orders: Any, year: int, month: int | None, count: int) -> None:
    found = orders.query_orders(RunContext(None), "42", year, month)
    assert (found["count"], len(found["orders"])) == (count, count)
    assert found["total_cny"] == sum(order["amount_cny"] for order in found["orders"])


def test_what_the_list_cannot_do_is_told(orders: Any) -> None:
    with pytest.raises(ToolError, match="There are: Sichuan Chengdu"):
        orders.query_orders(RunContext(None), "Atlantis")
    with pytest.raises(ToolError, match="There is no sales agent"):
        orders.query_orders(RunContext(None), " ")
    with pytest.raises(ToolError, match="needs its year"):
        orders.query_orders(RunContext(None), "42", month=3)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"year": 20240, "month": 3}, "year: should be less than or equal to 2100"),
        ({"year": 24}, "year: should be greater than or equal to 2000"),
        ({"year": 2024, "month": 13}, "month: should be less than or equal to 12"),
    ],
)
def test_an_impossible_month_is_turned_back_with_what_is_allowed(
    orders: Any, arguments: dict[str, int], told: str
) -> None:
    tool = next(tool for tool in orders_tools(orders) if tool.name == "query_orders")
    with pytest.raises(ToolError, match=told):
        tool.validate({"agent": "42", **arguments})


def orders_tools(orders: Any) -> list[Any]:
    from glassloop import tool

    return [tool(orders.query_orders), orders.create_work_order]


def test_the_same_work_order_in_a_session_is_one(orders: Any, file: Path) -> None:
    numbers: list[str] = []
    for session, user, kind in [
        ("s", "ann", "repair"),
        ("s", "ann", "repair"),
        ("s", "ann", "invoice"),
        ("t", "ann", "repair"),
        ("s", "bob", "repair"),
        (None, "ann", "repair"),
    ]:
        with writing(file, session, user) as context:
            numbers.append(orders.create_work_order(context, "a1024", kind, "it leaks")["work_order"])
    assert numbers == ["WO-0001", "WO-0001", "WO-0002", "WO-0003", "WO-0004", "WO-0005"]
    assert {row["order_id"] for row in rows(file, "tickets")} == {"A-1024"}
    assert len(rows(file, "tickets")) == 5


def test_a_work_order_for_an_order_that_does_not_exist_leaves_nothing(orders: Any, file: Path) -> None:
    with pytest.raises(ToolError, match="no order"), writing(file) as context:
        orders.create_work_order(context, "A-9999", "repair", "")
    orders.get_order_status(RunContext(None), "A-1024")
    assert rows(file, "tickets") == []


# The ticket desk


def test_an_order_has_its_tickets_and_refunds(desk: Any, file: Path) -> None:
    with writing(file) as context:
        desk.create_ticket(context, "#2024001", "late", "never shipped", "high")
        desk.submit_refund(context, "2024001", 100.5, "late")
    found = desk.query_order_detail(RunContext(None), "2024001")
    assert found["tickets"] == [{"number": "TK-0001", "title": "late", "status": "open"}]
    assert found["refunded_cny"] == 100.5
    assert (found["amount_cny"], found["status"], found["customer"]) == (1899.0, "paid", "张伟")


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("never shipped", "P-01"),
        ("order not shipped", "P-01"),
        ("未发货", "P-01"),
        ("客户投诉一直没有发货", "P-01"),
        ("refund", "P-02"),
        ("how long does a refund take", "P-02"),
        ("退款多久到账", "P-02"),
        ("the lamp arrived broken", "P-03"),
        ("商品损坏", "P-03"),
        ("wrong item", "P-04"),
        ("错发或漏发", "P-04"),
        ("parcel not received", "P-05"),
        ("没收到", "P-05"),
        ("return", "P-06"),
        ("退货", "P-06"),
        ("开票", "P-07"),
    ],
)
def test_policies_are_found_in_both_languages(desk: Any, query: str, first: str) -> None:
    found = desk.search_policy(RunContext(None), query)
    assert found[0]["policy_id"] == first
    assert found[0]["text"].isascii() == query.isascii(), "the policy comes in the language of the query"


@pytest.mark.parametrize("query", ["", "the order", "quantum", "天气"])
def test_no_policy_is_no_policy(desk: Any, query: str) -> None:
    assert desk.search_policy(RunContext(None), query) == []


@pytest.mark.parametrize(("amount", "who"), [(0.01, True), (500, True), (500.01, "supervisor"), (800, "supervisor")])
def test_a_refund_above_500_yuan_needs_a_supervisor(desk: Any, amount: float, who: bool | str) -> None:
    assert desk.submit_refund.approval({"order_id": "2024001", "amount": amount, "reason": ""}) == who


def test_both_writes_are_held_and_commit_with_the_journal(desk: Any) -> None:
    for tool in (desk.create_ticket, desk.submit_refund):
        assert (tool.effect, tool.risk, tool.transaction) == ("write", "high", True)


def test_no_more_is_refunded_than_was_paid(desk: Any, file: Path) -> None:
    with writing(file) as context:
        desk.submit_refund(context, "2024002", 200, "broken")
    with pytest.raises(ToolError, match="has 59 yuan left to refund, not 60"), writing(file) as context:
        desk.submit_refund(context, "2024002", 60, "broken")
    with writing(file) as context:
        desk.submit_refund(context, "2024002", 59, "broken")
    assert [row["amount_cny"] for row in rows(file, "refunds")] == [200.0, 59.0]


def test_a_refund_that_is_undone_is_void_and_can_be_refunded_again(desk: Any, file: Path) -> None:
    with writing(file) as context:
        given = {"order_id": "2024002", "amount": 259, "reason": "broken"}
        made = desk.submit_refund(context, **given)
    desk.submit_refund.undo(RunContext(None), given, made)
    assert [(row["number"], row["status"]) for row in rows(file, "refunds")] == [("RF-0001", "void")]
    with writing(file) as context:
        assert desk.submit_refund(context, **given)["refund"] == "RF-0002"


@pytest.mark.parametrize("amount", [0, -5, 2_000_000, "much"])
def test_an_amount_that_is_none_is_turned_back(desk: Any, amount: Any) -> None:
    with pytest.raises(ToolError, match="amount: "):
        desk.submit_refund.validate({"order_id": "2024001", "amount": amount, "reason": "x"})
