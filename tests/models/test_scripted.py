from __future__ import annotations

from typing import Any

import pytest

from glassloop.core.errors import ModelError, ScriptError
from glassloop.core.messages import Message, Reply, Text, Thinking, ToolCall, ToolResult, UserMessage
from glassloop.core.usage import Usage
from glassloop.models.model import (
    Model,
    ModelPart,
    ModelRequest,
    ModelSettings,
    ReplyPart,
    TextPart,
    ThinkingPart,
    ToolSpec,
    complete,
)
from glassloop.models.scripted import Line, SchemaModel, ScriptedModel, call
from glassloop.models.sendable import sendable

ASK = ModelRequest((UserMessage("q"),))
STREAM = ModelRequest((UserMessage("q"),), stream=True)


async def parts(model: Model, request: ModelRequest = STREAM) -> list[ModelPart]:
    return [part async for part in model.stream(request)]


async def test_lines_are_played_in_order() -> None:
    given = Reply((Text("c"),), stop="length", usage=Usage(7, 3, requests=1), model="m", provider="p")
    script: list[Line] = [
        "a",
        call("add", a=1, note="é"),
        ["Let me see.", call("add", a=1), call("add", a=2)],
        Thinking("hm"),
        given,
    ]
    with ScriptedModel(script) as model:
        replies = [await complete(model, ASK) for _ in script]
    assert [reply.text for reply in replies] == ["a", "", "Let me see.", "", "c"]
    assert replies[1].calls[0].arguments == '{"a":1,"note":"é"}'
    assert [one.name for one in replies[2].calls] == ["add", "add"]
    assert replies[4] == given
    assert (replies[0].model, replies[0].provider, replies[0].usage.requests) == ("scripted", "scripted", 1)


async def test_ids_of_calls_are_new_unless_they_are_given_and_free() -> None:
    repeated = Reply((ToolCall("mine", "add"),))
    model = ScriptedModel([repeated, repeated, [call("add"), call("add")]])
    ids = [one.id for _ in range(3) for one in (await complete(model, ASK)).calls]
    assert ids[0] == "mine"
    assert len(set(ids)) == 4


async def test_texts_are_streamed_in_pieces() -> None:
    for text in ("Hello, big  world!\n", "订单可以在七天内退款，好吗", ""):
        *shown, last = await parts(ScriptedModel([[Thinking("hm"), text]]))
        assert shown[0] == ThinkingPart("hm")
        pieces = [part.text for part in shown[1:] if isinstance(part, TextPart)]
        assert "".join(pieces) == text
        assert len(pieces) > 2 or not text
        assert isinstance(last, ReplyPart)
        assert last.reply.text == text


async def test_without_a_stream_there_is_only_the_reply() -> None:
    (only,) = await parts(ScriptedModel(["Hello, world"]), ASK)
    assert isinstance(only, ReplyPart)


async def test_an_exception_is_raised() -> None:
    model = ScriptedModel([ModelError("down", kind="overloaded"), "up"])
    with pytest.raises(ModelError, match="down"):
        await complete(model, ASK)
    assert (await complete(model, ASK)).text == "up"


async def test_functions_decide_from_the_request() -> None:
    def plain(request: ModelRequest) -> Line:
        return f"{len(request.messages)} messages"

    async def slow(request: ModelRequest) -> Line:
        return plain(request)

    for model in (ScriptedModel(plain), ScriptedModel(slow)):
        assert (await complete(model, ASK)).text == "1 messages"
        model.assert_exhausted()


async def test_requests_are_recorded_as_they_were() -> None:
    messages: list[Message] = [UserMessage("q")]
    model = ScriptedModel(["a"])
    await complete(model, ModelRequest(messages, "S"))
    messages.clear()
    assert model.requests == [ModelRequest((UserMessage("q"),), "S")]


async def test_a_script_that_is_too_short() -> None:
    model = ScriptedModel(["a"], name="stand-in")
    await complete(model, ASK)
    with pytest.raises(ScriptError, match=r"stand-in: the script has 1 lines and was asked for one more, after: .*'q'"):
        await complete(model, ASK)


async def test_a_script_that_is_too_long() -> None:
    model = ScriptedModel(["a", "b", "c"])
    await complete(model, ASK)
    with pytest.raises(ScriptError, match="2 of 3 lines were not used; next: b"):
        model.assert_exhausted()
    with pytest.raises(ScriptError, match="not used"), model:
        pass


async def test_another_failure_is_not_hidden_by_an_unused_script() -> None:
    with pytest.raises(ValueError, match="mine"), ScriptedModel(["a"]):
        raise ValueError("mine")


TOOLS = (
    ToolSpec("add", "", {"type": "object", "properties": {"a": {"type": "integer", "minimum": 5}}, "required": ["a"]}),
    ToolSpec("now", "", {"type": "object", "properties": {}}),
)


async def test_every_tool_is_called_once() -> None:
    model = SchemaModel("done")
    reply = await complete(model, ModelRequest((UserMessage("q"),), tools=TOOLS))
    assert [(one.name, one.arguments) for one in reply.calls] == [("add", '{"a":5}'), ("now", "{}")]
    add, now = (ToolResult(one.id, one.name, "ok") for one in reply.calls)
    history: list[Any] = [UserMessage("q"), reply, add, now]
    assert sendable(history) is history
    assert (await complete(model, ModelRequest(history, tools=TOOLS))).text == "done"
    assert len(model.requests) == 2


async def test_only_what_was_not_called_is_called() -> None:
    history = (Reply((ToolCall("c", "now"),)), ToolResult("c", "now", "ok"))
    reply = await complete(SchemaModel(), ModelRequest(history, tools=TOOLS))
    assert [one.name for one in reply.calls] == ["add"]
    forbidden = ModelRequest((), tools=TOOLS, settings=ModelSettings(tool_choice="none"))
    assert (await complete(SchemaModel(), forbidden)).calls == ()
