"""Makes the program, the plan and the audit importable for the tests of this folder."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from life import Life
from world import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    """An empty world: a store with a table of the program's own, the service and the log."""
    return World.create(tmp_path / "world")


@pytest.fixture
def lives() -> Iterator[list[Life]]:
    """Processes that a test starts; whatever still runs in the end is killed."""
    started: list[Life] = []
    yield started
    for life in started:
        life.kill()
