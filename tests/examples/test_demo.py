"""The command line that the examples share."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize(("typed", "city"), [("How is London?\n", "London has 16 °C"), ("\n", "Shanghai is hotter")])
def test_at_a_terminal_it_asks_for_the_question(
    root: Path, clean_environment: dict[str, str], tmp_path: Path, typed: str, city: str
) -> None:
    ours, theirs = pty.openpty()
    os.write(ours, typed.encode())
    ended = subprocess.run(
        [sys.executable, "examples/minimal.py"],
        cwd=root,
        env={**clean_environment, "STORE": f"sqlite:///{tmp_path}/runs.db"},
        stdin=theirs,
        capture_output=True,
        encoding="utf-8",
        timeout=60,
    )
    os.close(theirs)
    os.close(ours)
    assert ended.returncode == 0
    assert ended.stderr.startswith("Question [Which is hotter, Beijing or Shanghai?]: ")
    assert city in ended.stdout


def test_leaving_at_the_question_is_not_an_error_with_a_traceback(
    root: Path, clean_environment: dict[str, str]
) -> None:
    ours, theirs = pty.openpty()
    os.write(ours, b"\x04")  # Ctrl-D
    ended = subprocess.run(
        [sys.executable, "examples/minimal.py"],
        cwd=root,
        env=clean_environment,
        stdin=theirs,
        capture_output=True,
        encoding="utf-8",
        timeout=60,
    )
    os.close(theirs)
    os.close(ours)
    assert (ended.returncode, ended.stdout) == (130, "")
    assert "Traceback" not in ended.stderr
