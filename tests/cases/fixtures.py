"""The tools that cases refer to by name: plain functions, wrapped by whatever runtime plays the case.

LOG records every real execution as (name, arguments); OUTBOX and DELETED record side effects. `transfer_to_bob` and
`transfer_to_eve` are handoffs to agents named bob and eve, not functions.
"""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

LOG: list[tuple[str, dict[str, Any]]] = []
OUTBOX: list[Any] = []
DELETED: list[int] = []
RAISING = {"boom", "silent", "send_then_fail", "self_cancel"}
"""Tools whose every execution fails."""


class ToolError(Exception):
    """Its message is meant for the model."""


tool_error: type[Exception] = ToolError
"""What a tool raises to speak to the model: the runtime's own exception, where it has one."""


def _log(name: str, **arguments: Any) -> None:
    LOG.append((name, arguments))


def add(a: int, b: int) -> int:
    """Add two numbers."""
    _log("add", a=a, b=b)
    return a + b


def now() -> str:
    """Current time."""
    _log("now")
    return "12:00"


def get_weather(city: str) -> str:
    """Weather of a city."""
    _log("get_weather", city=city)
    return f"sunny in {city}"


def write_file(path: str, content: str) -> str:
    """Write a file."""
    _log("write_file", path=path, content=content)
    return "ok"


def send_note(to: str, body: str) -> str:
    """Send a note."""
    _log("send_note", to=to, body=body)
    OUTBOX.append((to, body))
    return "sent"


def send_then_fail(to: str) -> str:
    """Send, then lose the connection."""
    _log("send_then_fail", to=to)
    OUTBOX.append(to)
    raise ConnectionError("reset")


def set_tags(tags: list[str]) -> str:
    """Set tags."""
    _log("set_tags", tags=tags)
    return ",".join(tags)


def set_mode(dark: bool, label: str | None = None) -> str:
    """Set mode."""
    _log("set_mode", dark=dark, **({} if label is None else {"label": label}))
    return "ok"


def wipe_cache(scope: str = "all") -> str:
    """Wipe."""
    _log("wipe_cache", scope=scope)
    return "wiped " + scope


def functionshell() -> str:
    """Odd name."""
    _log("functionshell")
    return "ok"


def delete_row(row_id: int) -> str:
    """Delete a row (needs approval)."""
    _log("delete_row", row_id=row_id)
    DELETED.append(row_id)
    return f"deleted {row_id}"


def boom() -> str:
    """Fails."""
    _log("boom")
    raise RuntimeError("connect postgres://svc:S3CRET@10.0.0.5/x failed")


async def self_cancel() -> str:
    """Raises CancelledError by itself."""
    _log("self_cancel")
    raise asyncio.CancelledError


async def slow(seconds: float) -> str:
    """Sleeps."""
    _log("slow", seconds=seconds)
    await asyncio.sleep(seconds)
    return "slept"


def strict_div(x: int) -> float:
    """1/x"""
    _log("strict_div", x=x)
    if x == 0:
        raise tool_error("x must not be 0")
    return 1 / x


def poll(job: int) -> str:
    """Poll a job."""
    _log("poll", job=job)
    polls = sum(name == "poll" for name, _ in LOG)
    return "ready" if polls >= 6 else f"pending {polls}"


def silent() -> str:
    """Raises without text."""
    _log("silent")
    raise ValueError


def ret_none() -> None:
    """None."""
    _log("ret_none")


def ret_empty_list() -> list[Any]:
    """[]"""
    _log("ret_empty_list")
    return []


def ret_empty_str() -> str:
    """''"""
    _log("ret_empty_str")
    return ""


def announce() -> dict[str, str]:
    """公告。"""
    _log("announce")
    return {"msg": "今天放假 明日 é 🌍"}


def dump() -> str:
    """Huge."""
    _log("dump")
    return "HEAD " + "x" * 5_000_000 + " END-OF-DATA"


def search_docs(q: str) -> list[Any]:
    """Search."""
    _log("search_docs", q=q)
    return []


class Step(BaseModel):
    """A step of a plan."""

    n: int


def plan(steps: list[Step], blob: Annotated[str, Field(max_length=100)], when: Literal["now", "later"]) -> str:
    """Make a plan."""
    _log("plan")
    return "ok"
