"""A question to a human from inside a tool: the function is left, and called again once there is an answer."""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar, Token
from dataclasses import dataclass
from types import TracebackType

from glassloop.core.errors import ConfigurationError, StoreError

MOST_QUESTIONS = 100
"""A call that has asked so many has no end: a question that is worded anew each time is asked anew each time."""


@dataclass(frozen=True, slots=True)
class Question:
    """What a function asks a human.

    Args:
        text: the question.
        choices: what may be answered; empty for anything.
        place: how many questions of the call come before it.
    """

    text: str
    choices: tuple[str, ...]
    place: int


class Asked(BaseException):
    """Leaves a function that has asked. No error: what catches `Exception` lets it through."""


class Answers:
    """A context manager around one call of a function: what humans have answered, and what it asks beyond that.

    A function that has asked has no result: what it returns or raises after all, because it caught `Asked` itself, is
    dropped. A cancellation is not, nor that the store failed.

    Args:
        known: questions and their answers, in order.
    """

    __slots__ = ("_known", "_over", "_place", "_token", "question")

    def __init__(self, known: Sequence[tuple[str, str]]) -> None:
        self._known = known
        self._place = 0
        self._over = False
        self._token: Token[Answers | None]
        self.question: Question | None = None

    def __enter__(self) -> Answers:
        """Let `ask_human` find this."""
        self._token = _answers.set(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        """End it; True where the function has been left by a question."""
        self._over = True
        _answers.reset(self._token)
        dropped = isinstance(error, Exception | Asked | BaseExceptionGroup) and not isinstance(error, StoreError)
        return self.question is not None and dropped

    def to(self, text: str, choices: tuple[str, ...]) -> str:
        """The answer to the next question.

        Raises:
            Asked: there is none yet.
        """
        if self.question is not None:  # of two that are asked side by side, the second is asked when it runs again
            raise Asked
        if self._place < len(self._known):
            asked, answer = self._known[self._place]
            if asked == text and (not choices or answer in choices):
                self._place += 1
                return answer
        self.question = Question(text, choices, self._place)
        raise Asked

    @property
    def over(self) -> bool:
        """Whether the function has ended."""
        return self._over


_answers: ContextVar[Answers | None] = ContextVar("glassloop_answers", default=None)


def ask_human(question: str, *, choices: Sequence[str] = ()) -> str:
    """Ask a human from inside a tool, sync or async, at any depth; what they answer is returned.

    The first time the function is left right here, and its run waits as it does for an approval: for days, if need be,
    with nothing in memory. Then the function is called again *from its beginning* with the same arguments, and this
    time the answer is returned: what stands before the question is done again, so ask first and act afterwards. The
    n-th question of a call gets the n-th answer; one whose words have changed is asked anew. Where the human denies
    instead, the call ends `denied` and the function is not called again.

    It leaves by an exception that `except Exception` does not catch. Do not catch `BaseException` around it.

    Args:
        question: for the human.
        choices: what may be answered; empty for anything.

    Raises:
        ConfigurationError: called outside a tool that an agent runs, or the question cannot be asked.
    """
    if not isinstance(question, str) or not question.strip():  # pyright: ignore[reportUnnecessaryIsInstance] - untyped code
        raise ConfigurationError("ask_human needs a question: a text that is not blank.")
    if isinstance(choices, str) or not all(isinstance(one, str) and one.strip() for one in choices):  # pyright: ignore[reportUnnecessaryIsInstance] - untyped code
        raise ConfigurationError('ask_human needs its choices as a list of texts: choices=["yes", "no"].')
    answers = _answers.get()
    if answers is None or answers.over:
        raise ConfigurationError("ask_human was called outside a tool: it can only ask while an agent runs one.")
    return answers.to(_recorded(question), tuple(map(_recorded, choices)))


def _recorded(text: str) -> str:
    """The text as a journal gives it back, where half a character (a lone surrogate) is none."""
    return text.encode("utf-8", "replace").decode()
