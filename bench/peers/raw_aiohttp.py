# pyright: basic, reportMissingImports=false
"""The practical limit: a loop written by hand over aiohttp, dictionaries only."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

from bench.common import API_KEY, BASE_URL, Peer, call_tool, first_messages, tool_schema
from bench.worker import main

URL = BASE_URL + "/chat/completions"


class RawAiohttp(Peer):
    """No framework, no SDK, no validation."""

    name = "raw_aiohttp"

    async def setup(self) -> None:
        import aiohttp

        self.session = aiohttp.ClientSession(
            headers={"authorization": f"Bearer {API_KEY}"}, connector=aiohttp.TCPConnector(limit=1000)
        )

    async def run(self, model: str, tool: str) -> str:
        messages = first_messages()
        body = {"model": model, "tools": [tool_schema(tool)], "messages": messages}
        while True:
            message = await self._ask(body)
            calls = message.get("tool_calls")
            if not calls:
                return message["content"]
            messages.append({"role": "assistant", "content": message["content"], "tool_calls": calls})
            functions = [call["function"] for call in calls]
            results = await asyncio.gather(*(call_tool(f["name"], f["arguments"]) for f in functions))
            for call, result in zip(calls, results, strict=True):
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})

    async def _ask(self, body: dict[str, Any]) -> dict[str, Any]:
        async with self.session.post(URL, json=body) as response:
            response.raise_for_status()
            return (await response.json())["choices"][0]["message"]

    async def stream(self, model: str, tool: str, on_text: Callable[[str], None]) -> None:
        body = {"model": model, "tools": [tool_schema(tool)], "stream": True, "messages": first_messages()}
        async with self.session.post(URL, json=body) as response:
            async for line in response.content:
                if line.startswith(b"data: ") and not line.startswith(b"data: [DONE]"):
                    choices = json.loads(line[6:])["choices"]
                    if choices and (text := choices[0]["delta"].get("content")):
                        on_text(text)

    async def close(self) -> None:
        await self.session.close()


if __name__ == "__main__":
    main(RawAiohttp)
