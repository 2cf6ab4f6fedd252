"""The command line as a whole: help, version, and what goes wrong before anything runs."""

from __future__ import annotations

import errno
import io
import subprocess
import sys
from importlib.metadata import version
from typing import TYPE_CHECKING, get_args

import pytest

from glassloop.cli.problems import EXIT_CODES, FAILED, Problem, report
from glassloop.core.events import Outcome

if TYPE_CHECKING:
    from tests.cli.conftest import Cli, Inside

COMMANDS = ("", "run", "chat", "doctor", "runs", "runs list", "runs show", "runs resume")


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_examples(inside: Inside, command: str) -> None:
    ended = inside(*command.split(), "--help")
    assert ended.code == 0
    assert ended.out.startswith(f"Usage: glassloop {command}".rstrip())
    assert command == "runs" or "Examples:\n  glassloop" in ended.out.replace("\n    glassloop", "\n  glassloop")


def test_help_is_light() -> None:
    code = "import sys; from glassloop.cli.main import main; main(['--help']); print(*sys.modules, file=sys.stderr)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stderr.split()
    heavy = {"sqlalchemy", "sqlite3", "aiohttp", "pydantic", "rich", "asyncio", "glassloop.agent"}
    assert heavy & set(loaded) == set()


def test_version(inside: Inside) -> None:
    assert inside("--version").out == f"glassloop {version('glassloop')}\n"


def test_the_module_is_the_command(cli: Cli) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "glassloop", "--version"],
        env=cli.environment,
        cwd=cli.folder,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"glassloop {version('glassloop')}\n"


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("--nonsense", "No such option: --nonsense"),
        ("nonsense", "No such command 'nonsense'"),
        ("run", "Missing argument 'FILE:AGENT'"),
        ("run agent.py hi --max-steps many", "--max-steps"),
        ("run agent.py hi --max-steps 0", "--max-steps 0: must be more than 0."),
        ("run agent.py hi --timeout 0", "--timeout 0: must be more than 0."),
        ("run agent.py hi --max-cost -1", "--max-cost -1: must be 0 or more."),
        ("run agent.py hi --on-limit perhaps", "'perhaps' is not one of 'raise', 'answer', 'return'"),
        ("run agnt.py hi", "did you mean agent.py?"),
        ("run agent.py:nobody hi", "agent.py has no 'nobody'; its agents: agent."),
        ("run agent.py -", "The question is empty."),
        ("runs list --status perhaps", "There is no status 'perhaps'"),
        ("runs list --limit 0", "--limit"),
        ("runs resume run_1 agent.py --approve a --deny a", "a cannot be both approved and denied."),
        ("runs resume run_1 agent.py --reason no", "--reason belongs to --deny"),
    ],
)
def test_a_wrong_command_line_is_one_sentence(inside: Inside, line: str, told: str) -> None:
    ended = inside(*line.split())
    assert ended.code == 2
    assert told in ended.err
    assert ended.err.startswith("Error: ")
    assert ended.err.count("\n") == 1
    assert ended.out == ""


@pytest.mark.parametrize("command", [[], ["runs"]])
def test_no_command_is_the_help_on_stderr(inside: Inside, command: list[str]) -> None:
    ended = inside(*command)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("Usage: ")


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("nonsense", "sqlite:///nonsense"),
        ("mysql://host/db", "'mysql'"),
        ("sqlite:////no/such/folder/x.db", "no directory /no/such/folder"),
        ("sqlite:///agent.py", "not an SQLite file"),
    ],
)
@pytest.mark.parametrize("command", [["run", "agent.py", "hi"], ["runs", "list"], ["runs", "show", "run_1"]])
def test_a_store_that_cannot_be_used_is_one_sentence(
    inside: Inside, command: list[str], url: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MODEL", "ollama:x")
    ended = inside(*command, "--store", url)
    assert ended.code == 1
    assert told in ended.err
    assert ended.err.count("\n") == 1


def test_the_store_variable(cli: Cli) -> None:
    ended = cli("runs", "list", STORE="mysql://host/db")
    assert "'mysql'" in ended.err


def test_an_error_as_json(inside: Inside) -> None:
    ended = inside("run", "nowhere.py", "hi", "--json")
    assert ended.json == {"error": "There is no file nowhere.py.", "exit_code": 2}


def test_every_outcome_has_an_exit_code() -> None:
    assert set(EXIT_CODES) == set(get_args(Outcome))


def test_debug_shows_where(cli: Cli) -> None:
    cli.write("bad.py", "x = undefined\n")
    assert "bad.py, line 1" in cli("run", "bad.py", "hi").err
    process = cli.start("run", "bad.py", "hi", "--debug")
    _, err = process.communicate(timeout=30)
    assert process.returncode == 1
    assert "Traceback" in err
    assert "Importing bad.py failed: NameError" in err.splitlines()[-1]


def test_an_output_that_is_full_gets_a_sentence_and_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Full(io.StringIO):
        def write(self, text: str, /) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(sys, "stdout", Full())
    assert report(Problem("It failed."), json=True) == FAILED
    assert capsys.readouterr().err == "Error: It failed.\n"
