"""Glassloop, limits lifted.  VARIANT "" keeps its journal in memory, "sqlite" in a file on disk."""

import tempfile
from collections.abc import Callable
from typing import Any

from bench.common import PROMPT, SYSTEM, TOOLS, Peer
from bench.worker import main


class Glassloop(Peer):
    """One agent per tool; the model name is handed to each run."""

    name = "glassloop"

    async def setup(self) -> None:
        from glassloop import Agent, Limits

        no_limits = Limits(steps=None, total_tokens=None, seconds=None, cost_usd=None, repetition=None)
        self.agents = {
            name: Agent("openai:fake-k0", tools=[function], instructions=SYSTEM, limits=no_limits)
            for name, function in TOOLS.items()
        }
        self.options: dict[str, Any] = {}
        if self.variant == "sqlite":
            self.data_dir = tempfile.mkdtemp(prefix="bench-glassloop-")
            self._open()

    def _open(self) -> None:
        from glassloop.stores import open_store

        self.options["store"] = open_store(f"sqlite:///{self.data_dir}/journal.db")

    async def settle(self) -> None:
        await self.close()
        self._open()

    async def run(self, model: str, tool: str) -> str:
        result = await self.agents[tool].run(PROMPT, model=f"openai:{model}", **self.options)
        return str(result.output)

    async def stream(self, model: str, tool: str, on_text: Callable[[str], None]) -> None:
        async with self.agents[tool].stream(PROMPT, model=f"openai:{model}", **self.options) as events:
            async for event in events:
                if event.type == "text_delta":
                    on_text(event.data.text)

    async def close(self) -> None:
        if store := self.options.get("store"):
            await store.close()


if __name__ == "__main__":
    main(Glassloop)
