"""Talk with processes that a test has started, line by line."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from typing import IO


def pipe(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream


async def hear(process: subprocess.Popen[str]) -> str:
    """The next line that another process says."""
    line = await asyncio.to_thread(pipe(process.stdout).readline)
    if not line:
        raise AssertionError(await asyncio.to_thread(pipe(process.stderr).read))
    return line.strip()


async def end(process: subprocess.Popen[str], *, go: str = "go\n") -> str:
    """Let another process go on and end; what else it said."""
    output, errors = await asyncio.to_thread(process.communicate, go)
    assert (process.returncode, errors) == (0, ""), errors
    return output


async def kill(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    await asyncio.to_thread(process.wait)


def run_script(url: str, body: str, environment: dict[str, str]) -> str:
    """What a script says that runs to its end in another process, with `url` and what it takes to open that store."""
    imports = "import asyncio, gc, os, sys, threading, time\nfrom glassloop.stores import open_store\n"
    command = [sys.executable, "-W", "error", "-c", f"{imports}url = {url!r}\n{body}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout
