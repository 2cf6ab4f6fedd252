"""What a tool asks, at the terminal: shown with its choices, answered at the prompt, or later by `runs resume`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from glassloop.testing import ModelServer, ask, call, say

if TYPE_CHECKING:
    from tests.cli.conftest import Cli, Inside

At = Callable[[ModelServer], dict[str, str]]

AGENT = '''
"""An agent whose tool asks."""

from glassloop import Agent, ask_human, tool


@tool(effect="write")
def paint(wall: str) -> str:
    """Paint a wall."""
    colour = ask_human(f"Which colour for the {wall} wall?", choices=["red", "blue"])
    by = ask_human("And who is it for?")
    return f"{wall} is {colour} for {by}"


agent = Agent(tools=[paint], name="painter")
'''

SCRIPT: list[Any] = [ask(call("paint", wall="north")), say("done")]


def results(server: ModelServer) -> list[str]:
    """What the model was told of its calls."""
    return [message["content"] for message in server.requests[-1].body["messages"] if message["role"] == "tool"]


@pytest.fixture
def waiting(inside: Inside, at: At) -> dict[str, Any]:
    """A run that asks."""
    inside.write("paint.py", AGENT)
    with ModelServer(script=SCRIPT[:1]) as server:
        ended = inside("run", "paint.py", "hi", "--json", **at(server))
    [pending] = ended.json["pending"]
    assert ended.code == 4
    assert "1 call waits for a human's decision" in ended.err
    assert f"{pending['approval_id']}  paint asks: Which colour for the north wall?  (red, blue)" in ended.err
    assert f'paint.py --answer {pending["approval_id"]}="..." (or --deny' in ended.err
    return {"run": ended.json["run_id"], **pending}


def test_a_question_rests_where_there_is_no_terminal_and_is_answered_later(
    inside: Inside, at: At, waiting: dict[str, Any]
) -> None:
    assert (waiting["kind"], waiting["summary"]) == ("question", "Which colour for the north wall?")
    assert waiting["choices"] == ["red", "blue"]
    with ModelServer(script=SCRIPT[1:]) as server:
        resume = ("runs", "resume", waiting["run"], "paint.py")
        ended = inside(*resume, "--answer", f"{waiting['approval_id']}=blue", "--json", **at(server))
        [second] = ended.json["pending"]
        assert (ended.code, second["summary"], second["choices"]) == (4, "And who is it for?", [])
        ended = inside(*resume, "--answer", f"{second['approval_id']}=Ann = Bob", **at(server))
        assert (ended.code, ended.out) == (0, "done\n")
    assert results(server) == ["north is blue for Ann = Bob"]
    shown = inside("runs", "show", waiting["run"]).out
    assert "paint asks a human: Which colour for the north wall?" in shown
    assert "answered by " in shown
    assert ": blue" in shown


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (("--answer", "{id}=green"), "The answer must be one of these: red, blue."),
        (("--approve", "{id}"), 'Give --answer {id}="..."'),
        (("--answer", "{id}"), "--answer needs the approval and the answer: --answer {id}="),
        (("--answer", "{id}=red", "--deny", "{id}"), "{id} cannot be answered and decided otherwise, too."),
    ],
)
def test_what_is_no_answer_is_refused(
    inside: Inside, at: At, waiting: dict[str, Any], given: tuple[str, ...], why: str
) -> None:
    options = [option.format(id=waiting["approval_id"]) for option in given]
    with ModelServer(script=[]) as server:
        ended = inside("runs", "resume", waiting["run"], "paint.py", *options, **at(server))
    assert ended.code in (1, 2)
    assert why.format(id=waiting["approval_id"]) in ended.err
    assert inside.runs()[0]["status"] == "waiting"


def test_yes_answers_no_question(inside: Inside, at: At, waiting: dict[str, Any]) -> None:
    with ModelServer(script=[]) as server:
        ended = inside("runs", "resume", waiting["run"], "paint.py", "--yes", **at(server))
    assert ended.code == 4
    assert "paint asks: Which colour" in ended.err


def test_a_denial_ends_the_call(inside: Inside, at: At, waiting: dict[str, Any]) -> None:
    with ModelServer(script=SCRIPT[1:]) as server:
        options = ("--deny", waiting["approval_id"], "--reason", "nobody knows")
        assert inside("runs", "resume", waiting["run"], "paint.py", *options, **at(server)).code == 0
    [told] = results(server)
    assert "Reason: nobody knows" in told


def test_a_terminal_is_asked(cli: Cli, at: At) -> None:
    cli.write("paint.py", AGENT)
    with ModelServer(script=SCRIPT) as server:
        terminal = cli.terminal("run", "paint.py", "hi", **at(server))
        shown = terminal.expect("Your answer (its number will do): ")
        assert "paint asks: Which colour for the north wall?\n  1. red\n  2. blue\n" in shown
        terminal.type("green\n")
        terminal.expect("Please give one of these answers.\n")
        terminal.expect("will do): ")
        terminal.type("2\n")
        assert "paint asks: And who is it for?\n" in terminal.expect("Your answer: ")
        terminal.type("\n")
        terminal.expect("Please answer")
        terminal.expect("Your answer: ")
        terminal.type("天气站\n")
        terminal.expect("done\n")
        assert terminal.code() == 0
    assert results(server) == ["north is blue for 天气站"]


def test_what_waits_is_asked_for_when_it_is_gone_on_with(cli: Cli, at: At, waiting: dict[str, Any]) -> None:
    with ModelServer(script=SCRIPT[1:]) as server:
        terminal = cli.terminal("runs", "resume", waiting["run"], "paint.py", **at(server))
        terminal.expect("will do): ")
        terminal.type("red\n")
        terminal.expect("Your answer: ")
        terminal.type("\x04")  # nobody knows
        terminal.expect("done\n")
        assert terminal.code() == 0
    [told] = results(server)
    assert "Reason: nobody answered" in told


def test_a_conversation_takes_answers_from_its_pipe(cli: Cli, at: At) -> None:
    cli.write("paint.py", AGENT)
    with ModelServer(script=SCRIPT) as server:
        ended = cli("chat", "paint.py", input="go\n1\nthe cat\n", **at(server))
    assert (ended.code, ended.out) == (0, "done\n")
    assert results(server) == ["north is red for the cat"]
