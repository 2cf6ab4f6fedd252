"""An agent: a model, tools, instructions, limits and middleware. Immutable in use; all state is a run's."""

from __future__ import annotations

import asyncio
import inspect
import os
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any, TypedDict

from typing_extensions import Unpack

from glassloop.core.context import Identity, RunContext
from glassloop.core.encoding import digest, dumps
from glassloop.core.errors import ConfigurationError
from glassloop.core.events import ApprovalDecided, DriverClaimed, RunContinued, RunStarted
from glassloop.core.ids import new_id
from glassloop.core.limits import Limits
from glassloop.core.messages import Message, UserMessage
from glassloop.core.result import Decision, RunResult
from glassloop.journal.recorder import Recorder, Subscriber
from glassloop.journal.requests import RequestLog, message_digest
from glassloop.journal.state import State, fold
from glassloop.loop import drive
from glassloop.memory.session import WhenBusy
from glassloop.middleware.approval import Approval, Approver, decided
from glassloop.middleware.call import ToolMiddleware
from glassloop.middleware.idempotency import Idempotency
from glassloop.middleware.reasons import Reasons
from glassloop.middleware.stack import Middleware, model_stack, tool_layers, tool_stack
from glassloop.models.model import Model, ModelSettings, ToolSpec
from glassloop.models.prices import load_prices
from glassloop.models.registry import resolve_model
from glassloop.portal import run_in_portal
from glassloop.results import raise_for, result_of
from glassloop.run import Run
from glassloop.stores import Store, open_store
from glassloop.stream import RunStream
from glassloop.tools.toolset import ToolIndex, ToolSource, ToolSources

Instructions = str | Callable[[RunContext[Any]], str | Awaitable[str]]


class RunOptions(TypedDict, total=False):
    """What one run may be given.

    Args:
        session: conversation that the run belongs to; its earlier runs come first.
        when_busy: `queue` behind another run of the session, or `refuse` with SessionBusy.
        user: on whose behalf; never taken from the model.
        identity: user, tenant, roles and session at once, instead of `user` and `session`.
        deps: your own objects for the tools, as `context.deps`; never stored.
        history: messages that come before, e.g. an earlier result's `messages`.
        limits: instead of the agent's.
        model: instead of the agent's.
        store: where the journal is: a Store or a URL; default the STORE variable, else in memory.
        approve: asks a human about a held call; without it such a run parks (outcome `waiting`).
    """

    session: str | None
    when_busy: WhenBusy
    user: str | None
    identity: Identity | None
    deps: Any
    history: Sequence[Message]
    limits: Limits | None
    model: str | Model | None
    store: str | Store | None
    approve: Approver | None


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
        store = self._store(options.get("store"))
        events = await store.journal.read(run_id)
        if not events or not isinstance(events[0].data, RunStarted):
            raise ConfigurationError(f"There is no run {run_id!r} in {store.url}.")
        started = events[0].data
        if started.agent != self.name:
            raise ConfigurationError(f"Run {run_id} belongs to the agent {started.agent!r}, not to {self.name!r}.")
        session = started.identity.session
        async with AsyncExitStack() as held:
            before: list[Message] = []
            if session is not None:
                await held.enter_async_context(store.sessions.lock(session, run_id, options.get("when_busy", "queue")))
                before = (await store.sessions.load(session))[: started.session_length]
            state = fold(events, before)
            recorder = Recorder(
                store.journal,
                state,
                epoch=state.epoch + 1,
                history=before,
                subscribers=(subscriber,) if subscriber else (),
            )
            answers = _answers(state, decisions or {})
            if state.finished is not None and state.finished.outcome == "completed":
                return result_of(state)
            written = len(state.conversation) if state.finished else None
            recorder.record(DriverClaimed(recorder.epoch, _owner()))
            if state.finished is not None or options.get("limits") is not None:
                recorder.record(RunContinued(options.get("limits")))
            for answer in answers:
                recorder.record(answer)
            return await self._drive(recorder, store, options, written)

    async def _begin(
        self, input: str | UserMessage | None, options: RunOptions, subscribers: Sequence[Subscriber]
    ) -> RunResult:
        model = self._model(options.get("model"))
        store = self._store(options.get("store"))
        identity = options.get("identity") or Identity(options.get("user"), session=options.get("session"))
        run_id = new_id("run")
        async with AsyncExitStack() as held:
            before: list[Message] = []
            if identity.session is not None:
                busy = options.get("when_busy", "queue")
                await held.enter_async_context(store.sessions.lock(identity.session, run_id, busy))
                before = await store.sessions.load(identity.session)
            recorder = Recorder(
                store.journal,
                State(run_id=run_id, conversation=before),
                epoch=1,
                history=before,
                subscribers=subscribers,
            )
            recorder.record(
                RunStarted(
                    agent=self.name,
                    fingerprint=self._fingerprint(model),
                    identity=identity,
                    input=UserMessage(input) if isinstance(input, str) else input,
                    limits=options.get("limits") or self.limits,
                    history=_not_in(before, options.get("history", ())),
                    session_length=len(before),
                )
            )
            recorder.record(DriverClaimed(1, _owner()))
            return await self._drive(recorder, store, options)

    async def _drive(
        self, recorder: Recorder, store: Store, options: RunOptions, written: int | None = None
    ) -> RunResult:
        """Drive to rest, then hand the run's messages to its session; `written` of the conversation are there."""
        run = await self._assemble(recorder, store, options)
        try:
            await drive(run)
        except asyncio.CancelledError as error:
            error.result = result_of(recorder.state, recorder.values)  # type: ignore[attr-defined] - documented
            raise
        finally:
            state = recorder.state
            if state.identity.session is not None and state.finished is not None:
                first = state.history_length if written is None else written
                key = state.run_id if written is None else f"{state.run_id}.{state.epoch}"
                await store.sessions.append(state.identity.session, key, state.conversation[first:])
        return raise_for(result_of(recorder.state, recorder.values), run.error, recorder.state.limits.on_limit)

    async def _assemble(self, recorder: Recorder, store: Store, options: RunOptions) -> Run:
        model = self._model(options.get("model"))
        context = RunContext(options.get("deps"), recorder.state.run_id, recorder.state.identity)
        layers = [_bound(layer, options.get("approve"), store) for layer in tool_layers(self.middleware)]
        reasons = next((layer for layer in layers if isinstance(layer, Reasons)), None)
        return Run(
            recorder=recorder,
            requests=RequestLog(recorder),
            model=model,
            ask=model_stack(self.middleware),
            call=tool_stack(layers),
            tools=_ToolsOfTheMoment(self.tools, context, recorder, reasons),
            context=context,
            instructions=await self._instructions(context),
            settings=self.settings,
            prices=await load_prices(model.name, self.settings.price),
        )

    async def _instructions(self, context: RunContext[Any]) -> str:
        if isinstance(self.instructions, str):
            return self.instructions
        made = self.instructions(context)
        return await made if inspect.isawaitable(made) else made

    def _model(self, override: str | Model | None) -> Model:
        wanted = override if override is not None else self.model
        if wanted is not None and not isinstance(wanted, str):
            return wanted
        key = wanted or os.environ.get("MODEL", "")
        if key not in self._models:
            self._models[key] = resolve_model(wanted)
        return self._models[key]

    def _store(self, given: str | Store | None) -> Store:
        if isinstance(given, Store):
            return given
        url = given or os.environ.get("STORE") or "memory:"
        if url not in self._stores:
            self._stores[url] = open_store(url)
        return self._stores[url]

    def _fingerprint(self, model: Model) -> str:
        text = self.instructions if isinstance(self.instructions, str) else self.instructions.__qualname__
        return digest(dumps([self.name, model.name, text, self.tools.names]))


class _ToolsOfTheMoment:
    """The run's tools: looked up before each model request, the same until its calls have their results."""

    def __init__(
        self, tools: ToolSources, context: RunContext[Any], recorder: Recorder, reasons: Reasons | None
    ) -> None:
        self.tools, self.context, self.recorder, self.reasons = tools, context, recorder, reasons
        self.known: tuple[ToolIndex, tuple[ToolSpec, ...]] | None = None

    async def __call__(self) -> tuple[ToolIndex, tuple[ToolSpec, ...]]:
        if self.known is not None and self.recorder.state.open_calls:
            return self.known
        index = await self.tools.resolve(self.context)
        if self.known is None or index is not self.known[0]:
            self.known = index, index.specs if self.reasons is None else self.reasons.specs(index.specs)
        return self.known


def _bound(layer: ToolMiddleware, approver: Approver | None, store: Store) -> ToolMiddleware:
    """A layer with what only the run knows: who is asked, and where claims stand."""
    match layer:
        case Approval(approver=None):
            return Approval(layer.when, approver, layer.seconds)
        case Idempotency(ledger=None):
            return Idempotency(store.ledger, layer.ttl)
        case _:
            return layer


def _not_in(session: Sequence[Message], history: Sequence[Message]) -> tuple[Message, ...]:
    """The history without what the session has already: a caller may give both."""
    known = Counter(map(message_digest, session))
    fresh: list[Message] = []
    for message in history:
        key = message_digest(message)
        if known[key]:
            known[key] -= 1
        else:
            fresh.append(message)
    return tuple(fresh)


def _answers(state: State, decisions: Mapping[str, Decision | bool]) -> list[ApprovalDecided]:
    """What humans decided, as events.

    Raises:
        ConfigurationError: an approval that the run does not wait for.
    """
    waiting = {asked.approval_id for asked in state.asked.values()} - state.decided.keys()
    for approval_id in decisions:
        if approval_id not in waiting:
            raise ConfigurationError(f"Run {state.run_id} has no approval {approval_id!r} that waits for a decision.")
    return [decided(approval_id, decision) for approval_id, decision in decisions.items()]


def _owner() -> str:
    return f"pid {os.getpid()}"
