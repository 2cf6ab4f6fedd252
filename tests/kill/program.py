"""The program that is killed: a runtime with a few agents, users who start runs, and an operator who decides.

The desk gives work to the clerk, who gives some of it to the helper, and can hand a conversation to the closer; the
office is a flow of clerks and helpers. All of them have all the tools.

Started as `python program.py FOLDER`, with its wishes in the environment (`Wishes`). It does whatever is left to do and
ends by itself when all runs have finished; on SIGTERM it leaves its runs as they are.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from dataclasses import dataclass, field
from pathlib import Path

from desk import Shop, tools_of
from places import place_of
from plan import PARTS, PlannedRun, approves, plan_of, share
from points import Points, turn_clock
from world import World

from glassloop import Agent, Identity, Limits, Tool
from glassloop.core.encoding import loads
from glassloop.core.errors import StoreError
from glassloop.core.messages import Reply, ToolCall, UserMessage
from glassloop.core.result import Decision
from glassloop.journal.projection import RunFilter, RunRow
from glassloop.models.model import ModelRequest
from glassloop.models.sendable import sendable
from glassloop.runnable import Runnable
from glassloop.runtime import ApprovalProblem, ApprovalRow, Runtime
from glassloop.teams import Step, agent_tool, handoff, parallel, sequence
from glassloop.testing import ScriptedModel, call

ARGUMENTS = {"clerk": "task", "helper": "task", "hand_to_closer": "reason"}
"""What a tool's one argument is called, where it is not `id`."""


@dataclass(frozen=True)
class Wishes:
    """What the environment asks for.

    Args:
        seed: of the plan.
        runs: how many.
        life: the number of this process.
        slow: seconds that a tool takes at most; a model takes half of that.
        kill_at: where to die, see `points`.
        starts: whether runs are started, or only continued.
        decides: whether there is an operator.
        max_pages: how big the store's file may grow.
        clock: see `turn_clock`.
        lasts: seconds after which to leave although runs are unfinished.
    """

    seed: int = field(default_factory=lambda: int(os.environ.get("SEED", "1")))
    runs: int = field(default_factory=lambda: int(os.environ.get("RUNS", "12")))
    life: int = field(default_factory=lambda: int(os.environ.get("LIFE", "1")))
    slow: float = field(default_factory=lambda: float(os.environ.get("SLOW", "0.12")))
    kill_at: str = field(default_factory=lambda: os.environ.get("KILL_AT", ""))
    starts: bool = field(default_factory=lambda: os.environ.get("STARTS", "1") == "1")
    decides: bool = field(default_factory=lambda: os.environ.get("DECIDES", "1") == "1")
    max_pages: int | None = field(default_factory=lambda: int(os.environ.get("MAX_PAGES", "0")) or None)
    clock: str = field(default_factory=lambda: os.environ.get("CLOCK", ""))
    lasts: float = field(default_factory=lambda: float(os.environ.get("LASTS", "600")))


class Program:
    """One life of the program.

    Args:
        wishes: what is asked for.
        world: where effects go.
    """

    def __init__(self, wishes: Wishes, world: World) -> None:
        self.wishes, self.world = wishes, world
        self.plan = plan_of(wishes.seed, wishes.runs)
        self.points = Points(wishes.kill_at)
        shop = Shop(world, self.points, wishes.slow)
        self.agents = self._agents(tools_of(shop))
        self.leaving = asyncio.Event()

    def _agents(self, tools: list[Tool]) -> list[Runnable]:
        """The desk and the office, with those below them."""

        def agent(name: str, *more: Tool) -> Agent:
            limits = Limits(steps=200, repetition=None, total_tokens=10_000_000)
            return Agent(ScriptedModel(self.say), [*tools, *more], name=name, limits=limits)

        helper = agent("helper")
        clerk = agent("clerk", agent_tool(helper))
        desk = agent("desk", agent_tool(clerk), handoff(agent("closer")))
        parts = [Step((clerk, helper)[number % 2], f"{{input}}/{number}", f"part{number}") for number in range(PARTS)]
        office = sequence(parts[0], parallel(*parts[1:-1]), parts[-1], name="office")
        return [desk, office]

    async def live(self) -> None:
        """Do what is left to do."""
        self.world.place.watch(self.points, self.wishes.max_pages)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self.leaving.set)
        async with Runtime(self.agents, store=self.world.url) as runtime:
            print("ready", flush=True)
            work = asyncio.create_task(self._work(runtime))
            leave = asyncio.create_task(self.leaving.wait())
            await asyncio.wait([work, leave], timeout=self.wishes.lasts, return_when=asyncio.FIRST_COMPLETED)
            said = "left"
            if work.done():
                work.result()
                said = "finished"
            for task in (work, leave):
                task.cancel()
            await asyncio.wait([work, leave])
        print(said, flush=True)

    async def say(self, request: ModelRequest) -> str | list[ToolCall]:
        """The model: what comes next is read off the conversation alone."""
        self.points.reach("ask")
        if sendable(request.messages) is not request.messages:
            self.world.write("unsendable", more=str(request.messages)[:2000])
        asked = max(n for n, m in enumerate(request.messages) if isinstance(m, UserMessage) and m.origin == "user")
        run = self.plan[_name(request.messages[asked])]
        step = sum(isinstance(message, Reply) for message in request.messages[asked:])
        await asyncio.sleep(share(f"{run.name} {step}") * self.wishes.slow / 2)
        if step >= len(run.steps):
            return f"All done for {run.name}."
        return [call(planned.tool, **{ARGUMENTS.get(planned.tool, "id"): planned.id}) for planned in run.steps[step]]

    async def _work(self, runtime: Runtime) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._start_all(runtime))
            group.create_task(self._operate(runtime))

    async def _start_all(self, runtime: Runtime) -> None:
        if self.wishes.starts:
            known = {row.input for row in await self._rows(runtime)}
            for run in (run for run in self.plan.values() if run.is_root):
                while run.name not in known:
                    try:
                        await self._start(runtime, run)
                    except StoreError as error:
                        await self._suffer(error)
                    else:
                        known.add(run.name)

    async def _start(self, runtime: Runtime, run: PlannedRun) -> None:
        who = Identity(run.user, session=run.session)
        run_id = await runtime.start(run.agent, run.name, identity=who, approvals=run.approvals)
        self.world.write("started", id=run.name, run=run_id)
        self.points.reach("start")
        await asyncio.sleep(share(f"start {run.name}") * self.wishes.slow / 2)

    async def _operate(self, runtime: Runtime) -> None:
        """Decide on what is held until everything has finished, seen twice: what follows a decision needs a moment."""
        seen = 0
        while seen < 2:
            held = await runtime.approvals()
            try:
                for row in held if self.wishes.decides else ():
                    await self._decide(runtime, row)
            except StoreError as error:
                await self._suffer(error)
            rows = await self._rows(runtime)
            wanted = {run.name for run in self.plan.values() if run.is_root and self.wishes.starts}
            missing = wanted - {row.input for row in rows}
            rests = not held and not missing and all(row.finished for row in rows)
            seen = seen + 1 if rests else 0
            await asyncio.sleep(0.1 if rests else 0.02)

    async def _decide(self, runtime: Runtime, row: ApprovalRow) -> None:
        id = loads(row.arguments)["id"]
        verdict = "deny" if not approves(id, row.kind) else "answer" if row.kind == "question" else "approve"
        decision = Decision(verdict, "The operator says so.", answer="red" if verdict == "answer" else None)
        owner = Identity(row.user, row.tenant)
        self.world.write("decide", row.tool, id, approval=row.approval_id, kind=row.kind, verdict=verdict)
        self.points.reach("decide")
        try:
            await runtime.decide(row.approval_id, decision, by=owner)
        except ApprovalProblem as problem:
            if problem.kind != "decided":  # by another process, or by an earlier life
                raise
        self.points.reach("decided")

    async def _suffer(self, error: StoreError) -> None:
        self.world.write("store_error", message=str(error))
        await asyncio.sleep(0.1)

    async def _rows(self, runtime: Runtime) -> list[RunRow]:
        return await runtime.runs(RunFilter(limit=10_000))


def _name(message: object) -> str:
    assert isinstance(message, UserMessage)
    return message.text


def main() -> None:
    """Live."""
    wishes = Wishes()
    if wishes.clock:
        turn_clock(wishes.clock)
    world = World(Path(sys.argv[1]), wishes.life, place_of(os.environ["STORE"]))
    asyncio.run(Program(wishes, world).live())


if __name__ == "__main__":
    main()
