"""More than one agent: flows, agents as tools, hand-offs, supervisors. All of them are runs in one journal."""

from glassloop.teams.agents import agent_tool, delegate, supervisor
from glassloop.teams.flow import Flow
from glassloop.teams.flows import Step, branch, parallel, sequence, until
from glassloop.teams.handoff import handoff
from glassloop.teams.plan import Plan, PlanStep
from glassloop.teams.planning import planned

__all__ = [
    "Flow",
    "Plan",
    "PlanStep",
    "Step",
    "agent_tool",
    "branch",
    "delegate",
    "handoff",
    "parallel",
    "planned",
    "sequence",
    "supervisor",
    "until",
]
