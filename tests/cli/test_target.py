"""FILE:AGENT: what can be named, and one sentence for everything that cannot."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from glassloop import Agent
from glassloop.cli.problems import FAILED, USAGE, Problem
from glassloop.cli.target import load_target

ONE = "from glassloop import Agent\nagent = Agent(name='one')\n"
TWO = "from glassloop import Agent\nfirst = Agent(name='a')\nsecond = Agent(name='b')\nnumber = 3\n"


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in an empty folder."""
    monkeypatch.chdir(tmp_path)


def write(place: str, text: str) -> Path:
    path = Path(place)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    return path


def refusal(target: str, code: int = USAGE) -> str:
    with pytest.raises(Problem) as raised:
        load_target(target)
    assert raised.value.code == code
    assert "\n" not in str(raised.value)
    return str(raised.value)


@pytest.mark.parametrize("target", ["desk.py:agent", "desk.py", "./desk.py:agent", "desk:agent", "desk"])
def test_a_file_or_module_with_one_agent(target: str) -> None:
    write("desk.py", ONE)
    assert load_target(target).agent.name == "one"


def test_an_absolute_path(tmp_path: Path) -> None:
    path = write("deep/er/desk.py", ONE)
    assert load_target(f"{tmp_path / path}:agent").agent.name == "one"


def test_the_folder_of_the_file_is_on_the_path() -> None:
    write("deep/helper.py", "NAME = 'helped'")
    write("deep/desk.py", "from glassloop import Agent\nimport helper\nagent = Agent(name=helper.NAME)")
    assert load_target("deep/desk.py:agent").agent.name == "helped"


def test_a_file_of_a_package_may_import_its_neighbours() -> None:
    write("shop/__init__.py", "")
    write("shop/names.py", "NAME = 'neighbour'")
    write("shop/desk.py", "from glassloop import Agent\nfrom .names import NAME\nagent = Agent(name=NAME)")
    assert load_target("shop/desk.py:agent").agent.name == "neighbour"
    assert load_target("shop.desk:agent").agent.name == "neighbour"


def test_a_folder_that_is_a_package() -> None:
    write("shop/__init__.py", ONE)
    assert load_target("shop:agent").agent.name == "one"
    assert load_target("./shop").agent.name == "one"


@pytest.mark.parametrize("name", ["json", "asyncio", "glassloop"])
def test_a_file_may_have_the_name_of_another_module(name: str) -> None:
    write(f"{name}.py", ONE)
    other = sys.modules.get(name)
    assert load_target(f"{name}.py:agent").agent.name == "one"
    assert sys.modules.get(name) is other


def test_a_file_name_that_could_be_no_module_name() -> None:
    write("my-agent.v2.py", ONE)
    assert load_target("my-agent.v2.py:agent").agent.name == "one"


def test_the_module_has_the_same_name_each_time() -> None:
    write("desk.py", "from glassloop import Agent\nagent = Agent(name=__name__)")
    write("json.py", "from glassloop import Agent\nagent = Agent(name=__name__)")
    names = [load_target(f"{name}.py").agent.name for name in ("desk", "json") for _ in range(2)]
    assert names == ["desk", "desk", "_target_json", "_target_json"]


def test_an_attribute_of_an_attribute() -> None:
    write("desk.py", "from glassloop import Agent\nclass Desk:\n    agent = Agent(name='inner')\n")
    assert load_target("desk.py:Desk.agent").agent.name == "inner"


def test_an_agent_under_two_names_is_one_agent() -> None:
    write("desk.py", f"{ONE}same = agent\n")
    assert load_target("desk.py").agent.name == "one"


def test_dataclasses_and_annotations_find_their_module() -> None:
    code = (
        "from __future__ import annotations\nfrom dataclasses import dataclass\nfrom glassloop import Agent\n"
        "@dataclass\nclass Order:\n    number: int\n"
        "def look_up(order: Order) -> str:\n    '''Look up.'''\n    return ''\nagent = Agent(tools=[look_up])\n"
    )
    write("desk.py", code)
    assert isinstance(load_target("desk.py:agent").agent, Agent)


def test_the_stand_in_of_the_module() -> None:
    write("desk.py", f"{ONE}STAND_IN = 'a stand-in'\n")
    assert load_target("desk.py").stand_in == "a stand-in"
    write("other.py", ONE)
    assert load_target("other.py").stand_in is None


def test_a_missing_file() -> None:
    write("desk.py", ONE)
    assert refusal("dsk.py:agent") == "There is no file dsk.py; did you mean desk.py?"
    assert refusal("nowhere/desk.py:agent") == "There is no file nowhere/desk.py."


def test_a_missing_module() -> None:
    assert "There is no module 'no_such_module'" in refusal("no_such_module:agent")
    assert "There is no module 'no_such.module'" in refusal("no_such.module:agent")


def test_a_missing_name_lists_the_agents() -> None:
    write("desk.py", TWO)
    assert refusal("desk.py:third") == "desk.py has no 'third'; its agents: first, second."


def test_something_else_than_an_agent() -> None:
    write("desk.py", TWO)
    assert refusal("desk.py:number") == "desk.py:number is of type int, not an Agent; its agents: first, second."


def test_several_agents_need_a_name() -> None:
    write("desk.py", TWO)
    assert refusal("desk.py") == "desk.py has several agents (first, second): say which, e.g. desk.py:first."


def test_of_several_agents_the_one_named_agent_needs_no_name() -> None:
    write("desk.py", f"{TWO}agent = Agent(name='third')\n")
    assert load_target("desk.py").agent.name == "third"


def test_no_agent_at_all() -> None:
    write("desk.py", "x = 1")
    assert "has no Agent" in refusal("desk.py")
    assert "no Agent at all" in refusal("desk.py:x")


@pytest.mark.parametrize("target", ["desk.py:a-b", "a b:agent", "desk.py:"])
def test_what_cannot_be_a_name(target: str) -> None:
    write("desk.py", TWO)
    assert refusal(target)


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("x = 1\ny = undefined\n", "NameError: name 'undefined' is not defined (desk.py, line 2)."),
        ("x = 1\n\ndef (:\n", "SyntaxError: invalid syntax (desk.py, line 3)."),
        ("import no_such_package\n", "ModuleNotFoundError: No module named 'no_such_package' (desk.py, line 1)."),
        ("import sys\nsys.exit('bye')\n", "SystemExit: bye (desk.py, line 2)."),
        ("raise ValueError\n", "ValueError (desk.py, line 1)."),
        ("import json\njson.loads('{')\n", "(desk.py, line 2)."),
        ("from glassloop import Agent\nagent = Agent(tools=[3])\n", "ToolDefinitionError:"),
        ("raise RuntimeError('two\\nlines.')\n", "RuntimeError: two lines (desk.py, line 1)."),
    ],
)
@pytest.mark.parametrize("target", ["desk.py:agent", "desk:agent"])
def test_code_that_fails_is_told_by_its_place(target: str, code: str, told: str) -> None:
    write("desk.py", code)
    assert told in refusal(target, FAILED)


def test_a_failure_in_a_module_that_the_file_imports_points_there() -> None:
    write("helper.py", "x = 1\nraise OSError('no')\n")
    write("desk.py", "import helper\n")
    assert "OSError: no (helper.py, line 2)." in refusal("desk.py:agent", FAILED)
