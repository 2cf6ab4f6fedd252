"""A transport without a network, for tests of what is sent and of answers that no server would give on purpose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from glassloop.core.encoding import dumps, loads
from glassloop.core.errors import ModelError, ScriptError
from glassloop.models.transport import Response


@dataclass(frozen=True)
class Post:
    """A request that was sent."""

    url: str
    headers: Mapping[str, str]
    body: bytes
    timeout: float

    @property
    def json(self) -> Any:
        """The body, decoded."""
        return loads(self.body)


@dataclass(frozen=True)
class FakeAnswer:
    """An answer.

    Args:
        pieces: the body as it comes; an exception breaks it there.
        status: HTTP status.
        headers: names in lower case.
    """

    pieces: Sequence[bytes | ModelError] = ()
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict[str, str])

    @staticmethod
    def json(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> FakeAnswer:
        """One JSON value."""
        return FakeAnswer([dumps(value)], status, {"content-type": "application/json", **(headers or {})})

    @staticmethod
    def sse(body: bytes | str, split: int = 0) -> FakeAnswer:
        """A stream of events, given as its bytes, in pieces of `split` bytes (0: in one)."""
        data = body.encode() if isinstance(body, str) else body
        size = split or max(1, len(data))
        pieces = [data[at : at + size] for at in range(0, len(data), size)]
        return FakeAnswer(pieces, headers={"content-type": "text/event-stream"})


class FakeTransport:
    """Gives one prepared answer per request, in order, and records what was sent.

    Args:
        answers: what to answer; an exception is raised instead, as if there were no connection.
    """

    def __init__(self, *answers: FakeAnswer | ModelError) -> None:
        self.posts: list[Post] = []
        self.responses: list[FakeResponse] = []
        self._answers = list(answers)

    async def post(self, url: str, headers: Mapping[str, str], body: bytes, timeout: float) -> Response:
        """See `Transport.post`.

        Raises:
            ScriptError: there is no answer left.
        """
        self.posts.append(Post(url, headers, body, timeout))
        if not self._answers:
            raise ScriptError(f"The transport was asked {len(self.posts)} times and has no answer left.")
        answer = self._answers.pop(0)
        if isinstance(answer, ModelError):
            raise answer
        response = FakeResponse(answer)
        self.responses.append(response)
        return response


class FakeResponse:
    """See `Response`. `closed` tells that it was let go, `unread` how many pieces had not been taken then."""

    def __init__(self, answer: FakeAnswer) -> None:
        self.status = answer.status
        self.headers: Mapping[str, str] = _AnyCase(answer.headers)
        self.closed = False
        self._pieces = list(answer.pieces)

    @property
    def unread(self) -> int:
        """Pieces that have not been read."""
        return len(self._pieces)

    async def read(self) -> bytes:
        """The rest of the body."""
        data = b""
        while piece := await self.read_some():
            data += piece
        return data

    async def read_some(self) -> bytes:
        """The next piece."""
        piece = self._pieces.pop(0) if self._pieces else b""
        if isinstance(piece, ModelError):
            raise piece
        return piece

    def limit_silence(self, seconds: float) -> None:
        """Nothing: what there is comes at once."""

    async def finish(self) -> None:
        """Take the rest."""
        self._pieces.clear()

    def close(self) -> None:
        """Let go."""
        self.closed = True


class _AnyCase(dict[str, str]):
    """Headers, looked up in any case."""

    def get(self, key: str, default: Any = None, /) -> Any:
        return super().get(key.lower(), default)
