"""The command line on a store in PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from glassloop.testing import ModelServer, ask, call, say
from servers import PostgresProcess

if TYPE_CHECKING:
    from tests.cli.conftest import Cli, Ended, Inside

At = Callable[[ModelServer], dict[str, str]]


def store_check(ended: Ended) -> tuple[str, str]:
    [found] = [each for each in ended.json["checks"] if each["name"] == "store"]
    return found["mark"], found["message"]


def test_runs_are_recorded_listed_shown_and_resumed(cli: Cli, postgres_url: str, at: At) -> None:
    with ModelServer(script=[ask(call("delete_row", row_id=7)), say("Gone.")]) as server:
        variables = {**at(server), "STORE": postgres_url}
        held = cli("run", "agent.py", "Delete row 7", "--session", "desk", **variables)
        assert held.code == 4, held
        [row] = cli("runs", "list", "--json", **variables).json
        assert (row["status"], row["session"]) == ("waiting", "desk")
        ended = cli("runs", "resume", row["id"], "agent.py", "--yes", **variables)
        assert (ended.code, ended.out.splitlines()[-1]) == (0, "Gone."), ended
    shown = cli("runs", "show", row["id"], **variables)
    assert shown.code == 0
    assert "delete_row" in shown.out
    assert (cli.folder / "deleted.txt").read_text() == "7\n"
    assert not list(cli.folder.glob("*.db"))


def test_the_doctor_looks_at_it(inside: Inside, postgres_url: str, postgres_process: PostgresProcess) -> None:
    shown = f"postgresql://ann@127.0.0.1:{postgres_process.port}/{postgres_url.rpartition('/')[2]}"
    assert store_check(inside("doctor", "--json", STORE=postgres_url)) == (
        "ok",
        f"The store {shown} works, without any run yet.",
    )


@pytest.mark.parametrize(
    "command", [("doctor", "--json"), ("runs", "list"), ("run", "agent.py", "Hello"), ("serve", "agent.py", "--demo")]
)
def test_a_server_that_is_down_is_one_sentence(inside: Inside, command: tuple[str, ...]) -> None:
    ended = inside(*command, STORE="postgresql://ann:s3cret@127.0.0.1:1/runs", MODEL="openai:test", MODEL_API_KEY="k")
    assert ended.code == 1
    assert "PostgreSQL at 127.0.0.1:1 cannot be reached (nothing listens there): start it" in ended.out + ended.err
    assert "s3cret" not in ended.out + ended.err
