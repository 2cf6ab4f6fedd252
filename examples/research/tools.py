"""What the research assistant can do beside searching: tell the time and calculate."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Annotated, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import Field

from glassloop import ToolError

Number = Annotated[Decimal, Field(gt=-(10**15), lt=10**15)]
"""Decimal, so that 0.1 + 0.2 is 0.3."""


def get_current_time(timezone: str = "") -> dict[str, str]:
    """Get the current date and time.

    Args:
        timezone: an IANA name such as Asia/Shanghai; empty for local time
    """
    try:
        now = datetime.now(ZoneInfo(timezone)) if timezone else datetime.now().astimezone()
    except (ZoneInfoNotFoundError, ValueError) as error:
        raise ToolError(f"Unknown time zone {timezone!r}: use an IANA name such as Asia/Shanghai.") from error
    return {"date": f"{now:%Y-%m-%d}", "time": f"{now:%H:%M}", "weekday": f"{now:%A}", "timezone": f"{now:%Z}"}


def calculate(a: Number, op: Literal["+", "-", "*", "/"], b: Number) -> int | float:
    """Calculate one step: a + b, a - b, a * b or a / b.

    Args:
        a: the first number
        op: what to do with them
        b: the second number
    """
    match op:
        case "+":
            return plain(a + b)
        case "-":
            return plain(a - b)
        case "*":
            return plain(a * b)
        case "/" if b == 0:
            raise ToolError(f"Cannot divide {a} by zero: no number is the result of that.")
        case "/":
            return plain(a / b)


def percentage(part: Number, total: Number) -> int | float:
    """Calculate how many percent of the total the part is.

    Args:
        part: the number to express in percent
        total: what 100 percent are
    """
    if total == 0:
        raise ToolError(f"Cannot say how many percent of zero {part} is: the total must not be 0.")
    return plain(100 * part / total)


def plain(number: Decimal) -> int | float:
    """A number as JSON has it."""
    return int(number) if number == number.to_integral_value() else float(number)
