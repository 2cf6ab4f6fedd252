"""What can be run: an agent, or a flow of several. It says how a run of it begins and is driven; the rest is here."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from typing_extensions import Unpack

from glassloop.core.context import Identity
from glassloop.core.events import RunStarted
from glassloop.core.ids import new_id
from glassloop.core.limits import Limits
from glassloop.core.messages import UserMessage
from glassloop.core.result import Decision, RunResult
from glassloop.driver import begin, go_on
from glassloop.journal.recorder import Subscriber
from glassloop.options import RunOptions
from glassloop.portal import run_in_portal
from glassloop.stores import Store, open_configured
from glassloop.stream import RunStream

if TYPE_CHECKING:
    from glassloop.tools.output import Output
    from glassloop.tree import Driving


class Runnable(ABC):
    """What can be run. Immutable in use; all state is a run's.

    Args:
        name: names it in journals and lists.
        limits: what stops a run of it, with all runs below.
    """

    output: Output[Any] | None = None
    """What the answers of its runs must be."""

    def __init__(self, name: str, limits: Limits) -> None:
        self.name = name
        self.limits = limits
        self._stores: dict[tuple[str | None, str | None], Store] = {}

    @abstractmethod
    def fingerprint_for(self, options: RunOptions) -> str:
        """Tells whether it is still the one that a run began with.

        Raises:
            ConfigurationError: its model cannot be resolved.
        """

    @abstractmethod
    async def drive(self, driving: Driving, /) -> None:
        """Drive a run of it until it rests."""

    @property
    def below(self) -> Sequence[Runnable]:
        """What a run of it may begin runs of, or hand its conversation to."""
        return ()

    def completed(self, result: RunResult, /) -> RunResult:
        """The result of a run of it, with what only it can read from the output."""
        return result

    async def run(self, input: str | UserMessage | None = None, **options: Unpack[RunOptions]) -> RunResult:
        """Run to the end and return the result.

        Args:
            input: the user's text or message; None to go on from `history` alone.
            options: see `RunOptions`.

        Raises:
            LimitReached: a limit stopped the run (see `Limits.on_limit`).
            ModelError: the model's server refused or failed.
            FatalToolError: a tool stopped the run.
            asyncio.CancelledError: the run was cancelled.
                All four carry `.result`. Other outcomes are returned: look at `result.outcome`.
            ConfigurationError: the run could not begin.
        """
        return await self._begin(input, options, ())

    def run_sync(self, input: str | UserMessage | None = None, **options: Unpack[RunOptions]) -> RunResult:
        """`run`, from code that is not async."""
        return run_in_portal(self._begin(input, options, ()))

    def stream(self, input: str | UserMessage | None = None, **options: Unpack[RunOptions]) -> RunStream:
        """Run and watch: `async with agent.stream(...) as stream: async for event in stream: ...`."""
        return RunStream(lambda subscriber: self._begin(input, options, (subscriber,)), self.output)

    async def resume(
        self,
        run_id: str,
        *,
        decisions: Mapping[str, Decision | bool] | None = None,
        subscriber: Subscriber | None = None,
        **options: Unpack[RunOptions],
    ) -> RunResult:
        """Go on with a run that rests: limited, waiting, cancelled, failed, or cut off by a crash.

        Args:
            run_id: the run.
            decisions: what humans decided, by approval id; also on calls of the runs below this one.
            subscriber: watches the run.
            options: `limits`, `deps`, `model`, `store`, `approve`; the rest stands in the journal.

        Raises:
            ConfigurationError: no such run, another agent's, or no such approval.
                And what `run` raises.
        """
        store = self.store_for(options)
        subscribers = (subscriber,) if subscriber else ()
        return await go_on(self, store, run_id, options, decisions=decisions or {}, subscribers=subscribers)

    async def _begin(
        self, input: str | UserMessage | None, options: RunOptions, subscribers: Sequence[Subscriber]
    ) -> RunResult:
        started = self.started(input, options)
        return await begin(self, self.store_for(options), new_id("run"), started, options, subscribers=subscribers)

    def started(self, input: str | UserMessage | None, options: RunOptions) -> RunStarted:
        """The event that begins a run of it.

        Raises:
            ConfigurationError: the model cannot be resolved.
        """
        return RunStarted(
            agent=self.name,
            fingerprint=self.fingerprint_for(options),
            identity=options.get("identity") or Identity(options.get("user"), session=options.get("session")),
            input=UserMessage(input) if isinstance(input, str) else input,
            limits=options.get("limits") or self.limits,
            history=tuple(options.get("history", ())),
            approvals=options.get("approvals"),
        )

    def store_for(self, options: RunOptions) -> Store:
        """The store of a run, opened once.

        Raises:
            ConfigurationError: not a store that Glassloop knows.
        """
        given = options.get("store")
        if isinstance(given, Store):
            return given
        places = given or os.environ.get("STORE"), os.environ.get("SESSIONS")
        if places not in self._stores:
            self._stores[places] = open_configured(given, "memory:")
        return self._stores[places]


def everyone(runs: Sequence[Runnable]) -> dict[str, Runnable]:
    """These and all below them, by name; of several with one name the first."""
    found: dict[str, Runnable] = {}
    due = list(runs)
    while due:
        one = due.pop(0)
        if one.name not in found:
            found[one.name] = one
            due += one.below
    return found
