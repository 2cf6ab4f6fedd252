"""Runs inside the interpreter of the runtime that is judged: `child.py ADAPTER.py FOLDER`.

Imports the adapter once, then forks for every job, a line of JSON on stdin: `{case, url, root, probe_url, probe_root,
out, timeout}`, and for code to be loaded `{target, code}`, with `urls` for two runs at once. The fork writes what the
adapter returned to `out` as JSON; then a line `done` or `timeout` is printed.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import signal
import sys
import time
import traceback
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import fixtures

Result = dict[str, Any]

PRELUDE = """import asyncio, functools, datetime, uuid, contextvars, enum, json, re
import decimal, pathlib, typing, dataclasses
from dataclasses import dataclass
from enum import Enum
from decimal import Decimal
from pathlib import Path
from typing import Any, Annotated, Literal, Optional, Union
from pydantic import BaseModel, Field
from _case_names import RunContext, tool, ask_human, _REC
"""
FUTURE = "from __future__ import annotations\n"


class NotApplicable(Exception):
    """The runtime has no such feature at all."""


class Tool:
    """What an adapter gets: a plain callable and what the case wants of it; a handoff has a name and no callable."""

    def __init__(self, fn: Any, name: str | None = None, approval: Any = None, timeout: float | None = None) -> None:
        self.fn = fn
        self.name = name
        self.approval = approval
        self.timeout = timeout


def load(path: str, name: str) -> types.ModuleType:
    """Import the file at `path` as module `name`."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _as_it_is(function: Any) -> Any:
    return function


def load_code(code: str, adapter: types.ModuleType, recorded: dict[str, str]) -> types.ModuleType:
    """The case's code as a module; its `_REC(arguments)` notes the arguments' types in `recorded`."""

    def record(arguments: dict[str, Any]) -> int:
        for name, value in arguments.items():
            recorded[name] = type(value).__name__
            if isinstance(value, dict):
                for item in cast("dict[str, Any]", value).values():
                    recorded[name + ".*"] = type(item).__name__
        return 1

    names: Any = types.ModuleType("_case_names")
    names.RunContext = getattr(adapter, "CONTEXT_TYPE", object)
    names.tool = getattr(adapter, "tool_decorator", None) or _as_it_is
    names.ask_human = getattr(adapter, "ask_human", None)
    names._REC = record
    sys.modules["_case_names"] = names
    code = FUTURE + PRELUDE + code.replace(FUTURE, "") if FUTURE in code else PRELUDE + code
    path = Path(sys.argv[2]) / f"case_{os.getpid()}.py"
    path.write_text(code, "utf-8")
    try:
        return load(str(path), "case_code")
    finally:
        path.unlink()


def fixture_tools(case: dict[str, Any]) -> list[Tool]:
    """The tools that the case names."""
    names: list[str] = case["input"].get("tools") or []
    return [fixture_tool(name, case["input"].get("note", "")) for name in names]


def fixture_tool(name: str, note: str) -> Tool:
    if name.startswith("transfer_to_"):
        return Tool(None, name=name)
    approval: bool | Callable[[Any], bool] | None = None
    if name == "delete_row":
        approval = needs_approval if "approval policy" in note else True
    return Tool(getattr(fixtures, name), approval=approval)


def needs_approval(arguments: dict[str, Any]) -> bool:
    """Rows with a negative id may go without being asked for."""
    row = arguments.get("row_id")
    return not (isinstance(row, int) and row < 0)


def play_code(adapter: types.ModuleType, job: dict[str, Any]) -> Result:
    """Play a case whose tool is code of its own."""
    case, code = job["case"], job["code"]
    if "ask_human" in code and not getattr(adapter, "ask_human", None):
        raise NotApplicable("no pause from inside a tool")
    if "RunContext" in code and not getattr(adapter, "CONTEXT_TYPE", None):
        raise NotApplicable("no context injection")
    recorded: dict[str, str] = {}
    try:
        module: Any = load_code(code, adapter, recorded)
        target = module
        for part in job["target"].split("."):
            target = getattr(target, part)
    except Exception as error:  # noqa: BLE001  # a refusal at definition is a result, whatever its type
        return {**failed(error, "definition: "), "definition_error": True}
    tools = [Tool(target, timeout=case["input"].get("timeout_s"))]
    if "urls" in job:
        result = asyncio.run(play_two(adapter, case, job["urls"], tools, module))
    else:
        result = adapter.run(case, job["url"], tools)
    return {**result, "arg_types": recorded}


async def play_two(adapter: Any, case: dict[str, Any], urls: list[str], tools: list[Tool], module: Any) -> Result:
    """Two runs at once, each with a context variable of its own."""
    if not hasattr(adapter, "arun"):
        raise NotApplicable("no async interface")

    async def one(user: str, url: str) -> Result:
        module.user.set(user)
        return await adapter.arun({**case, "x": {**case["x"], "url": url}}, url, tools)

    tasks = [asyncio.create_task(one(user, url)) for user, url in zip(("alice", "bob"), urls, strict=True)]
    return (await asyncio.gather(*tasks))[0]


def play_script(adapter: types.ModuleType, job: dict[str, Any]) -> Result:
    """Play a case with a scripted model."""
    case = job["case"]
    fixtures.tool_error = getattr(adapter, "ToolError", None) or fixtures.ToolError
    anthropic = case["input"]["mode"] == "anthropic"
    if anthropic and not getattr(adapter, "ANTHROPIC", False):
        raise NotApplicable("no anthropic support")
    return adapter.run(case, job["root"] if anthropic else job["url"], fixture_tools(case))


def play(adapter: types.ModuleType, job: dict[str, Any]) -> Result:
    """Play one job; an exception that leaves the adapter is a result of its own."""
    case = job["case"]
    case["x"] = {key: job[key] for key in ("url", "root", "probe_url", "probe_root")}
    began = time.monotonic()
    try:
        result = (play_code if case["input"]["mode"] == "python" else play_script)(adapter, job)
    except NotApplicable as error:
        result = {"outcome": "na", "error": str(error)}
    except (Exception, asyncio.CancelledError, KeyboardInterrupt) as error:  # noqa: BLE001  # it is what is judged
        result = {**failed(error), "trace": traceback.format_exc()[-3000:], "escaped": True}
    effects = {"log": fixtures.LOG, "outbox": fixtures.OUTBOX, "deleted": fixtures.DELETED}
    return {**result, **effects, "wall_s": time.monotonic() - began}


def failed(error: BaseException, prefix: str = "") -> Result:
    return {"outcome": "error", "error": f"{prefix}{type(error).__name__}: {error}"}


def work(adapter: types.ModuleType, job: dict[str, Any]) -> None:
    """The fork's whole life: play the job, write the result."""
    os.setpgid(0, 0)
    log = os.open(Path(sys.argv[2]) / "adapter.err", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    result = play(adapter, job)
    part = Path(job["out"] + ".part")
    part.write_text(json.dumps(result, default=repr), "utf-8")
    part.rename(job["out"])


def fork(adapter: types.ModuleType, job: dict[str, Any]) -> str:
    """Play the job in a fork; `done`, or `timeout` when it had to be killed."""
    pid = os.fork()
    if pid == 0:
        try:
            work(adapter, job)
        finally:
            os._exit(0)
    end = time.monotonic() + job["timeout"]
    while time.monotonic() < end:
        if os.waitpid(pid, os.WNOHANG)[0]:
            return "done"
        time.sleep(0.002)
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return "timeout"


def main() -> None:
    """Serve jobs until stdin ends."""
    sys.modules["child"] = sys.modules["__main__"]
    adapter = load(sys.argv[1], "adapter")
    print("ready", flush=True)
    for line in sys.stdin:
        print(fork(adapter, json.loads(line)), flush=True)


if __name__ == "__main__":
    main()
