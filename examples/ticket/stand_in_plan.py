"""The stand-in model where the desk plans first: it plans from what the customer says, and reports what the steps said.

What it is told, a request for a plan or for the report, is text for a model; it reads the task, the tools and the steps
in it. Anything else is the desk's that decides as it goes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from examples.ticket import stand_in
from examples.ticket.stand_in import Case
from glassloop.core.encoding import loads
from glassloop.core.messages import UserMessage
from glassloop.testing import Conversation, Reaction, ToolOutcome

TASK = re.compile(r"Task: (.*?)(?=\nStep \d+, \w+\(|\nPlan what is left|\nNo step was|\Z)", re.DOTALL)
STEP = re.compile(r"^Step \d+, (\w+)\((.*)\), (is done and came to|failed): (.*)$", re.MULTILINE)
NEXT = re.compile(r"with step numbers from (\d+)")
WRONG = re.compile(r"\bstep (\d+)")

PRIORITIES = {
    "never shipped": "high",
    "not received": "urgent",
    "return": "low",
}
"""What a ticket about each complaint will need, as far as can be told before the policy is read; else normal."""


@dataclass(frozen=True)
class Wanted:
    """A step before it has a number.

    Args:
        action: the tool.
        arguments: its arguments.
        english: what it is for.
        chinese: the same.
    """

    action: str
    arguments: dict[str, Any]
    english: str
    chinese: str


def brain(conversation: Conversation) -> Reaction:
    """A plan, the report on one, or what the desk says that decides as it goes."""
    if "steps" in (conversation.wanted or {}).get("properties", {}):
        return conversation.answer(steps=plan(conversation))
    if not conversation.tools and TASK.match(conversation.user):
        return report(case_of(conversation))
    return stand_in.brain(conversation)


def case_of(conversation: Conversation) -> Case:
    """The task, with what the steps have said as if their tools had just been called."""
    told = next(message.text for message in conversation.messages if isinstance(message, UserMessage))
    task = TASK.match(told)
    asked = replace(conversation, messages=(UserMessage(task[1] if task else told),))
    turn = tuple(
        ToolOutcome(name, loads(arguments), said, is_error=how == "failed")
        for name, arguments, how, said in STEP.findall(told)
    )
    return replace(stand_in.read_case(asked), turn=turn)


def plan(conversation: Conversation) -> list[dict[str, Any]]:
    """The steps for a complaint, or for the rest of it; none for anything that needs no plan."""
    case = case_of(conversation)
    given = conversation.messages[0]
    first = int(found[1]) if isinstance(given, UserMessage) and (found := NEXT.search(given.text)) else 1
    tools = listed_tools(conversation.system)
    wanted = [step for step in steps_for(case) if step.action in tools]
    refused = conversation.user if conversation.user.startswith("Your answer was not accepted") else ""
    wrong = {int(number) - first for number in WRONG.findall(refused)}
    wanted = [step for index, step in enumerate(wanted) if index not in wrong]
    if first == 1 and len(wanted) < 2:
        return []
    before = [first + index for index, step in enumerate(wanted) if tools[step.action]["effect"] == "read"]
    return [
        {
            "step": number,
            "action": step.action,
            "arguments": _known(step.arguments, tools[step.action]),
            "description": case.say(step.english, step.chinese),
            "risk": tools[step.action]["risk"],
            "depends_on": [] if number in before else before,
        }
        for number, step in enumerate(wanted, first)
    ]


def listed_tools(instructions: str) -> dict[str, dict[str, Any]]:
    """The tools that a plan may use, by name: each a line of JSON in the instructions."""
    lines = instructions.rpartition("\nTools:\n")[2].partition("\n\n")[0].splitlines()
    return {tool["name"]: tool for tool in map(loads, lines)}


def _known(arguments: Mapping[str, Any], tool: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in arguments.items() if name in tool["parameters"]["properties"]}


def steps_for(case: Case) -> list[Wanted]:
    """What is left to do about a complaint: order, policy, then what the customer wants; nothing for a question."""
    known = case.result("query_order_detail")
    unclear = case.order_id is None or not case.is_complaint or case.asks_policy
    if unclear or (known is not None and not case.order):
        return []
    wanted: list[Wanted] = []
    if known is None:
        wanted.append(Wanted("query_order_detail", {"order_id": case.order_id}, "Look the order up.", "查询订单。"))
    if case.result("search_policy") is None:
        query = {"query": stand_in.subject(case)}
        wanted.append(Wanted("search_policy", query, "Find the policy that applies.", "查找适用的规定。"))
    if case.refund:
        wanted += _refund(case)
    if case.ticket or not case.refund:
        wanted += _ticket(case)
    return wanted


def _refund(case: Case) -> list[Wanted]:
    """The refund: of what the customer names, else of what was paid; less, where that was too much."""
    tried = [done for done in case.turn if done.name == "submit_refund"]
    amount: float | str = case.amount or "$1.amount_cny"
    if tried:
        left = round(case.order["amount_cny"] - case.order.get("refunded_cny", 0), 2)
        if case.amount or left <= 0 or len(tried) > 1 or not tried[0].is_error or _denied(tried[0]):
            return []
        amount = left
    what = case.complaint or stand_in.ANY_REFUND
    arguments = {"order_id": case.order_id, "amount": amount, "reason": case.say(what.english, what.chinese)}
    return [Wanted("submit_refund", arguments, "Pay the money back.", "退款给客户。")]


def _ticket(case: Case) -> list[Wanted]:
    """The ticket; once more where it could not be opened."""
    tried = [done for done in case.turn if done.name == "create_ticket"]
    if any(not done.is_error or _denied(done) for done in tried) or len(tried) > 1:
        return []
    what = case.complaint or stand_in.ANY_COMPLAINT
    arguments = {
        "order_id": case.order_id,
        "title": case.say(f"Order {case.order_id}: {what.english}", f"订单{case.order_id}：{what.chinese}"),
        "description": case.text.strip(),
        "priority": PRIORITIES.get(what.english, "normal"),
    }
    return [Wanted("create_ticket", arguments, "Open a ticket for the after-sales team.", "为售后团队创建工单。")]


def _denied(done: ToolOutcome) -> bool:
    return done.text.startswith("Denied")


def report(case: Case) -> str:
    """What was found and done, or why there was nothing to plan."""
    known = case.result("query_order_detail")
    if known is not None:
        return stand_in.answer(case) if case.order else stand_in.refused(case, known)
    if case.order_id is None and case.is_complaint and not case.asks_policy:
        return stand_in.which_order(case)
    return case.say(
        "That needs no plan: ask it without --plan, or tell me the order number and what is wrong.",
        "这不需要计划：请不带--plan直接询问，或告诉我订单号和问题。",
    )
