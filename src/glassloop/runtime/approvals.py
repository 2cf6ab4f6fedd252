"""Who may decide what, and until when."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, cast

from glassloop.agent import Agent
from glassloop.core.context import Identity, RunContext
from glassloop.core.errors import GlassloopError, ToolError
from glassloop.core.result import Decision, misfit
from glassloop.journal.projection import ApprovalRow
from glassloop.runnable import everyone

if TYPE_CHECKING:
    from glassloop.runnable import Runnable
    from glassloop.tools.tool import Tool

ProblemKind = Literal["not_found", "forbidden", "decided", "expired", "invalid"]


class ApprovalProblem(GlassloopError):
    """A decision that is refused; `kind` says why.

    `not_found`: no such approval, or none of the asker's business. `forbidden`: the owner without the needed role.
    `decided`: somebody has decided already, or the run ended before anybody did. `expired`: too late. `invalid`: the
    edited arguments or the answer do not fit, or the decision does not fit what was asked.

    Args:
        message: one sentence for whoever decides.
        kind: why.
        about: what of the decision is wrong (`invalid`).
    """

    def __init__(
        self, message: str, kind: ProblemKind, about: Literal["decision", "answer", "arguments"] = "arguments"
    ) -> None:
        super().__init__(message)
        self.kind: ProblemKind = kind
        self.about = about


def check(row: ApprovalRow | None, who: Identity, now: int) -> ApprovalRow:
    """The approval, if `who` may decide it now.

    Raises:
        ApprovalProblem: otherwise.
    """
    if row is None or not row.concerns(who):
        raise ApprovalProblem("There is no such approval.", "not_found")
    if row.role is not None and row.role not in who.roles:
        raise ApprovalProblem(f"This needs the role {row.role!r}.", "forbidden")
    match row.status(now):
        case "pending":
            return row
        case "expired":
            raise ApprovalProblem("The time to decide has passed; ask for it again.", "expired")
        case "withdrawn":
            raise ApprovalProblem("The run that asked for this has ended: there is nothing left to decide.", "decided")
        case decided:
            raise ApprovalProblem(f"This was {decided} already{_by(row)}.", "decided")


def check_fit(decision: Decision, kind: str, choices: Sequence[str]) -> None:
    """Let a decision through that fits what was asked: an answer a question, and anything else but a denial a call.

    Raises:
        ApprovalProblem: otherwise.
    """
    if problem := misfit(decision, kind, choices):
        answers = decision.decision == "answer" and kind == "question"
        raise ApprovalProblem(problem, "invalid", "answer" if answers else "decision")


def check_edit(runs: Runnable | None, name: str, decision: Decision, who: Identity) -> None:
    """Let a decision through unless it is an edit whose arguments do not fit, or need a role that `who` lacks.

    Tools that are made for each run are not looked at: `check_edit_for` does that.

    Raises:
        ApprovalProblem: otherwise.
    """
    if decision.decision == "edit":
        agent = _agent_with(runs, name)
        _check_arguments(agent, agent.tools.given(name) if agent is not None else None, decision, who)


async def check_edit_for(
    agent: Agent | None, name: str, decision: Decision, who: Identity, *, context: RunContext[Any]
) -> None:
    """`check_edit` where the run is known: whose call it is, and what its tools are made from.

    Raises:
        ApprovalProblem: the edited arguments do not fit, or need a role that `who` lacks.
    """
    if decision.decision != "edit":
        return
    tool = None
    if agent is not None:
        tool = agent.tools.given(name) or (await agent.tools.resolve(context)).find(name)
    _check_arguments(agent, tool, decision, who)


def _check_arguments(agent: Agent | None, tool: Tool | None, decision: Decision, who: Identity) -> None:
    if decision.arguments is None:
        raise ApprovalProblem("An edit needs the arguments to run instead.", "invalid")
    if agent is None or tool is None:
        return
    try:
        checked = tool.validate(decision.arguments)
    except ToolError as error:
        raise ApprovalProblem(str(error), "invalid") from error
    need = agent.approval.need(tool, checked.arguments)
    if isinstance(need, str) and need not in who.roles:
        raise ApprovalProblem(f"With these arguments it needs the role {need!r}.", "forbidden")


def _agent_with(runs: Runnable | None, name: str) -> Agent | None:
    """Whose tool it is: of what is run itself, or else of the one agent below it that has it."""
    if runs is None:
        return None
    agents = [cast("Agent", one) for one in everyone([runs]).values() if isinstance(one, Agent)]
    having = [one for one in agents if one.tools.given(name)]
    return having[0] if len(having) == 1 or runs in having else None


def _by(row: ApprovalRow) -> str:
    return f" by {row.decided_by}" if row.decided_by else ""
