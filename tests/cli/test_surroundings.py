"""Places where a command line is started in: locales, full disks, stores in memory, interrupts at any time."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from glassloop.testing import ModelServer, ask, call, say

if TYPE_CHECKING:
    from tests.cli.conftest import Cli, Inside

At = Callable[[ModelServer], dict[str, str]]

ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


@pytest.mark.parametrize("piped", [False, True])
def test_a_question_is_read_as_utf8_where_the_locale_knows_ascii_alone(cli: Cli, at: At, piped: bool) -> None:
    asked = "上海热吗 é"
    with ModelServer(script=[say("热 é")]) as server:
        arguments = ("run", "agent.py", *([] if piped else [asked]), "--json")
        ended = cli(*arguments, input=asked if piped else "", **ASCII, **at(server))
    assert (ended.code, ended.json["output"]) == (0, "热 é")
    assert server.requests[0].body["messages"][-1]["content"] == asked
    assert ended.out.isascii()


def test_output_that_finds_no_space_is_told_in_one_sentence(cli: Cli) -> None:
    with open("/dev/full", "w") as full:
        process = subprocess.run(
            ["glassloop", "runs", "list"],
            cwd=cli.folder,
            env=cli.environment,
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
        )
    told = "Error: The output could not be written: no space is left. Make room, or write it elsewhere.\n"
    assert (process.returncode, process.stderr.decode()) == (1, told)


def test_a_run_in_memory_is_not_promised_to_go_on(inside: Inside, at: At) -> None:
    with ModelServer(script=[ask(call("delete_row", row_id=1))]) as server:
        ended = inside("run", "agent.py", "hi", "--store", "memory:", **at(server))
    assert ended.code == 4
    assert "delete_row(row_id=1)" in ended.err
    assert ended.err.splitlines()[-1].endswith("give a file as --store to decide later.")
    assert "resume" not in ended.err


def test_going_on_with_a_run_makes_no_store(inside: Inside) -> None:
    ended = inside("runs", "resume", "run_x", "agent.py", "--store", "sqlite:///typo.db")
    assert (ended.code, ended.out) == (1, "")
    assert ended.err.startswith("Error: There is no run 'run_x' in sqlite:///typo.db; ")
    assert not (inside.folder / "typo.db").exists()


def test_json_is_json_where_ctrl_c_comes_before_the_run(cli: Cli) -> None:
    cli.write("slow.py", "import time\nopen('importing', 'w').close()\ntime.sleep(60)\n")
    process = cli.start("run", "slow.py", "hi", "--json")
    _wait_for(cli.folder / "importing", process)
    process.send_signal(signal.SIGINT)
    ended = cli.finish(process)
    assert (ended.code, ended.json) == (130, {"error": "Interrupted.", "exit_code": 130})


def _wait_for(file: Path, process: subprocess.Popen[Any]) -> None:
    while not file.exists():
        assert process.poll() is None
        time.sleep(0.01)
