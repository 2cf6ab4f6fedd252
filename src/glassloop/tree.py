"""The runs that one driver drives together: a root, and the runs that it and those below it begin.

A run below another has an id that follows from its parent's and from its place there, so it exists once: whoever asks
for it again, also after a crash, gets what it has come to. They spend from the limits of the root, are cancelled with
it, and when one waits for a human the whole tree rests.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from glassloop.core.errors import ConfigurationError, RunError, StoreError
from glassloop.core.events import DriverClaimed, RunContinued, RunStarted
from glassloop.core.ids import child_id
from glassloop.core.messages import UserMessage
from glassloop.core.result import PendingApproval, RunResult
from glassloop.core.usage import Spent
from glassloop.journal.allowance import Allowance, Rates, allowance_of, spent_by
from glassloop.journal.moves import Finish
from glassloop.journal.projection import RunFilter
from glassloop.journal.recorder import Recorder, Subscriber
from glassloop.journal.state import fold
from glassloop.options import RunOptions
from glassloop.results import result_of
from glassloop.run import close
from glassloop.stores import Store
from glassloop.stores.owner import this_process

if TYPE_CHECKING:
    from glassloop.runnable import Runnable

DEEPEST = 8
"""Runs below runs: an agent that begins itself would go on for ever."""


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
    """

    tree: Tree
    recorder: Recorder
    started: RunStarted
    options: RunOptions
    rates: Rates = None
    error: RunError | None = None

    @property
    def run_id(self) -> str:
        """The run."""
        return self.recorder.state.run_id

    def allowance(self) -> Allowance | None:
        """What the tree leaves for this run; None where it is all there is."""
        return self.tree.allowance()

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
        continued: the root had ended and goes on, and so do those below that did not complete.
    """

    store: Store
    options: RunOptions
    subscribers: Sequence[Subscriber] = ()
    letting_go: Callable[[], bool] = lambda: False
    continued: bool = False
    _driven: dict[str, Driving] = field(default_factory=dict[str, Driving])
    _rested: dict[str, Spent] = field(default_factory=dict[str, Spent])
    _pending: dict[str, tuple[PendingApproval, ...]] = field(default_factory=dict[str, tuple[PendingApproval, ...]])

    @property
    def has_children(self) -> bool:
        """Whether there are runs below the root."""
        return len(self._rested) + len(self._driven) > 1

    @property
    def pending(self) -> tuple[PendingApproval, ...]:
        """What the runs below the root wait for."""
        return tuple(one for each in self._pending.values() for one in each)

    async def recall(self, root: str) -> None:
        """Take account of the runs below a root that an earlier driver began."""
        for row in await self.store.journal.runs(RunFilter(below=root, limit=100_000)):
            self._rested[row.id] = Spent(row.tokens, row.cost_usd, row.steps)

    @contextmanager
    def driven(self, driving: Driving) -> Generator[None]:
        """Take account of a run while it is driven; the first is the root."""
        self._rested.pop(driving.run_id, None)
        self._driven[driving.run_id] = driving
        try:
            yield
        finally:
            del self._driven[driving.run_id]
            self._rested[driving.run_id] = spent_by(driving.recorder.state, driving.rates)

    def allowance(self) -> Allowance | None:
        """What is left of the root's limits; None where nothing stands below the root."""
        if not self.has_children:
            return None
        root = next(iter(self._driven.values()))
        spent = [spent_by(each.recorder.state, each.rates) for each in self._driven.values()]
        return allowance_of(root.recorder.state.limits, [*spent, *self._rested.values()])

    def result_of(self, runs: Runnable, root: Driving) -> RunResult:
        """What the root gives back: with what those below it wait for, and what all have spent."""
        result = result_of(root.recorder.state, root.recorder.values)
        if self.has_children:
            spent = result.spent
            for each in (value for run_id, value in self._rested.items() if run_id != root.run_id):
                spent += each
            pending = (*result.pending, *self.pending) if result.outcome == "waiting" else result.pending
            result = replace(result, spent=spent, pending=pending)
        return runs.completed(result)

    async def run(self, parent: Driving, key: str, runs: Runnable, input: str | UserMessage) -> RunResult:
        """See `Driving.run`."""
        run_id = child_id(parent.run_id, key)
        if run_id.count(".") > DEEPEST:
            raise ConfigurationError(f"Runs begin runs {DEEPEST} deep here: does an agent begin itself?")
        events = await self.store.journal.read(run_id)
        state = fold(events)
        over = state.finished is not None and (state.finished.outcome == "completed" or not self.continued)
        if over:
            return runs.completed(result_of(state))
        options = self._options_below(parent)
        begun = events[0].data if events else None
        started = (
            begun if isinstance(begun, RunStarted) else replace(runs.started(input, options), parent=parent.run_id)
        )
        state.run_id = run_id
        recorder = Recorder(self.store.journal, state, epoch=state.epoch + 1, subscribers=self.subscribers)
        if not events:
            recorder.record(started)
        recorder.record(DriverClaimed(recorder.epoch, str(this_process()), 0))
        if state.finished is not None:
            recorder.record(RunContinued())
        result = await self._drive(Driving(self, recorder, started, options), runs)
        self._pending[run_id] = result.pending if result.outcome == "waiting" else ()
        return result

    async def _drive(self, driving: Driving, runs: Runnable) -> RunResult:
        with self.driven(driving):
            try:
                await runs.drive(driving)
            except StoreError:
                raise
            except Exception:  # its outcome says so
                if driving.recorder.state.finished is None:
                    raise
        return runs.completed(result_of(driving.recorder.state, driving.recorder.values))

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


async def close_below(store: Store, root: str) -> None:
    """End the runs below a root that has ended: nobody will go on with them."""
    for row in await store.journal.runs(RunFilter(below=root, finished=False, limit=100_000)):
        state = fold(await store.journal.read(row.id))
        recorder = Recorder(store.journal, state, epoch=state.epoch + 1)
        recorder.record(DriverClaimed(recorder.epoch, str(this_process()), 0))
        await close(recorder, Finish("cancelled", message="The run that it was part of has ended."))
