"""What outlives a process: tools that leave a trace, and other processes that run, park, die and come back."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import asdict
from datetime import UTC, datetime, timedelta, timezone
from importlib import import_module
from pathlib import Path
from typing import Any

from glassloop import Agent, Identity, Tool, tool
from glassloop.core.encoding import dumps
from glassloop.core.errors import GlassloopError
from glassloop.core.events import ToolStarted
from glassloop.core.messages import ToolCall, ToolResult, UserMessage
from glassloop.core.result import Decision
from glassloop.middleware.approval import Approval
from glassloop.models.model import ModelRequest
from glassloop.models.openai_chat import OpenAIChat
from glassloop.runtime import Runtime
from glassloop.stores import Store, open_store
from glassloop.teams import agent_tool
from glassloop.testing import ScriptedModel, call

ANN = Identity("ann", "acme")
SAM = Identity("sam", "acme", ("supervisor",))


def die() -> None:
    """End this process as `kill -9` does."""
    os.kill(os.getpid(), signal.SIGKILL)


class Trace:
    """A file with a line for each thing that has happened; no kill takes it back."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()

    def write(self, line: str) -> None:
        """Something has happened."""
        with self.path.open("a") as file:
            file.write(line + "\n")

    def lines(self) -> list[str]:
        """What has happened, in order."""
        return self.path.read_text().splitlines()

    async def reached(self, number: int) -> None:
        """Wait until so many things have happened."""

        def wait() -> None:
            until = time.monotonic() + 20
            while len(self.lines()) < number:
                assert time.monotonic() < until, f"only this has happened: {self.lines()}"
                time.sleep(0.01)

        await asyncio.to_thread(wait)


def _who(arguments: dict[str, Any]) -> bool | str:
    return "supervisor" if arguments["amount"] > 500 else True


class Desk:
    """The tools. They are the same to every process.

    Args:
        trace: where effects go.
        patience: seconds that `slow` and sending take.
        deadly: whether a deletion, or a note that has been sent, kills the process.
    """

    def __init__(self, trace: Trace, *, patience: float = 0.0, deadly: bool = False) -> None:
        self.trace, self.patience, self.deadly = trace, patience, deadly

    @tool
    def look_up(self, order: str) -> str:
        """Look an order up."""
        self.trace.write(f"look_up {order}")
        return f"order {order} is late"

    @tool(effect="write", approval=True)
    def delete_row(self, row_id: int) -> str:
        """Delete a row."""
        self.trace.write(f"delete_row {row_id}")
        if self.deadly:
            die()
        return f"deleted {row_id}"

    @tool(effect="write", approval=_who)
    def refund(self, amount: float, note: dict[str, Any]) -> str:
        """Refund."""
        self.trace.write(f"refund {amount}")
        return f"refunded {amount}"

    @tool(effect="write")
    def send_note(self, to: str) -> str:
        """Send a note."""
        self.trace.write(f"send_note {to}")
        if self.deadly:
            die()
        time.sleep(self.patience)
        return f"sent to {to}"

    @tool
    async def slow(self, seconds: float) -> str:
        """Sleep."""
        await asyncio.to_thread(self.trace.write, "slow")
        await asyncio.sleep(min(seconds, self.patience))
        return "slept"

    @tool
    def add(self, a: int, b: int) -> int:
        """Add two numbers."""
        self.trace.write("add")
        return a + b

    @property
    def tools(self) -> list[Tool]:
        """All of them."""
        return [self.look_up, self.delete_row, self.refund, self.send_note, self.slow, self.add]


def asks(*steps: ToolCall | list[ToolCall]) -> ScriptedModel:
    """A model that makes these calls, step by step, and then says what came of the last: it can be asked anywhere."""

    def answer(request: ModelRequest) -> Any:
        turn = max(n for n, message in enumerate(request.messages) if isinstance(message, UserMessage))
        results = [message for message in request.messages[turn:] if isinstance(message, ToolResult)]
        done = 0
        for step in steps:
            if done == len(results):
                return step
            done += len(step) if isinstance(step, list) else 1
        return f"done: {results[-1].content}" if results else "nothing to do"

    return ScriptedModel(answer)


HELD = (
    call("look_up", order="A-1"),
    [call("delete_row", row_id=7), call("refund", amount=900.0, note={"n": 1, "f": 1.0, "t": True, "text": "退款 é"})],
)
"""A step that runs, and one whose two calls a human must decide on."""


def desk_agent(desk: Desk, *steps: ToolCall | list[ToolCall], **options: Any) -> Agent:
    """An agent with the desk's tools."""
    return Agent(asks(*steps), desk.tools, name="desk", **options)


# Programs: what another process does. They say JSON, a line each.


def team_agent(desk: Desk) -> Agent:
    """An agent that gives its work to another one, whose calls a human must decide on."""
    below = desk_agent(desk, call("delete_row", row_id=7))
    return Agent(asks(call("desk", task="delete row 7")), [agent_tool(below)], name="team")


def _say(value: object) -> None:
    sys.stdout.buffer.write(dumps(value) + b"\n")
    sys.stdout.flush()


async def _hear() -> None:
    await asyncio.to_thread(sys.stdin.readline)


async def what_waits(runtime: Runtime, run_id: str) -> dict[str, Any]:
    """All that is known about the calls that are held."""
    result = await runtime.result(run_id)
    assert result is not None
    return {"rows": [asdict(row) for row in await runtime.approvals()], "held": [asdict(one) for one in result.pending]}


async def park(url: str, trace: str) -> None:
    """Hold two calls, say what waits, and stay."""
    agent = desk_agent(Desk(Trace(Path(trace))), *HELD, middleware=[Approval(expires=3600)])
    async with Runtime(agent, store=url) as runtime:
        run_id = (await runtime.run("desk", "go", identity=ANN)).run_id
        _say(run_id)
        _say(await what_waits(runtime, run_id))
        await _hear()


async def park_below(url: str, trace: str) -> None:
    """Run until a run below waits for a human."""
    async with Runtime(team_agent(Desk(Trace(Path(trace)))), store=url) as runtime:
        _say((await runtime.run("team", "go", identity=ANN)).run_id)
        await _hear()


async def begin_turn(url: str, trace: str, model: str) -> None:
    """Begin a turn of a session and stay in its slow call."""
    desk = Desk(Trace(Path(trace)), patience=60)
    agent = Agent(OpenAIChat("scripted", base_url=model, api_key="sk-fake"), desk.tools, name="desk")
    async with agent.stream("go", identity=Identity("ann", "acme", session="s"), store=url) as stream:
        async for event in stream:
            if isinstance(event.data, ToolStarted) and event.data.tool == "slow":
                _say(event.run_id)


async def send(url: str, trace: str) -> None:
    """Send a note, and die before anybody knows."""
    agent = desk_agent(Desk(Trace(Path(trace)), deadly=True), call("send_note", to="bob"))
    await agent.run("go", store=url, user="ann")


async def edit(url: str, trace: str) -> None:
    """Delete another row than the model wanted, as a human decides, and die before anybody knows."""
    agent = desk_agent(Desk(Trace(Path(trace)), deadly=True), call("delete_row", row_id=1))
    paused = await agent.run("go", store=url)
    other = Decision("edit", arguments={"row_id": 5})
    await agent.resume(paused.run_id, decisions={paused.pending[0].approval_id: other}, store=url)


async def ask(url: str, trace: str) -> None:
    """Die once it is known which note to send, and before it is sent."""
    agent = desk_agent(Desk(Trace(Path(trace))), call("send_note", to="bob"), middleware=[Deadly()])
    await agent.run("go", store=url, user="ann")


class Deadly:
    """Kills the process when a call comes by whose request is in the journal."""

    async def __call__(self, call: Any, next: Callable[[Any], Any], /) -> Any:
        """See `ToolMiddleware`."""
        await call.recorder.commit()
        die()


async def recover(url: str, trace: str, run_id: str) -> None:
    """Go on with a run when told to; say how it rests, or why it was refused."""
    agent = desk_agent(Desk(Trace(Path(trace)), patience=1), call("send_note", to="bob"))
    async with open_store(url) as store:
        _say("ready")
        await _hear()
        try:
            result = await agent.resume(run_id, store=store)
            _say([result.outcome, [held.kind for held in result.pending]])
        except GlassloopError as error:
            _say([type(error).__name__, str(error)])


async def save(url: str, dies_at: str) -> None:
    """Run a turn with five messages in a session, and die while the n-th of them is being written."""
    left = int(dies_at)

    def watch(statement: str) -> None:
        nonlocal left
        if statement.lstrip().startswith("INSERT INTO glassloop_messages"):
            left -= 1
            if left == 0:
                die()

    connect = sqlite3.connect

    def watched(*args: Any, **options: Any) -> sqlite3.Connection:
        connection = connect(*args, **options)
        connection.set_trace_callback(watch)
        return connection

    sqlite3.connect = watched
    await five(url, Path(url.removeprefix("sqlite:///")).with_name("trace"))


async def five(store: str | Store, trace: Path) -> str:
    """A turn of five messages in the session `s`: two calls at once."""
    step = [call("add", a=1, b=2), call("add", a=3, b=4)]
    return (await desk_agent(Desk(Trace(trace)), step).run("go", session="s", store=store)).run_id


async def keep(url: str, folder: str) -> None:
    """Keep values of classes of a module that no other process has."""
    sys.path.insert(0, folder)
    values: Mapping[str, Callable[[], Any]] = import_module("of_yesterday").VALUES
    tools = [tool(function, name=name) for name, function in values.items()]
    agent = Agent(asks([call(name) for name in values]), tools, name="desk")
    _say((await agent.run("go", store=url, session="s")).run_id)


async def book(url: str) -> None:
    """Run calls with times, naive and not, and say what is stored and what the tool was given."""
    given: list[Any] = []

    @tool(approval=lambda arguments: arguments["title"] == "held")
    def book(title: str, at: datetime) -> dict[str, Any]:
        """Book."""
        given.append(at.isoformat())
        india = timezone(timedelta(hours=5, minutes=30))
        noon = datetime(2026, 3, 8, 12)  # the day on which New York's clocks change
        return {"naive": noon, "india": noon.replace(tzinfo=india), "utc": noon.replace(tzinfo=UTC), "day": noon.date()}

    times = ("2026-03-08T02:30:00", "2026-03-08T02:30:00+05:30", "2026-03-08T02:30:00Z")
    steps = [*(call("book", title="now", at=at) for at in times), call("book", title="held", at=times[0])]
    agent = Agent(asks(steps), [book], name="desk", middleware=[Approval(expires=60)])
    async with Runtime(agent, store=url) as runtime:
        before = datetime.now(UTC).timestamp() * 1000
        run_id = (await runtime.run("desk", "go", identity=ANN)).run_id
        after = datetime.now(UTC).timestamp() * 1000
        events = await runtime.store.journal.read(run_id)
        [row], result = await runtime.approvals(), await runtime.result(run_id)
        assert result is not None
        told = {
            "arguments": row.arguments,
            "life": round(((row.expires_at or 0) - row.asked_at) / 1000),
            "given": sorted(given),
        }
        told |= {"values": [one.value for one in result.tool_executions]}
        told |= {"on_time": all(before - 1000 <= event.at <= after + 1000 for event in events)}
        _say(told | {"zone": datetime.now().astimezone().utcoffset()})


# The file and the other process, as a test sees them.


def rows(url: str, query: str) -> list[tuple[Any, ...]]:
    """What lies in a store's file."""
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as file:
        return file.execute(query).fetchall()


def tamper(url: str, statement: str, *values: object) -> None:
    """Change a store's file behind its back."""
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as file, file:
        assert file.execute(statement, values).rowcount > 0


class Process:
    """Another process that runs one of the programs.

    Args:
        environment: its environment.
        program: the program's name.
        arguments: its arguments.
    """

    def __init__(self, environment: Mapping[str, str], program: str, *arguments: object) -> None:
        code = "import asyncio, sys, durable; asyncio.run(getattr(durable, sys.argv[1])(*sys.argv[2:]))"
        command = [sys.executable, "-W", "error", "-c", code, program, *map(str, arguments)]
        pipe, folder = subprocess.PIPE, Path(__file__).parent
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, env=environment, cwd=folder)

    async def hear(self) -> Any:
        """The next thing that it says."""
        assert self._process.stdout is not None
        line = await asyncio.to_thread(self._process.stdout.readline)
        if not line:
            raise AssertionError((await asyncio.to_thread(self._process.communicate))[1].decode())
        return json.loads(line)

    def go(self) -> None:
        """Let it go on."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"go\n")
        self._process.stdin.flush()

    async def kill(self) -> None:
        """Kill it with -9, wherever it is."""
        self._process.kill()
        await self.died()

    async def died(self) -> None:
        """Wait until it has been killed."""
        _, errors = await asyncio.to_thread(self._process.communicate)
        assert self._process.returncode == -signal.SIGKILL, errors.decode()

    def end(self) -> None:
        """Make sure that it is no more."""
        self._process.kill()
        self._process.communicate()


Start = Callable[..., Process]
