"""Public failures of agent loops, played against Glassloop: one test for each case, over the wire of its provider.

Scenario cases need more than one run and a script: see test_scenarios.py.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path

import pytest
from judge.checks import evaluate
from judge.evidence import Case
from judge.play import Child, Player, read_cases
from judge.server import Server

PLAYED = [case for case in read_cases() if case["input"]["mode"] != "scenario"]
STREAMED = [case for case in PLAYED if case["input"]["mode"] == "openai" and not case["input"]["stream"]]

NOT_YET = {
    "F04": "manual",  # records of older versions: looked at by the tests of the stores
    "G19": "manual",  # search in documents
}
"""The verdict on cases whose feature does not exist yet, or that only a test of its own can judge."""


@pytest.fixture(scope="module")
def player() -> Iterator[Player]:
    server, child = Server(), Child(Path(__file__).with_name("adapter.py"))
    yield Player(server, child, timeout=20)
    child.close()
    server.close()


def name(case: Case) -> str:
    return f"{case['id']}-{case['input']['mode']}"


def play(case: Case, player: Player) -> None:
    """Play a case; it must have its verdict, and no exception but Glassloop's own may leave the library."""
    seen = player.play(case)
    status, reason = evaluate(seen)
    wanted = NOT_YET.get(case["id"], "pass")
    assert status == wanted, f"{reason}\n{case['symptom']}\nwanted: {case['expected']}\n{seen.result.get('trace', '')}"
    if seen.result.get("escaped"):
        assert seen.result["error"].startswith("ToolDefinitionError"), seen.result["trace"]


@pytest.mark.parametrize("case", PLAYED, ids=name)
def test_case(case: Case, player: Player) -> None:
    play(case, player)


@pytest.mark.parametrize("case", STREAMED, ids=name)
def test_case_when_the_replies_are_streamed(case: Case, player: Player) -> None:
    case = copy.deepcopy(case)
    case["input"]["stream"] = True
    play(case, player)
