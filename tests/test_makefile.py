"""The commands of the Makefile do what they say, whatever is in the question and whichever Python is there."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ECHO = "import json, os, sys; print(json.dumps([os.environ.get('STORE'), *sys.argv[1:]]))"
OLD = "#!/bin/sh\ncase $2 in *print*) echo 3.9.6 ;; *) exit 1 ;; esac\n"
WITHOUT_VENV = "#!/bin/sh\ncase $2 in *print*) echo 3.11.2 ;; *ensurepip*) exit 1 ;; esac\n"


@pytest.fixture
def house(root: Path, tmp_path: Path) -> Path:
    """A repository with the Makefile, an environment that is up to date, and examples that print what they get."""
    house = tmp_path / "house"
    for name in ("examples/travel", "examples/ticket", ".venv/bin"):
        (house / name).mkdir(parents=True)
    shutil.copytree(root / ".ci", house / ".ci")
    for name in ("Makefile", "pyproject.toml", "requirements.lock"):
        shutil.copy(root / name, house)
    (house / "examples/ticket/http.py").touch()
    for name in ("examples/mini.py", "examples/travel/__main__.py", "examples/ticket/__main__.py", "glassloop.py"):
        (house / name).write_text(ECHO, "utf-8")
    (house / ".venv/bin/python").symlink_to(sys.executable)
    (house / ".venv/.installed").touch()
    return house


def make(house: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    mine = ("MAKE", "PYTHON")  # as `make test` itself was given
    environment = {name: value for name, value in os.environ.items() if not name.startswith(mine)}
    command = ["make", "--no-print-directory", *words]
    return subprocess.run(
        command, cwd=house, env={**environment, **variables}, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    ("question", "given"),
    [
        ("", '[null, "--trace"]'),
        ("What is (1024 + 768) * 2?", '[null, "--trace", "What is (1024 + 768) * 2?"]'),
        ('北京 it\'s "hot" # $HOME', '[null, "--trace", "\\u5317\\u4eac it\'s \\"hot\\" # $HOME"]'),
        ("$(shell touch owned) `touch owned` $( ; touch owned", None),
        ("-5 + 3?", '[null, "--trace", "--", "-5 + 3?"]'),
    ],
)
@pytest.mark.parametrize("through", ["word", "environment"])
def test_a_question_reaches_the_example_as_it_was_written(
    question: str, given: str | None, through: str, house: Path
) -> None:
    done = make(house, "run", f"Q={question}") if through == "word" else make(house, "run", Q=question)
    assert done.returncode == 0, done.stderr
    assert given is None or done.stdout.strip() == given
    assert not list(house.rglob("owned"))


def test_a_question_alone_is_for_the_assistant_and_without_one_the_ticket_desk_begins(house: Path) -> None:
    for name in ("mini.py", "ticket/__main__.py"):
        (house / "examples" / name).write_text("print(__spec__.name)", "utf-8")
    assert make(house, "run", "Q=now?").stdout.strip() == "examples.mini"
    assert make(house, "run").stdout.strip() == "examples.ticket.__main__"
    assert make(house, "run", "Q=now?", "EXAMPLE=ticket").stdout.strip() == "examples.ticket.__main__"


def test_run_takes_the_example_and_the_store(house: Path) -> None:
    done = make(house, "run", "EXAMPLE=travel", "Q=October?", STORE="sqlite:///mine.db")
    assert done.stdout.strip() == '["sqlite:///mine.db", "--trace", "October?"]'


def test_an_unknown_example_is_named_with_those_that_exist(house: Path) -> None:
    done = make(house, "run", "EXAMPLE=nix")
    assert done.returncode != 0
    assert 'There is no example "nix"; there are: mini ticket travel\n' in done.stderr


@pytest.mark.parametrize(
    ("words", "port"), [((), "8090"), (("PORT=8123",), "8123"), (("PORT=$(shell touch owned)",), None)]
)
def test_serve_starts_the_server_of_an_example_with_demonstration_keys(
    words: tuple[str, ...], port: str | None, house: Path
) -> None:
    done = make(house, "serve", *words)
    assert done.returncode == 0, done.stderr
    told = f'[null, "serve", "examples/ticket:app", "--demo", "--port", "{port}"]'
    assert port is None or done.stdout.strip() == told
    assert not list(house.rglob("owned"))


def test_an_example_without_a_server_is_told_in_one_sentence(house: Path) -> None:
    done = make(house, "serve", "EXAMPLE=travel")
    assert done.returncode != 0
    assert 'The example "travel" has no server; there is one in: ticket\n' in done.stderr


def test_help_is_the_default(house: Path) -> None:
    assert "make run" in make(house).stdout


@pytest.mark.parametrize(
    ("pythons", "told"),
    [
        ({}, "found: none; install one"),
        ({"python3": OLD}, "found: python3 is 3.9.6; install one"),
        ({"python3": WITHOUT_VENV}, "python3 is 3.11.2 without venv (apt install python3-venv); install"),
    ],
)
def test_a_missing_python_is_told_in_one_sentence(pythons: dict[str, str], told: str, house: Path) -> None:
    shutil.rmtree(house / ".venv")
    done = make(house, "run", PATH=tools(house, pythons))
    assert done.returncode != 0
    assert told in done.stderr
    assert "Traceback" not in done.stderr


def test_a_newer_python_is_found_where_python3_is_too_old(house: Path) -> None:
    (house / ".venv/bin/python").unlink()
    new = "#!/bin/sh\ncase $2 in *print*) echo 3.12.1 ;; venv) echo made; exit 7 ;; esac\n"
    done = make(house, "--always-make", "run", PATH=tools(house, {"python3": OLD, "python3.12": new}))
    assert "Making .venv with python3.12 (3.12.1) ..." in done.stdout
    assert "made" in done.stdout


def tools(house: Path, pythons: dict[str, str]) -> str:
    """A PATH with the plain tools that make needs, and only these Pythons."""
    folder = house / "tools"
    folder.mkdir()
    for name in ("sh", "make", "grep", "ls", "sed", "touch"):
        found = shutil.which(name)
        assert found is not None
        (folder / name).symlink_to(found)
    for name, script in pythons.items():
        (folder / name).write_text(script, "utf-8")
        (folder / name).chmod(0o755)
    return str(folder)


@pytest.mark.parametrize(
    ("words", "environment", "store"),
    [
        (["STORE=postgresql://ann:s$3cret@db/postgres"], {}, "postgresql://ann:s$3cret@db/postgres"),
        (["STORE=postgresql"], {"STORE": "sqlite:///real.db"}, "postgresql"),
        ([], {"STORE": "postgresql://db/real"}, "sqlite"),
    ],
)
def test_the_kill_suite_takes_a_store_that_is_named_for_it_and_no_other(
    words: list[str], environment: dict[str, str], store: str, house: Path
) -> None:
    (house / "tests/kill").mkdir(parents=True)
    (house / "tests/kill/__main__.py").write_text(ECHO, "utf-8")
    (house / "pytest.py").touch()
    (house / "requirements-test.lock").touch()
    (house / ".venv/.installed-test").touch()
    done = make(house, "kill", "KILLS=3", *words, **environment)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)[1:] == ["--kills", "3", "--store", store]
