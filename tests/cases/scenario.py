"""What the tests of scenarios share: models behind a server, and what the server was asked."""

from __future__ import annotations

import json
from typing import Any

from fastapi import FastAPI
from judge.server import Run

from glassloop.core.messages import Message, Reply, ToolResult, UserMessage
from glassloop.models.openai_chat import OpenAIChat
from glassloop.testing import Conversation, ModelServer, Received


def chat(server: ModelServer | Run) -> OpenAIChat:
    """The model behind a server."""
    return OpenAIChat("scripted", base_url=server.url, api_key="sk-fake")


def conversation_of(received: Received) -> Conversation:
    """What a request says, which must be legal."""
    assert received.conversation is not None, received.violations
    return received.conversation


def results_in(received: Received) -> dict[str, list[str]]:
    """The texts of all tool results in a request, by tool."""
    messages = conversation_of(received).messages
    tools = {call.id: call.name for reply in messages if isinstance(reply, Reply) for call in reply.calls}
    found: dict[str, list[str]] = {}
    for message in messages:
        if isinstance(message, ToolResult):
            found.setdefault(tools[message.call_id], []).append(message.content)
    return found


async def answer_of(app: FastAPI, method: str, path: str, body: Any = None, *, user: str = "alice") -> tuple[int, Any]:
    """Status and body of what a server says to a user."""
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": json.dumps(body).encode()}

    async def send(message: Any) -> None:
        sent.append(message)

    key = f"Bearer demo-{user}".encode()
    headers = [(b"host", b"localhost"), (b"content-type", b"application/json"), (b"authorization", key)]
    where = {"method": method, "path": path, "raw_path": path.encode(), "query_string": b"", "root_path": ""}
    place = {"scheme": "http", "http_version": "1.1", "server": ("localhost", 80), "client": ("127.0.0.1", 1)}
    await app({"type": "http", "asgi": {"version": "3.0"}, "headers": headers, **where, **place}, receive, send)
    return sent[0]["status"], json.loads(b"".join(message.get("body", b"") for message in sent))


def summary_of(message: Message) -> str:
    """A message in a word: what is called, or the text."""
    match message:
        case Reply():
            return ",".join(one.name for one in message.calls) or message.text
        case ToolResult():
            return message.content
        case UserMessage():
            return message.text
        case _:
            return ""


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b
