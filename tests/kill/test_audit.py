"""The audit itself: it must see what it is there for."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from audit import Findings, audit_end, audit_now, cut_off
from plan import PlannedCall, PlannedRun
from snapshot import Snapshot, take
from world import World

from glassloop.core.context import Identity
from glassloop.core.events import (
    ApprovalAsked,
    ApprovalDecided,
    DriverClaimed,
    EffectStarted,
    Event,
    JournalData,
    ModelReplied,
    RunFinished,
    RunStarted,
    ToolFinished,
)
from glassloop.core.limits import Limits
from glassloop.core.messages import Reply, ToolCall, ToolResult, UserMessage
from glassloop.core.usage import Spent, Usage
from glassloop.stores import open_store

BEGINNING: tuple[JournalData, ...] = (
    RunStarted("desk", "f", Identity("u0"), UserMessage("r00"), Limits()),
    DriverClaimed(1, "somebody"),
    ModelReplied(Reply((ToolCall("call_1", "note", '{"id":"n1"}'),)), 1.0),
    EffectStarted("call_1", "key_1"),
)
END: tuple[JournalData, ...] = (
    ToolFinished("call_1", ToolResult("call_1", "note", "done"), 1.0),
    RunFinished("completed", "done"),
)
PLAN = {"r00": PlannedRun("r00", "u0", None, ((PlannedCall("note", "n1"),),))}


CLERK = PlannedRun("r00/0.0", "u0", None, (), agent="clerk")
TREE = {"r00": replace(PLAN["r00"], steps=((PlannedCall("clerk", "r00/0.0"),),)), "r00/0.0": CLERK}


def store(world: World, data: Iterable[JournalData], **others: Iterable[JournalData]) -> Snapshot:
    """A store whose first run has these events; `others` are runs below it."""

    opened = open_store(world.url)

    async def write() -> None:
        async with opened as store:
            for run_id, news in {"run_1": data, **{f"run_1.{name}": more for name, more in others.items()}}.items():
                events = [Event(run_id, 0, 1, 0, each) for each in news]
                await store.journal.append(run_id, events, after=0, epoch=1)

    asyncio.run(write())
    return take(world)


def audit(world: World, snapshot: Snapshot, **options: Any) -> Findings:
    return audit_end(snapshot, world, options.get("plan", PLAN), options.get("cut", ()))


def acts(world: World, times: int) -> None:
    for _ in range(times):
        world.write("enter", "note", "n1", "key_1", call="call_1", run="run_1")
        world.write("effect", "note", "n1", "key_1", call="call_1", run="run_1")


def doubt(decision: Any) -> tuple[JournalData, ...]:
    asked = ApprovalAsked("appr_1", "call_1", "note", '{"id":"n1"}', "f", "note", kind="doubt")
    return asked, ApprovalDecided("appr_1", decision)


def test_a_run_in_order_has_no_faults(world: World) -> None:
    acts(world, 1)
    found = audit(world, store(world, (*BEGINNING, *END)))
    assert found.faults == []
    assert (found.started, found.lost, found.counts["naive"].effects) == (1, 0, 1)


def test_a_silent_repeat_is_seen(world: World) -> None:
    acts(world, 2)
    found = audit(world, store(world, (*BEGINNING, *END)))
    assert found.counts["naive"].repeats == 1
    assert any("has happened 2 times" in fault for fault in found.faults)


@pytest.mark.parametrize(("decision", "repeats", "again"), [("approve", 0, 1), ("deny", 1, 0)])
def test_a_repeat_is_in_order_only_after_a_yes(decision: str, repeats: int, again: int, world: World) -> None:
    acts(world, 2)
    found = audit(world, store(world, (*BEGINNING, *doubt(decision), *END)), cut={("run_1", "call_1", 4)})
    assert (found.counts["naive"].repeats, found.counts["naive"].again) == (repeats, again)
    assert (found.cut, found.surfaced) == (1, 1)


def test_a_result_without_an_effect_is_seen(world: World) -> None:
    found = audit(world, store(world, (*BEGINNING, *END)))
    assert found.counts["naive"].missing == 1


def test_an_unfinished_and_an_unknown_run_are_lost(world: World) -> None:
    acts(world, 1)
    plan = {**PLAN, "r01": replace(PLAN["r00"], name="r01")}
    found = audit(world, store(world, BEGINNING), plan=plan)
    assert found.lost == 2


def test_a_call_that_was_cut_off_must_be_asked_about(world: World) -> None:
    acts(world, 1)
    snapshot = store(world, BEGINNING)
    cut = cut_off(snapshot, world)
    assert cut == {("run_1", "call_1", 4)}
    found = audit(world, snapshot, cut=cut)
    assert (found.cut, found.surfaced) == (1, 0)
    assert any("nobody was asked" in fault for fault in found.faults)


def below(text: str = "r00/0.0") -> RunStarted:
    return RunStarted("clerk", "f", Identity("u0"), UserMessage(text), Limits(), parent="run_1")


def test_a_tree_in_order_has_no_faults(world: World) -> None:
    give = ModelReplied(Reply((ToolCall("call_1", "clerk", '{"task":"r00/0.0"}'),)), 1.0)
    given = ToolFinished("call_1", ToolResult("call_1", "clerk", "done"), 1.0)
    snapshot = store(world, (*BEGINNING[:2], give, given, END[1]), a=(below(), END[1]))
    found = audit(world, snapshot, plan=TREE)
    assert found.faults == []
    assert (found.counts["below"].effects, found.counts["below"].missing) == (1, 0)


def test_a_run_below_one_that_has_ended_must_have_ended(world: World) -> None:
    snapshot = store(world, (BEGINNING[0], END[1]), a=(below(),))
    assert any("has not ended, and the run that it belongs to has" in fault for fault in audit_now(snapshot, world))


def test_a_run_that_is_driven_after_its_end_is_seen(world: World) -> None:
    snapshot = store(world, BEGINNING[:1], a=(below(), END[1], DriverClaimed(1, "somebody")))
    assert any("driven after it had ended" in fault for fault in audit_now(snapshot, world))


def test_a_run_below_that_was_begun_twice_is_seen(world: World) -> None:
    snapshot = store(world, (BEGINNING[0], END[1]), a=(below(), END[1]), b=(below(), END[1]))
    assert any("r00/0.0 has happened 2 times" in fault for fault in audit_now(snapshot, world))


def test_a_run_below_one_that_is_not_there_is_seen(world: World) -> None:
    assert any("in no list" in fault for fault in audit_now(store(world, (), a=(below(),)), world))


def test_a_tree_that_has_not_spent_what_its_runs_have_is_seen(world: World) -> None:
    reply = ModelReplied(Reply((), usage=Usage(10, 5, requests=1)), 1.0)
    snapshot = store(world, (*BEGINNING[:1], reply, END[1]), a=(below(), reply, END[1]))
    spent = replace(snapshot.results["run_1"], spent=Spent(15))
    wrong = audit(world, replace(snapshot, results={"run_1": spent}), plan=TREE)
    assert any("has spent" in fault for fault in wrong.faults)
    assert not any("has spent" in fault for fault in audit(world, snapshot, plan=TREE).faults)


def test_a_started_run_that_is_not_in_the_journal_is_seen(world: World) -> None:
    world.write("started", id="r07", run="run_7")
    assert any("run_7" in fault for fault in audit_now(store(world, BEGINNING), world))


def test_a_line_that_was_cut_off_did_not_happen(world: World) -> None:
    world.write("effect", "note", "n1")
    with world.log.open("ab") as log:
        log.write(b'{"what": "effect", "to')
    World(world.folder, 2).write("effect", "note", "n2")
    assert [entry.id for entry in world.entries()] == ["n1", "n2"]
