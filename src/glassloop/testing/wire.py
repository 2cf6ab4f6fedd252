"""The seam between the model server and a provider's wire format."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Any, Protocol

from glassloop.core.encoding import dumps
from glassloop.core.usage import Usage
from glassloop.testing.answer import Answer, Failure, estimate_tokens
from glassloop.testing.conversation import Conversation


class Wire(Protocol):
    """One provider's requests and answers."""

    def violations(self, body: object, headers: Mapping[str, str]) -> list[str]:
        """Rules that the request breaks, one sentence each."""
        ...

    def read(self, body: Mapping[str, Any], headers: Mapping[str, str]) -> Conversation:
        """The request, in nobody's format."""
        ...

    def prepared(self, answer: Answer, conversation: Conversation) -> Answer:
        """The answer as the server gives it.

        Raises:
            ScriptError: it cannot give that.
        """
        ...

    def whole(self, answer: Answer, conversation: Conversation) -> dict[str, Any]:
        """The body of an answer that is not streamed."""
        ...

    def events(self, answer: Answer, conversation: Conversation) -> Iterator[bytes]:
        """The server-sent events of a streamed answer."""
        ...

    def error(self, failure: Failure) -> dict[str, Any]:
        """The body of an error answer."""
        ...


_MESSAGES = {
    401: "Incorrect API key provided.",
    429: "Rate limit reached. Please try again later.",
    500: "The server had an error while processing your request.",
    529: "Overloaded",
}


def message_of(failure: Failure) -> str:
    """What the error says."""
    return failure.message or _MESSAGES.get(failure.status) or _phrase(failure.status)


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return f"Error {status}"


def usage_of(answer: Answer, conversation: Conversation) -> Usage:
    """The usage to report: as told, or estimated from the lengths of request and reply."""
    if answer.usage is not None:
        return answer.usage
    thinking = estimate_tokens("".join(thought.text for thought in answer.thoughts))
    calls = sum(estimate_tokens(call.name + call.arguments) + 8 for call in answer.calls)
    spoken = estimate_tokens(dumps(dict(conversation.body)).decode())
    return Usage(input=spoken, output=thinking + calls + estimate_tokens(answer.text) + 1, reasoning=thinking)


def sse(data: object, event: str | None = None) -> bytes:
    """One server-sent event (WHATWG HTML, 9.2)."""
    head = f"event: {event}\n".encode() if event else b""
    return head + b"data: " + (data.encode() if isinstance(data, str) else dumps(data)) + b"\n\n"
