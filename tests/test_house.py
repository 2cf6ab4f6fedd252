"""The ground under the tests holds: blocking calls are caught, and nothing of the developer's environment is seen."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from blockbuster import BlockingError

import glassloop

OUTSIDE = {
    "OPENAI_API_KEY": "sk-secret",
    "MODEL": "openai:gpt-5",
    "STORE": "sqlite:///mine.db",
    "https_proxy": "http://proxy",
}


def part_of_glassloop(source: str) -> dict[str, Callable[[], Any]]:
    """The functions of `source`, as if it stood in a file of the package."""
    names: dict[str, Any] = {}
    exec(compile(source, str(Path(glassloop.__file__).with_name("sample.py")), "exec"), names)
    return names


async def test_a_blocking_call_from_glassloop_on_the_event_loop_is_an_error() -> None:
    sample = part_of_glassloop("import time\nasync def step(): time.sleep(0.001)")
    with pytest.raises(BlockingError, match=r"time\.sleep"):
        await sample["step"]()


async def test_a_blocking_call_from_glassloop_in_a_thread_is_fine() -> None:
    sample = part_of_glassloop("import time\ndef work(): time.sleep(0.001); return 'worked'")
    assert await asyncio.to_thread(sample["work"]) == "worked"


async def test_a_blocking_call_of_the_test_itself_is_fine() -> None:
    time.sleep(0.001)  # noqa: ASYNC251  # only the package's own blocking counts


def test_no_outside_variables() -> None:
    assert not OUTSIDE.keys() & os.environ.keys()


def test_outside_variables_are_removed_before_the_tests(root: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", f"{__file__}::{test_no_outside_variables.__name__}"],
        env={**os.environ, **OUTSIDE},
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "1 passed" in done.stdout, done.stdout + done.stderr
