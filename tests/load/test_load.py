"""A small load, and an audit that finds what a lost run leaves."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

from together import all_at_once, audit


def test_a_small_load_loses_nothing(root: Path) -> None:
    command = [sys.executable, str(root / "tests" / "load"), "--runs", "24"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ["finished", "24"] in [line.split() for line in ended.stdout.splitlines()]


async def test_the_audit_finds_what_is_lost(tmp_path: Path) -> None:
    tally = await all_at_once(tmp_path, 3)
    file = tmp_path / "load.db"
    assert tally.faults == []
    assert await audit(file, 5) == ["4 runs are in the journal, not 5"]
    with closing(sqlite3.connect(file)) as connection, connection:
        one, two, three, _ = [row[0] for row in connection.execute("SELECT id FROM glassloop_runs ORDER BY id DESC")]
        connection.execute("DELETE FROM glassloop_events WHERE run_id = ? AND type = 'run_finished'", (one,))
        connection.execute("DELETE FROM glassloop_events WHERE run_id = ? AND seq = 2", (two,))
        connection.execute(
            "DELETE FROM glassloop_messages WHERE session = (SELECT session FROM glassloop_runs WHERE id = ?)", (three,)
        )
    faults = " / ".join(await audit(file, 4))
    assert f"{one}: " in faults
    assert f"{two}: events are missing or doubled" in faults
    assert f"{three}: its session has not its four messages" in faults
