"""`glassloop doctor`: one sentence for each thing, and no secret in any."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest

from glassloop.cli.checks import Check, diagnose
from glassloop.testing import ModelServer, say

if TYPE_CHECKING:
    from tests.cli.conftest import Cli, Ended, Inside

KEY = "sk-0123456789abcdefghijklmnopqrst9876"

Serve = Callable[..., tuple[str, list[dict[str, str]]]]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Start a server that gives one answer to every GET; returns its base URL and the headers of the requests."""
    running: list[ThreadingHTTPServer] = []

    def start(status: int = 200, body: Any = None) -> tuple[str, list[dict[str, str]]]:
        received: list[dict[str, str]] = []

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                received.append({"path": self.path, **{name.lower(): value for name, value in self.headers.items()}})
                data = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        Thread(target=server.serve_forever, daemon=True).start()
        running.append(server)
        return f"http://127.0.0.1:{server.server_port}/v1", received

    yield start
    for server in running:
        server.shutdown()
        server.server_close()


def check(ended: Ended, name: str) -> Any:
    """The finding of that name."""
    [found] = [each for each in ended.json["checks"] if each["name"] == name]
    return found


def models(*names: str) -> dict[str, Any]:
    """A list of models as OpenAI's servers give it."""
    return {"object": "list", "data": [{"id": name, "object": "model"} for name in names]}


def test_nothing_configured_is_no_problem(inside: Inside) -> None:
    ended = inside("doctor")
    assert ended.code == 0
    lines = ended.out.splitlines()
    assert {line.split()[0] for line in lines} == {"ok", "missing"}
    assert all(line.endswith(".") for line in lines)
    assert not list(inside.folder.glob("*.db*"))


def test_a_terminal_shows_the_marks_in_colour(cli: Cli) -> None:
    assert "\x1b[32mok      \x1b[0mGlassloop" in cli.terminal("doctor", TERM="xterm").expect("Python ")


def test_json(inside: Inside) -> None:
    ended = inside("doctor", "--json")
    assert ended.json["ok"] is True
    assert [each["name"] for each in ended.json["checks"]][:5] == ["python", "sqlite", "store", "sessions", "model"]
    assert all(each.keys() == {"name", "mark", "message"} for each in ended.json["checks"])


def test_a_model_server_that_answers(inside: Inside, serve: Serve) -> None:
    url, received = serve(body=models("a", "b", "c", "d"))
    variables = {"MODEL": "openai:a", "MODEL_ENDPOINT": url, "MODEL_API_KEY": KEY}
    ended = inside("doctor", "--json", **variables)
    assert ended.code == 0
    assert check(ended, "endpoint")["message"].endswith("(MODEL_ENDPOINT) answers and offers a, b, c and 1 more.")
    assert received[0]["path"] == "/v1/models"
    assert received[0]["authorization"] == f"Bearer {KEY}"


def test_no_key_is_shown(inside: Inside, serve: Serve) -> None:
    url, _ = serve(status=401)
    variables = {"MODEL": "openai:a", "MODEL_ENDPOINT": url, "OPENAI_API_KEY": KEY, "ANTHROPIC_API_KEY": "short-key"}
    ended = inside("doctor", **variables)
    assert KEY not in ended.out
    assert "OPENAI_API_KEY is set (ends in ...9876)." in ended.out
    assert "ANTHROPIC_API_KEY is set.\n" in ended.out
    assert "-key" not in ended.out


@pytest.mark.parametrize(
    ("variables", "told"),
    [
        ({"OPENAI_API_KEY": KEY}, "refuses the key in OPENAI_API_KEY (HTTP 401): set OPENAI_API_KEY"),
        ({"MODEL_API_KEY": KEY}, "refuses the key in MODEL_API_KEY (HTTP 401): set MODEL_API_KEY"),
        ({}, "wants a key (HTTP 401): set OPENAI_API_KEY"),
    ],
)
def test_a_key_that_is_refused(inside: Inside, serve: Serve, variables: dict[str, str], told: str) -> None:
    url, _ = serve(status=401)
    ended = inside("doctor", "--json", MODEL="openai:a", MODEL_ENDPOINT=url, **variables)
    assert ended.code == 1
    assert ended.json["ok"] is False
    assert told in check(ended, "endpoint")["message"]


def test_the_providers_own_variables_and_wire(inside: Inside, serve: Serve) -> None:
    url, received = serve(body=models("claude"))
    base = url.removesuffix("/v1")
    ended = inside("doctor", "--json", MODEL="anthropic:x", ANTHROPIC_BASE_URL=base, ANTHROPIC_API_KEY=KEY)
    assert check(ended, "endpoint")["mark"] == "ok"
    assert "ANTHROPIC_BASE_URL" in check(ended, "endpoint")["message"]
    assert (received[0]["path"], received[0]["x-api-key"]) == ("/v1/models", KEY)
    assert "anthropic-version" in received[0]


def test_a_server_without_a_list_of_models_still_answers(inside: Inside) -> None:
    with ModelServer(script=[]) as server:
        ended = inside("doctor", "--json", MODEL="openai:x", MODEL_ENDPOINT=server.url)
    assert check(ended, "endpoint")["mark"] == "ok"


def test_a_closed_port(inside: Inside) -> None:
    with ModelServer(script=[]) as server:
        url = server.url
    ended = inside("doctor", "--json", MODEL="openai:x", MODEL_ENDPOINT=url)
    assert ended.code == 1
    assert "does not answer (connection refused)" in check(ended, "endpoint")["message"]


@pytest.mark.parametrize(
    ("variables", "told"),
    [
        ({"MODEL": "openai:x"}, "OPENAI_API_KEY"),
        ({"MODEL": "nonsense"}, "names no known provider"),
        ({"MODEL_ENDPOINT": "http://127.0.0.1:9"}, "no model is named"),
        ({"MODEL": "x", "MODEL_ENDPOINT": "::"}, "is not an http(s) URL"),
    ],
)
def test_a_model_that_cannot_be_used(inside: Inside, variables: dict[str, str], told: str) -> None:
    ended = inside("doctor", "--json", **variables)
    assert ended.code == 1
    assert check(ended, "model")["mark"] == "problem"
    assert told in check(ended, "model")["message"]


def test_the_store(inside: Inside) -> None:
    assert "the first run makes it" in check(inside("doctor", "--json"), "store")["message"]
    with ModelServer(script=[say("yes")]) as server:
        inside("run", "agent.py", "hi", MODEL="openai:x", MODEL_ENDPOINT=server.url)
    assert "holds runs" in check(inside("doctor", "--json"), "store")["message"]


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("mysql://host/db", "'mysql'"),
        ("sqlite:////no/such/folder/x.db", "no directory"),
        ("sqlite:///agent.py", "not an SQLite file"),
    ],
)
def test_a_store_that_cannot_be_used(inside: Inside, url: str, told: str) -> None:
    ended = inside("doctor", "--json", "--store", url)
    assert ended.code == 1
    assert told in check(ended, "store")["message"]


def test_a_store_that_is_locked(inside: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("glassloop.cli.checks._STORE_S", 0.2)
    holder = sqlite3.connect(inside.folder / "held.db", isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    ended = inside("doctor", "--json", "--store", "sqlite:///held.db")
    holder.close()
    assert ended.code == 1
    assert "is it locked?" in check(ended, "store")["message"]


def found_locally(places: dict[str, str]) -> Check:
    """What is said about local servers."""
    return diagnose("memory:", {}, places)[-1]


def test_a_local_server(serve: Serve) -> None:
    url, received = serve(body=models("qwen3", "llama"))
    found = found_locally({"ollama": url, "vllm": "http://127.0.0.1:9/v1"})
    assert found.mark == "ok"
    assert "use MODEL=ollama:qwen3." in found.message
    assert "vllm" not in found.message
    assert "authorization" not in received[0]


@pytest.mark.parametrize("body", [None, [], {"data": "no"}, {"data": [1]}, {"hello": "world"}])
def test_another_program_on_that_port_is_no_model_server(serve: Serve, body: Any) -> None:
    url, _ = serve(body=body)
    found = found_locally({"vllm": url})
    assert found.mark == "missing"
