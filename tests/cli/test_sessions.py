"""SESSIONS on the command line: honoured, named by the doctor, and wrong ones told before anything is asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from glassloop.testing import ModelServer
from servers import redis_client

if TYPE_CHECKING:
    from tests.cli.conftest import Ended, Inside

AWAY = "redis://ann:secret@127.0.0.1:1/0"
"""Nobody listens there."""

TOLD = "Redis at 127.0.0.1:1 cannot be reached (connection refused): start it, or correct the URL."


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("glassloop.stores.redis.server._PATIENCE_S", 0.2)


def sessions_of(ended: Ended) -> Any:
    [found] = [each for each in ended.json["checks"] if each["name"] == "sessions"]
    return found["mark"], found["message"]


def test_the_doctor_names_where_sessions_are(inside: Inside, redis_url: str) -> None:
    mark, told = sessions_of(inside("doctor", "--json"))
    assert (mark, told) == ("ok", "Sessions are kept in the store; SESSIONS=redis://... would put them elsewhere.")
    mark, told = sessions_of(inside("doctor", "--json", SESSIONS=redis_url.replace("//", "//default:secret@")))
    assert (mark, told) == ("ok", f"Sessions are kept in {redis_url} (SESSIONS), which works.")


def test_the_doctor_tells_what_is_wrong_with_sessions(inside: Inside) -> None:
    ended = inside("doctor", "--json", SESSIONS=AWAY)
    assert (ended.code, sessions_of(ended)) == (1, ("problem", f"Sessions: {TOLD}"))
    mark, told = sessions_of(inside("doctor", "--json", SESSIONS="mongodb://db"))
    assert (mark, told.startswith("Sessions: Stores of kind 'mongodb' are not supported.")) == ("problem", True)
    inside("doctor", SESSIONS="sqlite:///sessions.db")
    assert not list(inside.folder.glob("*.db"))


def test_redis_is_refused_as_a_store(inside: Inside) -> None:
    ended = inside("run", "agent.py", "hi", STORE="redis://ann:secret@db/0")
    assert ended.code == 1
    assert "Redis keeps sessions and the ledger, not the journal: set STORE=sqlite:///glassloop.db" in ended.err
    assert "secret" not in ended.err


def test_a_conversation_in_redis(inside: Inside, redis_url: str) -> None:
    with ModelServer(lambda request: f"{len(request.messages)} messages") as server:
        variables = {"MODEL": "openai:m", "MODEL_ENDPOINT": server.url, "MODEL_API_KEY": "k", "SESSIONS": redis_url}
        answers = [inside("run", "agent.py", "hi", "--session", "s", **variables).out.strip() for _ in range(2)]
        chat = inside("chat", "agent.py", "--session", "s", **variables)
    assert answers == ["1 messages", "3 messages"]
    assert f"recorded in sqlite:///glassloop.db, sessions in {redis_url}." in chat.err
    with redis_client(redis_url) as client:
        assert client.llen("glassloop:{s}:messages") == 4


def test_sessions_that_are_away_are_told_before_the_model_is_asked(inside: Inside) -> None:
    with ModelServer(lambda _: "hello") as server:
        variables = {"MODEL": "openai:m", "MODEL_ENDPOINT": server.url, "MODEL_API_KEY": "k", "SESSIONS": AWAY}
        ended = inside("run", "agent.py", "hi", **variables)
        assert server.requests == []
    assert (ended.code, ended.out, ended.err.strip()) == (1, "", f"Error: {TOLD}")
    assert inside("runs", "list", SESSIONS=AWAY).code == 0
