"""`glassloop runs`: the list, one run, and going on with one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from glassloop.testing import ModelServer, Reaction, ask, call, say

if TYPE_CHECKING:
    from tests.cli.conftest import Cli, Inside

At = Callable[[ModelServer], dict[str, str]]

HELD: list[Reaction] = [ask(call("delete_row", row_id=1), call("delete_row", row_id=2), text="Deleting.")]


@pytest.fixture
def three(inside: Inside, at: At) -> list[str]:
    """Three recorded runs, oldest first: completed in session a, failed in session b, waiting for user ada."""
    script = [say("one"), ask(call("stop")), *HELD]
    options = (("--session", "a"), ("--session", "b"), ("--user", "ada"))
    with ModelServer(script=script) as server:
        return [
            inside("run", "agent.py", f"第{n}", "--json", *more, **at(server)).json["run_id"]
            for n, more in enumerate(options)
        ]


# list


def test_no_runs(inside: Inside) -> None:
    assert inside("runs", "list").out == "No runs.\n"
    assert inside("runs", "list", "--json").json == []
    assert not list(inside.folder.glob("*.db*"))


def test_a_long_question_takes_no_room_from_the_other_columns(inside: Inside, at: At) -> None:
    with ModelServer(script=[say("one")]) as server:
        run_id = inside("run", "agent.py", "why " * 200, "--json", **at(server)).json["run_id"]
    head, line = inside("runs", "list").out.splitlines()
    assert head.split() == ["ID", "STATUS", "AGENT", "SESSION", "STEPS", "TOKENS", "COST", "STARTED", "INPUT"]
    assert line.split()[:3] == [run_id, "completed", "tester"]
    assert line.endswith("…")


def test_a_list_is_newest_first(inside: Inside, three: list[str]) -> None:
    rows = inside.runs()
    assert [row["id"] for row in rows] == three[::-1]
    assert [row["status"] for row in rows] == ["waiting", "failed", "completed"]
    assert (
        rows[0] | {"agent": "tester", "user": "ada", "session": None, "input": "第2", "steps": 1, "pending": 2}
        == rows[0]
    )


def test_a_table_shows_every_id_whole(inside: Inside, three: list[str]) -> None:
    lines = inside("runs", "list").out.splitlines()
    assert lines[0].split() == ["ID", "STATUS", "AGENT", "SESSION", "STEPS", "TOKENS", "COST", "STARTED", "INPUT"]
    assert [line.split()[0] for line in lines[1:]] == three[::-1]
    assert lines[1].rstrip().endswith("第2")


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        (("--agent", "tester"), [2, 1, 0]),
        (("--agent", "other"), []),
        (("--session", "a"), [0]),
        (("--user", "ada"), [2]),
        (("--status", "failed"), [1]),
        (("--limit", "2"), [2, 1]),
    ],
)
def test_filters(inside: Inside, three: list[str], options: tuple[str, ...], wanted: list[int]) -> None:
    rows: list[dict[str, Any]] = inside("runs", "list", "--json", *options).json
    assert [row["id"] for row in rows] == [three[index] for index in wanted]


def test_older_than_a_run(inside: Inside, three: list[str]) -> None:
    assert [row["id"] for row in inside("runs", "list", "--json", "--before", three[1]).json] == [three[0]]


# show


def test_show_is_the_trace_and_the_answer(inside: Inside, at: At) -> None:
    with ModelServer(script=[ask(call("get_weather", city="北京")), say("[b]21[/b]")]) as server:
        live = inside("run", "agent.py", "hi", "--trace", **at(server)).out
    [run] = inside.runs()
    assert inside("runs", "show", run["id"]).out == live


def test_show_of_a_run_that_waits(inside: Inside, three: list[str]) -> None:
    out = inside("runs", "show", three[2]).out
    assert out.count("waits for a human's yes") == 2
    assert "finish      waiting" in out


def test_show_json_has_the_events(inside: Inside, three: list[str]) -> None:
    run = inside("runs", "show", three[0], "--json").json
    assert (run["id"], run["status"]) == (three[0], "completed")
    assert [event["seq"] for event in run["events"]] == list(range(1, len(run["events"]) + 1))
    assert run["events"][0]["type"] == "run_started"
    assert run["events"][-1]["type"] == "run_finished"


def test_the_beginning_of_an_id_is_enough(inside: Inside, three: list[str]) -> None:
    assert inside("runs", "show", three[0][:-1], "--json").json["id"] == three[0]
    assert inside("runs", "show", three[0].removeprefix("run_"), "--json").json["id"] == three[0]
    ended = inside("runs", "show", "run_")
    assert ended.code == 1
    assert ended.err.startswith("Error: 3 runs begin with 'run_': ")


@pytest.mark.parametrize("run", ["run_unknown", "-"])
def test_an_unknown_run_is_one_sentence(inside: Inside, three: list[str], run: str) -> None:
    ended = inside("runs", "show", run)
    assert (ended.code, ended.out) == (1, "")
    assert ended.err.startswith(f"Error: There is no run '{run}' in sqlite:///glassloop.db")
    assert ended.err.count("\n") == 1


def test_private_detail_is_for_the_operator_alone(inside: Inside, at: At) -> None:
    with ModelServer(script=[ask(call("broken")), say("it broke")]) as server:
        inside("run", "agent.py", "hi", **at(server))
    [run] = inside.runs()
    for options in ((), ("--json",)):
        assert "secret detail" not in inside("runs", "show", run["id"], *options).out
    private = inside.freely("runs", "show", run["id"], "--private")
    assert "private     exception: RuntimeError('secret detail')\n" in private.out
    assert "secret detail" in inside.freely("runs", "show", run["id"], "--private", "--json").out


# resume


def approvals(inside: Inside, run_id: str) -> list[str]:
    """The approvals that a run has asked for."""
    events = inside("runs", "show", run_id, "--json").json["events"]
    return [event["data"]["approval_id"] for event in events if event["type"] == "approval_asked"]


def test_decisions(inside: Inside, at: At, three: list[str]) -> None:
    first, second = approvals(inside, three[2])
    with ModelServer(script=[say("so be it")]) as server:
        ended = inside("runs", "resume", three[2], "agent.py", "--approve", first, **at(server))
        assert ended.code == 4
        assert second in ended.err
        assert first not in ended.err
        options = ("--deny", second, "--reason", "too new")
        ended = inside("runs", "resume", three[2], "agent.py", *options, "--json", **at(server))
    assert (ended.code, ended.json["output"]) == (0, "so be it")
    assert [execution["status"] for execution in ended.json["tool_executions"]] == ["ok", "denied"]
    assert "too new" in ended.json["tool_executions"][1]["content"]
    assert (inside.folder / "deleted.txt").read_text() == "1\n"


def test_yes_approves_all_that_waits(inside: Inside, at: At, three: list[str]) -> None:
    with ModelServer(script=[say("done")]) as server:
        ended = inside("runs", "resume", three[2], "agent.py", "--yes", "--trace", **at(server))
    assert ended.code == 0
    lines = ended.out.splitlines()
    assert lines[-1] == "done"
    assert "completed: 2 steps, 2 tool calls" in lines[-2]
    assert float(lines[-2].split()[-2]) < 30
    assert sorted((inside.folder / "deleted.txt").read_text().split()) == ["1", "2"]


def test_a_terminal_is_asked_about_what_waits(cli: Cli, at: At, three: list[str]) -> None:
    with ModelServer(script=[say("done")]) as server:
        terminal = cli.terminal("runs", "resume", three[2], "agent.py", **at(server))
        for _ in range(2):
            terminal.expect("[e]dit the arguments: ")
            terminal.type("y\n")
        terminal.expect("done\n")
        assert terminal.code() == 0


def test_nothing_decided_changes_nothing(inside: Inside, at: At, three: list[str]) -> None:
    with ModelServer(script=[]) as server:
        ended = inside("runs", "resume", three[2], "agent.py", **at(server))
    assert ended.code == 4
    assert all(approval in ended.err for approval in approvals(inside, three[2]))


def test_a_limited_run_goes_on_with_new_limits(inside: Inside, at: At) -> None:
    with ModelServer(script=[ask(call("get_weather", city="x")), say("there")]) as server:
        ended = inside("run", "agent.py", "hi", "--max-steps", "1", **at(server))
        assert ended.code == 3
        [run] = inside.runs()
        assert f"glassloop runs resume {run['id']} agent.py --max-steps N" in ended.err
        ended = inside("runs", "resume", run["id"][:-2], "agent.py", "--max-steps", "5", **at(server))
    assert (ended.code, ended.out) == (0, "there\n")
    assert [row["status"] for row in inside.runs()] == ["completed"]


def test_a_completed_run_is_left_alone(inside: Inside, at: At, three: list[str]) -> None:
    with ModelServer(script=[]) as server:
        ended = inside("runs", "resume", three[0], "agent.py", **at(server))
    assert (ended.code, ended.out) == (0, "one\n")
    assert ended.err == f"Run {three[0]} was completed already.\n"


def test_another_agents_run_and_an_unknown_approval_are_refused(inside: Inside, at: At, three: list[str]) -> None:
    inside.write("other.py", "from glassloop import Agent\nagent = Agent(name='other')\n")
    with ModelServer(script=[]) as server:
        for options in (("other.py",), ("agent.py", "--approve", "appr_unknown")):
            ended = inside("runs", "resume", three[2], *options, **at(server))
            assert (ended.code, ended.out) == (1, "")
            assert ended.err.startswith("Error: Run ")
            assert ended.err.count("\n") == 1
    assert [row["status"] for row in inside.runs()] == ["waiting", "failed", "completed"]


# roles

BANK = '''
from glassloop import Agent, tool


@tool(effect="write", approval=lambda arguments: "supervisor" if arguments["amount"] > 500 else True)
def refund(amount: int) -> str:
    """Refund."""
    with open("refunds.txt", "a") as file:
        file.write(f"{amount}\\n")
    return f"refunded {amount}"


agent = Agent(tools=[refund], name="bank")
'''


def refunds(inside: Inside) -> list[str]:
    """What was refunded."""
    file = inside.folder / "refunds.txt"
    return file.read_text().split() if file.exists() else []


@pytest.fixture
def large(inside: Inside, at: At) -> str:
    """A run of Ada's that waits for a supervisor."""
    inside.write("bank.py", BANK)
    with ModelServer(script=[ask(call("refund", amount=900))]) as server:
        ended = inside("run", "bank.py", "refund it", "--user", "ada", "--json", **at(server))
    assert ended.code == 4
    assert "needs the role supervisor" in ended.err
    assert "--role supervisor" in ended.err.splitlines()[-1]
    return ended.json["run_id"]


@pytest.mark.parametrize("decision", ["--approve", "--deny"])
def test_an_approval_needs_its_role(inside: Inside, at: At, large: str, decision: str) -> None:
    [approval] = approvals(inside, large)
    options = (large, "bank.py", decision, approval)
    with ModelServer(script=[say("done")]) as server:
        for roles in ((), ("--role", "clerk")):
            ended = inside("runs", "resume", *options, *roles, **at(server))
            assert (ended.code, ended.out) == (1, "")
            assert ended.err == (
                f"Error: {approval}: This needs the role 'supervisor'. "
                "Give --role supervisor, as somebody who has it would.\n"
            )
        assert [row["status"] for row in inside.runs()] == ["waiting"]
        ended = inside("runs", "resume", *options, "--role", "clerk", "--role", "supervisor", **at(server))
    assert (ended.code, ended.out) == (0, "done\n")
    assert refunds(inside) == (["900"] if decision == "--approve" else [])


def test_yes_approves_only_what_its_roles_may(inside: Inside, at: At, large: str) -> None:
    with ModelServer(script=[say("done")]) as server:
        ended = inside("runs", "resume", large, "bank.py", "--yes", **at(server))
        assert ended.code == 4
        assert ended.err.count("needs the role 'supervisor' (--role supervisor)") == 1
        assert refunds(inside) == []
        ended = inside("runs", "resume", large, "bank.py", "--yes", "--role", "supervisor", **at(server))
    assert (ended.code, refunds(inside)) == (0, ["900"])


def test_a_new_run_parks_what_its_roles_may_not_decide(inside: Inside, at: At) -> None:
    inside.write("bank.py", BANK)
    wants = ask(call("refund", amount=100), call("refund", amount=900))
    with ModelServer(script=[wants]) as server:
        ended = inside("run", "bank.py", "hi", "--yes", **at(server))
        assert (ended.code, refunds(inside)) == (4, ["100"])
    with ModelServer(script=[wants, say("done")]) as server:
        ended = inside("run", "bank.py", "hi", "--yes", "--role", "supervisor", **at(server))
    assert (ended.code, sorted(refunds(inside))) == (0, ["100", "100", "900"])


def test_a_terminal_may_not_edit_its_way_past_a_role(cli: Cli, inside: Inside, at: At) -> None:
    inside.write("bank.py", BANK)
    with ModelServer(script=[ask(call("refund", amount=100)), say("done")]) as server:
        terminal = cli.terminal("run", "bank.py", "hi", **at(server))
        for text, problem in (('{"amount": 900}', "needs the role 'supervisor'"), ('{"amount": "much"}', "amount")):
            terminal.expect("[e]dit the arguments: ")
            terminal.type("e\n")
            terminal.expect("Arguments as JSON: ")
            terminal.type("\x15" + text + "\n")
            terminal.expect(problem)
        terminal.expect("[e]dit the arguments: ")
        terminal.type("y\n")
        terminal.expect("done\n")
        assert terminal.code() == 0
    assert refunds(inside) == ["100"]


def test_chat_asks_about_what_its_roles_may_decide(cli: Cli, inside: Inside, at: At) -> None:
    inside.write("bank.py", BANK)
    with ModelServer(script=[ask(call("refund", amount=900))]) as server:
        ended = cli("chat", "bank.py", "--yes", input="refund it\n", **at(server))
        assert "--role supervisor" in ended.err
        assert refunds(inside) == []
    with ModelServer(script=[ask(call("refund", amount=900)), say("done")]) as server:
        ended = cli("chat", "bank.py", "--yes", "--role", "supervisor", input="refund it\n", **at(server))
    assert (ended.out, refunds(inside)) == ("done\n", ["900"])


def test_a_decision_that_comes_too_late_is_refused(inside: Inside, at: At) -> None:
    late = BANK.replace("name=", "middleware=[Approval(expires=0.001)], name=")
    inside.write("bank.py", f"from glassloop.middleware.approval import Approval\n{late}")
    with ModelServer(script=[ask(call("refund", amount=100))]) as server:
        run = inside("run", "bank.py", "hi", "--json", **at(server)).json["run_id"]
        [approval] = approvals(inside, run)
        ended = inside("runs", "resume", run, "bank.py", "--approve", approval, **at(server))
    assert (ended.code, refunds(inside)) == (1, [])
    assert "time to decide has passed" in ended.err


def test_a_deferred_call_is_not_decided_here(inside: Inside, at: At) -> None:
    later = BANK.replace("name=", "middleware=[Approval(mode='defer')], name=")
    inside.write("bank.py", f"from glassloop.middleware.approval import Approval\n{later}")
    with ModelServer(script=[ask(call("refund", amount=100)), say("held")]) as server:
        run = inside("run", "bank.py", "hi", "--json", **at(server)).json["run_id"]
        [approval] = approvals(inside, run)
        ended = inside("runs", "resume", run, "bank.py", "--approve", approval, **at(server))
    assert (ended.code, ended.out) == (1, "")
    assert "was deferred" in ended.err
