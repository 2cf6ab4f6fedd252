"""What each model request was made of, so that the exact request can be rebuilt from the journal."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pydantic import TypeAdapter

from glassloop.core.encoding import dumps
from glassloop.core.events import ModelRequested
from glassloop.core.messages import Message, ToolResult
from glassloop.journal.journal import Journal
from glassloop.journal.moves import AskModel, Summarize
from glassloop.journal.recorder import Recorder
from glassloop.journal.state import fold
from glassloop.journal.view import View
from glassloop.models.model import ModelRequest, ModelSettings, OutputSpec, ToolSpec


class RequestLog:
    """Describes requests by the digests of their contents, and stores each distinct content once."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._digests: dict[int, tuple[object, str, int]] = {}
        self._head: tuple[str, tuple[ToolSpec, ...], OutputSpec | None, int] = ("", (), None, 0)
        self._sent: Sequence[Message] = ()
        self._chain = hashlib.blake2b(digest_size=16)
        self._placed: set[str] = set()

    def describe(
        self, request: ModelRequest, model: str, move: AskModel | Summarize, view: View | None = None
    ) -> ModelRequested:
        """The event that says that `request` is about to be sent to `model`; without a view it shows everything."""
        if view is not None:
            self._place(view)
        return ModelRequested(
            model=model,
            instructions=self._keep(request.instructions)[0],
            tools=self._keep(request.tools)[0],
            settings=self._keep(request.settings)[0],
            view=((0, len(request.messages)),) if view is None else view.shown,
            view_digest=self._chained(request.messages, new=view is not None),
            reserved=move.reserved,
            max_tokens=move.max_tokens,
            offered=len(request.tools),
            stream=request.stream,
            final=move.final if isinstance(move, AskModel) else None,
            purpose="step" if isinstance(move, AskModel) else "summary",
            output=None if request.output is None else self._keep(request.output)[0],
        )

    def _chained(self, messages: Sequence[Message], *, new: bool) -> str:
        """The chain of digests up to the last of the messages; a view may have to begin it anew."""
        if new and messages[: len(self._sent)] != self._sent:
            self._sent = ()
            self._chain = hashlib.blake2b(digest_size=16)
        for message in messages[len(self._sent) :]:
            self._chain.update(dumps(message))
        self._sent = messages
        return self._chain.hexdigest()

    def _place(self, view: View) -> None:
        """Store the messages that stand in no conversation."""
        for key, message in view.placed.items():
            if key not in self._placed:
                self._placed.add(key)
                self._recorder.keep(dumps(message))

    def head_bytes(self, instructions: str, tools: tuple[ToolSpec, ...], output: OutputSpec | None = None) -> int:
        """Size in bytes of what precedes the conversation in every request."""
        known = self._head
        if known[0] is not instructions or known[1] is not tools or known[2] is not output or not known[3]:
            size = sum(self._keep(part)[1] for part in (instructions, tools, output) if part is not None)
            known = self._head = instructions, tools, output, size
        return known[3]

    def _keep(self, content: object) -> tuple[str, int]:
        """Digest and size of a content that hardly ever changes: encoded once per object."""
        known = self._digests.get(id(content))
        if known is not None and known[0] is content:
            return known[1], known[2]
        data = dumps(content)
        entry = (content, self._recorder.keep(data), len(data))
        self._digests[id(content)] = entry
        return entry[1], entry[2]


async def rebuild_request(
    journal: Journal, run_id: str, step: int, history: tuple[Message, ...] = ()
) -> tuple[str, ModelRequest]:
    """The model's name and the exact request of a step, from 1.

    Args:
        history: the session's messages before the run, where it has a session.

    Raises:
        LookupError: the run has no such step.
    """
    events = await journal.read(run_id)
    for number, event in enumerate(events):
        if isinstance(event.data, ModelRequested) and event.step == step:
            asked = event.data
            conversation = fold(events[:number], history).conversation
            return asked.model, await _request(journal, asked, conversation)
    raise LookupError(f"Run {run_id} has no model request number {step}.")


async def _request(journal: Journal, asked: ModelRequested, conversation: list[Message]) -> ModelRequest:
    messages: list[Message] = []
    for item in asked.view:
        if isinstance(item, str):
            messages.append(await _placed(journal, item, conversation))
        else:
            messages += conversation[item[0] : item[1]]
    return ModelRequest(
        messages=tuple(messages),
        instructions=await _content(journal, asked.instructions, str),
        tools=await _content(journal, asked.tools, tuple[ToolSpec, ...]),
        settings=await _content(journal, asked.settings, ModelSettings),
        stream=asked.stream,
        output=None if asked.output is None else await _content(journal, asked.output, OutputSpec),
    )


async def _placed(journal: Journal, key: str, conversation: Sequence[Message]) -> Message:
    """A message that stood in the place of another, which has its images and files."""
    message: Message = await _content(journal, key, Message)
    if isinstance(message, ToolResult) and message.media:
        results = (each for each in conversation if isinstance(each, ToolResult))
        whole = {media.digest: media for each in results for media in each.media}
        message = replace(message, media=tuple(whole.get(media.digest, media) for media in message.media))
    return message


async def _content(journal: Journal, key: str, kind: Any) -> Any:
    return TypeAdapter[Any](kind).validate_json(await journal.blob(key))
