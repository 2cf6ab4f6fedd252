"""What a human approves is what runs, whatever the arguments hold: nothing hides in them or repaints the prompt."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from glassloop.cli.keyboard import Approvals, Lines
from glassloop.core.result import PendingApproval
from glassloop.testing import ModelServer, ask, call, say

if TYPE_CHECKING:
    from tests.cli.conftest import Cli, Inside

At = Callable[[ModelServer], dict[str, str]]

AGENT = '''
"""An agent that sends what is approved, or asks what to send."""

import json
from glassloop import Agent, ask_human, tool


@tool(effect="write", approval=True)
def send(text: str) -> str:
    """Send a text."""
    with open("sent.json", "w") as file:
        json.dump(text, file)
    return "sent"


@tool(effect="write")
def consult(question: str) -> str:
    """Ask a human."""
    return ask_human(question, choices=[question, "no"])


agent = Agent(tools=[send, consult], name="sender")
'''

TEXTS = {
    "escapes": "\x1b[2J\x1b[1;1H\x9b3A\x7f\rRun it? yes",
    "bidi": "pay \u202e000,01\u202c to \u2066\u2069 a\u200bb\ufeff",
    "words": "订单 👩‍👧 שלום, مرحبا",
    "long": "0123456789" * 2_000 + "end",
}


@pytest.fixture
def sender(cli: Cli) -> Cli:
    cli.write("sender.py", AGENT)
    return cli


@pytest.mark.parametrize("text", TEXTS.values(), ids=list(TEXTS))
@pytest.mark.parametrize("variables", [{"NO_COLOR": "1"}, {"TERM": "xterm-256color", "COLUMNS": "20"}])
def test_arguments_are_shown_as_they_run(sender: Cli, at: At, text: str, variables: dict[str, str]) -> None:
    with ModelServer(script=[ask(call("send", text=text)), say("done")]) as server:
        terminal = sender.terminal("run", "sender.py", "hi", **variables, **at(server))
        shown = terminal.expect("Run it? [y]es").partition("Arguments:\n")[2].splitlines()[0]
        assert shown.startswith('  text: "')
        assert all(char.isprintable() or char == "\u200d" for char in shown)
        assert json.loads(shown.removeprefix("  text: ")) == text
        terminal.type("y\n")
        terminal.expect("done")
        assert terminal.code() == 0
    assert json.loads((sender.folder / "sent.json").read_text()) == text


@pytest.mark.parametrize("text", TEXTS.values(), ids=list(TEXTS))
def test_a_draft_that_is_not_changed_is_what_was_asked_for(sender: Cli, at: At, text: str) -> None:
    with ModelServer(script=[ask(call("send", text=text)), say("done")]) as server:
        terminal = sender.terminal("run", "sender.py", "hi", TERM="xterm", **at(server))
        terminal.expect("Run it? [y]es, [n]o, [e]dit the arguments: ")
        terminal.type("e\n")
        terminal.expect("Arguments as JSON: ")
        terminal.type("\n")
        terminal.expect("done\n", 60.0)
        assert terminal.code() == 0
    assert json.loads((sender.folder / "sent.json").read_text()) == text


def test_a_question_cannot_pass_for_lines_of_the_program(sender: Cli, at: At) -> None:
    question = "Which?\nsend needs your yes\u202e.\x1b[1A"
    with ModelServer(script=[ask(call("consult", question=question)), say("done")]) as server:
        terminal = sender.terminal("run", "sender.py", "hi", **at(server))
        shown = terminal.expect("Your answer (its number will do): ")
        inside = "Which?\n  send needs your yes\\u202e.\ufffd[1A"
        assert f"consult asks: {inside}\n  1. {inside}\n  2. no\n" in shown.replace("\\u001b", "\ufffd")
        terminal.type("2\n")
        terminal.expect("done\n")


def test_what_waits_is_told_on_one_line(sender: Cli, inside: Inside, at: At) -> None:
    script = [ask(call("send", text="a" * 400), call("consult", question="One?\nTwo?\u202e"))]
    with ModelServer(script=script) as server:
        ended = inside("run", "sender.py", "hi", **at(server))
    assert ended.code == 4
    cut = len('send(text="' + "a" * 400 + '")') - 300
    assert f'  send(text="{"a" * 289}… ({cut} more characters)  (risk ' in ended.err
    assert "consult asks: One? Two?\\u202e  (One? Two?\\u202e, no)\n" in ended.err


def test_who_decides_hears_that_a_call_may_have_happened_already(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("n\nit did\n"))
    held = PendingApproval("appr_1", "call_1", "send", {"to, from": "a"}, "", kind="doubt")
    decision = Approvals(Lines(), "ann")(held)
    assert (decision.decision, decision.reason) == ("deny", "it did")
    told, asked, argument = capsys.readouterr().err.splitlines()
    assert told == "send had begun before the program ended: it may have happened already."
    assert asked == "send needs your yes (risk high). Arguments:"
    assert argument == '  "to, from": "a"'
