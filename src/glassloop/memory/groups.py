"""What stays together when a view is made smaller, and what stays in any case."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from glassloop.core.estimate import written_tokens
from glassloop.core.messages import Message, Reply, SystemMessage, ToolResult, UserMessage
from glassloop.journal.budget import message_tokens
from glassloop.memory.turn import is_awaited, is_told
from glassloop.memory.view import Moment, Piece


@dataclass(slots=True)
class Group:
    """Pieces that are shown together or not at all: a reply with its results, and the nudge that answered it.

    Args:
        pieces: in order.
        at: the position in the conversation of the first of them; of what came before where it has none.
        stays: whether every view shows it.
        head: whether it is what the conversation begins with: leading system messages, the user's first message.
        added: whether another strategy has put it in.
        starts_turn: whether a user speaks here.
    """

    pieces: list[Piece]
    at: int = 0
    stays: bool = False
    head: bool = False
    added: bool = False
    starts_turn: bool = False


def grouped(pieces: Sequence[Piece], moment: Moment) -> list[Group]:
    """The view in groups.

    What stays: leading system messages, the user's first message, this run's input, what another strategy has put in,
    and steps with a call that waits for a human.
    """
    groups: list[Group] = []
    before, leading, beginning = 0, True, True
    for piece in pieces:
        message = piece.message
        if groups and _belongs(message, groups[-1].pieces[0].message):
            groups[-1].pieces.append(piece)
            continue
        before = before if piece.at is None else piece.at
        group = Group([piece], before)
        groups.append(group)
        if isinstance(message, SystemMessage | UserMessage):
            group.starts_turn = isinstance(message, UserMessage) and message.origin == "user"
            leading = leading and isinstance(message, SystemMessage)
            group.head = leading or (beginning and group.starts_turn)
            beginning = beginning and not group.starts_turn
            group.added = piece.at is None
            group.stays = group.head or group.added or piece.at == moment.history_length
        else:
            leading = False
    _keep_awaited(groups, moment.conversation)
    return groups


def shown(groups: Sequence[Group], first: int) -> list[Group]:
    """The groups from `first` on, and those before that stay."""
    return [group for number, group in enumerate(groups) if group.stays or number >= first]


def pieces_in(groups: Iterable[Group]) -> list[Piece]:
    """The pieces of groups, in order."""
    return [piece for group in groups for piece in group.pieces]


def tokens_of(group: Group) -> int:
    """Estimated tokens of a group."""
    return sum([_tokens(piece.message) for piece in group.pieces])


def _tokens(message: Message) -> int:
    known: int | None = message.__dict__.get("_tokens")
    if known is None:
        known = message.__dict__["_tokens"] = _estimated(message)
    return known


def _estimated(message: Message) -> int:
    """What a message takes when it is sent, which is not what a reply has cost: most of its thinking is not."""
    match message:
        case Reply():
            return written_tokens(message) + _CALL_TOKENS * len(message.calls)
        case ToolResult():
            return message_tokens(message) + _RESULT_TOKENS
        case _:
            return message_tokens(message)


Made = TypeVar("Made")
_WAITING = ("held", "unknown")
_CALL_TOKENS, _RESULT_TOKENS = 24, 16  # ids, and what surrounds them


def remembered(owner: object, key: str, make: Callable[[], Made]) -> Made:
    """What is made of an immutable object, made once and kept with it, so that a request encodes it once."""
    known: Made | None = owner.__dict__.get(key)
    if known is None:
        known = owner.__dict__[key] = make()
    return known


def first_shown(
    groups: Sequence[Group], size: Callable[[Group], int], *, most: int, share: float, fixed: int = 0
) -> int:
    """Where a window of the size `most` begins.

    The window is led along the conversation: whenever it has become too big, it is cut down at once, to `share` of the
    room that what stays leaves. So it begins at the same place for many steps, whoever asks, and a provider's prompt
    cache holds in between. The last group is always in it.

    Args:
        groups: the view.
        size: of a group, in the unit of `most`.
        most: the window.
        share: how much of its room is kept when it is cut.
        fixed: what is always in it beside the groups.
    """
    first, kept, movable = 0, fixed, 0
    for number, group in enumerate(groups):
        if group.stays:
            kept += size(group)
        else:
            movable += size(group)
        is_full = kept + movable > most
        while is_full and first < number and movable > (most - kept) * share:
            movable -= 0 if groups[first].stays else size(groups[first])
            first += 1
    return first


def _belongs(message: Message, first: Message) -> bool:
    """Whether a message stays with the group that begins with `first`."""
    if isinstance(message, ToolResult):
        return isinstance(first, Reply)
    return isinstance(message, UserMessage) and message.origin == "nudge"


def _keep_awaited(groups: Sequence[Group], conversation: Sequence[Message]) -> None:
    """Let the steps stay whose calls wait for a human: of each tool, the first that was held is the first told of."""
    waiting: list[ToolResult] = []
    for message in conversation:
        if isinstance(message, ToolResult):
            if message.status in _WAITING and is_awaited(message):
                waiting.append(message)
        elif waiting and (told := next((held for held in waiting if is_told(held, message)), None)):
            waiting.remove(told)
    if waiting:
        ids = {held.call_id for held in waiting}
        for group in groups:
            results = (piece.message for piece in group.pieces if isinstance(piece.message, ToolResult))
            group.stays = group.stays or any(result.call_id in ids for result in results)
