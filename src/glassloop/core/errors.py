"""Every exception of Glassloop.

    GlassloopError
    ├── ConfigurationError          something the developer or operator must change
    │   └── ToolDefinitionError     a function, name or schema that cannot be a tool
    ├── RunError                    a run that did not complete; carries `.result`
    │   ├── LimitReached            a limit stopped it
    │   ├── ModelError              the model or its server failed
    │   └── FatalToolError          a tool asked for the run to stop
    ├── ToolError                   raised by a tool; its text is meant for the model
    │   ├── ArgumentsError          arguments that did not pass the gate (tools/problems.py)
    │   └── CallStopped             a layer ended the call (middleware/call.py)
    ├── StoreError                  a journal, ledger or session store failed
    │   ├── Conflict                others appended to the run; read the tail and try again
    │   └── Fenced                  a newer driver has taken the run over
    ├── LoadError                   a file cannot become knowledge
    └── ScriptError                 a scripted model was asked for more, or less, than its script

A cancelled run raises `asyncio.CancelledError`, with `.result` set on it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from glassloop.core.result import RunResult


class GlassloopError(Exception):
    """Base of all exceptions of Glassloop."""


class ConfigurationError(GlassloopError):
    """Wrong configuration; the message says what is wrong and what to do."""


class ToolDefinitionError(ConfigurationError):
    """A function, name or schema that cannot be offered as a tool."""


class RunError(GlassloopError):
    """A run that did not complete. `result` holds everything done so far."""

    result: RunResult | None = None


class LimitReached(RunError):
    """A limit stopped the run; `limit` names it (`steps`, `total_tokens`, `seconds`, ...)."""

    def __init__(self, message: str, *, limit: str, result: RunResult | None = None) -> None:
        super().__init__(message)
        self.limit = limit
        self.result = result


ModelErrorKind = Literal[
    "auth",  # 401, 403, no key
    "payment",  # 402
    "not_found",  # 404: model or path
    "invalid_request",  # 400, 422: repeating it cannot help
    "context_length",  # the conversation does not fit the model
    "bad_tool_call",  # the provider itself refused the model's call
    "content_filter",  # the provider's filter refused the request; the run's outcome is `filtered`
    "rate_limit",  # 429
    "overloaded",  # 408, 409, 5xx, or an error inside a 200
    "connection",  # no connection, or it broke
    "timeout",
    "protocol",  # an answer that is not the provider's format
    "empty_reply",  # nothing said and nothing called, twice
    "output",  # the answer does not fit the agent's output type, again and again
    "configuration",  # an agent of a team has no model, or no key for it
    "price",  # a money limit, and a model without a known price
]


class ModelError(RunError):
    """The model's server refused, failed or answered nonsense.

    Args:
        message: one sentence for the user, without secrets.
        kind: what sort of failure.
        status: HTTP status, if there was one.
        retry_after: seconds the server asked to wait.
        partial: text that had been shown before the reply broke off.
    """

    def __init__(
        self,
        message: str,
        *,
        kind: ModelErrorKind,
        status: int | None = None,
        retry_after: float | None = None,
        partial: str = "",
        result: RunResult | None = None,
    ) -> None:
        super().__init__(message)
        self.kind: ModelErrorKind = kind
        self.status = status
        self.retry_after = retry_after
        self.partial = partial
        self.result = result

    @property
    def retryable(self) -> bool:
        """Whether the same request may succeed later (408, 409, 429, 5xx, broken connections)."""
        return self.kind in ("rate_limit", "overloaded", "connection", "timeout", "protocol")


class ToolError(GlassloopError):
    """Raised by a tool to tell the model, in these very words, what went wrong."""


class FatalToolError(RunError):
    """Raised by a tool to stop the run: going on would be wrong whatever the model says.

    An agent as a tool raises it where the agent's model cannot be asked at all; `kind` is then that of the `ModelError`
    that the run ends with.
    """

    call_id: str = ""
    kind: str = "fatal_tool"


class StoreError(GlassloopError):
    """A journal, ledger or session store failed."""


class Conflict(StoreError):
    """Events were appended to the run since it was read."""


class Fenced(StoreError):
    """A newer driver has claimed the run; this one must stop without writing."""


class LoadError(GlassloopError):
    """A file that cannot become knowledge.

    Args:
        source: how the file is named.
        reason: what is wrong and what to do, to be read after the name.
    """

    def __init__(self, source: str, reason: str) -> None:
        super().__init__(f"{source} {reason}")
        self.source = source
        self.reason = reason


class ScriptError(GlassloopError):
    """A scripted model was asked for more replies than it has, or was left with replies unused."""
