"""`glassloop serve` of an example with its offline model, in a process of its own, and how to call it."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from glassloop.cli.target import load_target
from glassloop.testing import ModelServer

ROOT = Path(__file__).parents[2]
START_SECONDS = 60.0
REST_SECONDS = 300.0
LOCKED = "database is locked"

_OF_THE_USER = re.compile(r"(?i)(MODEL|MODEL_.+|.+_API_KEY|.+_BASE_URL|STORE|SESSIONS|(https?|all|no)_proxy)")


@dataclass(frozen=True)
class Weight:
    """What a process takes of the machine.

    Args:
        kilobytes: memory that is its own and in use (RSS without shared pages).
        threads: its threads.
    """

    kilobytes: int
    threads: int


class Served:
    """A server that answers, and a client of it.

    Args:
        process: the server.
        client: sends with the owner's key.
        said: what the server has printed so far.
    """

    def __init__(self, process: asyncio.subprocess.Process, client: aiohttp.ClientSession, said: list[str]) -> None:
        self.process = process
        self.client = client
        self.said = said

    async def call(self, method: str, path: str, body: Any = None) -> Any:
        """What it answers to a request that it must accept."""
        async with self.client.request(method, path, json=body) as answer:
            answer.raise_for_status()
            return await answer.json()

    async def start(self, text: str, session: str | None = None, agent: str | None = None) -> str:
        """Begin a run in the background; its id."""
        given = {"input": text, "background": True} | ({"session": session} if session else {})
        given |= {"agent": agent} if agent else {}
        return (await self.call("POST", "/v1/runs", given))["run_id"]

    async def rested(self, run_id: str) -> str:
        """Follow a run's events until it rests; its status then."""
        async with asyncio.timeout(REST_SECONDS), self.client.get(f"/v1/runs/{run_id}/events") as stream:
            stream.raise_for_status()
            async for _ in stream.content:
                pass
        return (await self.call("GET", f"/v1/runs/{run_id}"))["status"]

    def weight(self) -> Weight:
        """What the process takes now."""
        folder = Path(f"/proc/{self.process.pid}")
        status = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines())
        private = sum(
            int(line.split()[1])
            for line in (folder / "smaps_rollup").read_text().splitlines()
            if line.startswith("Private_")
        )
        return Weight(private, int(status["Threads"]))

    @property
    def complaints(self) -> list[str]:
        """Lines that tell of something wrong."""
        return [line for line in self.said if re.search(rf"{LOCKED}|Traceback|\bERROR\b|\bWARNING\b", line)]


def model_of(example: str) -> ModelServer:
    """The offline model of an example, to be served here."""
    stand_in = load_target(str(ROOT / "examples" / example)).stand_in
    assert stand_in is not None
    return ModelServer(stand_in.brain)


@asynccontextmanager
async def serving(example: str, file: Path, *, most: int, model: ModelServer | None = None) -> AsyncGenerator[Served]:
    """Serve an example on an SQLite file, and stop it with SIGTERM.

    Args:
        example: its name.
        file: the store.
        most: runs that may go at once.
        model: answers instead of the example's own offline model, which is served by the same process.
    """
    environment = {name: value for name, value in os.environ.items() if not _OF_THE_USER.fullmatch(name)}
    environment["MALLOC_ARENA_MAX"] = "1"  # one heap, not one for each thread that ever was: it can be weighed
    if model is not None:
        environment |= {"MODEL": "openai:stand-in", "MODEL_ENDPOINT": model.url, "MODEL_API_KEY": "any"}
    command = [sys.executable, "-m", "glassloop", "serve", f"examples/{example}", "--demo", "--port", "0"]
    process = await asyncio.create_subprocess_exec(
        *command,
        "--max-runs",
        str(most),
        "--store",
        f"sqlite:///{file}",
        cwd=ROOT,
        env=environment,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    said: list[str] = []
    assert process.stderr is not None
    try:
        async with asyncio.timeout(START_SECONDS):
            url = await _address(process.stderr, said)
        listening = asyncio.create_task(_listen(process.stderr, said))
        limits = aiohttp.TCPConnector(limit=0)
        headers = {"Authorization": "Bearer demo-alice"}
        wait = aiohttp.ClientTimeout(total=None)
        async with aiohttp.ClientSession(url, headers=headers, connector=limits, timeout=wait) as client:
            yield Served(process, client, said)
        process.send_signal(signal.SIGTERM)
        await process.wait()
        await listening
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def _address(stream: asyncio.StreamReader, said: list[str]) -> str:
    while line := (await stream.readline()).decode():
        said.append(line)
        if found := re.search(r"at (http://\S+)", line):
            return found[1]
    raise RuntimeError(f"The server did not start: {''.join(said)}")


async def _listen(stream: asyncio.StreamReader, said: list[str]) -> None:
    while line := (await stream.readline()).decode():
        said.append(line)
