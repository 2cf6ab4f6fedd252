"""An answer says the same whole and streamed, however it is cut into pieces."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from glassloop.core.encoding import loads
from glassloop.core.messages import ToolCall
from glassloop.testing import Answer, Conversation, call
from glassloop.testing.chat import ChatWire
from glassloop.testing.messages import MessagesWire

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)


def add(words: dict[str, str]) -> ToolCall:
    return call("add", **words)


calls = st.lists(st.dictionaries(texts, texts, max_size=2).map(add), max_size=3)
answers = st.builds(
    Answer,
    text=texts,
    calls=calls.map(tuple),
    thinking=texts,
    piece=st.integers(1, 40),
    stop=st.sampled_from([None, "stop", "length"]),
)
QUESTION = Conversation("openai", "m", "", (), (), stream=True, body={"stream_options": {"include_usage": True}})


def events(raw: list[bytes]) -> list[dict[str, Any]]:
    lines = b"".join(raw).decode().split("\n")
    return [json.loads(line[6:]) for line in lines if line.startswith("data: {")]


def folded_chat(chunks: list[dict[str, Any]]) -> dict[str, Any]:
    message: dict[str, Any] = {"content": "", "reasoning_content": "", "calls": {}}
    for choice in (chunk["choices"][0] for chunk in chunks if chunk["choices"]):
        message["content"] += choice["delta"].get("content") or ""
        message["reasoning_content"] += choice["delta"].get("reasoning_content") or ""
        message["finish"] = choice["finish_reason"]
        for piece in choice["delta"].get("tool_calls", []):
            asked = message["calls"].setdefault(piece["index"], ["", ""])
            asked[0] += piece["function"].get("name", "")
            asked[1] += piece["function"]["arguments"]
    return message


@given(answers)
def test_chat_completions(answer: Answer) -> None:
    wire = ChatWire()
    whole = wire.whole(answer, QUESTION)
    choice = whole["choices"][0]
    chunks = events(list(wire.events(answer, QUESTION)))
    folded = folded_chat(chunks)
    functions = [asked["function"] for asked in choice["message"].get("tool_calls", [])]
    assert folded["content"] == (choice["message"]["content"] or "")
    assert folded["reasoning_content"] == choice["message"].get("reasoning_content", "")
    assert list(folded["calls"].values()) == [[function["name"], function["arguments"]] for function in functions]
    assert folded["finish"] == choice["finish_reason"]
    assert chunks[-1]["usage"] == whole["usage"]


def folded_messages(stream: list[dict[str, Any]]) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    for event in stream:
        if event["type"] == "content_block_start":
            blocks.append({**event["content_block"], "raw": ""})
        elif event["type"] == "content_block_delta":
            delta: dict[str, str] = event["delta"]
            index: int = event["index"]
            block = blocks[index]
            for name, target in (("text", "text"), ("thinking", "thinking"), ("partial_json", "raw")):
                block[target] = block.get(target, "") + delta.get(name, "")
    return blocks


@given(answers)
def test_messages(answer: Answer) -> None:
    wire = MessagesWire()
    whole = wire.whole(answer, QUESTION)
    stream = events(list(wire.events(answer, QUESTION)))
    for streamed, block in zip(folded_messages(stream), whole["content"], strict=True):
        assert streamed["type"] == block["type"]
        match block["type"]:
            case "tool_use":
                assert streamed["name"] == block["name"]
                assert loads(streamed["raw"] or "{}") == block["input"]
            case kind:
                assert streamed[kind] == block[kind]
    assert stream[-2]["delta"]["stop_reason"] == whole["stop_reason"]
    assert stream[-2]["usage"] == whole["usage"]
