"""`run_sync`: its thread, what tools do to it, and what it leaves at the end of the program."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from glassloop import Agent
from glassloop.models.scripted import ScriptedModel, call
from glassloop.testing import ModelServer

SCRIPT = """
from glassloop import Agent

agent = Agent()
print(agent.run_sync("hello").output, agent.run_sync("hello").output)
"""


def test_a_program_that_used_it_ends_without_a_word_about_connections(tmp_path: Path) -> None:
    with ModelServer(script=["hi", "there"]) as server:
        model = {"MODEL": "openai:any", "MODEL_ENDPOINT": server.url, "MODEL_API_KEY": "any"}
        ended = subprocess.run(
            [sys.executable, "-W", "default", "-c", SCRIPT],
            env={**os.environ, **model},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "hi there\n", "")


def test_an_interrupt_that_a_tool_raises_reaches_the_caller_and_the_next_run_works() -> None:
    async def interrupt() -> str:
        """Interrupt the program."""
        raise KeyboardInterrupt

    with ScriptedModel([call("interrupt")]) as model, pytest.raises(KeyboardInterrupt):
        Agent(model, [interrupt]).run_sync("go")
    assert Agent(ScriptedModel(["still here"])).run_sync("go").output == "still here"
