"""The conversation: what users said, what models replied, what tools returned.

What a provider said is kept losslessly (raw arguments, unknown fields, thinking signatures) and rendered anew for
each request by the provider's own file; nothing here is in a provider's format.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import InitVar, dataclass, field, fields
from typing import Any, Literal, cast

from glassloop.core.encoding import digest
from glassloop.core.memo import memoized
from glassloop.core.usage import Usage

StopReason = Literal["stop", "length", "refusal", "content_filter", "paused", "no_calls", "unknown"]
"""Why the model ended its reply. Whether it asked for tools is read from the reply's calls alone; `no_calls` says that
it ended for calls which are not in it. A `paused` reply goes on where it ended once it has been sent back."""


@dataclass(frozen=True)
class Text:
    """A piece of text."""

    text: str
    kind: Literal["text"] = "text"


@dataclass(frozen=True)
class Media:
    """An image or a file, known by the digest of its bytes.

    The bytes are beside the message, not in it: in JSON (journal, events) only the digest is written, and the bytes
    stand once in the journal's blobs. `content` is None where they have not been read back.
    """

    media_type: str
    digest: str
    size: int
    name: str | None = None
    kind: Literal["media"] = "media"
    data: InitVar[bytes | None] = None

    def __post_init__(self, data: bytes | None) -> None:
        object.__setattr__(self, "_data", data)

    @property
    def content(self) -> bytes | None:
        """The bytes, where they are at hand."""
        return getattr(self, "_data", None)

    def recall(self, data: bytes | None) -> None:
        """Have the bytes back, once they have been read; others than those of the digest are not taken."""
        if data is not None and digest(data) == self.digest:
            object.__setattr__(self, "_data", data)

    @staticmethod
    def of(data: bytes, media_type: str = "application/octet-stream", name: str | None = None) -> Media:
        """Wrap raw bytes; those of an image have the media type that they themselves tell."""
        from glassloop.core.media_types import corrected

        return Media(corrected(media_type, data), digest(data), len(data), name, data=data)


@dataclass(frozen=True)
class Thinking:
    """What the model thought, where the provider shows it; signed or encrypted thinking is replayed unchanged."""

    text: str = ""
    signature: str | None = None
    redacted: str | None = None
    kind: Literal["thinking"] = "thinking"


@dataclass(frozen=True)
class ToolCall:
    """One call that the model asks for.

    Args:
        id: our id, unique in the journal.
        name: the tool's name as we know it (the wire name is mapped back, blanks and template tokens cut off).
        arguments: exactly what the model wrote, not parsed.
        provider_id: the provider's id; may be empty, repeated or illegal elsewhere.
        extra: fields of the provider's call object that are not ours to interpret.
        problem: why this call must not be run (cut off, fragments that fit several calls), for the model.
    """

    id: str
    name: str
    arguments: str = "{}"
    provider_id: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])
    problem: str | None = None
    kind: Literal["tool_call"] = "tool_call"


@dataclass(frozen=True)
class Opaque:
    """A block of a reply that only its provider understands (server-side tools and the like), kept as it came."""

    data: Mapping[str, Any]
    kind: Literal["opaque"] = "opaque"


Part = Text | Thinking | ToolCall | Opaque
Content = Text | Media


class _Kept:
    """A message on which its readers keep what they work out of it, its encodings above all: for this process alone.

    Another process may keep something else under the same name, so a copy or a pickle is of the fields only.
    """

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(cast("Any", self))}


@dataclass(frozen=True)
class SystemMessage(_Kept):
    """Instructions inside a conversation; the agent's own instructions travel apart."""

    text: str
    role: Literal["system"] = "system"


UserOrigin = Literal["user", "nudge", "summary", "note"]


@dataclass(frozen=True)
class UserMessage(_Kept):
    """What the model reads as the user's turn; `origin` tells who really wrote it."""

    content: str | tuple[Content, ...]
    origin: UserOrigin = "user"
    role: Literal["user"] = "user"

    @property
    def text(self) -> str:
        """The text parts, joined."""
        if isinstance(self.content, str):
            return self.content
        return "".join(part.text for part in self.content if isinstance(part, Text))


@dataclass(frozen=True)
class Reply(_Kept):
    """One reply of a model, its parts in the order they came.

    Args:
        parts: text, thinking, tool calls, opaque blocks.
        stop: why the reply ended.
        usage: tokens of this reply.
        model: the model that answered, as the server names it.
        provider: who said it; fields in `extra` are only ever sent back to the same provider.
        refusal: the provider's refusal text, where it has a field of its own.
        extra: fields of the provider's message that are not ours to interpret.
        dropped_calls: calls beyond the limit per step that were cut from this reply.
    """

    parts: tuple[Part, ...]
    stop: StopReason = "stop"
    usage: Usage = Usage()
    model: str = ""
    provider: str = ""
    refusal: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])
    dropped_calls: int = 0
    role: Literal["assistant"] = "assistant"

    @memoized
    def text(self) -> str:
        """Visible text, joined."""
        return "".join(part.text for part in self.parts if isinstance(part, Text))

    @property
    def thinking(self) -> str:
        """Readable thinking, joined."""
        return "".join(part.text for part in self.parts if isinstance(part, Thinking))

    @memoized
    def calls(self) -> tuple[ToolCall, ...]:
        """The tool calls, in request order."""
        return tuple(part for part in self.parts if isinstance(part, ToolCall))


ResultStatus = Literal["ok", "error", "denied", "held", "timeout", "cancelled", "unknown", "skipped"]
"""ok; error (the tool or the gate refused); denied (a human or policy); held (for a human, runs later by itself);
timeout; cancelled; unknown (begun, and nobody can tell whether it happened); skipped (not begun)."""


@dataclass(frozen=True)
class ToolResult(_Kept):
    """The one answer to a tool call, as the model sees it.

    Args:
        call_id: our id of the call.
        name: the tool.
        content: text for the model, already capped and redacted.
        status: how the call ended.
        media: images and files that the tool returned.
    """

    call_id: str
    name: str
    content: str
    status: ResultStatus = "ok"
    media: tuple[Media, ...] = ()
    role: Literal["tool"] = "tool"

    @property
    def is_error(self) -> bool:
        """Whether the model should read this as a failure."""
        return self.status != "ok"


Message = SystemMessage | UserMessage | Reply | ToolResult
History = Sequence[Message]
