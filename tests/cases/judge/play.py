"""Plays a case through an adapter against the scripted server."""

from __future__ import annotations

import ast
import copy
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from fixtures import RAISING
from judge.checks import free_form
from judge.evidence import Case, Evidence, Group, execution, tool_results
from judge.replies import calling, ok
from judge.server import Run, Server
from judge.shape import sequence

HERE = Path(__file__).parents[1]
CASES = HERE / "cases.jsonl"
SETTLE_SECONDS = 0.02


def read_cases(path: Path = CASES) -> list[Case]:
    """The cases of a file, one JSON object a line."""
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


class Child:
    """The adapter in a process of its own, which forks for each job."""

    def __init__(self, adapter: Path) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="cases-")
        proxies = ("http_proxy", "https_proxy", "all_proxy")
        environment = {name: value for name, value in os.environ.items() if name.lower() not in proxies}
        environment |= {"OPENAI_API_KEY": "sk-fake", "ANTHROPIC_API_KEY": "sk-fake", "PYTHONUNBUFFERED": "1"}
        environment |= dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1,localhost")
        command = [sys.executable, str(HERE / "child.py"), str(adapter.resolve()), self._folder.name]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment, cwd=HERE)
        if self._answer() != "ready":
            raise RuntimeError(f"the adapter {adapter} failed to start")

    def _answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def job(self, **job: Any) -> tuple[dict[str, Any], bool]:
        """Have a job played; its result, and whether it timed out."""
        assert self._process.stdin is not None
        out = Path(self._folder.name) / "out.json"
        out.unlink(missing_ok=True)
        self._process.stdin.write(json.dumps({**job, "out": str(out)}) + "\n")
        self._process.stdin.flush()
        state = self._answer()
        try:
            return json.loads(out.read_text("utf-8")), state == "timeout"
        except (OSError, ValueError):
            outcome = "timeout" if state == "timeout" else "crash"
            return {"outcome": outcome, "error": "no result: " + state}, state == "timeout"

    def close(self) -> None:
        """End the process."""
        with self._process as process:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(10)
        self._folder.cleanup()


class Player:
    """Plays cases one after the other."""

    def __init__(self, server: Server, child: Child, timeout: float = 30) -> None:
        self._server = server
        self._child = child
        self._timeout = timeout

    def play(self, case: Case) -> Evidence:
        """Play a case; one that can only be played by hand is left alone."""
        case = copy.deepcopy(case)
        seen = Evidence(case)
        if free_form(case):
            return seen
        if case["input"]["mode"] == "python":
            self._play_code(seen)
        else:
            if case["input"]["mode"] == "history":
                _split_history(case["input"])
                run = self._server.new_run(answer=ok)
            else:
                run = self._server.new_run(case["input"].get("script"))
            result, timed_out = self._job(case, run)
            time.sleep(SETTLE_SECONDS)  # the server's thread may still be noting that the client has left
            _take(seen, run, result, timed_out)
        seen.raised = sum(name in RAISING for name, _ in seen.log)
        return seen

    def _job(self, case: Case, run: Run, **more: Any) -> tuple[dict[str, Any], bool]:
        assert run.probe is not None
        probe = {"probe_url": run.probe.url, "probe_root": run.probe.root}
        return self._child.job(case=case, url=run.url, root=run.root, timeout=self._timeout, **probe, **more)

    def _play_code(self, seen: Evidence) -> None:
        case = seen.case
        code, groups = code_and_calls(case)
        if "user.set" in case["input"]["code"]:
            runs = [self._server.new_run(answer=calling(["{}"])) for _ in range(2)]
            target = groups[0][0]
            result, timed_out = self._job(case, runs[0], code=code, target=target, urls=[run.url for run in runs])
            for run in runs:
                _take(seen, run, result, timed_out)
                seen.groups.append(_group(target, run, result))
            return
        for target, calls in groups:
            run = self._server.new_run(answer=calling(calls))
            result, timed_out = self._job(case, run, code=code, target=target)
            _take(seen, run, result, timed_out)
            seen.groups.append(_group(target, run, result))
            if result.get("outcome") == "na":
                return


def _take(seen: Evidence, run: Run, result: dict[str, Any], timed_out: bool) -> None:
    assert run.probe is not None
    seen.result = result
    seen.timed_out |= timed_out
    seen.requests += run.requests
    seen.probe_requests += run.probe.requests
    seen.overrun += run.overrun
    seen.disconnect_t = run.disconnect_t
    seen.log += [execution(*item) for item in sequence(result.get("log"))]
    seen.outbox += result.get("outbox") or []
    seen.deleted += result.get("deleted") or []


def _group(target: str, run: Run, result: dict[str, Any]) -> Group:
    best = max(run.requests, key=lambda request: len(tool_results(request)), default=None)
    refused = result.get("definition_error") or (result.get("outcome") == "error" and not run.requests)
    return Group(
        target=target,
        requests=run.requests,
        results=[text for _, text in tool_results(best)] if best else [],
        wall_s=result.get("wall_s"),
        arg_types=result.get("arg_types"),
        definition_error=bool(refused),
    )


def _split_history(asked: dict[str, Any]) -> None:
    """Tell the history from the prompt: a last user message, another turn if the case wants one, or nothing."""
    messages = asked["messages"]
    if messages[-1]["role"] == "user":
        asked["prompt"], asked["history"] = messages[-1]["content"], messages[:-1]
    elif "send one more user turn" in asked.get("then", ""):
        asked["prompt"], asked["history"] = "one more", messages
    else:
        asked["prompt"], asked["history"] = None, messages


def code_and_calls(case: Case) -> tuple[str, list[tuple[str, list[str]]]]:
    """The code of a case, and for each tool in it the raw arguments of its calls."""
    asked = case["input"]
    code = asked["code"].replace(") -> int: ...", ") -> int:\n    return _REC(dict(locals()))")
    code = re.sub(r"(?m)^user\.set\(.*$", "", code)
    tree = ast.parse(code)
    functions = [node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    if asked.get("raw_arguments"):
        return code, [(functions[-1], [asked["raw_arguments"]])]
    if asked.get("calls") is None and "descriptions_present" in case["checks"]:
        return code, [(function, []) for function in functions]
    groups: list[tuple[str, list[str]]] = []
    for call in asked.get("calls") or [_sample_call(case)]:
        target, arguments = sequence(call) or (functions[-1], call)
        if not groups or groups[-1][0] != target:
            groups.append((target, []))
        groups[-1][1].append(json.dumps(arguments, ensure_ascii=False))
    return code, groups


def _sample_call(case: Case) -> dict[str, Any]:
    """The call for a case that names none: one that fits the models which its schema check is about."""
    if "schema_refs_resolve" in case["checks"]:
        return {"p": {"name": "n", "homes": [{"city": "c", "zip": "1"}]}, "tags": {"k": {"city": "d"}}}
    return {}
