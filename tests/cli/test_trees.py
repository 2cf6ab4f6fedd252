"""`glassloop runs` with a tree of runs: one run in the list, one trace, decisions wherever in it they are due."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from glassloop.testing import Answer, Conversation, ModelServer, ask, call, say

if TYPE_CHECKING:
    from tests.cli.conftest import Inside

At = Callable[[ModelServer], dict[str, str]]

TEAM = '''
"""A boss who has a clerk."""

from glassloop import Agent, tool
from glassloop.teams import agent_tool


@tool(approval=True, effect="write")
def delete_row(row_id: int) -> str:
    """Delete a row."""
    with open("deleted.txt", "a") as file:
        file.write(f"{row_id}\\n")
    return f"deleted {row_id}"


clerk = Agent(tools=[delete_row], name="clerk", instructions="You are the clerk.")
boss = Agent(tools=[agent_tool(clerk)], name="boss", instructions="You are the boss.")
'''


def brain(conversation: Conversation) -> Answer:
    """The boss asks the clerk, who wants to delete a row."""
    if conversation.results:
        return say(conversation.results[-1].text)
    clerks = conversation.system == "You are the clerk."
    return ask(call("delete_row", row_id=7) if clerks else call("clerk", task="Delete row 7."))


@pytest.fixture
def waiting(inside: Inside, at: At) -> str:
    """A tree that waits for a human: its root."""
    inside.write("team.py", TEAM)
    with ModelServer(brain) as server:
        ended = inside("run", "team.py:boss", "Clean up.", "--json", **at(server))
    assert (ended.code, ended.json["outcome"]) == (4, "waiting")
    return ended.json["run_id"]


def test_a_list_has_the_root_alone(inside: Inside, waiting: str) -> None:
    assert [(row["id"], row["agent"], row["status"]) for row in inside.runs()] == [(waiting, "boss", "waiting")]
    assert inside("runs", "list", "--agent", "clerk", "--json").json == []


def test_one_trace_shows_all_of_it_in_order(inside: Inside, waiting: str) -> None:
    out = inside("runs", "show", waiting).out
    begun = [
        out.index(words) for words in ("boss: Clean up.", "clerk: Delete row 7.", "delete_row(", "finish      waiting")
    ]
    assert begun == sorted(begun)
    assert out.count("waits for a human's yes") == 1
    [line] = [line for line in out.splitlines() if "clerk: Delete row 7." in line]
    place = line.split()[0]
    assert line.startswith(f"  {place} run ")
    assert all(place in line for line in out.splitlines() if "delete_row" in line)
    assert "with 1 run below: 2 steps" in out
    events = inside("runs", "show", waiting, "--json").json["events"]
    assert {event["run_id"] for event in events} == {waiting}
    [below] = [event["data"]["below"] for event in events if event["type"] == "call_suspended"]
    shown = inside("runs", "show", below).out
    assert "clerk: Delete row 7." in shown
    assert "boss" not in shown
    assert inside("runs", "show", below[:-2], "--json").json["agent"] == "clerk"


def test_a_decision_on_a_call_below_is_given_to_the_root(inside: Inside, at: At, waiting: str) -> None:
    [event] = [
        event for event in inside("runs", "show", waiting, "--json").json["events"] if event["type"] == "call_suspended"
    ]
    below = inside("runs", "show", event["data"]["below"], "--json").json["events"]
    [approval] = [event["data"]["approval_id"] for event in below if event["type"] == "approval_asked"]
    with ModelServer(brain) as server:
        ended = inside("runs", "resume", waiting, "team.py:boss", "--approve", approval, **at(server))
    assert (ended.code, ended.out) == (0, "deleted 7\n")
    assert (inside.folder / "deleted.txt").read_text() == "7\n"
    assert [row["status"] for row in inside.runs()] == ["completed"]
    out = inside("runs", "show", waiting).out
    assert out.splitlines()[-1] == "deleted 7"
    told = [
        out.index(words) for words in ("approved", "action      delete_row(", "action      clerk(", "with 1 run below")
    ]
    assert told == sorted(told)
