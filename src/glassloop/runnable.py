"""What can be run: an agent, or a flow of several. It says how a run of it begins and is driven; the rest is here."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Mapping, Sequence
from types import NoneType
from typing import TYPE_CHECKING, Any

from typing_extensions import Unpack

from glassloop.core.context import Identity
from glassloop.core.errors import ConfigurationError
from glassloop.core.events import RunStarted
from glassloop.core.ids import new_id
from glassloop.core.limits import Limits
from glassloop.core.messages import Message, UserMessage
from glassloop.core.result import Decision, RunResult
from glassloop.driver import begin, go_on
from glassloop.journal.recorder import Subscriber
from glassloop.options import RunOptions, check_options, check_type
from glassloop.stores import Store, open_configured

if TYPE_CHECKING:
    from glassloop.stream import RunStream
    from glassloop.tools.output import Output
    from glassloop.tree import Driving

_LONGEST_NAME = 500
"""Characters that every store can have in an index: at PostgreSQL an entry has at most 2,704 bytes."""


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
        from glassloop.portal import run_in_portal

        return run_in_portal(self._begin(input, options, ()))

    def stream(self, input: str | UserMessage | None = None, **options: Unpack[RunOptions]) -> RunStream:
        """Run and watch: `async with agent.stream(...) as stream: async for event in stream: ...`."""
        from glassloop.stream import RunStream

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
        check_options(options)
        store = self.store_for(options)
        subscribers = (subscriber,) if subscriber else ()
        return await go_on(self, store, run_id, options, decisions=decisions or {}, subscribers=subscribers)

    def _begin(
        self, input: str | UserMessage | None, options: RunOptions, subscribers: Sequence[Subscriber]
    ) -> Coroutine[Any, Any, RunResult]:
        started = self.started(input, options)
        return begin(self, self.store_for(options), new_id("run"), started, options, subscribers=subscribers)

    def started(self, input: str | UserMessage | None, options: RunOptions) -> RunStarted:
        """The event that begins a run of it.

        Raises:
            ConfigurationError: the model cannot be resolved, there is no such option, a name is none, or what should be
                a message is none.
        """
        check_options(options)
        return RunStarted(
            agent=self.name,
            fingerprint=self.fingerprint_for(options),
            identity=_identity(options),
            input=_input(input),
            limits=options.get("limits") or self.limits,
            history=_history(options),
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
        check_type("store=", given, (str, NoneType), "a URL, e.g. sqlite:///runs.db, or what open_store(url) returns")
        places = given or os.environ.get("STORE"), os.environ.get("SESSIONS")
        if places not in self._stores:
            self._stores[places] = open_configured(given, "memory:")
        return self._stores[places]


def _identity(options: RunOptions) -> Identity:
    """On whose behalf, in which session; a name that is empty would join everybody who has forgotten to give one."""
    who = options.get("identity") or Identity(options.get("user"), session=options.get("session"))
    session: Any = who.session
    if session is not None and not (isinstance(session, str) and session.strip()):
        raise ConfigurationError(f"session={session!r}: name the conversation, or give None for a run of its own.")
    for kind, name in (("session", who.session), ("user", who.user), ("tenant", who.tenant)):
        if name is not None and len(name) > _LONGEST_NAME:
            raise ConfigurationError(
                f"The {kind} has a name of {len(name):,} characters: give at most {_LONGEST_NAME}."
            )
    return who


def _history(options: RunOptions) -> tuple[Message, ...]:
    history: tuple[Any, ...] = tuple(options.get("history") or ())
    for position, message in enumerate(history):
        if not isinstance(message, Message):
            raise ConfigurationError(
                f"history[{position}] is of type {type(message).__name__}: give messages, e.g. an earlier result's; "
                "from_openai and from_anthropic make them of a provider's."
            )
    return history


def _input(given: Any) -> UserMessage | None:
    if isinstance(given, str):
        return UserMessage(given)
    if given is not None and not isinstance(given, UserMessage):
        raise ConfigurationError(f"The input is of type {type(given).__name__}: give a text, or a UserMessage.")
    return given


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
