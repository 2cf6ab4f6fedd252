"""Windows: the newest part of a conversation, in whole steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from glassloop.core.errors import ConfigurationError
from glassloop.core.messages import Content, Media, Message, Text, ToolResult, UserMessage
from glassloop.memory.groups import Group, first_shown, grouped, pieces_in, remembered, shown, tokens_of
from glassloop.memory.view import Moment, Piece
from glassloop.models.media import media_of, placeholder
from glassloop.tools.results import capped

_KEEP = 0.6
_CAPS = (20_000, 10_000, 5_000, 2_500, 1_200, 600, 300, 150)
"""Characters that a text is cut to where a window cannot hold the newest step; the first that is enough."""


class LastTurns:
    """The last turns: each from what a user says to before the user speaks again.

    System messages at the beginning, the user's first message, and calls that wait for a human stay whatever their
    age. So that a provider's prompt cache holds over several turns, the window is not moved with each one: when there
    are more than `turns + slack`, it is cut to the last `turns`.

    Args:
        turns: at least so many are shown, this run's own included.
        slack: so many more at most. With 0 the window moves with every turn. By default half of `turns`, rounded up.

    Raises:
        ConfigurationError: `turns` is less than 1, or `slack` less than 0.
    """

    def __init__(self, turns: int, *, slack: int | None = None) -> None:
        self._turns, self._slack = turns, (turns + 1) // 2 if slack is None else slack
        if turns < 1 or self._slack < 0:
            raise ConfigurationError(
                f"LastTurns({turns}, slack={slack}): give at least one turn, and no slack below 0."
            )

    async def view(self, pieces: Sequence[Piece], moment: Moment, /) -> Sequence[Piece]:
        """The view without older turns; see `ContextStrategy`."""
        groups = grouped(pieces, moment)
        begins = [number for number, group in enumerate(groups) if group.starts_turn]
        step = self._slack + 1
        gone = max(0, len(begins) - self._turns) // step * step
        return pieces_in(shown(groups, begins[gone])) if gone else pieces


class LastMessages:
    """At most so many messages, in whole steps, with what stays in any case.

    When there are more, the window is cut down at once, to three fifths of the room that is not taken by what stays, so
    that a prompt cache holds in between. A newest step that is longer stays whole.

    Args:
        messages: of one request, without the agent's instructions.

    Raises:
        ConfigurationError: `messages` is less than 1.
    """

    def __init__(self, messages: int) -> None:
        if messages < 1:
            raise ConfigurationError(f"LastMessages({messages}): give at least one.")
        self._most = messages

    async def view(self, pieces: Sequence[Piece], moment: Moment, /) -> Sequence[Piece]:
        """The view without older steps; see `ContextStrategy`."""
        groups = grouped(pieces, moment)
        return pieces_in(shown(groups, first_shown(groups, _length, most=self._most, share=_KEEP)))


class TokenWindow:
    """No request of more than so many tokens: older steps are left out.

    Counted are instructions, tools and messages, by the estimate that reservations stand on (three bytes of UTF-8 are a
    token), which is high rather than low; room for the reply comes on top. When a request would be bigger, the window
    is cut down at once, to `keep` of the room that instructions, tools and what stays leave, so that a prompt cache
    holds until it is full again.

    Where the newest step alone is too big, tool results in it are cut in the middle, as far as it takes, and then what
    the user said in the first message of an earlier run. Where that is not enough either (a long text of the user's in
    this run, or many tools), no request is sent: the run ends with the outcome `limited`, and the limit is `window`.

    Args:
        tokens: of one request.
        keep: the share of the room that is kept when it is cut, between 0 and 1.

    Raises:
        ConfigurationError: a number makes no sense.
    """

    def __init__(self, tokens: int, *, keep: float = _KEEP) -> None:
        if tokens < 1 or not 0 <= keep <= 1:
            raise ConfigurationError(f"TokenWindow({tokens}, keep={keep}): give tokens, and a share between 0 and 1.")
        self._tokens, self._share = tokens, keep

    async def view(self, pieces: Sequence[Piece], moment: Moment, /) -> Sequence[Piece]:
        """The view without older steps; see `ContextStrategy`."""
        groups = grouped(pieces, moment)
        first = first_shown(groups, tokens_of, most=self._tokens, share=self._share, fixed=moment.head_tokens)
        kept = shown(groups, first)
        room = self._tokens - moment.head_tokens
        needed = sum(map(tokens_of, kept))
        for cut in _smaller(kept, moment.history_length) if needed > room else ():
            kept, needed = cut, sum(map(tokens_of, cut))
            if needed <= room:
                break
        if needed > room:
            moment.too_big = (
                f"The window of {self._tokens:,} tokens is too small: instructions, tools, the first message and the "
                f"newest step take about {needed + moment.head_tokens:,}. Give a larger window, or less to read."
            )
        return pieces_in(kept)


def _length(group: Group) -> int:
    return len(group.pieces)


def _smaller(groups: Sequence[Group], began: int) -> Iterator[list[Group]]:
    """The same groups with ever shorter tool results, then with an ever shorter first message of an earlier run.

    The shortest are without images and files, too.
    """
    smaller = list(groups)
    for cap in _CAPS:
        smaller = [_cut(group, cap, ToolResult) for group in groups]
        yield smaller
    earlier = [group.head and group.at < began for group in groups[:-1]] + [False]
    for cap in _CAPS:
        yield [_cut(group, cap, UserMessage) if old else group for group, old in zip(smaller, earlier, strict=True)]


def _cut(group: Group, cap: int, kind: type[Message]) -> Group:
    pieces = [_shorter(piece, cap) if isinstance(piece.message, kind) else piece for piece in group.pieces]
    return replace(group, pieces=pieces)


def _shorter(piece: Piece, cap: int) -> Piece:
    message = piece.message
    if not isinstance(message, ToolResult | UserMessage) or _fits(message, cap):
        return piece
    return Piece(remembered(message, f"_window_{cap}", lambda: _short(message, cap)))


def _fits(message: ToolResult | UserMessage, cap: int) -> bool:
    parts = (Text(message.content),) if isinstance(message.content, str) else message.content
    longest = max((len(part.text) for part in parts if isinstance(part, Text)), default=0)
    return longest <= cap and not (cap == _CAPS[-1] and media_of(message))


def _short(message: ToolResult | UserMessage, cap: int) -> Message:
    """The message with texts of at most `cap` characters, and at the smallest without images and files."""
    bare = cap == _CAPS[-1]
    if isinstance(message, ToolResult):
        return replace(message, content=capped(message.content, cap), media=() if bare else message.media)
    if isinstance(message.content, str):
        return replace(message, content=capped(message.content, cap))
    return replace(message, content=tuple(_short_part(part, cap, bare) for part in message.content))


def _short_part(part: Content, cap: int, bare: bool) -> Content:
    if isinstance(part, Media):
        return Text(placeholder(part, accepted=True)) if bare else part
    return Text(capped(part.text, cap))
