"""The model that stands in for the ticket desk when there is no key: it reads the complaint and the tool results.

First the order, then the policy, then what the policy asks for: a ticket or a refund, from what the two have said.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, cast

from glassloop.core.messages import ToolCall, UserMessage
from glassloop.testing import Conversation, Reaction, ToolOutcome, ask, call

ORDER = re.compile(r"(?<![A-Za-z\d])(?:#\s*)?([A-Za-z]-?\d{3,6}|\d{7,10})(?!\d)")
AMOUNT = re.compile(
    r"(?<![\d-])(?:[¥￥]\s*)?(\d[\d,]*(?:\.\d{1,2})?)\s*(?:yuan|cny|rmb|元|块)|[¥￥]\s*(\d[\d,]*(?:\.\d{1,2})?)"
    r"|\brefund(?:\s+of)?\s+(\d{1,6}(?:\.\d{1,2})?)(?![\d-])|退(?:款|还|回)?\s*(\d{1,6}(?:\.\d{1,2})?)(?![\d-])",
    re.I,
)
REFUND = re.compile(
    r"\brefund|\b(?:money|yuan|cny|rmb) back\b|\breimburse|退款|退钱|退还|退\s*\d|退回.{0,4}[元款]", re.I
)
COMPLAINS = re.compile(r"\bcomplain|投诉|抱怨", re.I)
TICKET = re.compile(r"\b(?:open|create|raise|make|file)\b.*\bticket|[建开].{0,4}工单", re.I)
ABOUT_ORDER = re.compile(r"\b(?:orders?|its?|that|this|status|tickets?|refunded)\b|订单|它|这个|状态|工单|进展", re.I)
POLICY = re.compile(
    r"\bpolic|\brules?\b|\bhow long\b|\bhow do\b|\bcan (?:i|we|they)\b|政策|规定|规则|多久|几天|怎么|能不能|可以.*吗",
    re.I,
)


@dataclass(frozen=True)
class Complaint:
    """What may be wrong: how customers say it, and how the desk does."""

    said: re.Pattern[str]
    english: str
    chinese: str


NOT = r"(?:\bnot|\bnever|n['’]t)"
COMPLAINTS = (
    Complaint(
        re.compile(
            rf"{NOT}\s+(?:been\s+|yet\s+|even\s+)*(?:shipped|sent|dispatched)|\bunshipped"
            r"|(?:未|没|不|没有|还没|一直没)(?:有)?(?:给)?发[货出]|催发货|发货.{0,4}慢",
            re.I,
        ),
        "never shipped",
        "未发货",
    ),
    Complaint(
        re.compile(
            rf"{NOT}\s+(?:yet\s+)?(?:received?|arrived?|come|got|get)\b|\blost\b|\bstuck\b"
            r"|(?:未|没|没有|还没)收到|没到|丢件|丢了|物流.{0,4}停",
            re.I,
        ),
        "not received",
        "没收到",
    ),
    Complaint(
        re.compile(
            r"\bbroken?\b|\bdamaged?\b|\bfault|\bdefect|\bcracked\b|\bscratch|\bdoes(?:n['’]t| not) work"
            r"|坏|破损|损坏|故障|划痕|裂|质量",
            re.I,
        ),
        "damaged or faulty",
        "商品损坏",
    ),
    Complaint(
        re.compile(r"\bwrong\b|\bmissing\b|\binstead of\b|\bincomplete\b|发错|错发|漏发|少发|少了|不对", re.I),
        "wrong or missing item",
        "错发或漏发",
    ),
    Complaint(
        re.compile(r"\breturn\b|\bsend (?:it )?back\b|\bchanged (?:his|her|their|my) mind\b|退货|不想要|无理由", re.I),
        "return",
        "退货",
    ),
)
ANY_COMPLAINT = Complaint(COMPLAINS, "complaint", "投诉")
ANY_REFUND = Complaint(REFUND, "customer asks for a refund", "客户要求退款")
PRIORITY = re.compile(r"priority (low|normal|high|urgent)|优先级：(低|普通|高|紧急)")
PRIORITIES = {"低": "low", "普通": "normal", "高": "high", "紧急": "urgent"}
HELD = re.compile(r"\bappr_\w+")


@dataclass(frozen=True)
class Case:
    """What the customer wants, and what the tools have said about it."""

    text: str
    chinese: bool
    order_id: str | None
    complaint: Complaint | None
    refund: bool
    complains: bool
    ticket: bool
    amount: float | None
    turn: tuple[ToolOutcome, ...]

    def say(self, english: str, chinese: str) -> str:
        """The sentence in the language of the complaint."""
        return chinese if self.chinese else english

    @property
    def asks_policy(self) -> bool:
        """Whether the question is about the rules, and no order."""
        return bool(POLICY.search(self.text)) and not ORDER.search(self.text)

    @property
    def is_complaint(self) -> bool:
        """Whether something is to be done, and not only told."""
        return self.complaint is not None or self.refund or self.complains or self.ticket

    def result(self, tool: str) -> ToolOutcome | None:
        """What a tool has said in this turn."""
        found = [result for result in self.turn if result.name == tool]
        return found[-1] if found else None

    @property
    def order(self) -> dict[str, Any]:
        """The order's record; empty where it is not known."""
        found = self.result("query_order_detail")
        return found.fields if found else {}

    @property
    def policy(self) -> dict[str, str]:
        """The policy that fits best; empty where none does."""
        found = self.result("search_policy")
        value: Any = found.value if found else None
        return cast("list[dict[str, str]]", value)[0] if isinstance(value, list) and value else {}


def read_case(conversation: Conversation) -> Case:
    """Read the complaint; an order that it does not name is the one that was spoken of last."""
    text = conversation.user
    texts = [message.text for message in conversation.messages if isinstance(message, UserMessage)]
    orders = [number for said in texts for number in ORDER.findall(said)]
    found = AMOUNT.search(text)
    amount = next(filter(None, found.groups())) if found else None
    return Case(
        text=text,
        chinese=bool(re.search(r"[一-鿿]", text)),
        order_id=orders[-1].upper() if orders else None,
        complaint=next((complaint for complaint in COMPLAINTS if complaint.said.search(text)), None),
        refund=bool(REFUND.search(text)),
        complains=bool(COMPLAINS.search(text)),
        ticket=bool(TICKET.search(text)),
        amount=float(amount.replace(",", "")) if amount else None,
        turn=conversation.results,
    )


def brain(conversation: Conversation) -> Reaction:
    """The next tools to call, or the answer."""
    case = read_case(conversation)
    if not conversation.tools:
        return case.say("I have no tools to look anything up with.", "我没有可用的工具。")
    if case.asks_policy:
        return _about_policy(case)
    if not case.is_complaint:
        return _about_order(case)
    if case.order_id is None:
        return which_order(case)
    return _look_up(case) or _act(case) or answer(case)


def which_order(case: Case) -> str:
    """What the customer is asked who has named none."""
    return case.say("For which order? Tell me its number.", "请问是哪个订单？请告诉我订单号。")


def _about_policy(case: Case) -> Reaction:
    if case.result("search_policy") is None:
        return ask(call("search_policy", query=case.text), text=case.say("I look that up.", "查一下规定。"))
    if not case.policy:
        return case.say("I found no policy on that.", "没有找到相关规定。")
    return case.say("Policy {policy_id}, {title}: {text}", "规定{policy_id}（{title}）：{text}").format(**case.policy)


def _about_order(case: Case) -> Reaction:
    if case.order_id is None or not (ORDER.search(case.text) or ABOUT_ORDER.search(case.text)):
        return case.say(
            "Tell me the order number and what is wrong, or ask about a policy.",
            "请告诉我订单号和问题，或询问售后规定。",
        )
    known = case.result("query_order_detail")
    if known is None:
        return ask(call("query_order_detail", order_id=case.order_id), text=case.say("First the order.", "先查订单。"))
    return told_order(case) if case.order else refused(case, known)


def _look_up(case: Case) -> Reaction | None:
    """The order, then the policy."""
    known = case.result("query_order_detail")
    if known is None:
        thought = case.say("First the order itself.", "先查订单。")
        return ask(call("query_order_detail", order_id=case.order_id), text=thought)
    if not case.order:
        return refused(case, known)
    if case.result("search_policy") is None:
        thought = case.say(
            f"The record says: {state(case)}. Which policy applies?", f"订单记录：{state(case)}。查找适用的规定。"
        )
        return ask(call("search_policy", query=subject(case)), text=thought)
    return None


def subject(case: Case) -> str:
    """What to search the policies for."""
    words = [case.say(case.complaint.english, case.complaint.chinese)] if case.complaint else []
    return " ".join([*words, *([case.say("refund", "退款")] if case.refund else [])]) or case.text


def state(case: Case) -> str:
    """What the order's record says, in a few words."""
    english, chinese = {
        "paid": ("paid on {ordered_on}, not shipped", "{ordered_on}已付款，未发货"),
        "packed": ("paid on {ordered_on}, packed, not shipped", "{ordered_on}已付款，已打包，未发货"),
        "shipped": (
            "shipped on {shipped_on} with {carrier}, {tracking}",
            "{shipped_on}由{carrier_zh}发出，单号{tracking}",
        ),
        "delivered": ("delivered on {delivered_on} by {carrier}", "{delivered_on}由{carrier_zh}送达"),
        "cancelled": ("cancelled", "已取消"),
    }.get(case.order["status"], ("{status}", "状态{status}"))
    return case.say(english, chinese).format(**case.order)


def _act(case: Case) -> Reaction | None:
    """What the policy asks for: a refund where one is wanted, else a ticket; both where both are."""
    wanted: list[ToolCall] = []
    if case.refund and case.result("submit_refund") is None:
        left = round(case.order["amount_cny"] - case.order.get("refunded_cny", 0), 2)
        amount = case.amount or left
        if amount <= 0:
            return case.say("That order has been refunded in full already.", "该订单已全额退款。")
        what = case.complaint or ANY_REFUND
        wanted.append(
            call(
                "submit_refund",
                order_id=case.order["order_id"],
                amount=amount,
                reason=case.say(what.english, what.chinese),
            )
        )
    if (case.ticket or not case.refund) and case.result("create_ticket") is None:
        wanted.append(_ticket(case))
    if not wanted:
        return None
    what = " and ".join(call.name for call in wanted)
    return ask(*wanted, text=case.say(f"That calls for {what}; a human confirms it.", "按规定处理，需要人工确认。"))


def _ticket(case: Case) -> ToolCall:
    complaint = case.complaint or ANY_COMPLAINT
    what = case.say(complaint.english, complaint.chinese)
    policy = case.policy
    found = PRIORITY.search(policy.get("text", ""))
    priority = (found[1] or PRIORITIES[found[2]]) if found else "normal"
    rule = (
        case.say(
            f" Policy {policy['policy_id']}: {policy['title']}.", f"适用规定{policy['policy_id']}：{policy['title']}。"
        )
        if policy
        else ""
    )
    number = case.order["order_id"]
    return call(
        "create_ticket",
        order_id=number,
        title=case.say(f"Order {number}: {what}", f"订单{number}：{what}"),
        description=case.say(
            f"{case.text.strip().rstrip('.')}. Record: {state(case)}.{rule}",
            f"{case.text.strip().rstrip('。')}。记录：{state(case)}。{rule}",
        ),
        priority=priority,
    )


def refused(case: Case, result: ToolOutcome) -> str:
    """What a tool said instead of a result."""
    return case.say(f"I cannot go on: {result.text}", f"无法处理：{result.text}")


def told_order(case: Case) -> str:
    """What is known about an order, in words."""
    order = case.order
    tickets = case.say(", ", "、").join(ticket["number"] for ticket in order.get("tickets", []))
    opened = case.say(f" Tickets: {tickets}.", f"工单：{tickets}。") if tickets else ""
    back = order.get("refunded_cny") or 0
    paid_back = case.say(f" Refunded: {back:g} yuan.", f"已退款{back:g}元。") if back else ""
    told = case.say(
        "Order {order_id} ({product}, {amount_cny:g} yuan): ", "订单{order_id}（{product_zh}，{amount_cny:g}元）："
    )
    return f"{told.format(**order)}{state(case)}{case.say('.', '。')}{opened}{paid_back}"


def answer(case: Case) -> str:
    """What was found and done, from the results alone."""
    policy = case.policy
    rule = (
        case.say(" Policy {policy_id} ({title}) applies.", "适用规定{policy_id}（{title}）。").format(**policy)
        if policy
        else ""
    )
    done = [came_of(case, result) for result in case.turn if result.name in ("create_ticket", "submit_refund")]
    record = case.say(
        f"Order {case.order['order_id']}: {state(case)}.", f"订单{case.order['order_id']}：{state(case)}。"
    )
    return record + rule + "".join(case.say(f" {said}", said) for said in done)


def came_of(case: Case, result: ToolOutcome) -> str:
    """What came of a ticket or a refund: done, held for a human, or refused."""
    made = result.fields
    refund = result.name == "submit_refund"
    if made:
        if refund:
            return case.say(
                "Refund {refund} of {amount_cny:g} yuan is submitted.", "退款{refund}已提交，金额{amount_cny:g}元。"
            ).format(**made)
        chinese = {english: word for word, english in PRIORITIES.items()}.get(made["priority"], made["priority"])
        return case.say(
            "Ticket {ticket} is open with priority {priority}.", f"工单{{ticket}}已创建，优先级：{chinese}。"
        ).format(**made)
    held = HELD.search(result.text)
    english, chinese = ("refund", "退款") if refund else ("ticket", "工单")
    if held:
        return case.say(
            f"The {english} waits for confirmation {held[0]}; until then nothing is done.",
            f"{chinese}等待确认（{held[0]}），确认前不会执行。",
        )
    return case.say(f"The {english} was not made. {result.text}", f"{chinese}没有执行。{result.text}")
