"""Who decides at the terminal, and on what: the rules of the runtime, for somebody who acts as the run's owner."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from glassloop.cli.problems import Problem, say
from glassloop.cli.watching import Ask, Said
from glassloop.core.context import Identity
from glassloop.core.result import Decision, PendingApproval

if TYPE_CHECKING:
    from glassloop.journal.projection import ApprovalRow
    from glassloop.runnable import Runnable


class Decider:
    """Asks about the calls that one with these roles may decide; any other waits for somebody who may.

    Args:
        ask: what the human, or `--yes`, says to a call; `park` leaves it to somebody else.
        agent: whose calls they are.
        roles: what the human may decide beside what asks for no role.
    """

    def __init__(self, ask: Ask, agent: Runnable, roles: Iterable[str]) -> None:
        self._ask = ask
        self._agent = agent
        self._who = Identity(roles=tuple(roles))
        self._left: set[str] = set()

    def __call__(self, pending: PendingApproval) -> Said:
        """Ask until there is an answer that counts."""
        from glassloop.runtime.approvals import ApprovalProblem, check_edit, check_fit

        if pending.role is not None and pending.role not in self._who.roles:
            if pending.approval_id not in self._left:
                self._left.add(pending.approval_id)
                say(f"{pending.tool} waits: it needs the role {pending.role!r} (--role {pending.role}).")
            return "park"
        while True:
            decision = self._ask(pending)
            if decision == "park":
                return decision
            try:
                check_fit(decision, pending.kind, pending.choices)
                check_edit(self._agent, pending.tool, decision, self._who)
            except ApprovalProblem as problem:
                say(str(problem))
                continue
            return decision


def check_decision(row: ApprovalRow, decision: Decision, roles: Iterable[str]) -> None:
    """Refuse a decision on the command line that a server would refuse from the run's owner with these roles.

    Raises:
        Problem: a role is needed that is not there, the time to decide has passed, the decision does not fit what was
            asked, or the call was deferred and so runs where its agent is served.
    """
    from glassloop.core.encoding import loads
    from glassloop.journal.projection import WITHDRAW
    from glassloop.journal.recorder import now_ms
    from glassloop.runtime.approvals import ApprovalProblem, check, check_fit

    if row.decision not in (None, WITHDRAW):
        return  # the run says whether it is the same decision again
    if row.mode == "defer":
        raise Problem(f"{row.approval_id} was deferred: it is decided where its agent is served (glassloop serve).")
    try:
        check(row, Identity(row.user, row.tenant, tuple(roles)), now_ms())
        check_fit(decision, row.kind, loads(row.choices))
    except ApprovalProblem as problem:
        hint = f" Give --role {row.role}, as somebody who has it would." if problem.kind == "forbidden" else ""
        if problem.about == "decision" and row.kind == "question":
            hint = f' Give --answer {row.approval_id}="..."'
        raise Problem(f"{row.approval_id}: {problem}{hint}") from None
