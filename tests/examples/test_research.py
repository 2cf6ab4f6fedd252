"""A4: the research assistant: search, then calculate; memory; documents that disagree; the loop by hand."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from glassloop.cli.target import Target
from glassloop.core.encoding import dumps
from glassloop.core.ids import new_id
from glassloop.core.result import RunResult
from glassloop.journal.projection import RunFilter
from glassloop.journal.state import fold
from glassloop.knowledge.load import parse
from glassloop.models.openai_chat import OpenAIChat
from glassloop.results import result_of
from glassloop.stores import open_store
from glassloop.testing import ModelServer, call, fail

Example = Callable[..., Any]
Load = Callable[[str], Target]
Serve = Callable[..., Any]
Talk = Callable[..., RunResult]

QUESTION = "Look up how long a refund takes, then how many hours are 3 working days"
FOLLOW_UP = "Which number did we just compute?"
QUESTION_ZH = "查一下退款需要多长时间，然后3个工作日是多少小时"
FOLLOW_UP_ZH = "刚才算出的数是多少？"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A store whose corpus is ingested once."""
    return f"sqlite:///{tmp_path_factory.mktemp('research')}/runs.db"


@pytest.fixture
def talk(load: Load, store: str) -> Iterator[Talk]:
    """Ask the assistant, again and again in one session."""
    target, own = load("research"), new_id("session")

    def ask(text: str, session: str = own) -> RunResult:
        return target.agent.run_sync(text, model=chosen.model, store=store, session=session)

    with target.stand_in.serve() as chosen:
        yield ask


def runs(file: Path) -> list[RunResult]:
    """Every run in the journal, the oldest first."""

    async def read() -> list[RunResult]:
        async with open_store(f"sqlite:///{file}") as store:
            rows = reversed(await store.journal.runs(RunFilter()))
            return [result_of(fold(await store.journal.read(row.id))) for row in rows]

    return asyncio.run(read())


def calls(result: RunResult) -> list[tuple[str, dict[str, Any]]]:
    return [(done.tool, dict(done.arguments or {})) for done in result.tool_executions]


def names(result: RunResult) -> list[str]:
    return [done.tool for done in result.tool_executions]


def text_of(path: Path) -> list[str]:
    """The text of a file, as it is ingested."""
    return [section.text for section in parse(path.read_bytes(), path.name).sections]


def names_conflict(answer: str, *values: str) -> bool:
    """Whether the answer says that documents disagree, with each value and its source."""
    return ("disagree" in answer or "不一致" in answer) and all(value in answer for value in values)


# As a user starts it


@pytest.mark.parametrize("start", [("-m", "examples.research"), ("-m", "glassloop", "chat", "examples/research:agent")])
def test_the_conversation_in_one_terminal(example: Example, file: Path, start: tuple[str, ...]) -> None:
    ended = example(*start, "--trace", given=f"{QUESTION}\n{FOLLOW_UP}\nWhat is 5 / 0?\n")
    assert ended.code == 0, ended.err
    first, second, third = runs(file)
    assert names(first) == ["search_knowledge", "calculate"]
    assert calls(first)[1] == ("calculate", {"a": 3, "op": "*", "b": 24})
    assert [done.step for done in first.tool_executions] == [1, 2]
    assert names_conflict(first.output or "", "48 hours", "refund-policy.md", "24 hours", "faq.html")
    assert "3 working days are 72 hours" in (first.output or "")
    assert (second.output, second.tool_executions, second.steps) == ("We computed 72: 3 * 24 = 72.", (), 1)
    assert [done.status for done in third.tool_executions] == ["error"]
    assert "Cannot divide 5 by zero" in ended.answer


def test_the_conversation_in_chinese(example: Example, file: Path) -> None:
    ended = example("-m", "examples.research", given=f"{QUESTION_ZH}\n{FOLLOW_UP_ZH}\n")
    assert ended.code == 0, ended.err
    first, second = runs(file)
    assert names(first) == ["search_knowledge", "calculate"]
    assert names_conflict(first.output or "", "48小时", "退款政策.md", "24小时", "常见问题.html")
    assert "3个工作日是72小时" in (first.output or "")
    assert (second.output, second.tool_executions) == ("刚才算出的是72：3 * 24 = 72。", ())


def test_a_conversation_typed_at_a_terminal(terminal: Callable[..., Any]) -> None:
    desk = terminal("-m", "examples.research")
    desk.expect("> ")
    desk.type("What is 12 * 8?\n")
    desk.expect("12 * 8 = 96.")
    desk.expect("> ")
    desk.type(f"{FOLLOW_UP}\n")
    desk.expect("We computed 96: 12 * 8 = 96.")
    desk.expect("> ")
    desk.type("\x04")
    desk.rest()
    assert desk.process.returncode == 0


def test_without_anybody_to_talk_to_it_shows_what_it_does(example: Example) -> None:
    ended = example("-m", "examples.research", "--trace")
    assert ended.code == 0, ended.err
    assert len(ended.traced("action")) == 2
    assert "72 hours" in ended.answer


def test_a_conversation_goes_on_in_another_process(example: Example, file: Path) -> None:
    assert example("-m", "examples.research", "--session", "monday", "What is 12 * 8?").answer == "12 * 8 = 96."
    assert example("-m", "examples.research", "--session", "monday", FOLLOW_UP).answer == "We computed 96: 12 * 8 = 96."
    assert example("-m", "examples.research", FOLLOW_UP).answer == "We have not computed anything yet."


@pytest.mark.parametrize("kind", ["sqlite", "redis"])
def test_sessions_are_where_the_configuration_says(
    example: Example, file: Path, request: pytest.FixtureRequest, kind: str
) -> None:
    elsewhere = f"sqlite:///{file}.sessions" if kind == "sqlite" else request.getfixturevalue("redis_url")
    words = ("-m", "examples.research", "--session", "monday")
    example(*words, "What is 12 * 8?", SESSIONS=elsewhere)
    assert example(*words, FOLLOW_UP, SESSIONS=elsewhere).answer == "We computed 96: 12 * 8 = 96."
    assert example(*words, FOLLOW_UP).answer == "We have not computed anything yet."
    assert example(*words, "--manual", FOLLOW_UP, SESSIONS=elsewhere).answer == "We computed 96: 12 * 8 = 96."


def test_everything_can_stand_in_postgresql(example: Example, postgres_url: str) -> None:
    ended = example("-m", "examples.research", given=f"{QUESTION_ZH}\n{FOLLOW_UP_ZH}\n", STORE=postgres_url)
    assert ended.code == 0, ended.err
    assert "3个工作日是72小时" in ended.out
    assert ended.answer == "刚才算出的是72：3 * 24 = 72。"
    assert "Read" not in example("-m", "examples.research", "Do you ship abroad?", STORE=postgres_url).err


def test_a_long_conversation_stays_in_its_window(load: Load, store: str) -> None:
    agent, session, said = load("research").agent, new_id("session"), "word " * 400
    with ModelServer(lambda asked: f"{len(asked.messages)} messages") as server:
        model = OpenAIChat("m", base_url=server.url, api_key="k")
        results = [agent.run_sync(said, model=model, store=store, session=session) for _ in range(30)]
    assert len(results[-1].messages) == 60
    assert max(len(request.body["messages"]) for request in server.requests) < 50
    assert max(len(dumps(request.body)) for request in server.requests) < 30_000


# What its stand-in understands


@pytest.mark.parametrize(
    ("asked", "wanted", "told"),
    [
        ("What is 5 / 0?", [("calculate", {"a": 5, "op": "/", "b": 0})], "Cannot divide 5 by zero"),
        ("5除以0等于多少？", [("calculate", {"a": 5, "op": "/", "b": 0})], "Cannot divide 5 by zero"),
        ("What percentage of 2,000 is 260?", [("percentage", {"part": 260, "total": 2000})], "260 / 2000 = 13%"),
        ("30占120的百分之多少？", [("percentage", {"part": 30, "total": 120})], "30 / 120 = 25%"),
        ("3 as a percentage of 0", [("percentage", {"part": 3, "total": 0})], "the total must not be 0"),
        ("How much is 0.1 + 0.2?", [("calculate", {"a": 0.1, "op": "+", "b": 0.2})], "0.1 + 0.2 = 0.3."),
        ("How many hours are 2 days?", [("calculate", {"a": 2, "op": "*", "b": 24})], "2 days are 48 hours"),
        ("What time is it in Asia/Shanghai?", [("get_current_time", {"timezone": "Asia/Shanghai"})], "(CST)"),
        ("Hello!", [], "What would you like to know?"),
        ("你好", [], "请问您想了解什么"),
    ],
)
def test_another_question_makes_other_calls(
    talk: Talk, asked: str, wanted: list[tuple[str, dict[str, Any]]], told: str
) -> None:
    result = talk(asked)
    assert result.outcome == "completed"
    assert calls(result) == wanted
    assert told in (result.output or "")


# What stands in the documents


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ("Do you ship abroad?", "shipping-rules.docx: “We do not ship abroad"),
        ("What is the weight of the espresso machine?", "weight 9.8 kg"),
        ("How often do I descale the espresso machine?", "espresso-machine.pdf: “Descale the machine every 3 months"),
        ("How much is the office chair?", "prices.csv: "),
        ("How do I get an invoice?", "within 2 working days"),
        ("净水器的滤芯多久更换一次？", "净水器.pdf：“前置滤芯每6个月更换一次"),
        ("可以开发票吗？", "常见问题.html：“电子发票在2个工作日内发送到您的邮箱”"),
        ("Do you sell bicycles?", "The documents say nothing about “Do you sell bicycles”"),
        ("有自行车吗？", "文档中没有关于"),
    ],
)
def test_every_kind_of_file_is_found_in(talk: Talk, asked: str, told: str) -> None:
    result = talk(asked)
    assert names(result) == ["search_knowledge"]
    assert told in (result.output or "")


def test_a_conversion_reads_what_was_found_before(talk: Talk) -> None:
    assert names(talk(QUESTION)) == ["search_knowledge", "calculate"]
    again = talk("And how many hours are 5 working days?")
    assert calls(again) == [("calculate", {"a": 5, "op": "*", "b": 24})]
    assert "a working day counts as 24 hours: refund-policy.md" in (again.output or "")
    assert "24 hours" in (talk("How many hours are 2 working days?", new_id("session")).output or "")


def passages(file: Path) -> list[tuple[Any, ...]]:
    """Rows of the passages, with the time at which their documents were ingested."""
    with closing(sqlite3.connect(file)) as connection:
        return connection.execute(
            "SELECT p.id, d.source, d.added_at, p.text FROM glassloop_knowledge_passages p "
            "JOIN glassloop_knowledge_documents d ON d.id = p.document_id ORDER BY p.id"
        ).fetchall()


def test_a_second_start_ingests_nothing(example: Example, file: Path) -> None:
    first = example("-m", "examples.research", "Do you ship abroad?")
    before = passages(file)
    assert {source for _, source, _, _ in before} == set(load_documents())
    second = example("-m", "examples.research", "Do you ship abroad?")
    assert passages(file) == before
    assert "Read 9 documents" in first.err
    assert "Read" not in second.err


def load_documents() -> list[str]:
    return sorted(path.name for path in (Path(__file__).parents[2] / "examples/research/corpus").iterdir())


def test_the_generated_files_are_those_that_are_committed(root: Path, tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        command = [sys.executable, "-m", "examples.research.build_corpus", str(tmp_path / folder)]
        subprocess.run(command, cwd=root, check=True, timeout=60)
    made = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert len(made) == 4
    for name in made:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
        assert text_of(tmp_path / "a" / name) == text_of(root / "examples/research/corpus" / name)


# Over HTTP


def ask(
    served: Any, question: str, *, by: str = "chat", session: str = "s", key: str = "demo-alice", **more: Any
) -> Any:
    status, body = served.post(f"/api/agent/{by}", {"question": question, "sessionId": session, **more}, key)
    assert status == 200, body
    return body


def tools(body: dict[str, Any]) -> list[str]:
    return [step["toolName"] for step in body["steps"]]


@pytest.mark.parametrize("by", ["chat", "manual"])
def test_the_conversation_over_http(served: Serve, file: Path, by: str) -> None:
    server = served("examples/research:app", "--demo")
    first = ask(server, QUESTION, by=by)
    assert first["success"] is True
    assert tools(first) == ["search_knowledge", "calculate"]
    assert (first["steps"][1]["args"], first["steps"][1]["observation"]) == ({"a": 3, "op": "*", "b": 24}, "72")
    assert names_conflict(first["answer"], "48 hours", "refund-policy.md", "24 hours", "faq.html")
    assert first["sources"] == ["faq.html", "refund-policy.md"]
    assert "72 hours" in first["answer"]
    second = ask(server, FOLLOW_UP, by=by)
    assert (second["answer"], second["steps"]) == ("We computed 72: 3 * 24 = 72.", [])
    for other in ({"key": "demo-bob"}, {"session": "other"}):
        assert ask(server, FOLLOW_UP, by=by, **other)["answer"] == "We have not computed anything yet."
    zero = ask(server, "What is 5 / 0?", by=by)
    assert zero["success"] is True
    assert "Cannot divide 5 by zero" in zero["answer"]
    assert zero["steps"][0]["observation"].startswith("Cannot divide 5 by zero")


def test_both_endpoints_have_one_memory(served: Serve, file: Path) -> None:
    server = served("examples/research:app", "--demo")
    ask(server, "What is 12 * 8?", by="manual")
    assert ask(server, FOLLOW_UP)["answer"] == "We computed 96: 12 * 8 = 96."
    ask(server, "What is 12 * 9?")
    assert ask(server, FOLLOW_UP, by="manual")["answer"] == "We computed 108: 12 * 9 = 108."
    assert [names(run) for run in runs(file)] == [[], ["calculate"]]


def test_without_a_session_a_new_one_begins(served: Serve) -> None:
    server = served("examples/research:app", "--demo")
    _, first = server.post("/api/agent/chat", {"question": "What is 12 * 8?"})
    assert ask(server, FOLLOW_UP, session=first["sessionId"])["answer"] == "We computed 96: 12 * 8 = 96."
    _, other = server.post("/api/agent/chat", {"question": FOLLOW_UP})
    assert other["answer"] == "We have not computed anything yet."


def test_without_the_list_of_tools_none_is_ever_called(served: Serve) -> None:
    model_says = [call("calculate", a=1, op="+", b=1), "Two."]
    with ModelServer(script=["I would guess 72.", *model_says]) as model:
        variables = {"MODEL": "openai:m", "MODEL_ENDPOINT": model.url, "MODEL_API_KEY": "k"}
        server = served("examples/research:app", "--demo", **variables)
        without = ask(server, QUESTION, by="manual", tools=False)
        ask(server, QUESTION, by="manual")
    assert (without["steps"], without["answer"]) == ([], "I would guess 72.")
    bodies = [request.body for request in model.requests]
    assert "tools" not in bodies[0]
    assert all(len(body["tools"]) == 4 for body in bodies[1:])


@pytest.mark.parametrize("by", ["chat", "manual"])
def test_a_model_that_fails_is_a_problem_in_one_sentence(served: Serve, by: str) -> None:
    with ModelServer(lambda _: fail(401, "bad key sk-1234")) as model:
        variables = {"MODEL": "openai:m", "MODEL_ENDPOINT": model.url, "MODEL_API_KEY": "k"}
        server = served("examples/research:app", "--demo", **variables)
        status, problem = server.post(f"/api/agent/{by}", {"question": "x", "sessionId": "s"})
    assert (status, problem["code"]) == (502, "model")
    assert "Traceback" not in problem["detail"]


def test_a_wrong_request_is_told_in_one_sentence(served: Serve) -> None:
    server = served("examples/research:app", "--demo")
    for by in ("chat", "manual"):
        for body, field in (
            ({}, "question"),
            ({"question": " "}, "question"),
            ({"question": "x", "sesion": "a"}, "sesion"),
            ({"question": "x", "sessionId": "a/b"}, "sessionId"),
        ):
            status, problem = server.post(f"/api/agent/{by}", body)
            assert (status, problem["code"]) == (422, "invalid")
            assert problem["detail"].startswith(f"{field}: ")
        for key in (None, "demo-eve"):
            assert server.post(f"/api/agent/{by}", {"question": "x"}, key)[0] == 401


# By hand at the terminal


def test_by_hand(example: Example, file: Path) -> None:
    ended = example("-m", "examples.research", "--manual", "--session", "m", QUESTION)
    assert ended.code == 0, ended.err
    assert [line.partition("(")[0] for line in ended.out.splitlines()[:2]] == ["search_knowledge", "calculate"]
    assert "72 hours" in ended.answer
    assert example("-m", "examples.research", "--manual", "--session", "m", FOLLOW_UP).out == (
        "We computed 72: 3 * 24 = 72.\n"
    )
    without = example("-m", "examples.research", "--manual", "--no-tools", QUESTION)
    assert without.code == 0, without.err
    assert without.out.startswith("I have no tools here")
    assert runs(file) == []
