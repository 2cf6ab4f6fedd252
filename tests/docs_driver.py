"""Runs the blocks of one document, in order, in one process: `python docs_driver.py PLAN.json` (see test_docs.py)."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import inspect
import io
import json
import os
import re
import subprocess
import sys
import types
from pathlib import Path
from typing import Any


def run_python(code: str, place: str, line: int, module: types.ModuleType, runner: asyncio.Runner) -> str:
    """Run `code` in `module`, numbered as in the document so that a traceback points there; return what it printed."""
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    compiled = compile("\n" * (line - 1) + code, place, "exec", flags=flags, dont_inherit=True)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        result: Any = eval(compiled, module.__dict__)
        if inspect.iscoroutine(result):
            runner.run(result)
    return printed.getvalue()


def run_shell(code: str) -> str:
    """Run `code` with bash, stopping at the first command that fails; return what it printed."""
    own_model = re.search(r"\bexamples[./]", code)
    environment = {name: value for name, value in os.environ.items() if not (own_model and name.startswith("MODEL"))}
    command = ["bash", "-euo", "pipefail", "-c", code]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{done.stdout}exit code {done.returncode}")
    return done.stdout


def check_output(printed: str, wanted: str) -> None:
    """Compare what was printed with what the document shows; `...` stands for anything."""
    lines = "\n".join(line.rstrip() for line in printed.strip().splitlines())
    pattern = ".*?".join(re.escape(piece) for piece in wanted.strip().split("..."))
    if not re.fullmatch(pattern, lines, re.DOTALL):
        raise SystemExit(f"printed:\n{lines}\nbut the document shows:\n{wanted}")


def main() -> None:
    """Run the plan; the first block that fails ends the process with its place on stderr."""
    sys.path.insert(0, os.getcwd())  # blocks with a title can be imported by those after them
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    printed = ""
    with asyncio.Runner() as runner:
        for block in json.loads(Path(sys.argv[1]).read_text("utf-8")):
            print(f"-- {block['place']}:{block['line']}", file=sys.stderr, flush=True)
            match block["kind"]:
                case "python":
                    if block["title"]:
                        Path(block["title"]).write_text(block["code"], "utf-8")
                    printed = run_python(block["code"], block["place"], block["line"], module, runner)
                case "sh":
                    printed = run_shell(block["code"])
                case _:
                    check_output(printed, block["code"])
            print(printed, end="", flush=True)


if __name__ == "__main__":
    main()
