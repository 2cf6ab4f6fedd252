"""The runs that one driver drives together: a root, and the runs that it and those below it begin.

A run below another has an id that follows from its parent's and from its place there, so it exists once: whoever asks
for it again, also after a crash, gets what it has come to. They spend from the limits of the root, are cancelled with
it, and when one waits for a human the whole tree rests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from glassloop.core.errors import ConfigurationError, RunError, StoreError, ToolError
from glassloop.core.events import DriverClaimed, JournalData, RunContinued, RunStarted
from glassloop.core.ids import child_id, root_of
from glassloop.core.messages import ToolCall, UserMessage
from glassloop.core.result import RunResult
from glassloop.core.usage import Spent
from glassloop.journal.allowance import Allowance, Rates, allowance_of, spent_by
from glassloop.journal.media import contents, recall
from glassloop.journal.moves import Finish
from glassloop.journal.projection import RunFilter
from glassloop.journal.recorder import Recorder, Subscriber
from glassloop.journal.state import State, fold
from glassloop.options import RunOptions
from glassloop.results import result_of, whole_result
from glassloop.run import close
from glassloop.stores import Store
from glassloop.stores.owner import this_process

if TYPE_CHECKING:
    from glassloop.runnable import Runnable

DEEPEST = 8
"""Runs below runs: an agent that begins itself would go on for ever."""

_ALL = 100_000


@dataclass
class Driving:
    """A run that is driven now.

    Args:
        tree: what it is part of.
        recorder: its journal.
        started: how it began.
        options: what it is driven with.
        rates: what its model costs, USD per token in and out.
        error: the exception behind an outcome `failed`.
        task: the task that drives it.
        cancels: cancellations of that task that are not this run's.
        stops: one of its calls has ended it, and the others are cancelled.
    """

    tree: Tree
    recorder: Recorder
    started: RunStarted
    options: RunOptions
    rates: Rates = None
    error: RunError | None = None
    task: asyncio.Task[Any] | None = None
    cancels: int = 0
    stops: bool = False

    @property
    def run_id(self) -> str:
        """The run."""
        return self.recorder.state.run_id

    def allowance(self) -> Allowance | None:
        """What the tree leaves for this run; None where it is all there is."""
        return self.tree.allowance()

    def letting_go(self) -> bool:
        """Whether a cancellation of this run only lets go of it.

        Of a run below another it does: that one is cancelled too, and ends this one if it ends; or the store has
        failed, or another driver has taken the tree over, and somebody goes on with both.
        """
        return self.run_id != root_of(self.run_id) or self.tree.letting_go()

    def ends(self) -> bool:
        """Whether what it is doing is being cancelled."""
        return self.stops or (self.task is not None and self.task.cancelling() > self.cancels)

    def drives_below(self) -> bool:
        """Whether a run that this one has begun is driven now."""
        return any(run_id.rpartition(".")[0] == self.run_id for run_id in self.tree.asked)

    async def close_below(self) -> None:
        """End the runs below this one that have not ended; called before this one ends."""
        await self.tree.close_below(self)

    async def call(self, key: str, runs: Runnable, call: ToolCall, decided: Sequence[JournalData] = ()) -> RunResult:
        """Make one call of a tool of `runs`, as a run of its own below this one: through all the layers, and once.

        Args:
            key: names it among the runs below this one.
            runs: whose tool it is.
            call: the call.
            decided: what a human was asked and has said about it already.
        """
        return await self.tree.run(self, key, runs, None, call=call, decided=decided)

    async def run(self, key: str, runs: Runnable, input: str | UserMessage) -> RunResult:
        """Begin a run below this one, or go on with it, or take what it came to.

        Args:
            key: names it among the runs below this one.
            runs: whose run it is.
            input: what it is told; only the first time counts.

        Raises:
            StoreError: the store failed, or another driver has taken the tree over.
        """
        return await self.tree.run(self, key, runs, input)


@dataclass
class Tree:
    """A root and the runs below it, while they are driven.

    Args:
        store: where they stand.
        options: of the root.
        subscribers: told of all their events.
        letting_go: whether a cancellation means that this process stops, and not that the runs do.
        asked: the runs below that a call, or the code of a flow, is waiting for.
    """

    store: Store
    options: RunOptions
    subscribers: Sequence[Subscriber] = ()
    letting_go: Callable[[], bool] = lambda: False
    asked: set[str] = field(default_factory=set[str])
    _driven: dict[str, Driving] = field(default_factory=dict[str, Driving])
    _rested: dict[str, Spent] = field(default_factory=dict[str, Spent])
    _open: set[str] = field(default_factory=set[str])

    @property
    def has_children(self) -> bool:
        """Whether there are runs below the root."""
        return len(self._rested) + len(self._driven) > 1

    @property
    def root(self) -> Driving:
        """The run that the others are below."""
        return next(iter(self._driven.values()))

    async def recall(self, root: str) -> None:
        """Take account of the runs below a root that an earlier driver began."""
        for row in await self.store.journal.runs(RunFilter(below=root, limit=_ALL)):
            self._rested[row.id] = Spent(row.tokens, row.cost_usd, row.steps)
            if not row.finished:
                self._open.add(row.id)

    @contextmanager
    def driven(self, driving: Driving) -> Generator[None]:
        """Take account of a run while it is driven; the first is the root."""
        self._rested.pop(driving.run_id, None)
        self._driven[driving.run_id] = driving
        driving.task = task = asyncio.current_task()
        driving.cancels = task.cancelling() if task else 0
        try:
            yield
        finally:
            del self._driven[driving.run_id]
            self._rested[driving.run_id] = spent_by(driving.recorder.state, driving.rates)
            if driving.recorder.state.finished is not None:
                self._open.discard(driving.run_id)

    def allowance(self) -> Allowance | None:
        """What is left of the root's limits; None where nothing stands below the root."""
        if not self.has_children:
            return None
        spent = [spent_by(each.recorder.state, each.rates) for each in self._driven.values()]
        return allowance_of(self.root.recorder.state.limits, [*spent, *self._rested.values()])

    async def result_of(self, runs: Runnable, root: Driving) -> RunResult:
        """What the root gives back: with what those below it wait for, and what all have spent."""
        result = await whole_result(self.store.journal, root.recorder.state, root.recorder.values)
        return runs.completed(await with_below(self.store, result) if self.has_children else result)

    async def close_below(self, driving: Driving) -> None:
        """See `Driving.close_below`."""
        left = sorted((run_id for run_id in self._open if run_id.startswith(f"{driving.run_id}.")), reverse=True)
        if not left:
            return
        root = self.root.recorder
        root.epoch += 1  # claimed again, so that one whose runs are another's by now ends none of them
        root.record(DriverClaimed(root.epoch, str(this_process()), 0))
        await root.commit()
        for run_id in left:
            await _close(self.store, run_id, root.epoch)
            self._open.discard(run_id)

    async def run(
        self,
        parent: Driving,
        key: str,
        runs: Runnable,
        input: str | UserMessage | None,
        *,
        call: ToolCall | None = None,
        decided: Sequence[JournalData] = (),
    ) -> RunResult:
        """See `Driving.run` and `Driving.call`."""
        run_id = child_id(parent.run_id, key)
        if run_id.count(".") > DEEPEST:
            raise ToolError(f"{runs.name} was not begun: runs begin runs {DEEPEST} deep at most. Do it without.")
        if run_id in self.asked:
            raise ConfigurationError(f"{runs.name} does this already, side by side: give each of the two a key.")
        self.asked.add(run_id)
        try:
            driving = await self._begun(parent, run_id, runs, input, call, decided)
            if driving.recorder.state.finished is None:
                await self._drive(driving, runs)
        finally:
            self.asked.discard(run_id)
        state, values = driving.recorder.state, driving.recorder.values
        return runs.completed(await whole_result(self.store.journal, state, values))

    async def _begun(
        self,
        parent: Driving,
        run_id: str,
        runs: Runnable,
        input: str | UserMessage | None,
        call: ToolCall | None,
        decided: Sequence[JournalData],
    ) -> Driving:
        """A run below, about to be driven, unless it has ended."""
        await parent.recorder.commit()  # what it begins would be nobody's if a crash took the parent's last events
        events = await self.store.journal.read(run_id)
        state = fold(events)
        await recall(self.store.journal, [*state.conversation, *state.results.values()])
        if events and state.agent != runs.name:
            raise ConfigurationError(f"{state.agent} has been given this already: give {runs.name} a key of its own.")
        options = self._options_below(parent)
        begun = events[0].data if events else None
        if isinstance(begun, RunStarted):
            started = begun
        else:
            kind = "run" if call is None else "call"
            started = replace(runs.started(input, options), parent=parent.run_id, kind=kind, call=call)
        state.run_id = run_id
        epoch = max(state.epoch + 1, self.root.recorder.epoch)
        recorder = Recorder(self.store.journal, state, epoch=epoch, subscribers=self.subscribers)
        driving = Driving(self, recorder, started, options)
        if state.finished is not None and not self._goes_on(state):
            return driving
        if not events:
            recorder.keep_all(contents((started.input, *started.history)))
            for data in (started, *decided):
                recorder.record(data)
        recorder.record(DriverClaimed(recorder.epoch, str(this_process()), 0))
        if state.finished is not None:
            recorder.record(RunContinued())
        self._open.add(run_id)
        return driving

    def _goes_on(self, state: State) -> bool:
        """Whether a run below that has ended goes on, since the root had ended as well and goes on."""
        assert state.finished is not None
        return state.finished.outcome != "completed" and state.epoch < self.root.recorder.state.fresh_epoch

    async def _drive(self, driving: Driving, runs: Runnable) -> None:
        with self.driven(driving):
            try:
                await runs.drive(driving)
            except StoreError:
                raise
            except Exception:  # its outcome says so
                if driving.recorder.state.finished is None:
                    raise

    def _options_below(self, parent: Driving) -> RunOptions:
        """What a run below gets of its parent's."""
        given = self.options
        return RunOptions(
            store=self.store,
            identity=parent.started.identity,
            approvals=parent.started.approvals,
            deps=given.get("deps"),
            approve=given.get("approve"),
            model=given.get("model"),
        )


async def with_below(store: Store, result: RunResult) -> RunResult:
    """The result of a run, with what the runs below it have spent and wait for."""
    rows = await store.journal.runs(RunFilter(below=result.run_id, limit=_ALL))
    spent, pending = result.spent, list(result.pending)
    for row in reversed(rows):
        spent += Spent(row.tokens, row.cost_usd, row.steps)
        if row.pending:
            pending += result_of(fold(await store.journal.read(row.id))).pending
    return replace(result, spent=spent, pending=tuple(pending))


async def close_below(store: Store, root: str, epoch: int) -> None:
    """End the runs below a root that is about to be ended by the driver of `epoch`."""
    for row in await store.journal.runs(RunFilter(below=root, finished=False, limit=_ALL)):
        await _close(store, row.id, epoch)


async def _close(store: Store, run_id: str, epoch: int) -> None:
    state = fold(await store.journal.read(run_id))
    if state.finished is not None or not state.seq:
        return
    recorder = Recorder(store.journal, state, epoch=max(epoch, state.epoch + 1))
    recorder.record(DriverClaimed(recorder.epoch, str(this_process()), 0))
    await close(recorder, Finish("cancelled", message="The run that it was part of has ended."))
