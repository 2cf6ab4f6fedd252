"""A stream that is stopped: who reads it goes on, and knows what there was."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from glassloop import Agent
from glassloop.core.events import RunFinished, TextDelta
from glassloop.models.openai_chat import OpenAIChat
from glassloop.testing import Answer, ModelServer


@pytest.fixture
async def talker() -> AsyncIterator[Agent]:
    """An agent whose model never stops talking."""
    async with ModelServer(lambda _: Answer("one two ", endless=True)) as server:
        yield Agent(OpenAIChat("test", base_url=server.url, api_key="k"))


async def test_a_stream_that_was_left_has_a_result(talker: Agent) -> None:
    """openai/openai-agents-js#995: what was said and spent before a stream was stopped is known to nobody."""
    async with talker.stream("go") as stream:
        async for event in stream:
            if isinstance(event.data, TextDelta):
                break
    assert stream.result.outcome == "cancelled"
    assert (stream.result.output or "").startswith("one two")
    assert stream.result is stream.result


async def test_a_stop_button_ends_the_stream_and_not_its_reader(talker: Agent) -> None:
    """HKUDS/nanobot#4804: that the run was cancelled was taken for a cancellation of the task that reads."""
    stream, seen = talker.stream("go"), list[str]()

    async def read() -> str:
        async for event in stream:
            seen.append(event.type)
            if isinstance(event.data, RunFinished):
                seen.append(event.data.outcome)
        return "went on"

    reader = asyncio.create_task(read())
    async with asyncio.timeout(30):
        while "text_delta" not in seen:  # noqa: ASYNC110 - the reader has no news for others
            await asyncio.sleep(0.01)
    await stream.cancel()
    assert await reader == "went on"
    assert seen[-2:] == ["run_finished", "cancelled"]
