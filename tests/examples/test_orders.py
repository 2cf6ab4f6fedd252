"""A5: the order desk: where an order is, whose orders, and work orders that are never opened twice."""

from __future__ import annotations

import json
import re
import sqlite3
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from glassloop import Agent
from glassloop.cli.target import Target
from glassloop.core.result import RunResult
from glassloop.memory import LastTurns
from glassloop.testing import ModelServer, call, say

Example = Callable[..., Any]
Load = Callable[[str], Target]
Talk = Callable[..., RunResult]
Serve = Callable[..., Any]


@pytest.fixture
def talk(load: Load, file: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Talk]:
    """Ask the desk, again and again in one session."""
    store = f"sqlite:///{file}"
    monkeypatch.setenv("STORE", store)
    target = load("orders")

    def ask(text: str, session: str = "s") -> RunResult:
        return target.agent.run_sync(text, model=chosen.model, store=store, session=session)

    with target.stand_in.serve() as chosen:
        yield ask


def calls(result: RunResult) -> list[tuple[str, dict[str, Any]]]:
    return [(done.tool, dict(done.arguments or {})) for done in result.tool_executions]


def work_orders(file: Path) -> list[tuple[str, str, str]]:
    with closing(sqlite3.connect(file)) as connection:
        return connection.execute("SELECT number, order_id, kind FROM tickets ORDER BY id").fetchall()


# As a user starts it


def test_where_is_an_order(example: Example) -> None:
    ended = example("-m", "examples.orders", "--trace", "Where is order A-1024?")
    assert ended.code == 0, ended.err
    assert ended.traced("action") == ['1 get_order_status(order_id="A-1024")']
    assert ended.answer == (
        "Order A-1024 (Espresso machine) was shipped on 2024-03-19 with SF Express (SF1400551024) "
        "and is at Wuhan sorting centre now."
    )


def test_chinese(example: Example) -> None:
    ended = example("-m", "examples.orders", "--trace", "订单A-1024到哪了？")
    assert ended.code == 0, ended.err
    assert ended.answer == "订单A-1024（意式咖啡机）已于2024-03-19由顺丰速运发出（SF1400551024），目前在武汉分拨中心。"


@pytest.mark.parametrize(
    ("asked", "wrong"),
    [
        ("Orders of Guangdong Shenzhen in March 20240", 20240),
        ("Orders of Guangdong Shenzhen in 202403", 20240),
        ("查一下广东深圳20240年3月的订单", 20240),
    ],
)
def test_an_impossible_year_is_turned_back_and_the_next_call_is_right(example: Example, asked: str, wrong: int) -> None:
    ended = example("-m", "examples.orders", "--trace", asked)
    assert ended.code == 0, ended.err
    first, second = ended.traced("action")
    assert f"year={wrong}, month=3" in first
    assert "year=2024, month=3" in second
    (failure,) = ended.traced("failure")
    assert "year: should be less than or equal to 2100" in failure
    assert re.search(r"5 orders in March 2024, 6276 yuan|2024年3月共有5个订单，合计6276元", ended.answer)


@pytest.mark.parametrize(
    "start", [("-m", "examples.orders", "chat"), ("-m", "glassloop", "chat", "examples/orders:agent")]
)
def test_a_conversation_keeps_whom_it_is_about(example: Example, start: tuple[str, ...]) -> None:
    said = "Guangdong Shenzhen's orders\nhow many were buy-outs?\nAnd in March 2024?\n"
    ended = example(*start, "--trace", given=said)
    assert ended.code == 0, ended.err
    assert ended.traced("action") == [
        '1 query_orders(agent="Guangdong Shenzhen")',
        '1 query_orders(agent="Guangdong Shenzhen")',
        '1 query_orders(agent="Guangdong Shenzhen", year=2024, month=3)',
    ]
    assert (
        "5 of the 9 orders of Guangdong Shenzhen are buy-outs: A-1025, A-1024, 2024002, 2024001, A-1017." in ended.out
    )
    assert "Guangdong Shenzhen has 5 orders in March 2024" in ended.answer


def test_the_same_work_order_twice_is_one_row(example: Example, file: Path) -> None:
    said = "open a repair work order for A-1024: the pump leaks\n" * 2 + "again please\n"
    ended = example("-m", "examples.orders", "chat", given=said)
    assert ended.code == 0, ended.err
    assert re.findall(r"\bWO-\d+", ended.out) == ["WO-0001"] * 3
    assert work_orders(file) == [("WO-0001", "A-1024", "repair")]


def test_another_session_is_another_work_order(example: Example, file: Path) -> None:
    for session in ("one", "two", "one"):
        said = "open a repair work order for A-1024: the pump leaks\n"
        assert example("-m", "examples.orders", "chat", "--session", session, given=said).code == 0
    assert [number for number, _, _ in work_orders(file)] == ["WO-0001", "WO-0002"]


def test_a_store_that_is_no_file_is_told_in_one_sentence(example: Example) -> None:
    ended = example("-m", "examples.orders", "Where is order A-1024?", STORE="memory:")
    assert ended.code == 1
    assert "Error: The shop's tables stand in an SQLite file: set STORE=sqlite:///file.db" in ended.err
    assert "Traceback" not in ended.err


def test_the_tables_stand_in_the_file_of_the_journal(example: Example, file: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    example("-m", "examples.orders", "open a repair work order for A-1024")
    with closing(sqlite3.connect(file)) as connection:
        connection.execute(f"VACUUM INTO '{other}'")
    with closing(sqlite3.connect(other)) as connection, connection:
        connection.execute("UPDATE orders SET place = 'Lhasa' WHERE order_id = 'A-1024'")
    words = ("-m", "glassloop", "run", "examples/orders:agent", "--store", f"sqlite:///{other}")
    ended = example(*words, "Where is order A-1024?")
    assert (ended.code, "is at Lhasa now" in ended.answer) == (0, True), ended.err
    assert example(*words, "open a delivery work order for A-1024").code == 0
    assert [len(work_orders(one)) for one in (file, other)] == [1, 2]


def test_with_a_provider_the_same_tools_run(example: Example) -> None:
    script = [call("query_orders", agent="42", year=20240), call("query_orders", agent="42", year=2024), "Nine orders."]
    with ModelServer(script=script, api_key="sk-right") as server:
        ended = example("-m", "examples.orders", "?", OPENAI_API_KEY="sk-right", OPENAI_BASE_URL=server.url)
    assert (ended.code, ended.answer) == (0, "Nine orders.")
    assert server.violations == []
    results = [message["content"] for message in server.requests[2].body["messages"] if message["role"] == "tool"]
    assert "less than or equal to 2100" in results[0]
    assert '"count":9' in results[1]


# What its stand-in understands


@pytest.mark.parametrize(
    ("asked", "wanted", "told"),
    [
        ("订单A-1024到哪了？", [("get_order_status", {"order_id": "A-1024"})], "目前在武汉分拨中心"),
        ("Has 2024001 been shipped?", [("get_order_status", {"order_id": "2024001"})], "is not shipped yet"),
        (
            "Where are A-1017 and #a1018?",
            [("get_order_status", {"order_id": "A-1017"}), ("get_order_status", {"order_id": "A1018"})],
            "delivered on 2024-01-18 by ZTO",
        ),
        (
            "orders of agent 42 in 2024-01",
            [("query_orders", {"agent": "42", "year": 2024, "month": 1})],
            "2 orders in January",
        ),
        ("42号代理2024年1月的订单", [("query_orders", {"agent": "42", "year": 2024, "month": 1})], "2024年1月共有2个"),
        (
            "how many buy-outs did Sichuan Chengdu sell in 2024?",
            [("query_orders", {"agent": "Sichuan Chengdu", "year": 2024})],
            "2 of the 3 orders of Sichuan Chengdu in 2024 are buy-outs",
        ),
        ("浙江杭州的订单里租赁的有几个", [("query_orders", {"agent": "浙江杭州"})], "租赁有1个：A-1022"),
        ("Where is order A-9999?", [("get_order_status", {"order_id": "A-9999"})], "There is no order 'A-9999'"),
        ("orders of Atlantis", [("query_orders", {"agent": "Atlantis"})], "There is no sales agent 'Atlantis'"),
        (
            "orders of Zhejiang Hangzhou in March",
            [("query_orders", {"agent": "Zhejiang Hangzhou", "month": 3})],
            "which year",
        ),
        (
            "为A-1024创建一个换货工单，备注：换黑色",
            [("create_work_order", {"order_id": "A-1024", "kind": "exchange", "note": "换黑色"})],
            "已为订单A-1024创建工单WO-0001",
        ),
        ("open a work order", [], "For which order?"),
        ("你好", [], "请问需要哪一项"),
        ("Whose orders were late?", [], "Whose orders?"),
    ],
)
def test_another_question_makes_other_calls(
    talk: Talk, asked: str, wanted: list[tuple[str, dict[str, Any]]], told: str
) -> None:
    result = talk(asked)
    assert result.outcome == "completed"
    assert calls(result) == wanted
    assert told in (result.output or "")


def test_what_is_left_out_is_what_was_spoken_of_last(talk: Talk) -> None:
    assert calls(talk("查一下广东深圳的订单")) == [("query_orders", {"agent": "广东深圳"})]
    assert (talk("其中有多少是买断？").output or "").startswith("广东深圳的9个订单中，买断有5个")
    march = [("query_orders", {"agent": "广东深圳", "year": 2024, "month": 3})]
    assert calls(talk("那2024年3月呢")) == march
    assert calls(talk("其中有多少是租赁？")) == march
    assert calls(talk("浙江杭州呢？")) == [("query_orders", {"agent": "浙江杭州"})]
    assert (talk("有几个买断").output or "").startswith("浙江杭州的5个订单中，买断有4个")
    assert talk("how many were buy-outs?", "another session").output == "Whose orders? Tell me the sales agent."
    talk("Where is order A-1024?")
    assert calls(talk("Where is it now?")) == [("get_order_status", {"order_id": "A-1024"})]
    (made,) = calls(talk("open a work order to repair it"))
    assert (made[1]["order_id"], made[1]["kind"]) == ("A-1024", "repair")


def test_the_sales_agent_is_kept_when_a_window_has_left_the_turn_out(talk: Talk, load: Load) -> None:
    desk = load("orders").agent
    assert isinstance(desk, Agent)
    memory, desk.memory = desk.memory, (LastTurns(1, slack=0), *desk.memory)
    try:
        talk("Hello")
        talk("Sichuan Chengdu's orders in 2024")
        talk("Where is order A-1024?")
        asked = talk("how many were buy-outs?")
    finally:
        desk.memory = memory
    assert calls(asked) == [("query_orders", {"agent": "Sichuan Chengdu", "year": 2024})]
    assert (asked.output or "").startswith("2 of the 3 orders of Sichuan Chengdu in 2024 are buy-outs")


# Over HTTP


def frames(stream: Any) -> list[tuple[str, dict[str, Any]]]:
    """The events of a stream, read to its end."""
    pieces = stream.read().decode().split("\n\n")
    lines = [dict(line.split(": ", 1) for line in piece.splitlines() if ": " in line) for piece in pieces]
    return [(each["event"], json.loads(each["data"])) for each in lines if "event" in each]


def chat(served: Any, message: str, session: str | None = None, key: str = "demo-alice") -> list[tuple[str, Any]]:
    body = {"message": message} if session is None else {"message": message, "sessionId": session}
    with served.open("/api/orders/chat", body, key) as stream:
        assert stream.headers["Content-Type"].startswith("text/event-stream")
        return frames(stream)


def said(events: list[tuple[str, Any]]) -> str:
    """The answer, as a client puts it together."""
    assert events[-1][0] == "end"
    assert events[-1][1]["status"] == "completed"
    finished = next(data for name, data in events if name == "run_finished")
    return finished["data"]["output"]


def test_a_conversation_over_http(served: Serve) -> None:
    server = served("examples/orders:app", "--demo")
    events = chat(server, "Guangdong Shenzhen's orders", "monday")
    names = [name for name, _ in events]
    assert {"model_requested", "tool_started", "tool_finished", "text_delta", "run_finished"} <= set(names)
    text = "".join(
        data["data"]["text"] for name, data in events[names.index("tool_finished") :] if name == "text_delta"
    )
    assert text == said(events)
    followed = chat(server, "how many were buy-outs?", "monday")
    started = [data["data"] for name, data in followed if name == "tool_started"]
    assert [(each["tool"], json.loads(each["arguments"])) for each in started] == [
        ("query_orders", {"agent": "Guangdong Shenzhen"})
    ]
    assert said(followed).startswith("5 of the 9 orders of Guangdong Shenzhen")
    for other in (
        chat(server, "how many were buy-outs?", "monday", "demo-bob"),
        chat(server, "how many were buy-outs?"),
    ):
        assert said(other) == "Whose orders? Tell me the sales agent."


def test_an_impossible_year_over_http(served: Serve) -> None:
    events = chat(served("examples/orders:app", "--demo"), "查一下广东深圳20240年3月的订单")
    statuses = [data["data"]["result"]["status"] for name, data in events if name == "tool_finished"]
    assert statuses == ["error", "ok"]
    assert said(events).startswith("广东深圳2024年3月共有5个订单")


def test_closing_the_stream_stops_the_call_of_the_model(served: Serve) -> None:
    with ModelServer(lambda _: say("thinking ", endless=True)) as model:
        variables = {"MODEL": "openai:m", "MODEL_ENDPOINT": model.url, "MODEL_API_KEY": "k"}
        stream = served("examples/orders:app", "--demo", **variables).open("/api/orders/chat", {"message": "hello"})
        while b"text_delta" not in stream.readline():
            pass
        closed = time.monotonic()
        stream.close()
        (request,) = model.requests
        assert request.wait(10)
        assert request.disconnected_at is not None
        assert 1.5 < request.disconnected_at - closed < 5


def test_the_same_work_order_at_once_from_two_processes_is_one_row(served: Serve, file: Path) -> None:
    servers = [served("examples/orders:app", "--demo") for _ in range(2)]
    wish = "open a repair work order for A-1024: the pump leaks"

    def ask(number: int, session: str) -> str:
        return re.findall(r"WO-\d+", said(chat(servers[number % 2], wish, session)))[0]

    with ThreadPoolExecutor(20) as pool:
        numbers = list(pool.map(ask, range(20), ["monday"] * 20))
        assert set(numbers) == {"WO-0001"}
        assert len(work_orders(file)) == 1
        numbers = list(pool.map(ask, range(20), [f"session {number}" for number in range(20)]))
    assert len(set(numbers)) == len(work_orders(file)) - 1 == 20


def test_a_wrong_request_is_told_in_one_sentence(served: Serve) -> None:
    server = served("examples/orders:app", "--demo")
    for body, field in (
        ({}, "message"),
        ({"message": " "}, "message"),
        ({"message": 1}, "message"),
        ({"message": "x", "sesion": "a"}, "sesion"),
        ({"message": "x", "sessionId": "a/b"}, "sessionId"),
    ):
        status, problem = server.post("/api/orders/chat", body)
        assert (status, problem["code"]) == (422, "invalid")
        assert problem["detail"].startswith(f"{field}: ")
    for key in (None, "demo-eve"):
        assert server.post("/api/orders/chat", {"message": "x"}, key)[0] == 401
