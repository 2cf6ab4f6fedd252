"""Plan first: a plan as typed output, reviewed by a human, then carried out through the same layers as any call.

Everything is a run below the flow's: the planner's, the review (one call that a human decides on), each step (one call)
and the answer. A plan that is parked for days, or cut off in the middle, goes on where it was.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from glassloop.agent import Agent
from glassloop.core.context import RunContext
from glassloop.core.encoding import dumps
from glassloop.core.errors import ToolError
from glassloop.core.events import ApprovalAsked, ApprovalDecided, JournalData
from glassloop.core.ids import new_id
from glassloop.core.limits import Limits
from glassloop.core.messages import ToolCall
from glassloop.core.result import RunResult
from glassloop.middleware.approval import Approval
from glassloop.middleware.call import fingerprint_of
from glassloop.middleware.stack import tool_layers
from glassloop.teams.flow import FLOW_LIMITS, Flow, Place, Stopped, Waits
from glassloop.teams.plan import FEWEST, MOST, Plan, PlanStep, is_risky, plan_type, refers, resolved
from glassloop.tools.tool import Tool, tool
from glassloop.tools.toolset import ToolIndex

Review = Literal["always", "risky", "never"]

_PLANNER = """
Make a plan for the task: {fewest} to {most} steps, each one call of one of the tools below, with its arguments. Do \
not plan what no tool can do, and plan nothing that is not needed. A step that needs what another one comes to names \
that step in `depends_on`; an argument that is not known before is written as "$N.field", the field of what step N \
came to, or "$N" for all of it. State each step's risk: low where it only reads, high where it spends money or cannot \
be undone.

Tools:
{tools}"""

_ANSWER = """
The steps of a plan for the task have been carried out; the user has not seen them. Tell the user what was found and \
done, from what the steps came to and from nothing else; say plainly what failed."""


def planned(
    agent: Agent,
    *,
    name: str | None = None,
    review: Review = "always",
    replans: int = 2,
    limits: Limits = FLOW_LIMITS,
) -> Flow:
    """An agent that plans first: its model makes a plan from the tools that it has, a human reviews it, its steps are
    carried out, those that do not depend on each other side by side, and the model answers from what came of them.

    A plan with a tool that does not exist, or with arguments that do not fit, goes back to the model before anything
    runs. Approving the plan approves the calls of high risk in it, with exactly the arguments that it shows; a call
    whose arguments come from an earlier step asks for itself. A step that fails leads to a new plan for the rest; what
    is done stays done.

    Args:
        agent: whose model, instructions, tools and layers they are.
        name: of the flow; default the agent's, with `-plan`.
        review: whether a human sees a plan before it runs: `always`, only where a step is of high risk, or `never`.
        replans: how many new plans there may be after failures.
        limits: of planning, steps and answer together.
    """
    work = _Planned(agent, review, replans)
    return Flow(work.node, name=name or f"{agent.name}-plan", limits=limits, parts=("answer",), below=(agent,))


@dataclass
class _Planned:
    """The code of the flow.

    Args:
        agent: see `planned`.
        review: see `planned`.
        replans: see `planned`.
    """

    agent: Agent
    review: Review
    replans: int

    async def node(self, place: Place, task: Any) -> str:
        """Plan, have it reviewed, carry it out, and again while steps fail; then answer."""
        index = await self.agent.tools.resolve(_context_of(place))
        done: dict[int, Any] = {}
        failed: dict[int, str] = {}
        plan: Plan | None = None
        for attempt in range(self.replans + 1):
            here = place.at(f"plan-{attempt}")
            plan = await self._make(here, str(task), index, done, failed)
            role = self._role(plan, index)
            plan, approved = await self._reviewed(here, plan, index, done, role)
            failed = await _Execution(self.agent, index, here, plan, approved, role, done).carry_out()
            if not failed:
                return await self._answer(place, str(task), done)
        text = "; ".join(f"step {step}: {why}" for step, why in failed.items())
        message = f"The plan failed after {self.replans} new plans: {text}"
        raise Stopped(self.agent.name, RunResult(place.driving.run_id, "failed", None, message=message))

    async def _make(
        self, place: Place, task: str, index: ToolIndex, done: Mapping[int, Any], failed: Mapping[int, str]
    ) -> Plan:
        instructions = await self.agent.instructions_for(_context_of(place))
        asked = _PLANNER.format(fewest=FEWEST, most=MOST, tools=_listed(index))
        planner = Agent(
            self.agent.model,
            instructions=f"{instructions}\n{asked}",
            name=f"{self.agent.name}-planner",
            settings=self.agent.settings,
            middleware=[layer for layer in self.agent.middleware if getattr(layer, "around_model", False)],
            output=plan_type(index, done, again=bool(failed)),
        )
        return await place.at("make").run(planner, _so_far(task, done, failed), planner.name)

    async def _reviewed(
        self, place: Place, plan: Plan, index: ToolIndex, done: Mapping[int, Any], role: str | None
    ) -> tuple[Plan, ApprovalDecided | None]:
        """The plan that a human has approved, perhaps edited, and the decision; None where nobody had to."""
        risky = any(is_risky(step, index) for step in plan.steps)
        if self.review == "never" or (self.review == "risky" and not risky):
            return plan, None
        shape = plan_type(index, done, again=bool(done))
        reviewer = Agent(self.agent.model, [_review_tool(shape, role)], name=f"{self.agent.name}-review")
        call = ToolCall(new_id("call"), "review_plan", dumps({"plan": plan.model_dump()}).decode())
        result = await place.driving.call(f"{place.path}/review", reviewer, call)
        if result.outcome == "waiting":
            raise Waits
        if result.outcome != "completed":
            message = f"The plan was not approved: {result.message}"
            raise Stopped(reviewer.name, RunResult(result.run_id, "cancelled", None, message=message))
        approved = shape.model_validate(result.tool_executions[0].value)
        return approved, await _decision(place, result.run_id)

    def _role(self, plan: Plan, index: ToolIndex) -> str | None:
        """The role that must decide on one of the steps, and so on the plan."""
        needs = (_need(self.agent, index, step) for step in plan.steps)
        return next((need for need in needs if isinstance(need, str)), None)

    async def _answer(self, place: Place, task: str, done: Mapping[int, Any]) -> str:
        instructions = await self.agent.instructions_for(_context_of(place))
        writer = Agent(
            self.agent.model,
            instructions=f"{instructions}\n{_ANSWER}",
            name=f"{self.agent.name}-answer",
            settings=self.agent.settings,
        )
        text = await place.at("answer").run(writer, _so_far(task, done, {}), writer.name)
        place.learn("answer", text)
        return text


@dataclass
class _Execution:
    """A plan being carried out.

    Args:
        agent: whose tools they are.
        index: the tools.
        place: in the flow.
        plan: the plan.
        approved: what a human said about it.
        role: what the human had to be.
        done: what steps have come to, also those of earlier plans; added to.
    """

    agent: Agent
    index: ToolIndex
    place: Place
    plan: Plan
    approved: ApprovalDecided | None
    role: str | None
    done: dict[int, Any]
    failed: dict[int, str] = field(default_factory=dict[int, str])

    async def carry_out(self) -> dict[int, str]:
        """Do what can be done, side by side; what failed, by step.

        Raises:
            Waits: a step waits for a human, and there is nothing else to do.
        """
        while ready := [step for step in self.plan.steps if self._is_ready(step)]:
            alone = next((step for step in ready if self._is_sequential(step)), None)
            batch = [step for step in ready if not self._is_sequential(step)] or [alone or ready[0]]
            waits = await asyncio.gather(*(self._one(step) for step in batch), return_exceptions=True)
            for each in waits:
                if isinstance(each, BaseException) and not isinstance(each, Waits):
                    raise each
            if any(isinstance(each, Waits) for each in waits):
                raise Waits
        return self.failed

    def _is_ready(self, step: PlanStep) -> bool:
        over = step.step in self.done or step.step in self.failed
        return not over and all(number in self.done for number in step.depends_on)

    def _is_sequential(self, step: PlanStep) -> bool:
        found = self.index.find(step.action)
        return found is not None and found.sequential

    async def _one(self, step: PlanStep) -> None:
        try:
            arguments = resolved(step.arguments, self.done)
        except LookupError as error:
            self.failed[step.step] = str(error)
            return
        call = ToolCall(new_id("call"), step.action, dumps(arguments).decode())
        key = f"{self.place.path}/step-{step.step}"
        result = await self.place.driving.call(key, self.agent, call, self._approval_of(step, call))
        if result.outcome == "waiting":
            raise Waits
        if result.outcome == "completed":
            self.done[step.step] = result.tool_executions[0].value
        else:
            self.failed[step.step] = result.message or result.outcome

    def _approval_of(self, step: PlanStep, call: ToolCall) -> Sequence[JournalData]:
        """What the approval of the plan says about a call: yes, where it showed the very arguments that will run."""
        found, need = self.index.find(step.action), _need(self.agent, self.index, step)
        if self.approved is None or found is None or not need or need not in (True, self.role):
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
            role=self.role if isinstance(need, str) else None,
        )
        return asked, ApprovalDecided(asked.approval_id, "approve", self.approved.by, "approved with the plan")


def _need(agent: Agent, index: ToolIndex, step: PlanStep) -> bool | str:
    """Whether a human must decide on a step's call, and in what role; False where its arguments are not known yet."""
    found = index.find(step.action)
    if found is None or refers(step.arguments):
        return False
    layer = next(layer for layer in tool_layers(agent.middleware) if isinstance(layer, Approval))
    try:
        return layer.when(found, found.validate(dumps(step.arguments).decode()).arguments)
    except ToolError:
        return False


def _review_tool(shape: type[Plan], role: str | None) -> Tool:
    def review_plan(plan: Plan) -> Plan:
        """Have a human review the plan."""
        return plan

    review_plan.__annotations__ = {"plan": shape, "return": shape}
    return tool(review_plan, risk="high", approval=lambda _: role or True)


async def _decision(place: Place, run_id: str) -> ApprovalDecided | None:
    """What the human said about the plan."""
    events = await place.driving.tree.store.journal.read(run_id)
    return next((event.data for event in events if isinstance(event.data, ApprovalDecided)), None)


def _context_of(place: Place) -> RunContext[Any]:
    driving = place.driving
    who = driving.started.identity
    return RunContext(driving.options.get("deps"), driving.run_id, who, store=driving.tree.store, below=driving)


def _listed(index: ToolIndex) -> str:
    return "\n".join(
        dumps(
            {
                "name": each.name,
                "description": each.spec.description,
                "parameters": each.spec.parameters,
                "effect": each.effect,
                "risk": each.risk,
            }
        ).decode()
        for each in index.tools
    )


def _so_far(task: str, done: Mapping[int, Any], failed: Mapping[int, str]) -> str:
    lines = [f"Task: {task}"]
    lines += [f"Step {number} is done and came to: {dumps(value).decode()}" for number, value in sorted(done.items())]
    lines += [f"Step {number} failed: {why}" for number, why in sorted(failed.items())]
    if failed:
        lines.append("Plan what is left, with new step numbers; do not repeat what is done.")
    return "\n".join(lines)
