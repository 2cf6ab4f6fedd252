"""An agent: a model, tools, instructions, limits and middleware. Immutable in use; all state is a run's."""

from __future__ import annotations

import inspect
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from typing_extensions import Unpack

from glassloop.core.context import Identity, RunContext
from glassloop.core.encoding import digest, dumps
from glassloop.core.events import RunStarted
from glassloop.core.ids import new_id
from glassloop.core.limits import Limits
from glassloop.core.messages import UserMessage
from glassloop.core.result import Decision, RunResult
from glassloop.driver import begin, go_on
from glassloop.journal.recorder import Subscriber
from glassloop.middleware.stack import Middleware, tool_layers
from glassloop.models.model import Model, ModelSettings
from glassloop.models.registry import resolve_model
from glassloop.options import RunOptions
from glassloop.portal import run_in_portal
from glassloop.stores import Store, open_store
from glassloop.stream import RunStream
from glassloop.tools.toolset import ToolSource, ToolSources

Instructions = str | Callable[[RunContext[Any]], str | Awaitable[str]]


class Agent:
    """A model with tools, run by the loop.

    Args:
        model: `provider:model`, a Model, or None for the MODEL variable; resolved when a run starts.
        tools: functions, Tools and toolsets (`DynamicToolset` for tools per user or tenant).
        instructions: the system prompt, or a function of the context that makes it.
        name: names the agent in journals and lists.
        limits: what stops a run.
        settings: how to sample.
        middleware: your own layers, or instances that take the place of a default one.

    Raises:
        ToolDefinitionError: something in `tools` cannot be a tool, or two have one name.
        ConfigurationError: a layer is given twice.
    """

    def __init__(
        self,
        model: str | Model | None = None,
        tools: Sequence[ToolSource] = (),
        *,
        instructions: Instructions = "",
        name: str = "agent",
        limits: Limits = Limits(),
        settings: ModelSettings = ModelSettings(),
        middleware: Sequence[Middleware] = (),
    ) -> None:
        self.model = model
        self.instructions = instructions
        self.name = name
        self.limits = limits
        self.settings = settings
        self.middleware = tuple(middleware)
        self.tools = ToolSources(tools)
        tool_layers(self.middleware)
        self._models: dict[str, Model] = {}
        self._stores: dict[str, Store] = {}

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
        return RunStream(lambda subscriber: self._begin(input, options, (subscriber,)))

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
            decisions: what humans decided, by approval id.
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
        """The event that begins a run of this agent.

        Raises:
            ConfigurationError: the model cannot be resolved.
        """
        model = self.model_for(options)
        return RunStarted(
            agent=self.name,
            fingerprint=self.fingerprint(model),
            identity=options.get("identity") or Identity(options.get("user"), session=options.get("session")),
            input=UserMessage(input) if isinstance(input, str) else input,
            limits=options.get("limits") or self.limits,
            history=tuple(options.get("history", ())),
            approvals=options.get("approvals"),
        )

    async def instructions_for(self, context: RunContext[Any]) -> str:
        """The system prompt of a run."""
        if isinstance(self.instructions, str):
            return self.instructions
        made = self.instructions(context)
        return await made if inspect.isawaitable(made) else made

    def model_for(self, options: RunOptions) -> Model:
        """The model of a run, resolved once.

        Raises:
            ConfigurationError: no model, or no key for it.
        """
        override = options.get("model")
        wanted = override if override is not None else self.model
        if wanted is not None and not isinstance(wanted, str):
            return wanted
        key = wanted or os.environ.get("MODEL", "")
        if key not in self._models:
            self._models[key] = resolve_model(wanted)
        return self._models[key]

    def store_for(self, options: RunOptions) -> Store:
        """The store of a run, opened once.

        Raises:
            ConfigurationError: not a store that Glassloop knows.
        """
        given = options.get("store")
        if isinstance(given, Store):
            return given
        url = given or os.environ.get("STORE") or "memory:"
        if url not in self._stores:
            self._stores[url] = open_store(url)
        return self._stores[url]

    def fingerprint(self, model: Model) -> str:
        """Tells whether an agent is still the one that a run began with."""
        text = self.instructions if isinstance(self.instructions, str) else self.instructions.__qualname__
        return digest(dumps([self.name, model.name, text, self.tools.names]))
