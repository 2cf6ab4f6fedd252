"""What a stand-in model says: text, tool calls, an error, fast or slow, whole or cut off."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from glassloop.core.messages import StopReason, Text, Thinking, ToolCall
from glassloop.core.usage import Usage


@dataclass(frozen=True, slots=True)
class Failure:
    """An error of the model's server.

    Args:
        status: HTTP status.
        message: for the human; by default one that fits the status.
        retry_after: seconds for the `Retry-After` header (RFC 9110, 10.2.3), or None for no such header.
    """

    status: int
    message: str = ""
    retry_after: float | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """One reply of a stand-in model and how it travels.

    Args:
        text: visible text.
        calls: tool calls, `call(...)`, or a `ToolCall` with whatever a model may write as id and arguments.
        thinking: thinking before the text; on the Anthropic wire it is signed and must come back unchanged.
        stop: why the reply ended; by default `stop`, or a tool step where there are calls.
        failure: answer with this error. With text beside it the answer is a 200 whose stream breaks off with the
            error, as providers do when they fail half-way.
        usage: tokens to report; by default estimated from the lengths of request and reply.
        report_usage: whether usage is reported at all.
        delay: seconds before anything is sent.
        gap: seconds between two pieces of a streamed answer.
        piece: characters per streamed delta.
        packet: bytes per network write, to split events and characters in odd places; None for one event a write.
        endless: stream the text again and again until the client has gone.
        cut_after: drop the connection after so many pieces (streamed) or half-way through the body (not streamed).
    """

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    thinking: str | Thinking | tuple[Thinking, ...] = ()
    stop: StopReason | None = None
    failure: Failure | None = None
    usage: Usage | None = None
    report_usage: bool = True
    delay: float = 0.0
    gap: float = 0.0
    piece: int = 16
    packet: int | None = None
    endless: bool = False
    cut_after: int | None = None

    @property
    def thoughts(self) -> tuple[Thinking, ...]:
        """The thinking, as blocks."""
        if isinstance(self.thinking, str):
            return (Thinking(self.thinking),) if self.thinking else ()
        return (self.thinking,) if isinstance(self.thinking, Thinking) else self.thinking


Part = str | Text | Thinking | ToolCall
Reaction = Answer | Part | Sequence[Part]
"""What a brain may return: an answer, its text, the call or calls to make, or several such parts."""


def answer_of(reaction: Reaction) -> Answer:
    """The answer that a brain means.

    Raises:
        TypeError: the brain returned something else.
    """
    if isinstance(reaction, Answer):
        return reaction
    parts = [reaction] if isinstance(reaction, str) or not isinstance(reaction, Sequence) else list(reaction)
    strange = [part for part in parts if not isinstance(part, Part)]  # pyright: ignore[reportUnnecessaryIsInstance] user code
    if strange:
        raise TypeError(f"A brain returned {reaction!r}; it must return an Answer, a text, a call or a list of these.")
    words = (part if isinstance(part, str) else part.text for part in parts if isinstance(part, str | Text))
    return Answer(
        "".join(words),
        tuple(part for part in parts if isinstance(part, ToolCall)),
        tuple(part for part in parts if isinstance(part, Thinking)),
    )


def say(text: str, **options: Any) -> Answer:
    """An answer in words; `options` are fields of `Answer`."""
    return replace(Answer(text), **options)


def ask(*calls: ToolCall, text: str = "", thinking: str = "", **options: Any) -> Answer:
    """An answer that asks for tools, with words or thinking beside the calls; `options` are fields of `Answer`."""
    return replace(Answer(text, calls, thinking), **options)


def fail(status: int, message: str = "", *, retry_after: float | None = None) -> Answer:
    """An answer that is an HTTP error."""
    return Answer(failure=Failure(status, message, retry_after))


def pieces(text: str, size: int) -> list[str]:
    """`text` cut into pieces of `size` characters."""
    return [text[start : start + size] for start in range(0, len(text), size)]


def estimate_tokens(text: str) -> int:
    """Roughly how many tokens `text` is: a quarter per ASCII character, one per character of any other script."""
    ascii_characters = len(text.encode("ascii", "ignore"))
    return (ascii_characters + 3) // 4 + len(text) - ascii_characters
