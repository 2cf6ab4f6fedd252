"""What the order desk can do: look orders up, list those of a sales agent, and open work orders."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from glassloop import RunContext, ToolError, tool

from .._shop.tables import Connection, connected, find_order, lean, next_number, now, prepare

Year = Annotated[int, Field(ge=2000, le=2100)]
Month = Annotated[int, Field(ge=1, le=12)]
Kind = Literal["delivery", "repair", "exchange", "return", "invoice", "other"]

MOST = 50
"""Orders in one answer."""


def get_order_status(context: RunContext, order_id: str) -> dict[str, Any]:
    """Get where an order is.

    Args:
        order_id: number of the order, such as A-1024
    """
    with connected(context) as connection:
        order = find_order(connection, order_id)
    return lean({name: value for name, value in order.items() if name not in _NOT_ITS_STATUS})


_NOT_ITS_STATUS = ("agent_id", "customer", "kind", "amount_cny")


def query_orders(
    context: RunContext, agent: str, year: Year | None = None, month: Month | None = None
) -> dict[str, Any]:
    """List the orders of a sales agent, newest first; of all time unless a year, or a year and a month, is given.

    Args:
        agent: name of the agent in English or Chinese, or its number
        year: four digits, such as 2024
        month: 1 to 12; needs the year
    """
    if month is not None and year is None:
        raise ToolError("A month needs its year: call query_orders again with both, or ask the user for the year.")
    period = f"{year or '%'}-{f'{month:02}' if month else '%'}-%" if year else "%"
    with connected(context) as connection:
        known = _agent(connection, agent)
        query = """
            SELECT order_id, ordered_on, product, product_zh, kind, amount_cny, status FROM orders
            WHERE agent_id = ? AND ordered_on LIKE ? ORDER BY ordered_on DESC, order_id
        """
        rows = [dict(row) for row in connection.execute(query, (known["agent_id"], period))]
    total = round(sum(row["amount_cny"] for row in rows), 2)
    return lean({**known, "year": year, "month": month, "count": len(rows), "total_cny": total, "orders": rows[:MOST]})


def _agent(connection: Connection, wanted: str) -> dict[str, Any]:
    """The sales agent of that name or number.

    Raises:
        ToolError: there is none.
    """
    query = "SELECT DISTINCT agent_id, agent, agent_zh FROM orders ORDER BY agent_id"
    agents: list[dict[str, Any]] = [
        {"agent_id": number, "agent": name, "agent_zh": chinese} for number, name, chinese in connection.execute(query)
    ]
    words = wanted.casefold().replace(",", " ").split()
    joined = "".join(words)
    for agent in agents:
        if joined in (str(agent["agent_id"]), agent["agent_zh"]) or sorted(words) == sorted(
            agent["agent"].lower().split()
        ):
            return agent
    parts = [
        agent
        for agent in agents
        if joined and (joined in agent["agent_zh"] or joined in agent["agent"].lower().split())
    ]
    if len(parts) == 1:
        return parts[0]
    there_are = ", ".join(f"{agent['agent']} ({agent['agent_zh']}, number {agent['agent_id']})" for agent in agents)
    raise ToolError(f"There is no sales agent {wanted!r}. There are: {there_are}.")


@tool(effect="write", risk="medium", transaction=True)
def create_work_order(context: RunContext, order_id: str, kind: Kind, note: str) -> dict[str, Any]:
    """Open a work order for an order. Asking again for the same gives the one that is open already.

    Args:
        order_id: number of the order
        kind: what is to be done
        note: what the one who does it must know
    """
    connection = context.transaction
    prepare(connection)
    order = find_order(connection, order_id)["order_id"]
    asked_in = context.session or context.run_id
    query = "SELECT number, description FROM tickets WHERE session = ? AND opened_by IS ? AND order_id = ? AND kind = ?"
    known = connection.execute(query, (asked_in, context.user, order, kind)).fetchone()
    if known is not None:
        return {"work_order": known[0], "order_id": order, "kind": kind, "note": known[1]}
    identifier, number = next_number(connection, "tickets", "WO")
    row = (identifier, number, order, kind, f"{kind}: {order}", note, "normal", "open", context.user, asked_in, now())
    connection.execute("INSERT INTO tickets VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
    return {"work_order": number, "order_id": order, "kind": kind, "note": note}
