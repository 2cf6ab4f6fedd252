"""`glassloop run`: answers, outcomes and exit codes, against a real model server."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from glassloop.testing import Conversation, ModelServer, Reaction, ask, call, fail, say

if TYPE_CHECKING:
    from tests.cli.conftest import Cli, Inside

At = Callable[[ModelServer], dict[str, str]]

WEATHER = (ask(call("get_weather", city="北京"), text="Let me look."), say("北京有 21 度 [bold]!"))


def one_line(err: str) -> str:
    """The only line on standard error."""
    assert err.count("\n") == 1, err
    return err.strip()


def closed_port() -> int:
    """A port that nobody listens on."""
    server = ModelServer(script=[])
    with server:
        return server.port


def test_the_answer_goes_to_standard_output(cli: Cli, at: At) -> None:
    with ModelServer(script=WEATHER) as server:
        ended = cli("run", "agent.py:agent", "天气？", **at(server))
    assert ended == type(ended)(0, "Let me look.\n北京有 21 度 [bold]!\n", "")
    conversation = server.requests[0].conversation
    assert conversation is not None
    assert conversation.user == "天气？"


def test_the_trace_comes_first_and_the_answer_last(inside: Inside, at: At) -> None:
    with ModelServer(script=WEATHER) as server:
        ended = inside("run", "agent.py", "hi", "--trace", **at(server))
    lines = ended.out.splitlines()
    kinds = [line[8:].split()[0] for line in lines[1:-1]]
    assert kinds == ["thinking", "thought", "action", "observation", "thinking", "finish"]
    assert "[bold]sunny[/bold]" in lines[4]
    assert lines[-1] == "北京有 21 度 [bold]!"
    assert "\x1b" not in ended.out


@pytest.mark.parametrize("command", ["run", "chat"])
def test_what_the_agents_own_code_prints_is_no_part_of_the_json(cli: Cli, at: At, command: str) -> None:
    cli.write(
        "loud.py",
        """
from glassloop import Agent

print("imported")


def look() -> str:
    \"\"\"Look.\"\"\"
    print("looked")
    return "seen"


agent = Agent(tools=[look])
""",
    )
    words = (command, "loud.py", *(["hi"] if command == "run" else []), "--json")
    with ModelServer(script=[ask(call("look")), say("done")]) as server:
        ended = cli(*words, input="hi\n", **at(server))
    assert ended.json["output"] == "done"
    assert {"imported", "looked"} <= set(ended.err.splitlines())


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-"])
def test_a_closed_stream_does_not_end_the_program(cli: Cli, at: At, closed: str) -> None:
    with ModelServer(script=[say("done")]) as server:
        ended = subprocess.run(
            ["/bin/sh", "-c", f'exec "$0" -m glassloop run agent.py hi {closed}', sys.executable],
            env={**cli.environment, **at(server)},
            cwd=cli.folder,
            capture_output=True,
            text=True,
            check=False,
        )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout == ("" if closed == ">&-" else "done\n")


def test_json_is_one_object(inside: Inside, at: At) -> None:
    with ModelServer(script=WEATHER) as server:
        result = inside("run", "agent.py", "hi", "--json", **at(server)).json
    assert result["outcome"] == "completed"
    assert result["output"] == "北京有 21 度 [bold]!"
    assert result["steps"] == 2
    assert result["usage"]["total"] == result["usage"]["input"] + result["usage"]["output"] > 0
    assert [execution["tool"] for execution in result["tool_executions"]] == ["get_weather"]
    assert {"cost_usd", "seconds", "message", "limit", "run_id"} <= result.keys()


@pytest.mark.parametrize("arguments", [(), ("-",)])
def test_the_question_comes_through_a_pipe(cli: Cli, at: At, arguments: tuple[str, ...]) -> None:
    with ModelServer(script=[say("yes")]) as server:
        ended = cli("run", "agent.py", *arguments, input="天气\nplease?\n", **at(server))
    assert ended.out == "yes\n"
    conversation = server.requests[0].conversation
    assert conversation is not None
    assert conversation.user == "天气\nplease?"


def test_output_is_seen_while_it_streams(cli: Cli, at: At) -> None:
    with ModelServer(lambda _: say("first second", piece=6, gap=2)) as server:
        process = cli.start("run", "agent.py", "hi", **at(server))
        assert process.stdout is not None
        assert process.stdout.read(6) == "first "
        assert not server.requests[0].wait(0)
        process.send_signal(signal.SIGINT)
        cli.finish(process)


def test_an_encoding_that_cannot_hold_the_answer(cli: Cli, at: At) -> None:
    with ModelServer(script=[say("北京!")] * 2) as server:
        variables = {**at(server), "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
        assert cli("run", "agent.py", "hi", **variables).out == "??!\n"
        assert cli("run", "agent.py", "hi", "--json", **variables).json["output"] == "北京!"


def test_a_session_remembers(inside: Inside, at: At) -> None:
    with ModelServer(lambda conversation: say(f"{len(conversation.messages)} messages")) as server:
        assert inside("run", "agent.py", "hi", "--session", "s", "--user", "ada", **at(server)).out == "1 messages\n"
        assert inside("run", "agent.py", "hi", "--session", "s", **at(server)).out == "3 messages\n"
        assert inside("run", "agent.py", "hi", **at(server)).out == "1 messages\n"
    assert [(run["session"], run["user"]) for run in inside.runs()] == [(None, None), ("s", None), ("s", "ada")]


def test_the_store_is_where_it_is_told_to_be(inside: Inside, at: At) -> None:
    with ModelServer(script=[say("a"), say("b"), say("c")]) as server:
        inside("run", "agent.py", "hi", "--store", "sqlite:///mine.db", **at(server))
        inside("run", "agent.py", "hi", STORE="sqlite:///other.db", **at(server))
        inside("run", "agent.py", "hi", "--store", "memory:", **at(server))
    assert sorted(path.name for path in inside.folder.glob("*.db")) == ["mine.db", "other.db"]


# Models


def test_a_wrong_key_is_one_line_that_names_the_variable(cli: Cli) -> None:
    with ModelServer(lambda _: say("never"), api_key="right") as server:
        ended = cli("run", "agent.py:agent", "hi", MODEL="openai:x", MODEL_ENDPOINT=server.url)
        assert len(server.requests) == 1
    assert (ended.code, ended.out) == (1, "")
    assert "OPENAI_API_KEY" in one_line(ended.err)


def test_a_closed_port_is_tried_again_then_told_in_one_line(cli: Cli) -> None:
    endpoint = f"http://127.0.0.1:{closed_port()}/v1"
    ended = cli("run", "agent.py:agent", "hi", "--trace", MODEL="openai:x", MODEL_ENDPOINT=endpoint)
    assert ended.code == 1
    assert ended.out.count("again in") == 3
    assert ended.out.count("gave up") == 1
    assert "connection refused" in one_line(ended.err)


def test_a_server_in_trouble_is_tried_again_without_a_word(inside: Inside, at: At) -> None:
    with ModelServer(script=[fail(503), say("there")]) as server:
        ended = inside("run", "agent.py", "hi", **at(server))
    assert (ended.code, ended.out, ended.err) == (0, "there\n", "")


def test_no_model_at_all(inside: Inside) -> None:
    ended = inside("run", "agent.py", "hi")
    assert (ended.code, ended.out) == (1, "")
    assert "MODEL" in one_line(ended.err)


def test_the_model_option_comes_first(inside: Inside, at: At) -> None:
    with ModelServer(script=[say("yes")]) as server:
        inside("run", "agent.py", "hi", "--model", "openai:other", **at(server))
    assert server.requests[0].body["model"] == "other"


STAND_IN = """
from glassloop import Agent
from glassloop.testing import StandIn, say
agent = Agent({model})
STAND_IN = StandIn(lambda conversation: say("stood in for " + conversation.user))
"""


@pytest.mark.parametrize("model", ["", "'openai:gpt-5'"])
def test_the_stand_in_of_the_module_answers_where_no_model_is_configured(inside: Inside, model: str) -> None:
    inside.write("shop.py", STAND_IN.format(model=model))
    ended = inside("run", "shop.py:agent", "hi")
    assert (ended.code, ended.out) == (0, "stood in for hi\n")
    assert "stand-in" in one_line(ended.err)


@pytest.mark.parametrize("model", ["", "'openai:test'"])
def test_a_configured_model_answers_in_place_of_the_stand_in(inside: Inside, at: At, model: str) -> None:
    inside.write("shop.py", STAND_IN.format(model=model))
    with ModelServer(script=[say("real")]) as server:
        ended = inside("run", "shop.py:agent", "hi", **at(server))
    assert (ended.code, ended.out, ended.err) == (0, "real\n", "Model: openai:test\n")


def test_a_model_that_was_asked_for_is_never_replaced(inside: Inside) -> None:
    inside.write("shop.py", STAND_IN.format(model=""))
    ended = inside("run", "shop.py:agent", "hi", MODEL="openai:gpt-5")
    assert (ended.code, ended.out) == (1, "")
    assert "OPENAI_API_KEY" in ended.err


# Outcomes


@pytest.mark.parametrize(
    ("script", "options", "code", "told"),
    [
        ([say("cut", stop="length")], (), 3, "truncated"),
        ([say("no", stop="content_filter")], (), 3, "filtered"),
        ([say("Let me check that now.")] * 2, (), 3, "unanswered"),
        ([ask(call("get_weather", city="x"))], ("--max-steps", "1"), 3, "limited (steps)"),
        ([], ("--max-tokens", "20"), 3, "limited (total_tokens)"),
        ([], ("--max-cost", "1"), 3, "limited (cost_usd)"),
        ([say("late", delay=5)], ("--timeout", "0.2"), 3, "limited (seconds)"),
        ([ask(call("stop"))], (), 1, "The desk is closed."),
        ([say(""), say("")], (), 1, "empty reply"),
    ],
)
def test_an_outcome_has_its_exit_code_and_its_sentence(
    inside: Inside, at: At, script: list[Reaction], options: tuple[str, ...], code: int, told: str
) -> None:
    with ModelServer(script=script) as server:
        ended = inside("run", "agent.py", "hi", *options, **at(server))
    assert ended.code == code
    assert told in ended.err.splitlines()[0]


def test_a_limit_may_be_answered(inside: Inside, at: At) -> None:
    with ModelServer(script=[ask(call("get_weather", city="x")), say("what I have")]) as server:
        ended = inside("run", "agent.py", "hi", "--max-steps", "1", "--on-limit", "answer", "--json", **at(server))
    assert ended.code == 3
    assert (ended.json["outcome"], ended.json["limit"], ended.json["output"]) == ("limited", "steps", "what I have")


def test_a_tool_that_fails_does_not_fail_the_run(inside: Inside, at: At) -> None:
    with ModelServer(script=[ask(call("broken")), say("it broke")]) as server:
        ended = inside("run", "agent.py", "hi", "--trace", **at(server))
    assert ended.code == 0
    assert "secret detail" not in ended.out


def test_an_unexpected_error_is_one_sentence(inside: Inside) -> None:
    inside.write("odd.py", "from glassloop import Agent\nagent = Agent('ollama:x', instructions=lambda context: 1 / 0)")
    ended = inside("run", "odd.py", "hi")
    assert ended.code == 1
    assert one_line(ended.err) == "Error: ZeroDivisionError: division by zero. Run it again with --debug to see where."


# Approvals


def test_a_held_call_rests_where_there_is_no_terminal(inside: Inside, at: At) -> None:
    with ModelServer(script=[ask(call("delete_row", row_id=1))]) as server:
        ended = inside("run", "agent.py", "hi", "--json", **at(server))
    assert ended.code == 4
    assert ended.json["outcome"] == "waiting"
    [pending] = ended.json["pending"]
    assert (pending["tool"], pending["arguments"]) == ("delete_row", {"row_id": 1})
    assert pending["approval_id"] in ended.err
    assert f"glassloop runs resume {ended.json['run_id']} agent.py --approve" in ended.err
    assert not (inside.folder / "deleted.txt").exists()


def test_yes_approves(inside: Inside, at: At) -> None:
    with ModelServer(script=[ask(call("delete_row", row_id=1)), say("done")]) as server:
        ended = inside("run", "agent.py", "hi", "--yes", **at(server))
    assert (ended.code, ended.out) == (0, "done\n")
    assert (inside.folder / "deleted.txt").read_text() == "1\n"


def test_a_terminal_is_asked(cli: Cli, at: At) -> None:
    with ModelServer(script=[ask(call("delete_row", row_id=1)), say("kept")]) as server:
        terminal = cli.terminal("run", "agent.py", "hi", **at(server))
        assert "row_id: 1" in terminal.expect("[e]dit the arguments: ")
        terminal.type("n\n")
        terminal.expect("may be empty): ")
        terminal.type("not this one\n")
        terminal.expect("kept\n")
        assert terminal.code() == 0
    [outcome] = result_texts(server)
    assert "not this one" in outcome


def test_an_answer_that_comes_too_late(cli: Cli, at: At) -> None:
    layer = "from glassloop.middleware.approval import Approval\n"
    text = (cli.folder / "agent.py").read_text().replace("name=", "middleware=[Approval(seconds=0.1)], name=")
    cli.write("agent.py", layer + text)
    with ModelServer(script=[ask(call("delete_row", row_id=1)), say("kept")]) as server:
        terminal = cli.terminal("run", "agent.py", "hi", **at(server))
        terminal.expect("[e]dit the arguments: ")
        assert server.wait_for_requests(2)
        terminal.type("y\n")
        terminal.expect("Too late: ")
        terminal.expect("kept\n")
        assert terminal.code() == 0
    assert not (cli.folder / "deleted.txt").exists()


def result_texts(server: ModelServer) -> list[str]:
    """The tool results in the last request."""
    conversation: Conversation | None = server.requests[-1].conversation
    assert conversation is not None
    return [result.text for result in conversation.results]


# Stopping


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_signal_cancels_the_run(cli: Cli, inside: Inside, at: At, name: str) -> None:
    with ModelServer(lambda _: say("word ", endless=True)) as server:
        process = cli.start("run", "agent.py", "hi", **at(server))
        assert process.stdout is not None
        process.stdout.read(5)
        at_signal = time.monotonic()
        process.send_signal(signal.Signals[name])
        ended = cli.finish(process)
        assert ended.code == 130
        assert ended.err == "Cancelled.\n"
        assert gone_within_a_second(server, at_signal)
    [run] = inside.runs()
    assert run["status"] == "cancelled"


def test_a_signal_cancels_a_running_tool(cli: Cli, at: At) -> None:
    with ModelServer(script=[ask(call("wait"))]) as server:
        process = cli.start("run", "agent.py", "hi", "--json", **at(server))
        wait_for(lambda: (cli.folder / "waiting.txt").exists())
        process.send_signal(signal.SIGINT)
        ended = cli.finish(process)
    assert ended.code == 130
    assert ended.json["outcome"] == "cancelled"


def test_a_thread_that_cannot_be_stopped_does_not_hold_the_program(cli: Cli, at: At) -> None:
    with ModelServer(script=[ask(call("block"))]) as server:
        process = cli.start("run", "agent.py", "hi", **at(server))
        wait_for(lambda: (cli.folder / "waiting.txt").exists())
        process.send_signal(signal.SIGINT)
        ended = cli.finish(process)
    assert (ended.code, ended.err) == (130, "Cancelled.\n")


def test_whoever_does_not_want_to_wait_for_the_end_may_leave(cli: Cli, at: At) -> None:
    with ModelServer(script=[ask(call("ignore"))]) as server:
        process = cli.start("run", "agent.py", "hi", **at(server))
        assert process.stderr is not None
        wait_for(lambda: (cli.folder / "waiting.txt").exists())
        process.send_signal(signal.SIGINT)
        assert process.stderr.readline().startswith("Waiting until everything has stopped; press Ctrl-C")
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=10) == 130


def test_a_killed_client_closes_the_connection_to_the_model(cli: Cli, at: At) -> None:
    with ModelServer(lambda _: say("word ", endless=True)) as server:
        process = cli.start("run", "agent.py", "hi", **at(server))
        assert process.stdout is not None
        process.stdout.read(5)
        at_signal = time.monotonic()
        process.kill()
        process.wait()
        assert gone_within_a_second(server, at_signal)


def test_a_reader_that_leaves_ends_the_run_silently(cli: Cli, inside: Inside, at: At) -> None:
    with ModelServer(lambda _: say("word ", endless=True)) as server:
        process = cli.start("run", "agent.py", "hi", **at(server))
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(5)
        process.stdout.close()
        assert process.wait(timeout=10) == 1
        assert process.stderr.read() == ""
        assert server.requests[0].wait()
    [run] = inside.runs()
    assert run["status"] == "cancelled"


def gone_within_a_second(server: ModelServer, at_signal: float) -> bool:
    """Whether the client of the only request has gone, a second after `at_signal` at most."""
    [request] = server.requests
    assert request.wait(5)
    return request.disconnected_at is not None and request.disconnected_at - at_signal < 1.0


def wait_for(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    """Wait until something that another process does has happened."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)
