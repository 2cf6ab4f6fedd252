"""The model that stands in for the order desk when there is no key: it reads the question and the tool results.

Like real models it slips: six digits such as 202403 it takes for the year 20240, and reads in the tool's answer what a
year may be. What the question leaves out (`it`, whose orders) it takes from the note of known entities, or from earlier
calls that it sees.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from glassloop.core.messages import ToolCall, UserMessage
from glassloop.testing import Conversation, Reaction, ToolOutcome, ask, call

_FIRST = ("January", "February", "March", "April", "May", "June")
MONTHS = (*_FIRST, "July", "August", "September", "October", "November", "December")
MONTH = rf"({'|'.join(MONTHS)}|{'|'.join(name[:3] for name in MONTHS)})\.?"

ORDER = re.compile(r"(?<![A-Za-z\d])(?:#\s*)?([A-Za-z]-?\d{3,6}|\d{7,10})(?!\d)")
SIX_DIGITS = re.compile(r"(?<!\d)(\d{6})(?!\d)")
YEAR_AND_MONTH = re.compile(
    rf"(?<!\d)(\d{{4,5}})\s*(?:年\s*|[-/.])(\d{{1,2}})(?!\d)|\b{MONTH},?\s+(?:of\s+)?(\d{{4,5}})(?!\d)", re.I
)
YEAR = re.compile(r"(?<!\d)(\d{4,5})\s*年|\b(?:in|of|for|during|year)\s+(\d{4,5})(?![\d-])", re.I)
ONE_MONTH = re.compile(rf"(?<!\d)(\d{{1,2}})\s*月|\bin\s+{MONTH}\b", re.I)
AT_MOST = re.compile(r"year: should be less than or equal to (\d+)")

IT = re.compile(r"\b(?:it|its|order|that one)\b|它|这个|该订单|这单", re.I)
ORDERS = re.compile(r"\borders\b|订单|有哪些单", re.I)
KINDS = {
    "buyout": (re.compile(r"\bbuy-?\s?outs?\b|\bbought out|买断", re.I), "buy-outs", "买断"),
    "rental": (re.compile(r"\brent(?:als?|ed)\b|租赁|租的", re.I), "rentals", "租赁"),
    "installment": (re.compile(r"\binstal?lments?\b|分期", re.I), "on instalments", "分期"),
}
WORK = re.compile(
    r"\b(?:open|create|raise|make|file|new|need|want|same)\b.*\b(?:work\s?-?order|ticket)"
    r"|^\s*(?:a\s+)?(?:\w+\s+)?work\s?-?order\b|工单|报修",
    re.I,
)
WORKS = (
    ("repair", re.compile(r"\brepair|\bfix|\bbroken|维修|报修|修理|坏", re.I)),
    ("exchange", re.compile(r"\bexchange|\breplace|换货|更换", re.I)),
    ("return", re.compile(r"\breturn|\bcollect|\bpick\s?up|退货|取件|取回", re.I)),
    ("invoice", re.compile(r"\binvoice|\breceipt|发票|开票", re.I)),
    ("delivery", re.compile(r"\bdeliver|\bredeliver|\bship|\bchase|配送|派送|送货|发货|催|地址", re.I)),
)
AGAIN = re.compile(r"\bagain\b|\bsame\b|\bonce more\b|再|同样|重复", re.I)
NOTE = re.compile(r"(?:(?:\bbecause\b|\bsaying\b|备注)\s*[:：]?|[:：])\s*(.+)$", re.I | re.S)

LAST_CALL = re.compile(r"^- (\w+) was last called with (\{.*\})$", re.M)

AGENT_NUMBER = re.compile(
    r"\bagent\s*(?:number|no\.?|#)?\s*(\d+)|(?:代理商?|经销商)\s*(\d+)|(?<!\d)(\d+)\s*号?\s*(?:代理|经销)", re.I
)
NAME = r"[A-Za-z]+(?:\s+[A-Za-z]+)?"
AGENT_NAME = re.compile(
    rf"\b({NAME})['’]s?\s|\borders\s+(?:of|for|from|by)\s+(?:the\s+)?(?:agent\s+)?({NAME})|\b(?:did|does|has|have|about|and)\s+({NAME})"
    r"|((?:\b[A-Z][a-z]+\b\s*){2,})",
)
NO_NAME = re.compile(
    rf"\b(?:{'|'.join(MONTHS)}|{'|'.join(name[:3] for name in MONTHS)}|what|which|where|how|many|show|list|give|find|"
    r"please|me|us|all|the|of|in|for|orders?|were|was|are|is|and|about|did|does|has|have|had|they|it|that|there|this|"
    r"these|those|agent|buy|outs?|buyouts?|rentals?|instal?lments?|on|any|sold|with|from|to|a|i|want|let|s|last|year|month)\b",
    re.I,
)
NO_CHINESE_NAME = re.compile(
    r"\d+\s*[年月号]份?|你好|您好|谢谢|再见|查询|查一下|查|看看|看一下|帮我|帮忙|麻烦|请问|请|一下|列出|告诉我|给我|我要|我想|想|看|全部|所有|一共|总共|共|"
    r"其中|他们|它们|这些|那些|上面|刚才|有|多少|几|哪些|什么|个|笔|张|条|单子|订单|买断|租赁|分期|付款|代理商?|经销商|"
    r"在|的|是|了|吗|呢|和|里|中|份|那么|那|还|又|今年|去年|上个?月|这个?月|本月|情况|数量|占"
)


@dataclass(frozen=True)
class Period:
    """A year, a month of a year, or all time."""

    year: int | None = None
    month: int | None = None

    @property
    def arguments(self) -> dict[str, int]:
        """For `query_orders`."""
        given = {"year": self.year, "month": self.month}
        return {name: value for name, value in given.items() if value is not None}


@dataclass(frozen=True)
class Asked:
    """One turn: what is asked, in which language, and what is known."""

    text: str
    chinese: bool
    turn: tuple[ToolOutcome, ...]
    earlier: tuple[ToolOutcome, ...]
    noted: dict[str, dict[str, Any]]

    def say(self, english: str, chinese: str) -> str:
        """The sentence in the language of the question."""
        return chinese if self.chinese else english

    def last(self, tool: str) -> dict[str, Any]:
        """What that tool was last asked successfully before this turn; empty if it never was."""
        found = [dict(result.arguments) for result in self.earlier if result.name == tool and result.fields]
        return self.noted.get(tool) or (found[-1] if found else {})


def noted(conversation: Conversation) -> dict[str, dict[str, Any]]:
    """The last call of each tool, as notes in the conversation tell it."""
    texts = (message.text for message in conversation.messages[:-1] if isinstance(message, UserMessage))
    return {tool: json.loads(arguments) for text in texts for tool, arguments in LAST_CALL.findall(text)}


def brain(conversation: Conversation) -> Reaction:
    """The next tools to call, or the answer."""
    text = conversation.user
    asked = Asked(
        text, bool(re.search(r"[一-鿿]", text)), conversation.results, conversation.earlier, noted(conversation)
    )
    if not conversation.tools:
        return asked.say("I have no tools to look orders up with.", "我没有可用的查询工具。")
    if WORK.search(text) or (AGAIN.search(text) and _earlier_work(asked) and not ORDERS.search(text)):
        return _work_order(asked)
    if numbers := order_numbers(text):
        return _status(asked, numbers)
    if ORDERS.search(text) or _goes_on(asked):
        return _orders(asked)
    if IT.search(text) and (known := asked.last("get_order_status")):
        return _status(asked, [known["order_id"]])
    return asked.say(
        "I can tell where an order is, list the orders of a sales agent, and open work orders. What do you need?",
        "我可以查订单状态、查代理商的订单、创建工单。请问需要哪一项？",
    )


def order_numbers(text: str) -> list[str]:
    """The numbers of orders in the text."""
    return list(dict.fromkeys(number.upper() for number in ORDER.findall(text)))


# Where an order is


def _status(asked: Asked, numbers: list[str]) -> Reaction:
    known = {
        str(result.arguments.get("order_id")): result for result in asked.turn if result.name == "get_order_status"
    }
    missing = [number for number in numbers if number not in known]
    if missing:
        return [call("get_order_status", order_id=number) for number in missing]
    said = [
        told_status(asked, known[number].fields) if known[number].fields else known[number].text for number in numbers
    ]
    return ("" if asked.chinese else " ").join(said)


def told_status(asked: Asked, order: dict[str, Any]) -> str:
    """Where an order is, in words."""
    known = (
        dict.fromkeys(("shipped_on", "delivered_on", "carrier", "carrier_zh", "tracking", "place", "place_zh"), "?")
        | order
    )
    english, chinese = {
        "paid": ("was paid on {ordered_on} and is not shipped yet", "已于{ordered_on}付款，尚未发货"),
        "packed": ("is packed and about to be shipped", "已打包，即将发货"),
        "shipped": (
            "was shipped on {shipped_on} with {carrier} ({tracking}) and is at {place} now",
            "已于{shipped_on}由{carrier_zh}发出（{tracking}），目前在{place_zh}",
        ),
        "delivered": ("was delivered on {delivered_on} by {carrier}", "已于{delivered_on}由{carrier_zh}送达"),
        "cancelled": ("is cancelled", "已取消"),
        "returned": ("was returned", "已退货"),
    }.get(order["status"], ("is {status}", "状态为{status}"))
    return asked.say(
        f"Order {{order_id}} ({{product}}) {english}.".format(**known),
        f"订单{{order_id}}（{{product_zh}}）{chinese}。".format(**known),
    )


# The orders of a sales agent


def agent_in(text: str) -> str | None:
    """The sales agent that is named: a number, or what is left when everything is taken out that is no name."""
    if number := AGENT_NUMBER.search(text):
        return next(filter(None, number.groups()))
    if re.search(r"[一-鿿]", text):
        left = re.findall(r"[一-鿿]{2,}", NO_CHINESE_NAME.sub(" ", text))
        return left[0] if left else None
    for found in AGENT_NAME.finditer(f"{text} "):
        name = " ".join(NO_NAME.sub(" ", next(filter(None, found.groups()))).split())
        if name:
            return name.title()
    return None


def _goes_on(asked: Asked) -> bool:
    """Whether the question is about orders: of a kind, or, after some were listed, of another agent or period."""
    if any(pattern.search(asked.text) for pattern, _, _ in KINDS.values()):
        return True
    return bool(asked.last("query_orders") and (agent_in(asked.text) or first_reading(asked.text).arguments))


def first_reading(text: str) -> Period:
    """The period as it is read at first sight; six digits are cut in the wrong place."""
    if digits := SIX_DIGITS.search(text):
        return Period(int(digits[1][:5]), int(digits[1][5:]))
    if found := YEAR_AND_MONTH.search(text):
        year, month = (found[1], int(found[2])) if found[1] else (found[4], _month(found[3]))
        return Period(int(year), month)
    if found := YEAR.search(text):
        return Period(int(found[1] or found[2]))
    if found := ONE_MONTH.search(text):
        return Period(None, int(found[1]) if found[1] else _month(found[2]))
    return Period()


def _month(name: str) -> int:
    return next(number for number, known in enumerate(MONTHS, 1) if known[:3].lower() == name[:3].lower())


def second_reading(text: str, wrong: Period, largest: int) -> Period:
    """The period once the tool has said what the largest year is."""
    size = len(str(largest))
    if digits := SIX_DIGITS.search(text):
        return Period(int(digits[1][:size]), int(digits[1][size:]))
    return Period(int(str(wrong.year)[:size]), wrong.month)


def _orders(asked: Asked) -> Reaction:
    tried = [result for result in asked.turn if result.name == "query_orders"]
    if tried and tried[-1].fields:
        return told_orders(asked, tried[-1].fields)
    known, named, period = asked.last("query_orders"), agent_in(asked.text), first_reading(asked.text)
    if tried:
        return _corrected(asked, tried) or unlisted(asked, tried[-1])
    agent = named or known.get("agent")
    if agent is None:
        return asked.say("Whose orders? Tell me the sales agent.", "请问查哪个代理商的订单？")
    if named is None:
        period = Period(period.year or known.get("year"), period.month if period.arguments else known.get("month"))
    return ask(
        call("query_orders", agent=agent, **period.arguments),
        text=asked.say(f"I look up the orders of {agent}.", f"查询{agent}的订单。"),
    )


def _corrected(asked: Asked, tried: list[ToolOutcome]) -> Reaction | None:
    """The call again, with the year that the tool says it can be; None where that is not what was wrong."""
    refused = tried[-1]
    limit, wrong = AT_MOST.search(refused.text), refused.arguments.get("year")
    if limit is None or not isinstance(wrong, int) or len(tried) > 1:
        return None
    period = second_reading(asked.text, Period(wrong, refused.arguments.get("month")), int(limit[1]))
    thought = asked.say(
        f"A year is at most {limit[1]}: {wrong} must mean {period.year}.",
        f"年份最大为{limit[1]}，{wrong}应为{period.year}。",
    )
    return ask(call("query_orders", **{**refused.arguments, **period.arguments}), text=thought)


def unlisted(asked: Asked, refused: ToolOutcome) -> str:
    """What to say where the tool had no list."""
    if "needs its year" in refused.text:
        return asked.say("Of which year? Please tell me the month with its year.", "请问是哪一年？请告诉我年份和月份。")
    return asked.say(f"That did not work: {refused.text}", f"查询没有成功：{refused.text}")


def told_orders(asked: Asked, found: dict[str, Any]) -> str:
    """The orders in words: of one kind where the question asks for that, else all."""
    orders: list[dict[str, Any]] = found["orders"]
    for kind, (pattern, english, chinese) in KINDS.items():
        if pattern.search(asked.text):
            some = [order for order in orders if order["kind"] == kind]
            numbers = ", ".join(order["order_id"] for order in some)
            return asked.say(
                f"{len(some)} of the {found['count']} orders of {found['agent']}{_when(asked, found)} are {english}"
                f"{f': {numbers}' if some else ''}.",
                f"{found['agent_zh']}{_when(asked, found)}的{found['count']}个订单中，{chinese}有{len(some)}个"
                f"{f'：{numbers}' if some else ''}。".replace(", ", "、"),
            )
    listed = asked.say(
        ", ".join("{order_id} ({product}, {kind}, {amount_cny:g} yuan, {status})".format(**order) for order in orders),
        "、".join("{order_id}（{product_zh}，{amount_cny:g}元）".format(**order) for order in orders),
    )
    total, when = f"{found['total_cny']:g}", _when(asked, found)
    return asked.say(
        f"{found['agent']} has {found['count']} orders{when}, {total} yuan in all{f': {listed}' if orders else ''}.",
        f"{found['agent_zh']}{when}共有{found['count']}个订单，合计{total}元{f'：{listed}' if orders else ''}。",
    )


def _when(asked: Asked, found: dict[str, Any]) -> str:
    year, month = found.get("year"), found.get("month")
    if year is None:
        return ""
    if month is None:
        return asked.say(f" in {year}", f"{year}年")
    return asked.say(f" in {MONTHS[month - 1]} {year}", f"{year}年{month}月")


# Work orders


def _earlier_work(asked: Asked) -> ToolOutcome | None:
    found = [result for result in asked.earlier if result.name == "create_work_order"]
    return found[-1] if found else None


def _work_order(asked: Asked) -> Reaction:
    done = [result for result in asked.turn if result.name == "create_work_order"]
    if done:
        return told_work(asked, done[-1])
    wanted = _wanted(asked)
    if wanted is None:
        return asked.say("For which order? Tell me its number.", "请问为哪个订单创建工单？请告诉我订单号。")
    return ask(wanted, text=asked.say("I open the work order.", "创建工单。"))


def _wanted(asked: Asked) -> ToolCall | None:
    """The work order that is asked for; what is left out is as in the last one, or the order that was looked up."""
    earlier, numbers = _earlier_work(asked), order_numbers(asked.text)
    if earlier is not None and AGAIN.search(asked.text) and numbers in ([], [earlier.arguments.get("order_id")]):
        return call("create_work_order", **earlier.arguments)
    known = asked.last("get_order_status").get("order_id") or (earlier.arguments.get("order_id") if earlier else None)
    number = numbers[0] if numbers else known
    if number is None:
        return None
    kind = next((kind for kind, pattern in WORKS if pattern.search(asked.text)), "other")
    note = NOTE.search(asked.text)
    return call("create_work_order", order_id=number, kind=kind, note=(note[1] if note else asked.text).strip())


def told_work(asked: Asked, result: ToolOutcome) -> str:
    """What came of a work order."""
    made = result.fields
    if not made:
        return asked.say(f"No work order was opened. {result.text}", f"工单没有创建。{result.text}")
    earlier = _earlier_work(asked)
    if earlier is not None and earlier.fields.get("work_order") == made["work_order"]:
        return asked.say(
            "It is open already: work order {work_order} ({kind}) for order {order_id}.".format(**made),
            "该工单已存在：订单{order_id}的工单{work_order}。".format(**made),
        )
    return asked.say(
        "Work order {work_order} ({kind}) is open for order {order_id}.".format(**made),
        "已为订单{order_id}创建工单{work_order}。".format(**made),
    )
