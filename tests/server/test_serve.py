"""`glassloop serve` and `glassloop keys` as processes of their own."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from glassloop.server.keys import hash_key, read_keys
from glassloop.testing import Conversation, ModelServer, Reaction, call, say

AGENT = '''
from fastapi import FastAPI

from glassloop import Agent
from glassloop.runtime import Runtime
from glassloop.server import Caller, Service
from glassloop.testing import ScriptedModel


def lookup(city: str) -> str:
    """Look a city up."""
    with open("looked.txt", "a") as file:
        file.write(city + "\\n")
    return f"{city}: 21"


agent = Agent(tools=[lookup], name="tester")
scripted = Agent(ScriptedModel(lambda _: "yes"), name="scripted")


def runtime_of() -> Runtime:
    return Runtime(scripted, store="sqlite:///own.db")


def extend(app: FastAPI, runtime: Runtime) -> None:
    @app.get("/api/agents")
    async def agents(caller: Caller) -> list[str]:
        return sorted(runtime.agents)


service = Service(scripted, extend)
number = 3
'''


class Served:
    """A server process: what it printed, and how to call it."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.said: list[str] = []
        self.url = ""
        assert process.stderr is not None
        for line in process.stderr:
            self.said.append(line)
            if found := re.search(r"at (http://\S+)", line):
                self.url = found[1]
                return
        raise AssertionError("".join(self.said))

    def __call__(self, method: str, path: str, key: str | None = "demo-alice", body: Any = None) -> tuple[int, Any]:
        """Call it: status and JSON."""
        with self.open(method, path, key, body) as answer:
            return answer.status, json.load(answer)

    def open(self, method: str, path: str, key: str | None = "demo-alice", body: Any = None) -> Any:
        """Call it and read later."""
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            return opener.open(request, timeout=20)
        except urllib.error.HTTPError as error:
            return error

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, float]:
        """Send a signal; the exit code and how many seconds it took."""
        began = time.monotonic()
        self.process.send_signal(number)
        _, err = self.process.communicate(timeout=20)
        self.said.append(err)
        return self.process.returncode, time.monotonic() - began

    @property
    def err(self) -> str:
        """What it printed so far."""
        return "".join(self.said)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the processes start."""
    place = tmp_path / "work"
    place.mkdir()
    (place / "desk.py").write_text(AGENT)
    return place


@pytest.fixture
def launch(folder: Path, clean_environment: dict[str, str]) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """`launch("serve", ..., VARIABLE=...)`: a process."""
    started: list[subprocess.Popen[str]] = []

    def launch(*arguments: str, **variables: str) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        environment = {**clean_environment, **variables}
        command = ["glassloop", *arguments]
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=pipe, stderr=pipe, text=True)
        started.append(process)
        return process

    yield launch
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


Launch = Callable[..., "subprocess.Popen[str]"]


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Exit code and what was printed, which holds no traceback."""
    out, err = process.communicate(timeout=30)
    assert "Traceback" not in out + err
    return process.returncode, out, err


@pytest.mark.parametrize("target", ["desk.py:service", "desk.py"])
def test_a_service_has_its_own_routes(launch: Launch, target: str) -> None:
    served = Served(launch("serve", target, "--demo", "--port", "0"))
    assert "demo-alice" in served.err
    assert "DEMO" in served.err
    assert "sqlite:///glassloop.db" in served.err
    assert served("GET", "/api/agents") == (200, ["scripted"])
    assert served("GET", "/api/agents", None)[0] == 401
    status, started = served("POST", "/v1/runs", body={"input": "hi"})
    assert status == 202
    with served.open("GET", f"/v1/runs/{started['run_id']}/events") as stream:
        assert b'"status":"completed"' in stream.read()
    assert served.stop()[0] == 0
    assert re.search(r"POST /v1/runs 202 [\d.]+ ms demo/alice req_", served.err)
    assert "demo-alice" not in served.err.partition("Serving")[2]


@pytest.mark.parametrize(("target", "agents"), [("desk.py:extend", ["scripted", "tester"]), ("desk.py:scripted", None)])
def test_functions_and_agents_are_served_too(launch: Launch, target: str, agents: list[str] | None) -> None:
    served = Served(launch("serve", target, "--demo", "--port", "0", MODEL="openai:test", MODEL_ENDPOINT="http://x/v1"))
    assert served("GET", "/api/agents") == (200, agents) if agents else served("GET", "/api/agents")[0] == 404
    assert served.stop(signal.SIGINT)[0] == 0


def test_a_runtime_keeps_its_store(launch: Launch, folder: Path) -> None:
    (folder / "own.py").write_text("from desk import runtime_of\nruntime = runtime_of()\n")
    served = Served(launch("serve", "own.py:runtime", "--no-auth", "--port", "0"))
    assert "sqlite:///own.db" in served.err
    assert "NO AUTHENTICATION" in served.err
    assert served("GET", "/v1/runs", None)[0] == 200
    served.stop()
    code, _, err = ended(launch("serve", "own.py:runtime", "--no-auth", "--store", "memory:"))
    assert (code, "leave --store away" in err) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["desk.py:scripted"], 1, "Nobody could call this server"),
        (["desk.py:scripted", "--demo", "--host", "0.0.0.0"], 2, "--demo lets everybody in"),
        (["desk.py:scripted", "--no-auth", "--host", "::"], 2, "--no-auth lets everybody in"),
        (["desk.py:scripted", "--no-auth", "--demo"], 2, "use one of them"),
        (["desk.py:scripted", "--keys", "none.jsonl"], 1, "glassloop keys new"),
        (["desk.py:scripted", "--demo", "--port", "70000"], 2, "'--port'"),
        (["desk.py:scripted", "--demo", "--host", "192.0.2.1"], 2, "--demo"),
        (["desk.py:scripted", "--demo", "--store", "redis://x"], 1, "not the journal"),
        (["desk.py:scripted", "--demo", "--store", "sqlite:////proc/none/x.db"], 1, "/proc/none"),
        (["desk.py:number", "--demo"], 2, "needs a Runtime, an Agent or a Service"),
        (["desk.py:nothing", "--demo"], 2, "no 'nothing'"),
        (["none.py", "--demo"], 2, "no file"),
        (["desk.py:agent", "--demo"], 1, "MODEL"),
    ],
)
def test_what_cannot_be_served_is_said_in_a_sentence(
    launch: Launch, arguments: list[str], code: int, words: str
) -> None:
    ended_with, _, err = ended(launch("serve", *arguments))
    assert (ended_with, words in err) == (code, True), err


def test_a_taken_port_is_said_in_a_sentence(launch: Launch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        code, _, err = ended(launch("serve", "desk.py:scripted", "--demo", "--port", port))
    assert (code, f"Cannot listen on 127.0.0.1 port {port} (address already in use): use" in err) == (1, True)


def test_a_fresh_key_works_and_is_printed_alone(launch: Launch, folder: Path) -> None:
    made = ended(
        launch("keys", "new", "--user", "ann", "--role", "supervisor", "--tenant", "acme", "--keys", "k.jsonl")
    )
    assert made[0] == 0
    key = made[1].strip()
    assert "\n" not in key
    assert key not in made[2] + (folder / "k.jsonl").read_text()
    served = Served(launch("serve", "desk.py:scripted", "--keys", "k.jsonl", "--port", "0"))
    assert served("GET", "/v1/runs", key) == (200, {"runs": [], "next": None})
    assert served("GET", "/v1/runs", "demo-alice")[0] == 401
    served.stop()
    assert key not in served.err
    assert "acme/ann" in served.err


def test_a_fresh_key_as_json(launch: Launch, folder: Path) -> None:
    made = ended(launch("keys", "new", "--user", "ann", "--role", "supervisor", "--keys", "k.jsonl", "--json"))
    told = json.loads(made[1])
    assert made[0] == 0
    assert read_keys(folder / "k.jsonl")[hash_key(told.pop("key"))].roles == ("supervisor",)
    assert told == {"user": "ann", "tenant": "default", "roles": ["supervisor"], "file": "k.jsonl"}


class Gate:
    """A model that hangs at its second request until it may answer."""

    def __init__(self) -> None:
        self.open = False

    def __call__(self, conversation: Conversation) -> Reaction:
        if not conversation.results:
            return call("lookup", city="Oslo")
        return say("It is 21 degrees.") if self.open else say("word ", endless=True)


@pytest.mark.parametrize("streamed", [False, True])
def test_sigterm_leaves_a_run_that_goes_on_after_the_restart(launch: Launch, folder: Path, streamed: bool) -> None:
    gate = Gate()
    with ModelServer(gate) as server:
        at = {"MODEL": "openai:test", "MODEL_ENDPOINT": server.url, "MODEL_API_KEY": "k"}
        served = Served(launch("serve", "desk.py:agent", "--demo", "--port", "0", **at))
        if streamed:
            stream = served.open("POST", "/v1/runs", body={"input": "Oslo?", "stream": True})
            run_id = stream.headers["Location"].rpartition("/")[2]
        else:
            run_id = served("POST", "/v1/runs", body={"input": "Oslo?"})[1]["run_id"]
            stream = served.open("GET", f"/v1/runs/{run_id}/events")
        assert server.wait_for_requests(2, 15)
        while b"text_delta" not in stream.readline():
            pass
        code, seconds = served.stop()
        assert (code, seconds < 8) == (0, True), served.err
        assert "Traceback" not in served.err
        text = stream.read()
        assert b": the server is stopping" in text
        assert b"event: end" not in text
        gate.open = True
        again = Served(launch("serve", "desk.py:agent", "--demo", "--port", "0", **at))
        with again.open("GET", f"/v1/runs/{run_id}/events") as events:
            assert b'"status":"completed"' in events.read()
        assert again("GET", f"/v1/runs/{run_id}")[1]["output"] == "It is 21 degrees."
        assert (folder / "looked.txt").read_text() == "Oslo\n"
        assert again.stop()[0] == 0
