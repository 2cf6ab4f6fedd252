"""The ticket desk with a model that was never taught to call: the same run as with one that was."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, cast, get_args

import pytest

from glassloop import Agent, ModelSettings
from glassloop.cli.target import Target
from glassloop.core.events import Event, ModelReplied, ToolFinished
from glassloop.core.result import Decision, RunResult
from glassloop.models.openai_chat import OpenAIChat
from glassloop.stores import open_store
from glassloop.testing import ModelServer

COMPLAINTS = [
    "Customer complains that order 2024001 was never shipped",
    "Refund 300 yuan for order 2024001",
    "客户投诉订单2024001一直没发货",
    "What is the status of order 2024005?",
]
Mode = Literal["native", "schema"]


@pytest.fixture
def desk(load: Callable[[str], Target]) -> Target:
    return load("ticket")


def told(event: Event) -> Any:
    """An event without what is different every time (ids, how long it took), and without words beside a call, for which
    a reply that a schema constrains has no place."""
    match event.data:
        case ToolFinished(result=result, arguments=arguments):
            return event.type, event.step, result.name, result.status, arguments, result.content
        case ModelReplied(reply=reply):
            calls = [(call.name, call.arguments) for call in reply.calls]
            return event.type, event.step, calls or reply.text, reply.stop
        case data:
            return event.type, event.step, getattr(data, "tool", None), getattr(data, "decision", None)


async def handled(desk: Target, complaint: str, mode: Mode, file: Path, how: Decision) -> tuple[RunResult, list[Any]]:
    agent = cast("Agent", desk.agent)
    agent.settings = ModelSettings(tool_mode=mode)
    server = ModelServer(desk.stand_in.brain, tools=mode == "native")
    try:
        async with open_store(f"sqlite:///{file}") as store, server:
            model = OpenAIChat("stand-in", base_url=server.url, api_key="k")
            stream = agent.stream(complaint, model=model, store=store, user="ann", approve=lambda _: how)
            async for _ in stream:
                pass
            assert server.violations == []
            assert [request for request in server.requests if "tools" in request.body and mode == "schema"] == []
            return stream.result, [told(event) for event in await store.journal.read(stream.result.run_id)]
    finally:
        agent.settings = ModelSettings()


@pytest.mark.parametrize("complaint", COMPLAINTS)
@pytest.mark.parametrize("how", [Decision("approve"), Decision("deny", reason="not today")], ids=["yes", "no"])
async def test_the_same_events_as_in_native_mode(
    desk: Target, complaint: str, how: Decision, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[RunResult, list[Any]]] = []
    for mode in get_args(Mode):
        file = tmp_path / f"{mode}.db"
        monkeypatch.setenv("STORE", f"sqlite:///{file}")
        seen.append(await handled(desk, complaint, mode, file, how))
    (native, expected), (schema, events) = seen
    assert schema.outcome == "completed"
    assert schema.tool_executions
    assert schema.output == native.output
    assert events == expected
