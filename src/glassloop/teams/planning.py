"""Plan first: a plan as typed output, reviewed by a human, then carried out through the same layers as any call.

Everything is a run below the flow's: the planner's, the review (one call that a human decides on), each step (one call)
and the answer. A plan that is parked for days, or cut off in the middle, goes on where it was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from glassloop.agent import Agent
from glassloop.core.context import RunContext
from glassloop.core.encoding import dumps
from glassloop.core.events import ApprovalAsked, ApprovalDecided
from glassloop.core.ids import new_id
from glassloop.core.limits import Limits
from glassloop.core.messages import ToolCall
from glassloop.core.result import RunResult
from glassloop.runnable import Runnable
from glassloop.teams.execution import Approved, Execution, Progress, need_of
from glassloop.teams.flow import FLOW_LIMITS, Flow, Place, Stopped, Waits
from glassloop.teams.plan import FEWEST, MOST, REVIEW, Plan, PlanStep, plan_type, reviewed_type, with_risks
from glassloop.tools.tool import Tool, tool
from glassloop.tools.toolset import ToolIndex, index_tools

Review = Literal["always", "risky", "never"]

_PLANNER = """
Make a plan for the task: {fewest} to {most} steps, each one call of one of the tools below, with its arguments; or no \
step at all where no tool is needed, or none can help. Do not plan what no tool can do, and plan nothing that is not \
needed. A step that needs what another one comes to names that step in `depends_on`; an argument that is not known \
before is written as "$N.field", the field of what step N came to, or "$N" for all of it. State each step's risk: low \
where it only reads, high where it spends money or cannot be undone.

Tools:
{tools}"""

_ANSWER = """
The user has not seen what follows the task: the steps of a plan for it, and what each came to. Tell the user what was \
found and done, from that and from nothing else; say plainly what failed. Where there was no step, say what is missing \
for one, or answer."""


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
    runs. Approving the plan approves the calls that need a human in it, with exactly the arguments that it shows; a
    call whose arguments come from an earlier step asks for itself. Who approves a plan must have the role that one of
    its calls asks for; a call that an edit brought in, with a role of its own, asks for itself. A plan that is denied
    ends the run, cancelled. A step that fails leads to a new plan for the rest; what is done stays done. A task that
    needs no tool has a plan without steps, and is answered.

    Everything waits for a human in place (`park`), also in a run that would defer its calls.

    Args:
        agent: whose model, instructions, tools and layers they are.
        name: of the flow; default the agent's, with `-plan`.
        review: whether a human sees a plan before it runs: `always`, only where a step is of high risk, or `never`.
        replans: how many new plans there may be after failures.
        limits: of planning, steps and answer together.
    """
    work = _Planned(agent, review, replans)
    below: list[Runnable] = [agent]
    if agent.tools.is_static:  # an edited plan can be checked where it is decided on
        below.append(_reviewer(agent, index_tools(agent.tools.always)))
    return Flow(work.node, name=name or f"{agent.name}-plan", limits=limits, parts=("answer",), below=below)


class _Planned:
    """The code of the flow; see `planned`."""

    def __init__(self, agent: Agent, review: Review, replans: int) -> None:
        self.agent, self.review, self.replans = agent, review, replans

    async def node(self, place: Place, task: Any) -> str:
        """Plan, have it reviewed, carry it out, and again while steps fail; then answer."""
        place = _parking(place)
        index = await self.agent.tools.resolve(_context_of(place))
        progress = Progress(str(task))
        failed: Mapping[int, str] = {}
        for attempt in range(self.replans + 1):
            here = place.at(f"plan-{attempt}")
            plan = await self._make(here, index, progress)
            if not plan.steps:
                return await self._answer(place, progress)
            plan, approved = await self._reviewed(here, plan, index, progress)
            failed = await Execution(self.agent, index, here, plan, approved, progress).carry_out()
            if not failed:
                return await self._answer(place, progress)
        text = "; ".join(f"step {step}: {why}" for step, why in failed.items())
        raise _stopped(place, "failed", f"The plan failed after {self.replans} new plans: {text}", progress)

    async def _make(self, place: Place, index: ToolIndex, progress: Progress) -> Plan:
        shape = plan_type(index, progress.steps, progress.done)
        asked = _PLANNER.format(fewest=FEWEST, most=MOST, tools=_listed(index))
        planner = await self._helper(place, "planner", asked, shape)
        made = await place.at("make").run(planner, progress.told(), planner.name)
        # text where the tools have changed since; a step that no tool can do any more fails
        return with_risks(made if isinstance(made, Plan) else Plan.model_validate_json(made), index)

    async def _reviewed(
        self, place: Place, plan: Plan, index: ToolIndex, progress: Progress
    ) -> tuple[Plan, Approved | None]:
        """The plan that a human has approved, perhaps edited, and who that was; None where nobody had to."""
        risky = any(step.risk == "high" for step in plan.steps)
        if self.review == "never" or (self.review == "risky" and not risky):
            return plan, None
        result = await self._ask(place, plan, index, progress)
        if result.outcome == "waiting":
            raise Waits
        asked, decision = await _review_of(place, result.run_id)
        if result.outcome == "completed":
            edited = Plan.model_validate((result.tool_executions[0].arguments or {})["plan"])
            return edited, Approved(decision.by, asked.role) if asked and decision else None
        if decision is None or decision.decision != "deny":
            wrong = [line[2:] for line in (result.message or "").splitlines() if line.startswith("- ")]
            why = "; ".join(wrong) or result.message or result.outcome
            since = "as it was edited" if decision is not None and decision.decision == "edit" else "any more"
            raise _stopped(place, "failed", f"The plan cannot be carried out {since}: {why}", progress)
        by = f" by {decision.by}" if decision.by else ""
        why = f": {decision.reason.rstrip('.')}" if decision.reason else ""
        raise _stopped(place, "cancelled", f"The plan was denied{by}{why}.", progress)

    async def _ask(self, place: Place, plan: Plan, index: ToolIndex, progress: Progress) -> RunResult:
        """Have a human decide; anew, where the flow was cancelled before anybody had, and goes on."""
        reviewer = _reviewer(self.agent, index)
        shown = {"steps": [step.model_dump() for step in plan.steps], "done": sorted(progress.done)}
        arguments = dumps({"plan": shown}).decode()
        attempt = 0
        while True:
            call = ToolCall(new_id("call"), REVIEW, arguments)
            result = await place.driving.call(f"{place.path}/review-{attempt}", reviewer, call)
            if result.error_kind != "cancelled":
                return result
            attempt += 1

    async def _answer(self, place: Place, progress: Progress) -> str:
        writer = await self._helper(place, "answer", _ANSWER)
        text = await place.at("answer").run(writer, progress.told(report=True), writer.name)
        place.learn("answer", text)
        return text

    async def _helper(self, place: Place, name: str, asked: str, output: type[Plan] | None = None) -> Agent:
        """The agent without its tools, asked for something else."""
        instructions = await self.agent.instructions_for(_context_of(place))
        return Agent(
            self.agent.model,
            instructions=f"{instructions}\n{asked}".strip(),
            name=f"{self.agent.name}-{name}",
            settings=self.agent.settings,
            middleware=[layer for layer in self.agent.middleware if getattr(layer, "around_model", False)],
            output=output,
        )


def _reviewer(agent: Agent, index: ToolIndex) -> Agent:
    return Agent(agent.model, [_review_tool(agent, index)], name=f"{agent.name}-review")


def _review_tool(agent: Agent, index: ToolIndex) -> Tool:
    """A call of it is the review: who may approve it, and what an edited plan must be, follows from the plan."""

    def review_plan(plan: Plan) -> str:
        return f"{len(plan.steps)} steps"

    def approval(arguments: dict[str, Any]) -> bool | str:
        steps = map(PlanStep.model_validate, arguments["plan"]["steps"])
        return next((need for step in steps if isinstance(need := need_of(agent, index, step), str)), True)

    def summary(arguments: Mapping[str, Any]) -> str:
        steps = [PlanStep.model_validate(step) for step in arguments["plan"]["steps"]]
        named = (f"{step.action} ({step.risk} risk)" if step.risk != "low" else step.action for step in steps)
        return f"a plan of {len(steps)} step{'' if len(steps) == 1 else 's'}: {', '.join(named)}"

    review_plan.__annotations__ = {"plan": reviewed_type(index), "return": str}
    review_plan.approval_summary = summary  # pyright: ignore[reportFunctionMemberAccess] - for `question`
    about = "Have a human review the plan."
    return tool(review_plan, name=REVIEW, description=about, risk="high", approval=approval)


def _stopped(place: Place, outcome: Literal["failed", "cancelled"], why: str, progress: Progress) -> Stopped:
    if progress.done:
        why = f"{why.rstrip('.')}. Done before: {', '.join(map(progress.name, sorted(progress.done)))}."
    return Stopped("plan", RunResult(place.driving.run_id, outcome, None, message=why), why)


async def _review_of(place: Place, run_id: str) -> tuple[ApprovalAsked | None, ApprovalDecided | None]:
    """What a human was asked about the plan, and said."""
    data = [event.data for event in await place.driving.tree.store.journal.read(run_id)]
    asked = next((each for each in data if isinstance(each, ApprovalAsked)), None)
    return asked, next((each for each in data if isinstance(each, ApprovalDecided)), None)


def _parking(place: Place) -> Place:
    """The place with a run that parks: a call that is deferred would run by itself, after the steps that need it."""
    started = replace(place.driving.started, approvals="park")
    return replace(place, driving=replace(place.driving, started=started))


def _context_of(place: Place) -> RunContext[Any]:
    driving = place.driving
    who = driving.started.identity
    return RunContext(driving.options.get("deps"), driving.run_id, who, store=driving.tree.store, below=driving)


def _listed(index: ToolIndex) -> str:
    return "\n".join(map(_described, index.tools))


def _described(each: Tool) -> str:
    known: Sequence[tuple[str, Any]] = (
        ("name", each.name),
        ("description", each.description),
        ("parameters", each.spec.parameters),
        ("effect", each.effect),
        ("risk", each.risk),
    )
    return dumps(dict(known)).decode()
