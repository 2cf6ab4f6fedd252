"""The view of each request of a run: the agent's strategies, one after the other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from glassloop.core.context import RunContext
from glassloop.core.messages import Message
from glassloop.journal.budget import BYTES_PER_TOKEN
from glassloop.journal.recorder import Recorder
from glassloop.journal.state import State
from glassloop.journal.view import View, message_digest
from glassloop.memory.carrying import carried_summary
from glassloop.memory.summary import Summary
from glassloop.memory.view import ContextStrategy, Moment, Piece
from glassloop.models.sendable import sendable


class Views:
    """Makes the views of one run.

    Args:
        strategies: in the order in which they are applied.
        context: the run's.
    """

    def __init__(self, strategies: Sequence[ContextStrategy], context: RunContext[Any]) -> None:
        self._strategies = strategies
        self._context = context
        self._known: tuple[Any, View] | None = None

    async def prepare(self, recorder: Recorder) -> None:
        """Before the first request: find the models of summaries, and what an earlier run has summarised.

        Raises:
            ConfigurationError: a summary's model cannot be resolved.
        """
        summaries = [strategy for strategy in self._strategies if isinstance(strategy, Summary)]
        for strategy in summaries:
            await strategy.resolve()
        if summaries and not recorder.state.summaries:
            carried = await carried_summary(self._context, recorder.state)
            if carried is not None:
                recorder.record(carried)

    async def __call__(self, state: State, head_bytes: int) -> View | None:
        """What the next request shows; None where the next move is no request.

        Args:
            state: the run.
            head_bytes: size of instructions and tools.
        """
        conversation = state.conversation
        reply = state.last_reply
        replied = reply is not None and reply.stop != "paused" and len(conversation) > state.history_length
        if state.kind == "call" or replied:
            return None
        key = (id(conversation), len(conversation), len(state.summaries), head_bytes)
        if self._known is None or self._known[0] != key:
            self._known = key, await self._view(state, head_bytes)
        return self._known[1]

    async def _view(self, state: State, head_bytes: int) -> View:
        head = head_bytes // BYTES_PER_TOKEN
        moment = Moment(state.conversation, state.history_length, self._context, head, state.summaries)
        pieces: Sequence[Piece] = pieces_of(state.conversation)
        for strategy in self._strategies:
            pieces = await strategy.view(pieces, moment)
        return view_of(pieces, moment)


def pieces_of(conversation: Sequence[Message]) -> list[Piece]:
    """The whole conversation as a view: every call with its one result, whatever happened to it before."""
    fit = sendable(conversation)
    if fit is conversation:
        return [Piece(message, at) for at, message in enumerate(conversation)]
    places = {id(message): at for at, message in enumerate(conversation)}
    return [Piece(message, places.get(id(message))) for message in fit]


def view_of(pieces: Iterable[Piece], moment: Moment) -> View:
    """What is sent, and how the journal records it: only what is the conversation's own has a place in it."""
    conversation = moment.conversation
    messages: list[Message] = []
    spans: list[tuple[int, int] | str] = []
    placed: dict[str, Message] = {}
    for message, at in ((piece.message, piece.at) for piece in pieces):
        messages.append(message)
        if at is None or not 0 <= at < len(conversation) or conversation[at] is not message:
            key = message_digest(message)
            placed[key] = message
            spans.append(key)
        elif spans and isinstance(last := spans[-1], tuple) and last[1] == at:
            spans[-1] = (last[0], at + 1)
        else:
            spans.append((at, at + 1))
    return View(tuple(messages), tuple(spans), placed, moment.wanted, moment.too_big)
