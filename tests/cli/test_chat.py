"""`glassloop chat`: a conversation at a terminal, and through a pipe."""

from __future__ import annotations

import json
import re
import signal
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from glassloop.testing import Conversation, ModelServer, Reaction, ask, call, fail, say

if TYPE_CHECKING:
    from tests.cli.conftest import Cli, Inside

At = Callable[[ModelServer], dict[str, str]]


def brain(conversation: Conversation) -> Reaction:
    """Does what the last line says."""
    words = conversation.user.split()
    if conversation.results:
        return say("; ".join(result.text for result in conversation.results))
    match words[0]:
        case "delete":
            return ask(*(call("delete_row", row_id=int(word)) for word in words[1:]))
        case "wait":
            return ask(call("wait"))
        case "talk":
            return say("word ", endless=True)
        case "refuse":
            return fail(400, "no")
        case "weather":
            return ask(call("get_weather", city="北京"))
        case _:
            return say(f"{len(conversation.messages)}: {conversation.user}")


# At a terminal


def test_a_conversation(cli: Cli, inside: Inside, at: At) -> None:
    with ModelServer(brain) as server:
        terminal = cli.terminal("chat", "agent.py:agent", **at(server))
        [session] = re.findall(r"Session (\S+),", terminal.expect("> "))
        terminal.type("你好\n")
        terminal.expect("1: 你好\n")
        terminal.expect("> ")
        terminal.type("again\n")
        terminal.expect("3: again\n")
        terminal.expect("> ")
        terminal.type("\x04")
        assert terminal.code() == 0
    assert [(run["session"], run["input"]) for run in inside.runs()] == [(session, "again"), (session, "你好")]


def test_ctrl_c_cancels_the_run_and_not_the_program(cli: Cli, inside: Inside, at: At) -> None:
    with ModelServer(brain) as server:
        terminal = cli.terminal("chat", "agent.py", **at(server))
        terminal.expect("> ")
        terminal.type("talk\n")
        terminal.expect("word word ")
        terminal.type("\x03")
        terminal.expect("Cancelled.\n")
        assert server.requests[0].wait(1)
        assert server.requests[0].disconnected_at is not None
        terminal.expect("> ")
        terminal.type("wait\n")
        wait_for(lambda: (cli.folder / "waiting.txt").exists())
        terminal.type("\x03")
        terminal.expect("Cancelled.\n")
        terminal.expect("> ")
        terminal.type("still there?\n")
        terminal.expect(": still there?\n")
        terminal.expect("> ")
        terminal.type("/exit\n")
        assert terminal.code() == 0
    assert [run["status"] for run in inside.runs()] == ["completed", "cancelled", "cancelled"]


def test_ctrl_c_at_the_prompt_clears_the_line_and_then_leaves(cli: Cli, at: At) -> None:
    with ModelServer(brain) as server:
        terminal = cli.terminal("chat", "agent.py", **at(server))
        terminal.expect("> ")
        terminal.type("not thi\x03")
        terminal.expect("leaves.\n")
        terminal.expect("> ")
        terminal.type("this\n")
        terminal.expect("1: this\n")
        terminal.expect("> ")
        terminal.type("\x03")
        terminal.expect("> ")
        terminal.type("\x03")
        assert terminal.code() == 0


def test_approvals_are_asked_one_after_another(cli: Cli, at: At) -> None:
    with ModelServer(brain) as server:
        terminal = cli.terminal("chat", "agent.py", **at(server))
        terminal.expect("> ")
        terminal.type("delete 1 2 3\n")
        assert "row_id: 1\n" in terminal.expect("[e]dit the arguments: ")
        terminal.type("perhaps\n")
        terminal.expect("Please answer y, n or e.\n")
        terminal.expect("[e]dit the arguments: ")
        terminal.type("y\n")
        assert "row_id: 2\n" in terminal.expect("[e]dit the arguments: ")
        terminal.type("n\n")
        terminal.expect("may be empty): ")
        terminal.type("too new\n")
        assert "row_id: 3\n" in terminal.expect("[e]dit the arguments: ")
        terminal.type("e\n")
        terminal.expect('{"row_id": 3}')
        terminal.type("\b\b40}\n")
        answer = terminal.expect("deleted 40\n")
        assert "deleted 1;" in answer
        assert "too new" in answer
        terminal.expect("> ")
        terminal.type("\x04")
        assert terminal.code() == 0
    assert sorted((cli.folder / "deleted.txt").read_text().split()) == ["1", "40"]


def test_ctrl_c_at_a_question_cancels_the_run(cli: Cli, inside: Inside, at: At) -> None:
    with ModelServer(brain) as server:
        terminal = cli.terminal("chat", "agent.py", **at(server))
        terminal.expect("> ")
        terminal.type("delete 1\n")
        terminal.expect("[e]dit the arguments: ")
        terminal.type("\x03")
        terminal.expect("Cancelled.\n")
        terminal.expect("> ")
        terminal.type("\x04")
        assert terminal.code() == 0
    assert [run["status"] for run in inside.runs()] == ["cancelled"]
    assert not (cli.folder / "deleted.txt").exists()


def test_a_terminal_shows_no_control_characters_of_the_model(cli: Cli, at: At) -> None:
    with ModelServer(script=[say("a\x1b]0;title\x07b\x1b[2Jc")]) as server:
        terminal = cli.terminal("chat", "agent.py", **at(server))
        terminal.expect("> ")
        terminal.type("hi\n")
        assert terminal.expect("c\n").endswith("a\ufffd]0;title\ufffdb\ufffd[2Jc\n")
        terminal.expect("> ")
        terminal.type("\x04")
        assert terminal.code() == 0


# Through a pipe


def test_lines_come_through_a_pipe(cli: Cli, at: At) -> None:
    with ModelServer(brain) as server:
        ended = cli("chat", "agent.py", "--session", "s", input="one\n\n  \ntwo\n", **at(server))
    assert (ended.code, ended.out) == (0, "1: one\n3: two\n")
    assert ended.err == "Session s, recorded in sqlite:///glassloop.db. /help lists the commands.\n"


def test_commands(cli: Cli, at: At) -> None:
    commands = (
        "/help;/session;/trace on;weather;/trace off;weather;/runs;/new;fresh;/session s;back;/what ever;/exit;no"
    )
    lines = commands.replace(";", "\n")
    with ModelServer(brain) as server:
        ended = cli("chat", "agent.py", "--session", "s", input=lines, **at(server))
    assert ended.code == 0
    for told in ("/trace on|off", "Session s, recorded", "The trace is on.", "no command /what ever; /help"):
        assert told in ended.err
    assert ended.out.count("observation get_weather") == 1
    assert len(re.findall(r"^run_\S+ +completed", ended.out, re.M)) == 2
    assert "\n1: fresh\n9: back\n" in ended.out


def test_answers_to_questions_come_through_the_pipe_too(cli: Cli, at: At) -> None:
    with ModelServer(brain) as server:
        ended = cli("chat", "agent.py", input="delete 1\ny\ndelete 2\nn\nno\ndelete 3\n", **at(server))
    assert ended.code == 0
    assert (cli.folder / "deleted.txt").read_text() == "1\n"
    last = ended.out.splitlines()[-1]
    assert "nobody answered" in last


def test_yes_approves_everything(cli: Cli, at: At) -> None:
    with ModelServer(brain) as server:
        ended = cli("chat", "agent.py", "--yes", input="delete 1 2\n", **at(server))
    assert ended.out == "deleted 1; deleted 2\n"


def test_a_run_that_fails_does_not_end_the_conversation(cli: Cli, at: At) -> None:
    with ModelServer(brain) as server:
        ended = cli("chat", "agent.py", "--max-steps", "1", input="refuse\nweather\nhello\n", **at(server))
    assert ended.code == 0
    assert "\nError: " in ended.err
    assert "\nNot completed: limited (steps): " in ended.err
    assert ended.out.splitlines()[-1].endswith(": hello")


def test_a_model_that_cannot_be_used_does_not_end_the_conversation(cli: Cli) -> None:
    ended = cli("chat", "agent.py", input="one\ntwo\n")
    assert (ended.code, ended.out) == (0, "")
    assert ended.err.count("\nError: No model is configured") == 2


def test_json_is_one_object_a_line(cli: Cli, at: At) -> None:
    with ModelServer(brain) as server:
        ended = cli("chat", "agent.py", "--json", input="one\ntwo\n", **at(server))
    assert [json.loads(line)["output"] for line in ended.out.splitlines()] == ["1: one", "3: two"]


def test_sigint_cancels_the_run_and_sigterm_the_program(cli: Cli, inside: Inside, at: At) -> None:
    with ModelServer(brain) as server:
        process = cli.start("chat", "agent.py", **at(server))
        assert process.stdin is not None
        assert process.stdout is not None
        for sent in (signal.SIGINT, signal.SIGTERM):
            process.stdin.write("talk\n")
            process.stdin.flush()
            assert process.stdout.read(5) == "word "
            process.send_signal(sent)
            while process.stdout.read(1) not in ("\n", ""):
                pass
        ended = cli.finish(process)
    assert ended.code == 130
    assert ended.err.count("Cancelled.\n") == 2
    assert [run["status"] for run in inside.runs()] == ["cancelled", "cancelled"]


def wait_for(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    """Wait until something that another process does has happened."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)
