"""The tools of the program: of every kind that there is, each logging when it begins and when it has had its effect."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from plan import is_murky, share
from points import Points
from world import World

from glassloop import FatalToolError, RunContext, Tool, ask_human, tool

Act = Callable[[str, RunContext, str], None]


class Shop:
    """What every tool does around its effect.

    Args:
        world: where effects go.
        points: where to die.
        slow: seconds that a tool takes at most.
    """

    def __init__(self, world: World, points: Points, slow: float) -> None:
        self.world, self.points, self.slow = world, points, slow

    def enter(self, name: str, context: RunContext, id: str) -> None:
        """The function has begun."""
        self.world.write("enter", name, id, context.idempotency_key, call=context.call_id, run=context.run_id)
        self.points.reach("enter")

    def act(self, name: str, context: RunContext, id: str) -> None:
        """The effect."""
        self.world.write("effect", name, id, context.idempotency_key, call=context.call_id, run=context.run_id)
        self.points.reach("effect")

    def leave(self, name: str, id: str) -> str:
        """The function returns."""
        self.points.reach("leave")
        return f"{name} {id} done"

    def pause(self, id: str, where: str) -> float:
        """Seconds to work; a third of the pauses are none."""
        return max(0.0, share(f"{where} {id}") * 1.5 - 0.5) * self.slow


def tools_of(shop: Shop) -> list[Tool]:
    """All tools."""
    return [*_naive(shop), _order(shop), _sign(shop), *_outside(shop), *_inside(shop), *_failing(shop)]


def _naive(shop: Shop) -> list[Tool]:
    @tool(effect="write")
    async def note(context: RunContext, id: str) -> str:
        """Write a line that nobody can find again."""
        shop.enter("note", context, id)
        await asyncio.sleep(shop.pause(id, "before"))
        shop.act("note", context, id)
        await asyncio.sleep(shop.pause(id, "after"))
        return shop.leave("note", id)

    @tool(effect="write")
    def stamp(context: RunContext, id: str) -> str:
        """Write such a line, in a thread."""
        shop.enter("stamp", context, id)
        time.sleep(shop.pause(id, "before"))
        shop.act("stamp", context, id)
        time.sleep(shop.pause(id, "after"))
        return shop.leave("stamp", id)

    return [note, stamp]


def _order(shop: Shop) -> Tool:
    @tool(effect="write", approval=True)
    async def order(context: RunContext, id: str) -> str:
        """Order something, after a human has agreed."""
        shop.enter("order", context, id)
        shop.act("order", context, id)
        await asyncio.sleep(shop.pause(id, "after"))
        return shop.leave("order", id)

    return order


def _sign(shop: Shop) -> Tool:
    @tool(effect="write")
    async def sign(context: RunContext, id: str) -> str:
        """Sign something, once a human has said twice with what."""
        await asyncio.sleep(shop.pause(id, "before"))
        pens = [ask_human(f"Which pen for {id}, the {place} one?", choices=["red", "blue"]) for place in range(2)]
        shop.enter("sign", context, id)
        shop.act("sign", context, id)
        await asyncio.sleep(shop.pause(f"{id} {pens}", "after"))
        return shop.leave("sign", id)

    return sign


def _outside(shop: Shop) -> list[Tool]:
    world = shop.world

    @tool(effect="write", idempotent=True)
    def charge(context: RunContext, id: str) -> str:
        """Charge through a service that honours the key."""
        shop.enter("charge", context, id)
        time.sleep(shop.pause(id, "before"))
        world.charge(context.idempotency_key, id)
        shop.act("charge", context, id)
        time.sleep(shop.pause(id, "after"))
        return shop.leave("charge", id)

    def shipped(key: str) -> str | None:
        shop.points.reach("reconcile")
        mine = [entry for entry in world.entries() if entry.tool == "ship" and entry.key == key]
        if any(is_murky(entry.id) for entry in mine):
            raise LookupError("The carrier cannot tell.")
        done = next((entry for entry in mine if entry.what == "effect"), None)
        return f"ship {done.id} done" if done else None

    @tool(effect="write", reconcile=shipped)
    async def ship(context: RunContext, id: str) -> str:
        """Ship something; the carrier can be asked whether it did."""
        shop.enter("ship", context, id)
        await asyncio.sleep(shop.pause(id, "before"))
        shop.act("ship", context, id)
        await asyncio.sleep(shop.pause(id, "after"))
        return shop.leave("ship", id)

    return [charge, ship]


def _inside(shop: Shop) -> list[Tool]:
    @tool(effect="write", transaction=True)
    def book(context: RunContext, id: str) -> str:
        """Write a row beside the journal."""
        shop.enter("book", context, id)
        shop.world.place.book(context.transaction, id, context.idempotency_key)
        shop.points.reach("booked")
        return shop.leave("book", id)

    @tool
    def look(context: RunContext, id: str) -> int:
        """Count the rows."""
        time.sleep(shop.pause(id, "before"))
        return shop.world.place.rows("SELECT count(*) FROM bookings")[0][0]

    return [book, look]


def _failing(shop: Shop) -> list[Tool]:
    def release(arguments: dict[str, Any], result: object) -> None:
        shop.world.write("release", "reserve", arguments["id"])
        shop.points.reach("effect")

    @tool(effect="write", undo=release)
    async def reserve(context: RunContext, id: str) -> str:
        """Reserve something, which can be taken back."""
        shop.enter("reserve", context, id)
        shop.act("reserve", context, id)
        await asyncio.sleep(shop.pause(id, "after"))
        return shop.leave("reserve", id)

    @tool
    async def collapse(id: str) -> str:
        """Stop the run."""
        raise FatalToolError(f"{id}: the shop is closed.")

    return [reserve, collapse]
