"""Views of a conversation that some servers need: media beside tool results, strict turns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from glassloop.core.blank import is_blank
from glassloop.core.messages import Content, Message, Reply, SystemMessage, Text, ToolResult, UserMessage

BEGINNING = "(The conversation begins here; what came before was left out.)"
"""Stands as the user's turn where a conversation would begin with the model's."""

GO_ON = "Please go on."
"""Stands as the user's turn where a conversation would end with the model's, which servers refuse or take for the
beginning of the reply."""

EMPTY = "(empty message)"
"""Stands for what a user said without a word, which servers refuse."""

NO_OUTPUT = "(no output)"
"""Stands for what a tool returned without a word, in a conversation that somebody else has written."""

_FOLLOWS = "(the output follows)"
"""The same of one that returned images or files alone."""

_READ = Reply((Text("I have the results."),))


def media_after_results(messages: Sequence[Message]) -> list[Message]:
    """Media of tool results in a user message after the group of results, for servers whose results are text."""
    moved: list[Message] = []
    waiting: list[Content] = []
    for message in messages:
        if isinstance(message, ToolResult):
            if message.media:
                waiting += [Text(f"Returned by {message.name}:"), *message.media]
                message = replace(message, content=_FOLLOWS if is_blank(message.content) else message.content, media=())
        elif waiting:
            moved.append(UserMessage(tuple(waiting), origin="note"))
            waiting = []
        moved.append(message)
    if waiting:
        moved.append(UserMessage(tuple(waiting), origin="note"))
    return moved


def alternating(messages: Sequence[Message], instructions: str) -> tuple[list[Message], str]:
    """The conversation in strict turns, and all system messages as one.

    User and assistant take turns, the user first; tool results stand between, and are followed by a reply. Neighbours
    of one role are merged, replies that only their provider can read are left out.
    """
    system = [instructions] if instructions else []
    turns: list[Message] = []
    for message in messages:
        if isinstance(message, SystemMessage):
            system.append(message.text)
        elif not (isinstance(message, Reply) and _is_silent(message)):
            last = turns[-1] if turns else None
            if isinstance(message, UserMessage) and isinstance(last, UserMessage):
                turns[-1] = UserMessage(_contents(last) + _contents(message), last.origin)
            elif isinstance(message, Reply) and isinstance(last, Reply):
                turns[-1] = replace(message, parts=(*last.parts, Text("\n\n"), *message.parts))
            else:
                turns += [_READ, message] if isinstance(message, UserMessage) and _is_result(last) else [message]
    if turns and not isinstance(turns[0], UserMessage):
        turns.insert(0, UserMessage(BEGINNING, origin="note"))
    return turns, "\n\n".join(system)


def _is_result(message: Message | None) -> bool:
    return isinstance(message, ToolResult)


def _is_silent(reply: Reply) -> bool:
    return not reply.calls and is_blank(reply.text) and not reply.refusal


def _contents(message: UserMessage) -> tuple[Content, ...]:
    return (Text(message.content),) if isinstance(message.content, str) else message.content
