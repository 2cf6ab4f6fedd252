"""What every peer shares: the task, its tools, and the shape of a peer.

This module is imported into each peer's own environment, so it stays on the standard library.
"""

import asyncio
import json
import os
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, ClassVar

BASE_URL = os.environ.get("OPENAI_BASE_URL", "http://127.0.0.1:8099/v1")
API_KEY = os.environ.get("OPENAI_API_KEY", "sk-fake")
SYSTEM = "You are a helpful assistant. Use the tools."
PROMPT = "Go."
NAP_SECONDS = 0.1
_WORDS = random.Random(4096)
BLOB = " ".join(f"order-{_WORDS.randrange(10_000_000)}" for _ in range(400))[:4096]
"""As redundant as a tool's result: a store could shrink one letter 4,096 times to nothing."""


@dataclass
class Naps:
    """Where and when the sleeping tools ran, to see whether they really ran side by side."""

    spans: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])
    threads: set[int] = field(default_factory=set[int])

    def clear(self) -> None:
        """Forgets what the warm-up left."""
        self.spans.clear()
        self.threads.clear()


NAPS = Naps()


def add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: first number
        b: second number
    """
    return a + b


async def nap_async(a: int, b: int) -> int:
    """Sleep 0.1 s without blocking.

    Args:
        a: first number
        b: second number
    """
    start = time.monotonic()
    await asyncio.sleep(NAP_SECONDS)
    NAPS.spans.append((start, time.monotonic()))
    return a + b


def nap_sync(a: int, b: int) -> int:
    """Sleep 0.1 s, blocking.

    Args:
        a: first number
        b: second number
    """
    start = time.monotonic()
    NAPS.threads.add(threading.get_ident())
    time.sleep(NAP_SECONDS)
    NAPS.spans.append((start, time.monotonic()))
    return a + b


def blob(a: int, b: int) -> str:
    """Return 4 KiB of text.

    Args:
        a: first number
        b: second number
    """
    return BLOB


TOOLS: dict[str, Callable[..., Any]] = {
    "add": add,
    "nap_async": nap_async,
    "nap_sync": nap_sync,
    "blob": blob,
}

# The handwritten references need as many threads as a careful author would give them: the default pool of
# asyncio has only "cores + 4".
_POOL = ThreadPoolExecutor(64)


def first_messages() -> list[dict[str, Any]]:
    """The opening of every conversation, for the handwritten references."""
    return [{"role": "system", "content": SYSTEM}, {"role": "user", "content": PROMPT}]


def tool_schema(name: str) -> dict[str, Any]:
    """The chat-completions schema of one tool, as frameworks derive it, for the handwritten references."""
    properties = {
        "a": {"type": "integer", "description": "first number"},
        "b": {"type": "integer", "description": "second number"},
    }
    parameters = {
        "type": "object",
        "additionalProperties": False,
        "required": ["a", "b"],
        "properties": properties,
    }
    description = (TOOLS[name].__doc__ or "").strip().split("\n")[0]
    function = {"name": name, "description": description, "parameters": parameters}
    return {"type": "function", "function": function}


async def call_tool(name: str, arguments: str) -> str:
    """Runs one call for the handwritten references; only the tool that blocks goes to a thread."""
    function, values = TOOLS[name], json.loads(arguments)
    if name == "nap_sync":
        return str(await asyncio.get_running_loop().run_in_executor(_POOL, lambda: function(**values)))
    if name == "nap_async":
        return str(await function(**values))
    return str(function(**values))


def model_name(k: int, p: int = 1, d: int = 0, c: int = 1, tool: str = "add") -> str:
    """The model name that tells the server what to answer.

    Args:
        k: rounds of tool calls before the final text
        p: parallel calls per round
        d: delay before each answer, in milliseconds
        c: chunks of a streamed final text
        tool: name of the tool to call
    """
    return f"fake-k{k}-p{p}-d{d}-c{c}-n{tool}"


class Peer:
    """One way to run the task.

    What a user makes once per process (client, agent, tools) belongs in `setup` or in a cache;
    what must be made for every run belongs in `run` and is measured.
    """

    name: ClassVar[str]

    def __init__(self, variant: str = "") -> None:
        self.variant = variant
        self.data_dir: str | None = None
        """Folder with everything a durable peer writes, or None."""

    async def setup(self) -> None:
        """Imports the library and makes the objects that live as long as the process."""

    async def run(self, model: str, tool: str) -> str:
        """One agent run; returns the final text."""
        raise NotImplementedError

    async def stream(self, model: str, tool: str, on_text: Callable[[str], None]) -> None:
        """One streamed agent run; `on_text` gets each piece of text as it arrives."""
        raise NotImplementedError

    async def settle(self) -> None:
        """Brings what was written to where it lies when the process has ended."""

    async def close(self) -> None:
        """Closes what `setup` opened."""
