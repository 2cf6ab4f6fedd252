"""What a stand-in model says: text, tool calls, an error, fast or slow, whole or cut off."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from glassloop.core.encoding import dumps
from glassloop.core.messages import StopReason, Thinking
from glassloop.core.usage import Usage


@dataclass(frozen=True, slots=True)
class Call:
    """One tool call to ask for.

    Args:
        name: the tool.
        arguments: the arguments, or the raw string a model wrote in their place, broken or not.
        id: the call's id on the wire; None for a fresh one.
    """

    name: str
    arguments: Mapping[str, Any] | str = field(default_factory=dict[str, Any])
    id: str | None = None

    @property
    def raw(self) -> str:
        """The arguments as the model would write them."""
        return self.arguments if isinstance(self.arguments, str) else dumps(dict(self.arguments)).decode()


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
        calls: tool calls.
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
    calls: tuple[Call, ...] = ()
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


Reaction = Answer | str | Call | Sequence[Call]
"""What a brain may return: an answer, its text, or the call or calls to make."""


def answer_of(reaction: Reaction) -> Answer:
    """The answer that a brain means.

    Raises:
        TypeError: the brain returned something else.
    """
    match reaction:
        case Answer():
            return reaction
        case str():
            return Answer(reaction)
        case Call():
            return Answer(calls=(reaction,))
        case Sequence():
            calls = tuple(reaction)
            if all(isinstance(item, Call) for item in calls):  # pyright: ignore[reportUnnecessaryIsInstance] user code
                return Answer(calls=calls)
        case _:
            pass
    raise TypeError(f"A brain returned {reaction!r}; it must return an Answer, a string, a Call or a list of Calls.")


def say(text: str, **options: Any) -> Answer:
    """An answer in words; `options` are fields of `Answer`."""
    return replace(Answer(text), **options)


def call(tool: str, /, **arguments: Any) -> Call:
    """One tool call: `call("get_weather", city="Beijing")`."""
    return Call(tool, arguments)


def ask(*calls: Call, text: str = "", thinking: str = "", **options: Any) -> Answer:
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
