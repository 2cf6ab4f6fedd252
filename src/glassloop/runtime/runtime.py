"""The runtime: starts runs, goes on with those that were cut off, and takes decisions."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Literal, cast

from glassloop.agent import Agent
from glassloop.core.context import Identity, RunContext
from glassloop.core.encoding import loads
from glassloop.core.errors import ConfigurationError, Conflict, Fenced, RunError, StoreError
from glassloop.core.events import (
    ApprovalAsked,
    ApprovalMode,
    CancelRequested,
    Event,
    EventData,
    RunContinued,
    RunFinished,
    RunStarted,
)
from glassloop.core.ids import new_id, root_of
from glassloop.core.limits import Limits
from glassloop.core.messages import Message, ToolCall, UserMessage
from glassloop.core.result import Decision, RunResult
from glassloop.driver import go_on
from glassloop.holding import refuse_where_busy
from glassloop.journal.deferred import record_answer
from glassloop.journal.media import contents
from glassloop.journal.projection import ApprovalFilter, ApprovalRow, ApprovalStatus, RunFilter, RunRow, summarize
from glassloop.journal.recorder import now_ms
from glassloop.journal.state import fold
from glassloop.memory.session import WhenBusy
from glassloop.middleware.approval import decided
from glassloop.options import RunOptions
from glassloop.results import whole_result
from glassloop.runnable import Runnable, everyone
from glassloop.runtime.approvals import ApprovalProblem, check, check_edit_for, check_fit
from glassloop.runtime.engine import Engine, InlineEngine
from glassloop.runtime.watching import Hub
from glassloop.stores import Store, open_configured
from glassloop.tree import with_below

Deps = Callable[[Identity], Any]

DEFAULT_STORE = "sqlite:///glassloop.db"
LOOK_SECONDS = 2.0
"""How often the runtime looks for runs that were cut off, or are to be cancelled."""

LEAVE_SECONDS = 2.0
"""How long a run that belongs to a stream outlives its last watcher."""

STOP_SECONDS = 3.0

_log = logging.getLogger("glassloop.runtime")


class Runtime:
    """Agents, a store and an engine. An async context manager: inside, runs are driven; outside, they rest.

    On entering, every unfinished run of its agents whose driver is gone goes on from its last event; the runtime keeps
    looking for such runs. On leaving, runs are let go and stay resumable.

    Args:
        agents: whose runs it drives, by their names: agents and flows.
        store: a Store or a URL; default the STORE variable, else `sqlite:///glassloop.db`. With a URL, sessions are
            where the SESSIONS variable says, if it is set (see `open_store`).
        deps: makes `context.deps` of a run from its identity, sync or async; never stored.
        engine: drives the runs; by default tasks in this process.

    Raises:
        ConfigurationError: two agents have one name, or the store is not one.
    """

    def __init__(
        self,
        agents: Runnable | Sequence[Runnable],
        *,
        store: str | Store | None = None,
        deps: Deps | None = None,
        engine: Engine | None = None,
    ) -> None:
        given = [agents] if isinstance(agents, Runnable) else list(agents)
        self.agents: Mapping[str, Runnable] = {agent.name: agent for agent in given}
        self._known = everyone(given)
        if len(self.agents) != len(given):
            raise ConfigurationError("Two agents have the same name; give each its own: Agent(..., name=...).")
        self._owns_store = not isinstance(store, Store)
        self.store = store if isinstance(store, Store) else open_configured(store, DEFAULT_STORE)
        self._deps = deps
        self._engine = engine or InlineEngine()
        self._hub = Hub(self._left)
        self._attached: dict[str, int] = {}
        self._stranded: set[str] = set()
        self._troubles: dict[str, str] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._looking: asyncio.Task[None] | None = None
        self._stopping = False
        self.leave_seconds = LEAVE_SECONDS
        self.stop_seconds = STOP_SECONDS

    async def __aenter__(self) -> Runtime:
        """Open the store and go on with what was cut off."""
        self._loop = asyncio.get_running_loop()
        await self.store.__aenter__()
        self._engine.start(self._drive)
        await self._look()
        self._looking = asyncio.create_task(self._keep_looking(), name="glassloop runtime")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let go of all runs, which stay resumable."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait([self._looking])
        self._stopping = True
        await self._engine.stop(self.stop_seconds)
        if self._owns_store:
            await self.store.close()

    # Runs

    async def start(
        self,
        agent: str,
        input: str | UserMessage,
        *,
        identity: Identity = Identity(),
        limits: Limits | None = None,
        approvals: ApprovalMode | None = None,
        attached: bool = False,
        history: Sequence[Message] = (),
        when_busy: WhenBusy = "queue",
    ) -> str:
        """Begin a run in the background and return its id; it is in the journal when this returns.

        Args:
            agent: the agent's name.
            input: the user's text or message.
            identity: on whose behalf.
            limits: instead of the agent's.
            approvals: how calls that need a human are held, `park` or `defer`; default what the agent's layer says.
            attached: cancel the run once nobody has watched it for two seconds.
            history: messages that come before.
            when_busy: `queue` behind another run of the session, or `refuse` while one goes on or waits for a human.

        Raises:
            ConfigurationError: no such agent, or its model cannot be resolved.
            SessionBusy: the session is busy and `when_busy` is `refuse`.
        """
        options = RunOptions(identity=identity, limits=limits, approvals=approvals, history=history)
        started = self._agent(agent).started(input, options)
        run_id = new_id("run")
        if when_busy == "refuse" and identity.session is not None:
            async with self.store.sessions.lock(identity.session, run_id, "refuse"):
                await refuse_where_busy(self.store, identity.session, run_id)
                await self._append(run_id, started, after=0)
        else:
            await self._append(run_id, started, after=0)
        if attached:
            self._attached[run_id] = 0
            self._left(run_id)
        self._engine.submit(run_id)
        return run_id

    async def run(self, agent: str, input: str | UserMessage, **options: Any) -> RunResult:
        """`start` and `wait`."""
        return await self.wait(await self.start(agent, input, **options))

    async def wait(self, run_id: str) -> RunResult:
        """The result of a run once it rests, whatever its outcome.

        Raises:
            ConfigurationError: no such run.
        """
        events = await self.store.journal.read(run_id)
        async for _ in self.watch(run_id, len(events)):
            pass
        await self._engine.idle(run_id)
        result = await self.result(run_id)
        if result is None:
            raise ConfigurationError(f"There is no run {run_id!r} in {self.store.url}.")
        return result

    def watch(self, run_id: str, after: int = 0, *, whole: bool = False) -> AsyncGenerator[Event]:
        """Follow a run until it rests: committed events after `after`, and live ones (seq 0) if it is driven here.

        Args:
            run_id: the run.
            after: the last event that is known already.
            whole: with the events of the runs below from this call on, as they happen, if they are driven here.
        """
        return self._hub.watch(self.store.journal, run_id, after, whole=whole)

    async def result(self, run_id: str) -> RunResult | None:
        """What a run has come to so far; None where there is no such run."""
        events = await self.store.journal.read(run_id)
        if not events:
            return None
        state = fold(events)
        result = await with_below(self.store, await whole_result(self.store.journal, state, {}))
        runs = self._known.get(state.agent)
        return result if runs is None else runs.completed(result)

    async def tree(self, run_id: str) -> list[RunResult]:
        """What a run has come to so far, and after it what all runs below it have, in the order in which they began.

        The calls that a flow has made are those of its runs: `tool_executions` of each.
        """
        rows = await self.runs(RunFilter(below=run_id, limit=10_000))
        below = [row.id for row in sorted(rows, key=lambda row: (row.started_at, row.id))]
        results = [await self.result(each) for each in (run_id, *below)]
        return [result for result in results if result is not None]

    async def row(self, run_id: str) -> RunRow | None:
        """A run's line in lists."""
        return summarize(await self.store.journal.read(run_id))

    async def runs(self, filter: RunFilter | None = None) -> list[RunRow]:
        """Runs that match, newest first."""
        return await self.store.journal.runs(filter)

    async def cancel(self, run_id: str, *, by: Identity | None = None, reason: str | None = None) -> bool:
        """Cancel a run, wherever it is driven; False if it has finished already.

        Raises:
            ConfigurationError: no such run.
        """
        run_id = root_of(run_id)  # a run below another is cancelled with all of them
        row = await self.row(run_id)
        if row is None:
            raise ConfigurationError(f"There is no run {run_id!r} in {self.store.url}.")
        if row.finished:
            return False
        await self._append(run_id, CancelRequested(by.user if by else None, reason))
        self._engine.cancel(run_id)
        self._engine.submit(run_id)  # ends it where nobody has driven it yet
        return True

    async def resume(self, run_id: str, *, limits: Limits | None = None) -> None:
        """Go on with a run that rests for good: limited, cancelled or failed.

        Raises:
            ConfigurationError: no such run, it completed, or it is a part of another.
        """
        row, root = await self.row(run_id), root_of(run_id)
        if root != run_id:
            raise ConfigurationError(f"Run {run_id!r} cannot go on: it is part of {root}.")
        if row is None or row.status == "completed":
            why = "it completed" if row else "there is no such run"
            raise ConfigurationError(f"Run {run_id!r} cannot go on: {why}.")
        await self._append(run_id, RunContinued(limits))
        self._engine.submit(run_id)

    # Approvals

    async def approvals(
        self,
        *,
        identity: Identity | None = None,
        status: ApprovalStatus | Literal["decided"] | None = "pending",
        run_id: str | None = None,
        limit: int | None = None,
        before: str | None = None,
    ) -> list[ApprovalRow]:
        """Approvals, newest first.

        Args:
            identity: only those that are any business of this identity.
            status: only those with this status now, or `decided` for those that somebody has decided; None: all.
            run_id: only those that this run asks for.
            limit: at most so many.
            before: only those with an id below this one.
        """
        wanted = ApprovalFilter(None, run_id, identity, status, now_ms(), limit, before)
        return await self.store.journal.approvals(wanted)

    async def approval(self, approval_id: str) -> ApprovalRow | None:
        """One approval, decided or not."""
        rows = await self.store.journal.approvals(ApprovalFilter(approval_id))
        return rows[0] if rows else None

    async def decide(self, approval_id: str, decision: Decision, *, by: Identity) -> RunResult | None:
        """Take a human's decision on a call, or answer to its question; it counts once.

        Returns:
            The result of a deferred call, which runs now; None where the run itself goes on, in the background.

        Raises:
            ApprovalProblem: not theirs to decide, decided already, too late, or edited arguments, or an answer, that do
                not fit.
        """
        row = check(await self.approval(approval_id), by, now_ms())
        decision = replace(decision, by=by.user)
        check_fit(decision, row.kind, loads(row.choices))
        await self._check_edit(row, decision, by)
        if row.mode == "defer":
            return await self._run_deferred(row, decision)
        answer = decided(approval_id, decision)
        if not await record_answer(self.store.journal, row.run_id, answer):
            raise ApprovalProblem("This was decided already.", "decided")
        self._hub.tell_above(Event(row.run_id, 0, now_ms(), 0, answer))
        self._engine.submit(root_of(row.run_id))
        return None

    async def _run_deferred(self, row: ApprovalRow, decision: Decision) -> RunResult:
        """A held call that was decided is a run of its own; its id follows from the approval's, so it exists once."""
        run_id = f"run_{row.approval_id.partition('_')[2]}"
        parent, asked, caller = await self._asking(row)
        call = ToolCall(new_id("call"), row.tool, asked.arguments)
        own = replace(asked, call_id=call.id, mode="park", expires_at=None)
        started = replace(parent, input=None, history=(), kind="call", parent=row.run_id, call=call, approvals="park")
        started = replace(started, speaker=None if caller == parent.agent else caller)
        answer = decided(row.approval_id, decision)
        try:
            await self._append(run_id, started, own, answer, after=0)
        except Conflict:
            raise ApprovalProblem("This was decided already.", "decided") from None
        await record_answer(self.store.journal, row.run_id, answer)
        self._engine.submit(run_id)
        return await self.wait(run_id)

    async def _check_edit(self, row: ApprovalRow, decision: Decision, by: Identity) -> None:
        if decision.decision != "edit":
            return
        started, _, caller = await self._asking(row)
        agent = everyone([self._known[row.agent]]).get(caller) if row.agent in self._known else None
        context = RunContext(await self._deps_of(started.identity), row.run_id, started.identity, store=self.store)
        known = cast("Agent", agent) if isinstance(agent, Agent) else None
        await check_edit_for(known, row.tool, decision, by, context=context)

    async def _asking(self, row: ApprovalRow) -> tuple[RunStarted, ApprovalAsked, str]:
        """How the run began that asks, what it asks, and the agent whose call it is about."""
        events = await self.store.journal.read(row.run_id)
        for number, event in enumerate(events):
            if isinstance(event.data, ApprovalAsked) and event.data.approval_id == row.approval_id:
                started = events[0].data
                assert isinstance(started, RunStarted)
                return started, event.data, fold(events[:number]).caller
        raise ApprovalProblem("There is no such approval.", "not_found")

    # Driving

    async def _drive(self, run_id: str) -> None:
        """Drive a run until it rests; called by the engine."""
        try:
            await self._go_on(run_id)
            self._troubles.pop(run_id, None)
        except Fenced as error:
            _log.info("Run %s is another driver's: %s", run_id, error)
        except StoreError as error:
            self._stranded.add(run_id)
            if self._troubles.get(run_id) != str(error):  # said once, not with every look
                self._troubles[run_id] = str(error)
                _log.warning("Run %s stopped, and goes on once the store works again: %s", run_id, error)
        except RunError as error:
            _log.info("Run %s ended: %s", run_id, error)
        finally:
            self._hub.rested(run_id)

    async def _go_on(self, run_id: str) -> None:
        events = await self.store.journal.read(run_id)
        started = events[0].data if events else None
        if not isinstance(started, RunStarted) or started.agent not in self._known:
            return
        if isinstance(events[-1].data, RunFinished):
            return
        await go_on(
            self._known[started.agent],
            self.store,
            run_id,
            RunOptions(store=self.store, deps=await self._deps_of(started.identity)),
            decisions={},
            subscribers=(self._hub.tell,),
            letting_go=lambda: self._stopping,
        )

    async def _deps_of(self, identity: Identity) -> Any:
        made = self._deps(identity) if self._deps is not None else None
        return await made if inspect.isawaitable(made) else made

    async def _keep_looking(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await self._look()
            except Exception:  # noqa: BLE001 - the runtime must outlive a store that is away for a while
                _log.exception("The store could not be looked through; trying again.")

    async def _look(self) -> None:
        """Take over runs whose driver is gone, go on with those that the store failed, cancel those that are to be."""
        while self._stranded:
            self._engine.submit(self._stranded.pop())
        here = self._engine.driving()
        known: dict[str, bool] = {}
        for row in await self._open_runs():
            root = root_of(row.id)
            if row.status == "cancelling" and root in here:
                self._engine.cancel(root)
            elif root not in here and await self._nobody_drives(row.owner, known):
                self._engine.submit(root)

    async def _open_runs(self) -> list[RunRow]:
        """Those of agents that are known here, and any that are below another run: whose tree it is, its root tells."""
        rows: list[RunRow] = []
        for status in ("running", "cancelling"):
            rows += await self.store.journal.runs(RunFilter(status=status, limit=10_000))
        return [row for row in rows if row.agent in self._known or root_of(row.id) != row.id]

    async def _nobody_drives(self, owner: str | None, known: dict[str, bool]) -> bool:
        """Whether a run was never driven, its driver let go, or its process has ended; each is looked up once."""
        if owner is not None and owner not in known:
            known[owner] = await self.store.is_gone(owner)
        return owner is None or known[owner]

    def _left(self, run_id: str) -> None:
        if run_id in self._attached:
            assert self._loop is not None
            self._attached[run_id] += 1  # who left before has no say: the time counts from the last one
            self._loop.call_later(self.leave_seconds, self._cancel_left, run_id, self._attached[run_id])

    def _cancel_left(self, run_id: str, leave: int) -> None:
        if not self._hub.watched(run_id) and self._attached.get(run_id) == leave:
            del self._attached[run_id]
            self._engine.cancel(run_id)

    def _agent(self, name: str) -> Runnable:
        if name not in self.agents:
            raise ConfigurationError(f"There is no agent {name!r}; there are: {', '.join(self.agents)}.")
        return self.agents[name]

    async def _append(self, run_id: str, *data: EventData, after: int | None = None) -> None:
        events = [Event(run_id, 0, now_ms(), 0, item) for item in data]
        begun = [item for item in data if isinstance(item, RunStarted)]
        blobs = contents(message for item in begun for message in (item.input, *item.history))
        await self.store.journal.append(run_id, events, after=after, epoch=None, blobs=blobs)
