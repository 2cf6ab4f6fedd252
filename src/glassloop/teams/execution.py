"""A plan that is carried out: its steps as calls through the agent's own layers, side by side where they can be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from glassloop.agent import Agent
from glassloop.core.encoding import dumps, loads
from glassloop.core.errors import ToolError
from glassloop.core.events import ApprovalAsked, ApprovalDecided, JournalData, ToolFinished
from glassloop.core.ids import new_id
from glassloop.core.messages import ToolCall
from glassloop.core.result import RunResult
from glassloop.middleware.call import fingerprint_of
from glassloop.teams.flow import Place, Waits, side_by_side
from glassloop.teams.plan import Plan, PlanStep, refers, resolved
from glassloop.tools.toolset import ToolIndex


@dataclass
class Progress:
    """What the steps of all plans for a task have come to.

    Args:
        task: the task.
        steps: those that were to be carried out, by number.
        done: what they have come to, as later steps may use it.
        contents: the same as a model reads it.
        failed: why the others failed.
    """

    task: str
    steps: dict[int, PlanStep] = field(default_factory=dict[int, PlanStep])
    done: dict[int, Any] = field(default_factory=dict[int, Any])
    contents: dict[int, str] = field(default_factory=dict[int, str])
    failed: dict[int, str] = field(default_factory=dict[int, str])

    def name(self, number: int) -> str:
        """A step in words."""
        return f"step {number} ({self.steps[number].action})"

    def told(self, *, report: bool = False) -> str:
        """The task and what has been done about it, for a model: that plans what is left, or that reports."""
        lines = [f"Task: {self.task}", *(self._told(step) for step in self.steps.values())]
        if report and not self.steps:
            lines.append("No step was needed, or possible.")
        elif self.steps and not report:
            lines.append(
                f"Plan what is left, with step numbers from {max(self.steps) + 1}; do not repeat what is done. Where "
                "nothing can be done any more, give no step."
            )
        return "\n".join(lines)

    def _told(self, step: PlanStep) -> str:
        head = f"Step {step.step}, {step.action}({dumps(step.arguments).decode()}),"
        if step.step in self.contents:
            return f"{head} is done and came to: {_line(self.contents[step.step])}"
        if step.step in self.failed:
            return f"{head} failed: {_line(self.failed[step.step])}"
        return f"{head} was not begun, since it needs one that failed."


def _line(text: str) -> str:
    """The text on one line: what a tool says must not pass for the next step."""
    return text if len(text.splitlines()) < 2 else dumps(text).decode()


@dataclass(frozen=True)
class Approved:
    """A plan was approved.

    Args:
        by: who did.
        role: what they had to be, beside the run's owner.
    """

    by: str | None
    role: str | None


@dataclass
class Execution:
    """A plan that is carried out.

    Args:
        agent: whose tools and layers they are.
        index: the tools.
        place: in the flow.
        plan: the plan.
        approved: by a human; None where nobody was asked.
        progress: what steps come to, also those of earlier plans.
    """

    agent: Agent
    index: ToolIndex
    place: Place
    plan: Plan
    approved: Approved | None
    progress: Progress
    _waiting: set[int] = field(default_factory=set[int])

    async def carry_out(self) -> dict[int, str]:
        """Do what can be done, side by side; what failed, by step.

        Raises:
            Waits: a step waits for a human, and there is nothing else to do.
        """
        for step in self.plan.steps:
            self.progress.steps[step.step] = step
            self.progress.failed.pop(step.step, None)  # of an earlier plan, whose number an edit gave to another
        while ready := [step for step in self.plan.steps if self._is_ready(step)]:
            batch = [step for step in ready if not self._is_sequential(step)] or ready[:1]
            await side_by_side([self._carry_out(step) for step in batch])
        if self._waiting:
            raise Waits
        return {step.step: why for step in self.plan.steps if (why := self.progress.failed.get(step.step))}

    def _is_ready(self, step: PlanStep) -> bool:
        over = self._waiting.union(self.progress.done, self.progress.failed)
        return step.step not in over and all(number in self.progress.done for number in step.depends_on)

    def _is_sequential(self, step: PlanStep) -> bool:
        found = self.index.find(step.action)
        return found is not None and found.sequential

    async def _carry_out(self, step: PlanStep) -> None:
        try:
            arguments = resolved(step.arguments, self.progress.done)
        except LookupError as error:
            self.progress.failed[step.step] = str(error)
            return
        call = ToolCall(new_id("call"), step.action, dumps(arguments).decode())
        key = f"{self.place.path}/step-{step.step}"
        result = await self.place.driving.call(key, self.agent, call, self._approval_of(step, call))
        if result.outcome == "waiting":
            self._waiting.add(step.step)
        elif result.outcome == "completed":
            self.progress.done[step.step] = await self._value(result)
            self.progress.contents[step.step] = result.tool_executions[0].content
        else:
            self.progress.failed[step.step] = result.message or result.outcome

    async def _value(self, result: RunResult) -> Any:
        """The whole of what a call came to, also where the journal keeps it apart, for its size."""
        done = result.tool_executions[0]
        if done.value is not None:
            return done.value
        journal = self.place.driving.tree.store.journal
        ended = [event.data for event in await journal.read(result.run_id) if isinstance(event.data, ToolFinished)]
        key = ended[-1].value
        return None if key is None else loads(await journal.blob(key))

    def _approval_of(self, step: PlanStep, call: ToolCall) -> Sequence[JournalData]:
        """What the approval of the plan says about a call: yes, where it showed the very arguments that will run, and
        was given by somebody with the role that the call asks for."""
        found, need = self.index.find(step.action), need_of(self.agent, self.index, step)
        if self.approved is None or found is None or not need or need not in (True, self.approved.role):
            return ()
        arguments = found.validate(call.arguments).arguments
        asked = ApprovalAsked(
            approval_id=new_id("appr"),
            call_id=call.id,
            tool=found.name,
            arguments=dumps(arguments).decode(),
            fingerprint=fingerprint_of(found, arguments),
            summary=f"step {step.step} of the plan: {step.description}",
            risk=found.risk,
            role=need if isinstance(need, str) else None,
        )
        return asked, ApprovalDecided(asked.approval_id, "approve", self.approved.by, "approved with the plan")


def need_of(agent: Agent, index: ToolIndex, step: PlanStep) -> bool | str:
    """Whether a human must decide on a step's call, and in what role; False where its arguments are not known yet."""
    found = index.find(step.action)
    if found is None or refers(step.arguments):
        return False
    try:
        return agent.approval.need(found, found.validate(step.arguments).arguments)
    except ToolError:
        return False
