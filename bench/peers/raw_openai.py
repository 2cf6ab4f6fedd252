# pyright: basic, reportMissingImports=false
"""The reference of all ratios: a loop written by hand over the official `openai` SDK."""

import asyncio
from collections.abc import Callable
from typing import Any

from bench.common import API_KEY, BASE_URL, Peer, call_tool, first_messages, tool_schema
from bench.worker import main


class RawOpenAI(Peer):
    """What an experienced developer writes in an hour."""

    name = "raw_openai"

    async def setup(self) -> None:
        from openai import AsyncOpenAI

        self.client = AsyncOpenAI(base_url=BASE_URL, api_key=API_KEY)

    async def run(self, model: str, tool: str) -> str:
        messages: list[Any] = first_messages()
        tools: list[Any] = [tool_schema(tool)]
        while True:
            reply = await self.client.chat.completions.create(model=model, messages=messages, tools=tools)
            message = reply.choices[0].message
            calls = message.tool_calls
            if not calls:
                return message.content or ""
            messages.append(message.model_dump(exclude_none=True))
            functions = [call.function for call in calls if call.type == "function"]
            results = await asyncio.gather(*(call_tool(f.name, f.arguments) for f in functions))
            for call, result in zip(calls, results, strict=True):
                messages.append({"role": "tool", "tool_call_id": call.id, "content": result})

    async def stream(self, model: str, tool: str, on_text: Callable[[str], None]) -> None:
        messages: list[Any] = first_messages()
        tools: list[Any] = [tool_schema(tool)]
        chunks = await self.client.chat.completions.create(model=model, messages=messages, tools=tools, stream=True)
        async for chunk in chunks:
            if chunk.choices and (text := chunk.choices[0].delta.content):
                on_text(text)

    async def close(self) -> None:
        await self.client.close()


if __name__ == "__main__":
    main(RawOpenAI)
