"""Whether anything was lost or done twice: the journal and the world, held against the plan."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from plan import KINDS, ONCE_AT_MOST, Kind, PlannedRun, is_murky
from snapshot import Snapshot, faults
from world import Entry, World

from glassloop.core.encoding import loads
from glassloop.core.events import (
    ApprovalAsked,
    ApprovalDecided,
    EffectStarted,
    Event,
    HandedOff,
    ModelReplied,
    RunFinished,
    RunStarted,
    ToolFinished,
)
from glassloop.core.ids import root_of
from glassloop.core.messages import UserMessage
from glassloop.journal.view import message_digest
from glassloop.memory.turn import turns_of
from glassloop.models.sendable import sendable

NAIVE: tuple[Kind, ...] = ("naive", "held", "asks", "undone")

Begun = tuple[str, str, int]
"""A call that was begun: run, call, and the seq of its start."""


@dataclass
class Count:
    """What became of the calls of one kind.

    Args:
        calls: planned.
        effects: in the world.
        repeats: effects beyond the first that no human asked for.
        again: effects beyond the first that a human asked for ("run again").
        doubts: questions whether a call has happened.
        missing: results that say done where nothing was.
    """

    calls: int = 0
    effects: int = 0
    repeats: int = 0
    again: int = 0
    doubts: int = 0
    missing: int = 0

    def __add__(self, other: Count) -> Count:
        return Count(*(mine + theirs for mine, theirs in zip(vars(self).values(), vars(other).values(), strict=True)))


@dataclass
class Findings:
    """What an audit found.

    Args:
        started: runs.
        lost: runs without an end.
        cut: calls that a kill cut off and that only a human can settle.
        surfaced: those of them that a human was asked about.
        counts: by kind.
        faults: everything that is wrong, in words.
    """

    started: int = 0
    lost: int = 0
    cut: int = 0
    surfaced: int = 0
    counts: dict[Kind, Count] = field(default_factory=lambda: defaultdict[Kind, Count](Count))
    faults: list[str] = field(default_factory=list[str])

    def add(self, other: Findings) -> None:
        """Take another round's findings in."""
        self.started += other.started
        self.lost += other.lost
        self.cut += other.cut
        self.surfaced += other.surfaced
        self.faults += other.faults
        for kind, count in other.counts.items():
            self.counts[kind] += count


@dataclass(frozen=True)
class Facts:
    """The journal's calls and approvals, by planned call.

    Args:
        results: status of every result, by planned call.
        doubts: approvals that ask whether a call has happened: planned call, call, seq.
        again: how often a human said "run again", by planned call.
        yes: planned calls that a human agreed to before they ran, and `no`: those refused.
    """

    results: dict[str, list[str]]
    doubts: list[tuple[str, str, int]]
    again: Counter[str]
    denied_doubts: set[str]
    yes: set[str]
    no: set[str]


def cut_off(snapshot: Snapshot, world: World) -> set[Begun]:
    """Calls that have begun and have no result, in runs that nobody drives now, which only a human can settle."""
    keys = {entry.key for entry in world.entries() if entry.what == "enter"}
    found: set[Begun] = set()
    for run_id, events in snapshot.events.items():
        calls = dict(_calls(events))
        begun: dict[str, EffectStarted] = {}
        at: dict[str, int] = {}
        for event in events:
            match event.data:
                case EffectStarted(call_id=call_id) as start:
                    begun[call_id], at[call_id] = start, event.seq
                case ToolFinished(call_id=call_id) | ApprovalAsked(call_id=call_id):
                    begun.pop(call_id, None)
                case _:
                    pass
        for call_id, start in begun.items():
            tool, id = calls[call_id]
            kind = KINDS[tool]
            asks_itself = kind == "reconciled" and not (is_murky(id) and start.key in keys)
            if kind in ONCE_AT_MOST and not asks_itself and (run_id, call_id) not in snapshot.settled:
                found.add((run_id, call_id, at[call_id]))
    return found


def audit_now(snapshot: Snapshot, world: World) -> list[str]:
    """What is wrong right after a kill."""
    known = {entry.more["run"] for entry in world.entries() if entry.what == "started"}
    wrong = list(faults(snapshot))
    if lost := known - snapshot.events.keys():
        wrong.append(f"runs that were started and are not in the journal: {sorted(lost)}")
    facts, effects = _facts(snapshot), _effects(snapshot, world)
    wrong += _repeated(facts, effects)
    if doubts := [entry for entry in world.entries() if entry.what == "unsendable"]:
        wrong.append(f"the model was shown a history that no provider takes: {doubts[0].more}")
    return wrong


def audit_end(snapshot: Snapshot, world: World, plan: dict[str, PlannedRun], cut: Iterable[Begun] | None) -> Findings:
    """What is wrong when every run should have finished.

    Args:
        snapshot: the store at the end.
        world: the log and the service.
        plan: what was to be done.
        cut: what `cut_off` found after each kill; None where calls were cut off in other ways too.
    """
    facts, effects = _facts(snapshot), _effects(snapshot, world)
    found = Findings(faults=audit_now(snapshot, world))
    found.faults += _audit_runs(snapshot, plan, found)
    found.faults += _audit_sessions(snapshot, plan)
    found.faults += _audit_undo(snapshot, world)
    found.faults += _audit_approvals(facts, effects, world)
    found.faults += _audit_results(facts, plan)
    found.faults += _audit_trees(snapshot)
    if cut is not None:
        _audit_doubts(facts, set(cut), found)
    calls = {(call.id, call.tool) for run in plan.values() for step in run.steps for call in step}
    parts = {(run.name, run.agent) for run in plan.values() if not run.is_root}
    for id, tool in calls | parts:
        found.counts[KINDS[tool]] += _count(id, tool, facts, effects)
    for kind, count in found.counts.items():
        if count.missing:
            found.faults.append(f"{count.missing} results of kind {kind} say done, and nothing was done")
    return found


def _count(id: str, tool: str, facts: Facts, effects: Counter[str]) -> Count:
    beyond = max(0, effects[id] - 1)
    again = min(beyond, facts.again[id])
    doubts = sum(asked == id for asked, _, _ in facts.doubts)
    done = "ok" in facts.results.get(id, []) and KINDS[tool] != "read"
    return Count(1, effects[id], beyond - again, again, doubts, int(done and not effects[id]))


def _calls(events: Iterable[Event]) -> Iterator[tuple[str, tuple[str, str]]]:
    """Call id, and tool and planned call."""
    for event in events:
        match event.data:
            case ModelReplied(reply=reply):
                for call in reply.calls:
                    yield call.id, (call.name, *loads(call.arguments).values())
            case RunStarted(call=call) if call is not None:
                yield call.id, (call.name, *loads(call.arguments).values())
            case _:
                pass


def _facts(snapshot: Snapshot) -> Facts:
    facts = Facts(defaultdict(list), [], Counter(), set(), set(), set())
    for events in snapshot.events.values():
        calls, asked = dict(_calls(events)), dict[str, ApprovalAsked]()
        for event in events:
            match event.data:
                case ToolFinished(call_id=call_id, result=result):
                    facts.results[calls[call_id][1]].append(result.status)
                case ApprovalAsked() as question:
                    asked.setdefault(question.approval_id, question)
                    if question.kind == "doubt":
                        facts.doubts.append((loads(question.arguments)["id"], question.call_id, event.seq))
                case ApprovalDecided(approval_id=approval_id, decision=decision):
                    question = asked.pop(approval_id, None)
                    if question is not None:  # the first decision counts
                        _decided(facts, question, approved=decision != "deny")
                case _:
                    pass
    return facts


def _decided(facts: Facts, question: ApprovalAsked, *, approved: bool) -> None:
    id = loads(question.arguments)["id"]
    if question.kind == "doubt":
        if approved:
            facts.again[id] += 1
        else:
            facts.denied_doubts.add(id)
    else:
        (facts.yes if approved else facts.no).add(id)


def _effects(snapshot: Snapshot, world: World) -> Counter[str]:
    """How often each planned call has had its effect."""
    logged = (entry for entry in world.entries() if entry.what == "effect" and KINDS[entry.tool] != "keyed")
    effects = Counter(entry.id for entry in logged)
    effects.update(id for _, id in world.charges())
    effects.update(snapshot.bookings)
    for events in snapshot.events.values():
        effects.update(_below(events))
    return effects


def _below(events: Iterable[Event]) -> Iterator[str]:
    """What has happened within the journal: the run below another that these are of, and what it has handed on."""
    calls = dict(_calls(events))
    for event in events:
        match event.data:
            case RunStarted(kind="run", input=given, parent=parent) if given is not None and parent is not None:
                yield given.text
            case HandedOff(call_id=call_id):
                yield calls[call_id][1]
            case _:
                pass


def _repeated(facts: Facts, effects: Counter[str]) -> Iterator[str]:
    for id, times in effects.items():
        if times > 1 + facts.again[id]:
            yield f"{id} has happened {times} times, and a human said {facts.again[id]} times to run it again"


def _audit_runs(snapshot: Snapshot, plan: dict[str, PlannedRun], found: Findings) -> Iterator[str]:
    names = Counter[str]()
    for run_id, events in snapshot.events.items():
        started = events[0].data
        assert isinstance(started, RunStarted)
        name = started.input.text if started.input is not None else ""
        names[name] += 1
        end = events[-1].data if isinstance(events[-1].data, RunFinished) else _end(events)
        found.started += 1
        if end is None:
            found.lost += 1
            yield f"{run_id} ({name}) has no end"
        elif started.kind == "run":
            wanted = ("failed", "partly_rolled_back") if plan[name].collapses else ("completed",)
            if end.outcome not in wanted:
                yield f"{run_id} ({name}) ended as {end.outcome}: {end.message}"
            wanted_calls = Counter(call.id for step in plan[name].steps for call in step)
            if Counter(id for _, (_, id) in _calls(events)) != wanted_calls:
                yield f"{run_id} ({name}) did not make the calls of its plan"
    for name in plan:
        if names[name] != 1:
            found.lost += not names[name]
            yield f"the run {name} exists {names[name]} times"


def _audit_trees(snapshot: Snapshot) -> Iterator[str]:
    """What a root has spent is what all of its runs have, each once."""
    for root, result in snapshot.results.items():
        trees = (events for run_id, events in snapshot.events.items() if root_of(run_id) == root)
        replies = [event.data.reply for events in trees for event in events if isinstance(event.data, ModelReplied)]
        if result.spent.tokens != sum(reply.usage.total for reply in replies):
            yield f"{root} has spent {result.spent}, and its runs otherwise"


def _end(events: Iterable[Event]) -> RunFinished | None:
    return next((event.data for event in events if isinstance(event.data, RunFinished)), None)


def _audit_sessions(snapshot: Snapshot, plan: dict[str, PlannedRun]) -> Iterator[str]:
    for session, messages in snapshot.sessions.items():
        if sendable(messages) is not messages:
            yield f"the history of session {session} is not sendable as it is"
        said = Counter(m.text for m in messages if isinstance(m, UserMessage) and m.origin == "user")
        wanted = {run.name: 1 for run in plan.values() if run.session == session and run.is_root}
        if said != wanted:
            yield f"session {session} holds the runs {dict(said)} instead of {wanted}"
        runs = [snapshot.events[row.id] for row in snapshot.rows.values() if row.session == session]
        told = Counter(message_digest(m) for events in runs for turn in turns_of(events, []) for m in turn.messages)
        if Counter(map(message_digest, messages)) != told:
            yield f"session {session} does not hold exactly what its runs have handed over"


def _audit_undo(snapshot: Snapshot, world: World) -> Iterator[str]:
    released = Counter(entry.id for entry in world.entries() if entry.what == "release")
    for run_id, events in snapshot.events.items():
        end = _end(events)
        calls = dict(_calls(events))
        for event in events:
            match event.data:
                case ToolFinished(call_id=call_id, result=result) if calls[call_id][0] == "reserve":
                    id = calls[call_id][1]
                    times = released[id]
                    if times > 1:
                        yield f"{run_id}: {id} was taken back {times} times"
                    stands = times == 0 if result.status == "ok" else result.status == "unknown"
                    if stands and end is not None and end.outcome == "failed":
                        yield f"{run_id}: {id} was not taken back, and the outcome does not say so"
                case _:
                    pass


def _audit_approvals(facts: Facts, effects: Counter[str], world: World) -> Iterator[str]:
    for entry in world.entries():
        if entry.what == "enter" and KINDS[entry.tool] in ("held", "asks") and entry.id not in facts.yes:
            yield f"{entry.id} ran without a yes"
    for id in facts.yes - facts.denied_doubts:
        if not effects[id]:
            yield f"{id} was approved and never done"
    for id in _entered_again(world.entries(), facts):
        yield f"{id} was run again although nobody said so"


def _audit_results(facts: Facts, plan: dict[str, PlannedRun]) -> Iterator[str]:
    """Every call ends as done, unless a human was against it."""
    for run in plan.values():
        for call in (call for step in run.steps for call in step):
            fails = call.tool == "collapse" or (call.id in plan and plan[call.id].collapses)
            allowed = {"error"} if fails else {"ok"}
            if KINDS[call.tool] == "held" and run.approvals == "defer":
                allowed |= {"held"}
            if call.id in facts.no:
                allowed |= {"denied"}
            if call.id in facts.denied_doubts or call.id.startswith("twin"):  # whose first may be in doubt
                allowed |= {"unknown"}
            if strange := set(facts.results[call.id]) - allowed:
                yield f"{call.id} ended as {sorted(strange)}"


def _entered_again(entries: Iterable[Entry], facts: Facts) -> Iterator[str]:
    naive = (entry for entry in entries if entry.what == "enter" and KINDS[entry.tool] in NAIVE)
    for id, times in Counter(entry.id for entry in naive).items():
        if times > 1 + facts.again[id]:
            yield id


def _audit_doubts(facts: Facts, cut: set[Begun], found: Findings) -> None:
    asked: dict[str, list[int]] = defaultdict(list)
    for _, call_id, seq in facts.doubts:
        asked[call_id].append(seq)
    if false := asked.keys() - {call_id for _, call_id, _ in cut}:
        found.faults.append(f"humans were asked about calls that nothing had cut off: {sorted(false)}")
    for run_id, call_id, seq in cut:
        found.cut += 1
        if any(later > seq for later in asked[call_id]):
            found.surfaced += 1
        else:
            found.faults.append(f"{run_id}: the call {call_id} was cut off at event {seq}, and nobody was asked")
