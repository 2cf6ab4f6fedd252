"""Reading a conversation that somebody else has written, whichever provider's format it is in."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from glassloop.core.encoding import digest, dumps
from glassloop.core.errors import ConfigurationError
from glassloop.core.messages import Message, ToolCall


class HistoryReader(ABC):
    """One import: what was read, its digest, and which call an id means at this point.

    Args:
        provider: whose replies these are.
    """

    roles = ""
    """Those that a message may have, for an error."""

    def __init__(self, provider: str) -> None:
        self.messages: list[Message] = []
        self.provider = provider
        self.open = OpenCalls()
        self._chain = ""

    def read(self, messages: Iterable[Mapping[str, Any]]) -> list[Message]:
        """Read messages, in order.

        Raises:
            ConfigurationError: one is not a message of this format; the error names its position and what is wrong.
        """
        for position, message in enumerate(cast("Iterable[object]", messages)):
            if not isinstance(message, Mapping):
                raise ConfigurationError(f"history[{position}] is not a message: it must be an object with a role.")
            fields = cast("Mapping[str, Any]", message)
            self._chain = digest(self._chain.encode() + dumps(dict(fields)))
            if not self.take(fields):
                role = fields.get("role")
                raise ConfigurationError(f"history[{position}] has the role {role!r}; it must be {self.roles}.")
        return self.messages

    @abstractmethod
    def take(self, fields: Mapping[str, Any]) -> bool:
        """Read one message; False where its role is none of this format."""

    def call_id(self, number: int) -> str:
        """The id of a call, by its place in the message that is being read."""
        return f"call_{digest(f'{self._chain}:{number}'.encode())[:24]}"


class OpenCalls:
    """The calls read so far that have no result yet.

    Ids are unique at OpenAI and Anthropic. Elsewhere each reply counts anew (`call_0`), calls of one reply share an
    id, or there are none at all (Ollama names the tool instead): then the order tells.
    """

    def __init__(self) -> None:
        self._replies: list[list[ToolCall]] = []

    def add(self, calls: Sequence[ToolCall]) -> None:
        """The calls of the next reply."""
        if calls:
            self._replies.append([*calls])

    def take(self, provider_id: str, tool: str = "") -> ToolCall | None:
        """The call that a result answers, which is then answered.

        Args:
            provider_id: the call's id, as the result has it; where it is empty the newest reply's calls are meant.
            tool: the name in a result without an id.
        """
        replies = self._replies[::-1] if provider_id else self._replies[-1:]
        for calls in replies:
            for call in calls:
                if call.provider_id == provider_id if provider_id else tool in ("", call.name):
                    calls.remove(call)
                    if not calls:
                        self._replies.remove(calls)
                    return call
        return None
