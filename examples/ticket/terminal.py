"""The ticket desk at a terminal: it handles a complaint, asks before it writes, and shows the row that it wrote.

With --plan it makes a plan first, which you review before it is carried out. The run is parked while it asks: kill the
program at the prompt and start it again, and it asks again.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import AsyncGenerator, Iterable, Sequence
from typing import Any, cast

from glassloop import Identity, RunResult
from glassloop.cli.background import Background
from glassloop.cli.keyboard import Approvals, Lines, login
from glassloop.cli.output import View, use_colour, write
from glassloop.cli.plans import plan_of
from glassloop.cli.problems import CANCELLED, EXIT_CODES, WAITING, report, say
from glassloop.cli.recorded import with_below
from glassloop.cli.running import Options, chosen_model, conclude, watched
from glassloop.cli.signals import ended_by_signals
from glassloop.cli.target import Target
from glassloop.core.events import Event
from glassloop.core.result import PendingApproval
from glassloop.journal.projection import RunFilter, RunRow
from glassloop.runtime import ApprovalProblem, Runtime
from glassloop.stores.owner import Process, alive, this_process

from .._shop.tables import connected

BEGINNING = 200
"""Characters of a complaint that a row of the list of runs holds at least."""

COMPLAINT = "Customer complains that order 2024001 was never shipped"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the desk once and return the exit code of `glassloop run`.

    Args:
        arguments: `[--plan] [--trace] [--role ROLE] [COMPLAINT]`; default those of this process.
    """
    parser = argparse.ArgumentParser(prog="python -m examples.ticket", description=__doc__, allow_abbrev=False)
    parser.add_argument("complaint", nargs="*", metavar="COMPLAINT", help=f"default: {COMPLAINT}")
    parser.add_argument("--plan", action="store_true", help="plan first: you review the plan, then it is carried out")
    parser.add_argument("--trace", action="store_true", help="a line for each thought, action and observation")
    parser.add_argument("--role", action="append", default=[], help="a role of yours, e.g. supervisor")
    given = parser.parse_args(arguments)
    try:
        view = View(trace=given.trace, colour=use_colour(no_color=False))
        who = Identity(login(), roles=tuple(given.role))
        return _run(" ".join(given.complaint).strip() or None, view, who, plan=given.plan)
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - the edge of the program: one sentence for everything
        return report(error)


def _run(complaint: str | None, view: View, who: Identity, *, plan: bool) -> int:
    import examples.ticket as module

    name, runs = ("plan_first", module.plan_first) if plan else ("agent", module.agent)
    target = Target(f"examples/ticket:{name}", runs, cast("Any", module))
    with ended_by_signals(), Background() as background, chosen_model(target, None) as model:
        module.agent.model = model if model is not None else module.agent.model
        runtime = Runtime(target.agent)
        desk = Desk(background, runtime, target, view, who)
        stream = desk.stream(complaint)  # before the runtime goes on with it, so that nothing of it is missed
        background.call(runtime.__aenter__())
        try:
            return desk.handle(stream)
        finally:
            background.call(runtime.__aexit__(None, None, None))


class Desk:
    """One complaint at the terminal.

    Args:
        background: the loop that the runtime lives on.
        runtime: of the ticket agent.
        target: the ticket agent.
        view: shows the run.
        who: sits at the terminal.
    """

    def __init__(self, background: Background, runtime: Runtime, target: Target, view: View, who: Identity) -> None:
        self.background = background
        self.runtime = runtime
        self.target = target
        self.view = view
        self.who = who
        self.asks = sys.stdin.isatty() and sys.stderr.isatty()

    def handle(self, stream: Followed) -> int:
        """Handle a complaint to its end, or until nobody decides; the exit code."""
        result = watched(self.background, lambda _: cast("Any", stream), self.view, None)
        while result.outcome == "waiting" and self.asks:
            if (code := self._decide(result.pending)) is not None:
                return code
            result = watched(self.background, lambda _: cast("Any", stream), self.view, None)
        if result.outcome == "waiting":
            code = conclude(result, self.target, self.view, Options(self.runtime.store.url))
            say("Or start this again at a terminal: it goes on with this run.")
            return code
        self.view.end(result)
        show_rows(self.background.call(self.runtime.tree(result.run_id)))
        return EXIT_CODES[result.outcome]

    def stream(self, complaint: str | None) -> Followed:
        """The run to be watched: without a complaint, or with the same again, one of ours that has not finished goes
        on; else a new one begins."""
        row = self.background.call(self._unfinished(complaint))
        if row is None:
            return Followed(self.runtime, None, complaint or COMPLAINT, self.who)
        say(f"Going on with run {row.id}: {row.input}")
        events = self.background.call(self.runtime.store.journal.read(row.id))
        self.view.recall(with_below(self.runtime.store, self.background, events))
        return Followed(self.runtime, row.id, row.input, self.who, events[-1].seq)

    async def _unfinished(self, complaint: str | None) -> RunRow | None:
        """The oldest run of ours that is not finished, about this complaint if one is given."""
        wanted = RunFilter(agent=self.target.agent.name, user=self.who.user, finished=False)
        rows = [row for row in await self.runtime.runs(wanted) if row.tenant is None and not driven_elsewhere(row)]
        about = [row for row in rows if complaint is None or is_about(row, complaint)]
        return about[-1] if about else None

    def _decide(self, pendings: Sequence[PendingApproval]) -> int | None:
        """Ask about each held call; the exit code to leave with, None to go on."""
        ask = Approvals(Prompt(), self.who.user)
        try:
            for pending in pendings:
                if rows := rows_now(pending):
                    say(rows)
                if not self._decide_one(ask, pending):
                    return WAITING
        except Left:
            say("\nThe run waits; start this again to decide.")
            return WAITING
        except KeyboardInterrupt:
            say("\nThe run waits; start this again to decide.")
            return CANCELLED
        return None

    def _decide_one(self, ask: Approvals, pending: PendingApproval) -> bool:
        while True:
            try:
                self.background.call(self.runtime.decide(pending.approval_id, ask(pending), by=self.who))
            except ApprovalProblem as problem:
                say(str(problem))
                if problem.kind == "invalid":
                    continue
                if pending.role:
                    say(f"The run waits; start this again with --role {pending.role}, as somebody who has it would.")
                return problem.kind not in ("forbidden", "not_found")
            return True


def is_about(row: RunRow, complaint: str) -> bool:
    """Whether a run is about this complaint; of a long one its row has only the beginning."""
    return row.input == complaint or (len(row.input) >= BEGINNING and complaint.startswith(row.input))


def driven_elsewhere(row: RunRow) -> bool:
    """Whether another program works on the run right now."""
    if row.owner is None or row.owner == str(this_process()):
        return False
    return alive(Process.parse(row.owner)) is not False


class Left(KeyboardInterrupt):
    """The terminal is gone, or Ctrl-D: nobody decides now."""


class Prompt(Lines):
    """Lines from the terminal, where its end is no answer."""

    def read(self, prompt: str, *, remember: bool = False, draft: str = "") -> str:
        """See `Lines.read`.

        Raises:
            Left: there are no more lines.
        """
        try:
            return super().read(prompt, remember=remember, draft=draft)
        except EOFError:
            raise Left from None


class Followed:
    """A run of the runtime, watched from rest to rest; it has what `glassloop.stream.RunStream` has.

    Args:
        runtime: drives it.
        run_id: the run; None to start one.
        complaint: what to start it with.
        who: on whose behalf.
        after: the last event that was seen.
    """

    def __init__(self, runtime: Runtime, run_id: str | None, complaint: str, who: Identity, after: int = 0) -> None:
        self.runtime = runtime
        self.run_id = run_id
        self.complaint = complaint
        self.who = who
        self.after = after
        self.result: RunResult | None = None
        self._events = self._watch()

    async def __aenter__(self) -> Followed:
        if self.run_id is None:
            self.run_id = await self.runtime.start(self.target, self.complaint, identity=self.who, approvals="park")
            self._events = self._watch()
        return self

    def _watch(self) -> AsyncGenerator[Event] | None:
        """The events of the run and of those below it, from now on, whenever they are looked at."""
        return None if self.run_id is None else self.runtime.watch(self.run_id, self.after, whole=True)

    async def __aexit__(self, *exc_info: object) -> None:
        pass

    @property
    def target(self) -> str:
        """The agent's name."""
        return next(iter(self.runtime.agents))

    async def __aiter__(self) -> AsyncGenerator[Event]:
        assert self.run_id is not None
        assert self._events is not None
        async for event in self._events:
            if event.run_id == self.run_id:
                self.after = max(self.after, event.seq)
            yield event
        self.result = await self.runtime.wait(self.run_id)
        self._events = self._watch()  # what the next decision brings may begin before it is looked at

    async def cancel(self) -> None:
        """Stop it."""
        if self.run_id is not None:
            await self.runtime.cancel(self.run_id, by=self.who)


WRITES = {"create_ticket": ("tickets", "ticket"), "submit_refund": ("refunds", "refund")}
"""Which table each tool writes to, and under which name its result has the row's number."""


def rows_now(pending: PendingApproval) -> str:
    """How many rows the tables have that a held call would write to, or the calls of a plan."""
    plan = plan_of(pending)
    tools = [pending.tool] if plan is None else [step.action for step in plan.steps]
    with connected() as connection:
        counts = {
            table: connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
            for table, _ in (WRITES[tool] for tool in tools if tool in WRITES)
        }
    return " ".join(f"Table {table}: {count} {'row' if count == 1 else 'rows'}." for table, count in counts.items())


def show_rows(results: Iterable[RunResult]) -> None:
    """Print the rows that a run, and those below it, have written."""
    for done in (done for result in results for done in result.tool_executions):
        if done.tool in WRITES and done.status == "ok":
            table, name = WRITES[done.tool]
            with connected() as connection:
                row = connection.execute(f"SELECT * FROM {table} WHERE number = ?", (done.value[name],)).fetchone()
            write(f"Table {table}:\n")
            for column in row.keys():  # noqa: SIM118 - a Row iterates over its values
                write(f"  {column:<13} {row[column]}\n")
