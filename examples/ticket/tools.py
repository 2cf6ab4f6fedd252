"""What the ticket desk can do: look orders and policies up and, with a human's yes, open tickets and refund money."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import Field

from glassloop import RunContext, ToolError, tool

from .._shop.tables import Connection, connected, find_order, lean, next_number, now, prepare

Priority = Literal["low", "normal", "high", "urgent"]
Amount = Annotated[float, Field(gt=0, le=1_000_000)]

COMMON = frozenset(
    ["the", "and", "for", "was", "has", "that", "this", "with", "what", "how", "order", "orders", "customer"]
)
"""Words that say nothing about a policy."""

SUPERVISED_CNY = 500.0
"""A refund above this is confirmed by a supervisor."""


def query_order_detail(context: RunContext, order_id: str) -> dict[str, Any]:
    """Get everything that is known about an order: product, price, payment, shipping, earlier tickets and refunds.

    Args:
        order_id: number of the order, such as 2024001
    """
    with connected(context) as connection:
        order = find_order(connection, order_id)
        tickets = "SELECT number, title, status FROM tickets WHERE order_id = ? ORDER BY id"
        order["tickets"] = [dict(row) for row in connection.execute(tickets, (order["order_id"],))]
        order["refunded_cny"] = refunded(connection, order["order_id"])
    return lean(order)


def refunded(connection: Connection, order_id: str) -> float:
    """What has been paid back on an order, in yuan."""
    query = "SELECT coalesce(sum(amount_cny), 0) FROM refunds WHERE order_id = ? AND status != 'void'"
    return round(connection.execute(query, (order_id,)).fetchone()[0], 2)


def search_policy(context: RunContext, query: str) -> list[dict[str, str]]:
    """Search the after-sales policies, the best match first; nothing is returned where no policy speaks of it.

    Args:
        query: what it is about, in English or Chinese, such as "order not shipped"
    """
    with connected(context) as connection:
        policies = [dict(row) for row in connection.execute("SELECT * FROM policies ORDER BY policy_id")]
    wanted = words_of(query)
    scored = [(score(wanted, policy), policy) for policy in policies]
    best = sorted((item for item in scored if item[0]), key=lambda item: -item[0])
    suffix = "" if query.isascii() else "_zh"
    return [
        {"policy_id": policy["policy_id"], "title": policy[f"title{suffix}"], "text": policy[f"text{suffix}"]}
        for _, policy in best[:2]
    ]


def words_of(text: str) -> set[str]:
    """The English words of a text, and every two neighbouring Chinese characters."""
    chinese = re.findall(r"[一-鿿]+", text)
    pairs = {run[start : start + 2] for run in chinese for start in range(max(len(run) - 1, 1))}
    return {word for word in re.findall(r"[a-z]{3,}", text.lower()) if word not in COMMON} | pairs


def score(wanted: set[str], policy: dict[str, str]) -> int:
    """How well a policy fits: words that customers say count three times."""
    said = words_of(policy["words"])
    text = words_of(" ".join(policy[name] for name in ("title", "title_zh", "text", "text_zh")))
    return 3 * len(wanted & said) + len(wanted & (text - said))


@tool(effect="write", risk="high", transaction=True)
def create_ticket(
    context: RunContext, order_id: str, title: str, description: str, priority: Priority = "normal"
) -> dict[str, Any]:
    """Open a ticket for the after-sales team. A human confirms it first.

    Args:
        order_id: number of the order
        title: one line
        description: the complaint, what the order's record says, and what the policy asks for
        priority: how soon it must be worked on
    """
    connection = context.transaction
    prepare(connection)
    order = find_order(connection, order_id)["order_id"]
    identifier, number = next_number(connection, "tickets", "TK")
    asked_in = context.session or context.run_id
    row = (identifier, number, order, "complaint", title, description, priority, "open", context.user, asked_in, now())
    connection.execute("INSERT INTO tickets VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
    return {"ticket": number, "order_id": order, "priority": priority, "status": "open"}


def void_refund(context: RunContext, arguments: dict[str, Any], result: dict[str, Any]) -> None:
    """Take a refund back that was submitted by a run which failed later."""
    with connected(context) as connection:
        connection.execute("UPDATE refunds SET status = 'void' WHERE number = ?", (result["refund"],))


def who_confirms(arguments: dict[str, Any]) -> bool | str:
    """The role that must confirm a refund, or True for the one who asked."""
    return "supervisor" if arguments["amount"] > SUPERVISED_CNY else True


@tool(effect="write", risk="high", transaction=True, approval=who_confirms, undo=void_refund)
def submit_refund(context: RunContext, order_id: str, amount: Amount, reason: str) -> dict[str, Any]:
    """Pay money back for an order. A human confirms it first, above 500 yuan a supervisor.

    Args:
        order_id: number of the order
        amount: in yuan, at most what was paid
        reason: why
    """
    connection = context.transaction
    prepare(connection)
    order = find_order(connection, order_id)
    left = round(order["amount_cny"] - refunded(connection, order["order_id"]), 2)
    if amount > left:
        raise ToolError(f"Order {order['order_id']} has {left:g} yuan left to refund, not {amount:g}.")
    identifier, number = next_number(connection, "refunds", "RF")
    row = (identifier, number, order["order_id"], round(amount, 2), reason, "submitted", context.user, now())
    connection.execute("INSERT INTO refunds VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
    return {"refund": number, "order_id": order["order_id"], "amount_cny": round(amount, 2), "status": "submitted"}
