"""Who a run is for, and what a tool may know about it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic

from typing_extensions import TypeVar

from glassloop.core.cancellation import Cancellation
from glassloop.core.encoding import digest


@dataclass(frozen=True, slots=True)
class Identity:
    """On whose behalf a run acts; recorded with the run, never taken from the model."""

    user: str | None = None
    tenant: str | None = None
    roles: tuple[str, ...] = ()
    session: str | None = None


DepsT = TypeVar("DepsT", default=Any)


@dataclass(slots=True)
class RunContext(Generic[DepsT]):
    """What a tool receives in its `RunContext` parameter. It never shows in the tool's schema.

    Args:
        deps: your own objects (clients, connections), never stored.
        run_id: the run.
        identity: user, tenant, roles and session.
        step: number of the model call that asked, from 1.
        call_id: the journal's id of this call; empty while tools are being listed.
        idempotency_key: the same for this call over every retry and resume; hand it to the service you call.
        transaction: for a tool with `transaction=True`: the open transaction of the journal's database.
        cancelled: set when the run is cancelled or the call timed out; a tool in a thread should look at it
            (`is_set()`), or wait for it instead of sleeping (`wait(seconds)`).
        below: begins runs below this one (`glassloop.teams.delegate`); None outside a run.
        store: the run's `Store`, for tools that keep something beside the journal; None outside a run.
        on_progress: what `progress` tells; None where nobody watches.
        is_late: whether the call's time is up.
    """

    deps: DepsT
    run_id: str = ""
    identity: Identity = field(default_factory=Identity)
    step: int = 0
    call_id: str = ""
    idempotency_key: str = ""
    cancelled: Cancellation = field(default_factory=Cancellation)
    transaction: Any = None
    store: Any = None
    below: Any = None
    on_progress: Callable[[Any], None] | None = None
    is_late: Callable[[], bool] | None = None

    @property
    def user(self) -> str | None:
        """The user's id."""
        return self.identity.user

    @property
    def tenant(self) -> str | None:
        """The tenant's id."""
        return self.identity.tenant

    @property
    def session(self) -> str | None:
        """The session's id."""
        return self.identity.session

    def for_call(self, step: int, call_id: str, progress: Callable[[Any], None] | None) -> RunContext[DepsT]:
        """The context of one tool call.

        Its idempotency key is a digest of the run's and the call's ids: stable over retries, workers and restarts.
        """
        key = digest(f"{self.run_id}/{call_id}".encode())
        called = RunContext(self.deps, self.run_id, self.identity, step, call_id, key)  # `replace` takes far longer
        called.store, called.below, called.on_progress = self.store, self.below, progress
        return called

    def progress(self, value: object) -> None:
        """Report progress to whoever watches the run; safe from any thread."""
        if self.on_progress is not None:
            self.on_progress(value)
