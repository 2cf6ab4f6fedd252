"""What every journal must do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from glassloop.core.context import Identity
from glassloop.core.encoding import digest
from glassloop.core.errors import Conflict, Fenced
from glassloop.core.events import (
    ApprovalAsked,
    ApprovalDecided,
    ApprovalMode,
    CancelRequested,
    DriverClaimed,
    DriverRested,
    Event,
    JournalData,
    ModelReplied,
    ModelRequested,
    RunContinued,
    RunFinished,
    RunStarted,
    ToolFinished,
    Unknown,
)
from glassloop.core.ids import new_id
from glassloop.core.limits import Limits
from glassloop.core.messages import Media, Reply, Text, ToolCall, ToolResult, UserMessage
from glassloop.core.usage import Usage
from glassloop.journal.journal import Journal
from glassloop.journal.projection import ApprovalFilter, RunFilter

ANN = Identity("ann", "acme", (), "s-1")
REPLY = Reply(
    (Text("Let me see."), ToolCall("call_1", "get_weather", '{"city":"北京"}', "toolu_1", {"index": 0})),
    usage=Usage(100, 20, requests=1),
    model="gpt-5",
    provider="openai",
    extra={"system_fingerprint": "fp"},
)


def event(run_id: str, data: JournalData, *, at: int = 1_000, step: int = 0) -> Event:
    """An event that is yet to be written."""
    return Event(run_id, 0, at, step, data)


def started(run_id: str, text: str = "Hello", *, agent: str = "desk", identity: Identity | None = None) -> Event:
    """The first event of a run."""
    who = identity or Identity()
    return event(run_id, RunStarted(agent, "print", who, UserMessage(text), Limits()), at=1_000)


def requested(run_id: str) -> Event:
    """A model is asked."""
    return event(run_id, ModelRequested("gpt-5", "i", "t", "s", ((0, 1),), "d"), at=2_000, step=1)


def replied(run_id: str, cost_usd: float | None = 0.5) -> Event:
    """A reply that cost 120 tokens."""
    return event(run_id, ModelReplied(REPLY, 12.5, cost_usd), at=2_000, step=1)


def finished(run_id: str) -> Event:
    """The last event of a run."""
    return event(run_id, RunFinished("completed", "Done."), at=3_000, step=1)


def claimed(run_id: str, epoch: int, owner: str = "driver") -> Event:
    """A driver takes the run over."""
    return event(run_id, DriverClaimed(epoch, owner))


def cancelled(run_id: str) -> Event:
    """Somebody wants the run stopped."""
    return event(run_id, CancelRequested("ann"))


def asked(
    run_id: str,
    number: int,
    *,
    role: str | None = None,
    expires_at: int | None = None,
    mode: ApprovalMode = "park",
    choices: tuple[str, ...] = (),
) -> Event:
    """A call is held for a human; with choices it asks something."""
    question = ApprovalAsked(
        f"appr_{number}",
        f"call_{number}",
        "refund",
        f'{{"n":{number}}}',
        "print",
        "Refund?",
        role=role,
        expires_at=expires_at,
        mode=mode,
        kind="question" if choices else "call",
        choices=choices,
    )
    return event(run_id, question, at=1_000)


async def collect(events: AsyncIterator[Event]) -> list[tuple[int, str]]:
    """Position and type of all events of a stream that ends."""
    return [(item.seq, item.type) async for item in events]


class JournalConformance:
    """Needs a fixture `open_journal`: a function that opens the same journal again with each call."""

    @pytest.fixture
    async def journal(self, open_journal: Callable[[], Journal]) -> AsyncIterator[Journal]:
        """A journal under test."""
        journal = open_journal()
        yield journal
        await journal.close()

    @pytest.fixture
    def run_id(self) -> str:
        """A run that does not exist yet."""
        return new_id("run")

    # Order

    async def test_events_are_numbered_from_one_in_the_order_of_appends(self, journal: Journal, run_id: str) -> None:
        assert await journal.append(run_id, [started(run_id), claimed(run_id, 1)], after=0, epoch=1) == 2
        assert await journal.append(run_id, [replied(run_id)], after=2, epoch=1) == 3
        assert [(e.run_id, e.seq, e.type) for e in await journal.read(run_id)] == [
            (run_id, 1, "run_started"),
            (run_id, 2, "driver_claimed"),
            (run_id, 3, "model_replied"),
        ]

    async def test_reading_starts_after_a_position(self, journal: Journal, run_id: str) -> None:
        await journal.append(run_id, [started(run_id), replied(run_id), finished(run_id)], after=0, epoch=1)
        assert [e.seq for e in await journal.read(run_id, 1)] == [2, 3]
        assert await journal.read(run_id, 3) == []

    async def test_an_unknown_run_has_no_events(self, journal: Journal) -> None:
        assert await journal.read("run_nobody") == []

    async def test_runs_do_not_see_each_other(self, journal: Journal) -> None:
        one, two = new_id("run"), new_id("run")
        await journal.append(one, [started(one)], after=0, epoch=1)
        assert await journal.append(two, [started(two), replied(two)], after=0, epoch=1) == 2
        assert [e.run_id for e in await journal.read(one)] == [one]

    async def test_appending_nothing_changes_nothing(self, journal: Journal, run_id: str) -> None:
        assert await journal.append(run_id, [], after=0, epoch=9) == 0
        assert await journal.runs() == []
        assert await journal.append(run_id, [started(run_id)], after=0, epoch=1) == 1
        assert await journal.append(run_id, [], after=1, epoch=1) == 1

    # What is kept

    async def test_an_event_is_read_as_it_was_written(self, journal: Journal, run_id: str) -> None:
        image = Media.of(b"\x89PNG", "image/png", "图.png")
        result = ToolResult("call_1", "get_weather", "22 °C, 晴 \U0001f600 \x00", "error", (image,))
        identity = Identity("ann", "acme", ("clerk", "supervisor"), "s-1")
        written = [
            started(run_id, "你好", identity=identity),
            event(run_id, ModelReplied(REPLY, 1.5, None), at=1_700_000_000_123, step=7),
            Event(run_id, 0, 5, 1, ToolFinished("call_1", result, 0.25, '{"a":1}'), {"stack": "Traceback ..."}),
            event(run_id, Unknown("shiny_new_thing", {"x": [1, {"y": None}]})),
        ]
        await journal.append(run_id, written, after=0, epoch=1)
        assert await journal.read(run_id) == [
            Event(run_id, seq, e.at, e.step, e.data, e.private) for seq, e in enumerate(written, 1)
        ]
        assert [e.private for e in await journal.read(run_id)] == [None, None, {"stack": "Traceback ..."}, None]

    @pytest.mark.parametrize("size", [2_000, 300_000, 5_000_000])
    async def test_results_of_any_size_are_kept_whole(self, journal: Journal, run_id: str, size: int) -> None:
        text = "".join(chr(0x4E00 + n % 20_000) for n in range(0, size, 3))
        await journal.append(
            run_id, [event(run_id, ToolFinished("c", ToolResult("c", "t", text), 1.0))], after=0, epoch=1
        )
        [kept] = await journal.read(run_id)
        assert isinstance(kept.data, ToolFinished)
        assert kept.data.result.content == text

    async def test_text_that_is_not_unicode_does_not_stop_a_run(self, journal: Journal, run_id: str) -> None:
        half = "\ud83d"
        events = [
            started(run_id, f"half an emoji: {half}", identity=Identity(f"user{half}", session=f"s{half}")),
            event(run_id, ToolFinished("c", ToolResult("c", "t", half), 1.0)),
        ]
        assert await journal.append(run_id, events, after=0, epoch=1) == 2
        assert len(await journal.read(run_id)) == 2
        assert len(await journal.runs()) == 1

    async def test_private_detail_that_has_no_json_form_is_kept_as_text(self, journal: Journal, run_id: str) -> None:
        detail = {"error": ValueError("boom"), "lock": asyncio.Lock()}
        await journal.append(run_id, [Event(run_id, 0, 1, 0, RunFinished("failed"), detail)], after=0, epoch=1)
        [kept] = await journal.read(run_id)
        assert kept.private is not None
        assert "boom" in str(kept.private["error"])

    # Two writers

    async def test_a_writer_that_has_not_seen_the_tail_is_turned_back(self, journal: Journal, run_id: str) -> None:
        await journal.append(run_id, [started(run_id), claimed(run_id, 1)], after=0, epoch=1)
        for wrong in (0, 1, 3):
            with pytest.raises(Conflict):
                await journal.append(run_id, [replied(run_id)], after=wrong, epoch=1, blobs={"d": b"x"})
        assert [e.seq for e in await journal.read(run_id)] == [1, 2]
        with pytest.raises(KeyError):
            await journal.blob("d")

    async def test_a_conflict_on_an_unknown_run_leaves_no_run(self, journal: Journal, run_id: str) -> None:
        with pytest.raises(Conflict):
            await journal.append(run_id, [started(run_id)], after=5, epoch=9)
        assert await journal.runs() == []
        assert await journal.append(run_id, [started(run_id)], after=0, epoch=1) == 1

    async def test_external_events_go_wherever_the_end_is(self, journal: Journal, run_id: str) -> None:
        await journal.append(run_id, [started(run_id), claimed(run_id, 1)], after=0, epoch=1)
        assert await journal.append(run_id, [cancelled(run_id)], after=None, epoch=None) == 3
        with pytest.raises(Conflict):
            await journal.append(run_id, [replied(run_id)], after=2, epoch=1)
        tail = await journal.read(run_id, 2)
        assert [e.type for e in tail] == ["cancel_requested"]
        assert await journal.append(run_id, [replied(run_id)], after=tail[-1].seq, epoch=1) == 4

    async def test_a_newer_driver_fences_the_older_out(self, journal: Journal, run_id: str) -> None:
        await journal.append(run_id, [started(run_id), claimed(run_id, 1)], after=0, epoch=1)
        await journal.append(run_id, [claimed(run_id, 2)], after=2, epoch=2)
        for after in (2, 3):  # whether or not it has seen the tail
            with pytest.raises(Fenced):
                await journal.append(run_id, [replied(run_id)], after=after, epoch=1)
        assert await journal.append(run_id, [cancelled(run_id)], after=None, epoch=None) == 4
        assert await journal.append(run_id, [replied(run_id)], after=4, epoch=2) == 5

    async def test_of_two_drivers_with_one_epoch_the_second_is_fenced(self, journal: Journal, run_id: str) -> None:
        await journal.append(run_id, [started(run_id), claimed(run_id, 1)], after=0, epoch=1)
        await journal.append(run_id, [claimed(run_id, 2, "first")], after=2, epoch=2)
        with pytest.raises(Conflict):
            await journal.append(run_id, [replied(run_id)], after=2, epoch=2)
        with pytest.raises(Fenced):
            await journal.append(run_id, [claimed(run_id, 2, "second")], after=3, epoch=2)

    async def test_a_refused_claim_does_not_raise_the_epoch(self, journal: Journal, run_id: str) -> None:
        await journal.append(run_id, [started(run_id), claimed(run_id, 1)], after=0, epoch=1)
        with pytest.raises(Conflict):
            await journal.append(run_id, [claimed(run_id, 7)], after=1, epoch=7)
        assert await journal.append(run_id, [replied(run_id)], after=2, epoch=1) == 3

    async def test_of_many_writers_at_once_exactly_one_wins(
        self, journal: Journal, open_journal: Callable[[], Journal], run_id: str
    ) -> None:
        other = open_journal()
        await journal.append(run_id, [started(run_id), claimed(run_id, 1)], after=0, epoch=1)
        attempts = [
            (journal, other)[n % 2].append(run_id, [claimed(run_id, 2, f"driver {n}")], after=2, epoch=2)
            for n in range(10)
        ]
        outcomes = await asyncio.gather(*attempts, return_exceptions=True)
        assert outcomes.count(3) == 1
        assert sum(isinstance(outcome, Conflict | Fenced) for outcome in outcomes) == 9
        assert len(await journal.read(run_id)) == 3
        await other.close()

    async def test_fifty_runs_at_once(self, journal: Journal) -> None:
        async def drive(run_id: str) -> None:
            last = await journal.append(run_id, [started(run_id), claimed(run_id, 1)], after=0, epoch=1)
            for _ in range(4):
                last = await journal.append(run_id, [replied(run_id), replied(run_id)], after=last, epoch=1)
            await journal.append(run_id, [finished(run_id)], after=last, epoch=1)

        runs = [new_id("run") for _ in range(50)]
        await asyncio.gather(*map(drive, runs))
        for run_id in runs:
            assert [e.seq for e in await journal.read(run_id)] == list(range(1, 12))

    async def test_a_conflict_does_not_hurt_appends_beside_it(self, journal: Journal) -> None:
        good, bad = [new_id("run") for _ in range(20)], new_id("run")
        attempts = [journal.append(run_id, [started(run_id)], after=0, epoch=1) for run_id in good]
        attempts.insert(10, journal.append(bad, [started(bad)], after=3, epoch=1, blobs={"bad": b"x"}))
        outcomes = await asyncio.gather(*attempts, return_exceptions=True)
        assert isinstance(outcomes.pop(10), Conflict)
        assert outcomes == [1] * 20
        assert await journal.read(bad) == []

    async def test_a_cancelled_append_is_written_whole_or_not_at_all(self, journal: Journal, run_id: str) -> None:
        await journal.append(run_id, [started(run_id)], after=0, epoch=1)
        task = asyncio.create_task(journal.append(run_id, [replied(run_id), finished(run_id)], after=1, epoch=1))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        written = [e.seq for e in await journal.read(run_id)]
        last = await journal.append(run_id, [cancelled(run_id)], after=None, epoch=None)
        assert written in ([1], [1, 2, 3])
        assert last in (2, 4)

    # Blobs

    async def test_blobs_are_kept_with_the_events_that_name_them(self, journal: Journal, run_id: str) -> None:
        data = bytes(range(256)) * 1_000
        await journal.append(run_id, [started(run_id)], after=0, epoch=1, blobs={digest(data): data, digest(b""): b""})
        assert await journal.blob(digest(data)) == data
        assert await journal.blob(digest(b"")) == b""
        with pytest.raises(KeyError):
            await journal.blob(digest(b"other"))

    async def test_erasing_takes_the_blobs_of_one_run_and_no_event(self, journal: Journal, run_id: str) -> None:
        other = new_id("run")
        await journal.append(run_id, [started(run_id)], after=0, epoch=1, blobs={"mine": b"m", "shared": b"s"})
        await journal.append(other, [started(other)], after=0, epoch=1, blobs={"shared": b"s", "theirs": b"t"})
        before = await journal.read(run_id)
        assert await journal.erase_blobs(run_id) == 1
        with pytest.raises(KeyError):
            await journal.blob("mine")
        assert [await journal.blob(name) for name in ("shared", "theirs")] == [b"s", b"t"]
        assert await journal.read(run_id) == before
        assert await journal.append(run_id, [replied(run_id)], after=1, epoch=1) == 2
        assert await journal.erase_blobs(other) == 2
        assert await journal.erase_blobs("run_nobody") == 0

    # Followers

    async def test_following_a_finished_run_ends(self, journal: Journal, run_id: str) -> None:
        await journal.append(run_id, [started(run_id), replied(run_id), finished(run_id)], after=0, epoch=1)
        assert await collect(journal.follow(run_id)) == [
            (1, "run_started"),
            (2, "model_replied"),
            (3, "run_finished"),
        ]
        assert await collect(journal.follow(run_id, 2)) == [(3, "run_finished")]
        assert await collect(journal.follow(run_id, 3)) == []

    async def test_a_follower_sees_what_is_written_later(
        self, journal: Journal, open_journal: Callable[[], Journal], run_id: str
    ) -> None:
        other = open_journal()
        followers = [asyncio.create_task(collect(j.follow(run_id))) for j in (journal, journal, other)]
        await asyncio.sleep(0)
        last = 0
        for item in (started(run_id), replied(run_id), cancelled(run_id), finished(run_id)):
            last = await journal.append(run_id, [item], after=last, epoch=1)
            await asyncio.sleep(0.01)
        async with asyncio.timeout(5):
            seen = await asyncio.gather(*followers)
        assert seen == [[(1, "run_started"), (2, "model_replied"), (3, "cancel_requested"), (4, "run_finished")]] * 3
        await other.close()

    async def test_a_continued_run_is_followed_to_its_second_end(self, journal: Journal, run_id: str) -> None:
        again = event(run_id, RunContinued())
        await journal.append(run_id, [started(run_id), finished(run_id), again], after=0, epoch=1)
        follower = asyncio.create_task(collect(journal.follow(run_id)))
        await asyncio.sleep(0.05)
        assert not follower.done()
        await journal.append(run_id, [finished(run_id)], after=3, epoch=1)
        async with asyncio.timeout(5):
            assert [seq for seq, _ in await follower] == [1, 2, 3, 4]

    async def test_a_follower_may_leave_early(self, journal: Journal, run_id: str) -> None:
        await journal.append(run_id, [started(run_id)], after=0, epoch=1)
        follower = asyncio.create_task(collect(journal.follow(run_id)))
        await asyncio.sleep(0.05)
        follower.cancel()
        await asyncio.wait([follower])
        assert await journal.append(run_id, [finished(run_id)], after=1, epoch=1) == 2

    # Lists

    async def test_a_run_is_listed_with_what_happened_to_it(self, journal: Journal, run_id: str) -> None:
        identity = Identity("ann", "acme", ("clerk",), "s-1")
        await journal.append(run_id, [started(run_id, "Where is it?", identity=identity)], after=0, epoch=1)
        await journal.append(run_id, [requested(run_id), replied(run_id), replied(run_id)], after=1, epoch=1)
        [row] = await journal.runs()
        assert (row.id, row.agent, row.session, row.user, row.tenant) == (run_id, "desk", "s-1", "ann", "acme")
        assert (row.status, row.input, row.started_at, row.updated_at) == ("running", "Where is it?", 1_000, 2_000)
        assert (row.steps, row.tokens, row.cost_usd) == (1, 240, 1.0)
        more = [requested(run_id), replied(run_id, None), replied(run_id), finished(run_id)]
        await journal.append(run_id, more, after=4, epoch=1)
        [row] = await journal.runs()
        assert (row.status, row.updated_at, row.steps, row.cost_usd) == ("completed", 3_000, 2, None)

    async def test_a_run_waits_until_all_approvals_are_decided(self, journal: Journal, run_id: str) -> None:
        async def status(*news: JournalData) -> tuple[str, int]:
            await journal.append(run_id, [event(run_id, data) for data in news], after=None, epoch=None)
            [row] = await journal.runs()
            return row.status, row.pending

        await journal.append(run_id, [started(run_id)], after=0, epoch=1)
        asked = [ApprovalAsked(f"a{n}", f"c{n}", "refund", "{}", "print", "Refund?") for n in (1, 2)]
        assert await status(*asked) == ("running", 2)
        assert await status(DriverRested()) == ("waiting", 2)
        assert await status(ApprovalDecided("a1", "approve", "ann")) == ("running", 1)
        assert await status(DriverRested()) == ("waiting", 1)
        assert await status(DriverRested(waiting=False)) == ("running", 1)
        assert await status(DriverRested(waiting=True)) == ("waiting", 1)
        assert await status(DriverClaimed(2, "somebody")) == ("running", 1)
        assert await status(DriverRested()) == ("waiting", 1)
        assert await status(ApprovalDecided("a2", "deny", "ann")) == ("running", 0)
        assert await status(RunFinished("completed")) == ("completed", 0)
        assert await status(ApprovalDecided("a2", "approve", "ann")) == ("completed", 0)
        assert await status(RunContinued()) == ("running", 0)

    async def test_a_run_that_has_not_started_is_not_listed(self, journal: Journal, run_id: str) -> None:
        await journal.append(run_id, [cancelled(run_id)], after=None, epoch=None)
        assert await journal.runs() == []
        await journal.append(run_id, [started(run_id)], after=1, epoch=1)
        assert [row.id for row in await journal.runs()] == [run_id]

    async def test_lists_are_filtered_newest_first(self, journal: Journal) -> None:
        ids = [f"run_{n}" for n in range(6)]
        for n, run_id in enumerate(ids):
            identity = Identity("ann" if n % 2 else "bob", "acme" if n < 3 else None, (), f"s-{n % 3}")
            events = [started(run_id, agent=f"agent{n // 3}", identity=identity)]
            await journal.append(run_id, [*events, *([finished(run_id)] if n >= 4 else [])], after=0, epoch=1)

        async def listed(wanted: RunFilter) -> list[str]:
            return [row.id for row in await journal.runs(wanted)]

        assert await listed(RunFilter()) == ids[::-1]
        assert await listed(RunFilter(limit=2)) == ["run_5", "run_4"]
        assert await listed(RunFilter(limit=2, before="run_4")) == ["run_3", "run_2"]
        assert await listed(RunFilter(user="ann")) == ["run_5", "run_3", "run_1"]
        assert await listed(RunFilter(tenant="acme", user="ann")) == ["run_1"]
        assert await listed(RunFilter(session="s-0")) == ["run_3", "run_0"]
        assert await listed(RunFilter(agent="agent1", finished=False)) == ["run_3"]
        assert await listed(RunFilter(finished=True)) == ["run_5", "run_4"]
        assert await listed(RunFilter(status="running", limit=1)) == ["run_3"]
        assert await listed(RunFilter(status="completed", finished=False)) == []
        assert await listed(RunFilter(user="nobody")) == []

    # Approvals

    async def test_approvals_are_listed_newest_first_with_what_was_asked_and_decided(self, journal: Journal) -> None:
        await journal.append(
            "run_1", [started("run_1", identity=ANN), asked("run_1", 1), asked("run_1", 2)], after=0, epoch=None
        )
        await journal.append(
            "run_2", [started("run_2", identity=ANN), asked("run_2", 3, expires_at=9_000)], after=0, epoch=None
        )
        answer = event("run_1", ApprovalDecided("appr_1", "deny", "ann", "not today"))
        await journal.append("run_1", [answer], after=None, epoch=None)
        last, middle, first = await journal.approvals()
        assert [one.approval_id for one in (first, middle, last)] == ["appr_1", "appr_2", "appr_3"]
        assert (first.run_id, first.call_id, first.tool, first.arguments) == ("run_1", "call_1", "refund", '{"n":1}')
        assert (first.summary, first.risk, first.role, first.kind, first.mode) == (
            "Refund?",
            "high",
            None,
            "call",
            "park",
        )
        assert (first.user, first.tenant, first.session, first.agent) == ("ann", "acme", "s-1", "desk")
        assert (first.asked_at, first.expires_at, last.expires_at) == (1_000, None, 9_000)
        assert (first.decision, first.decided_by, first.reason) == ("deny", "ann", "not today")
        assert (middle.decision, middle.decided_by, middle.reason) == (None, None, None)

    async def test_a_question_is_listed_with_its_choices_and_what_was_answered(self, journal: Journal) -> None:
        await journal.append(
            "run_1", [started("run_1"), asked("run_1", 1, choices=("blue", "天蓝"))], after=0, epoch=None
        )
        [row] = await journal.approvals(ApprovalFilter(status="pending"))
        assert (row.kind, row.summary, row.choices, row.answer) == ("question", "Refund?", '["blue","天蓝"]', None)
        for answer in ("天蓝", "blue"):
            said = event("run_1", ApprovalDecided("appr_1", "answer", "ann", answer=answer))
            await journal.append("run_1", [said], after=None, epoch=None)
        [row] = await journal.approvals(ApprovalFilter(status="answered"))
        assert (row.decision, row.decided_by, row.answer, row.status(0)) == ("answer", "ann", "天蓝", "answered")
        assert await journal.approvals(ApprovalFilter(status="decided")) == [row]
        assert await journal.approvals(ApprovalFilter(status="edited")) == []

    async def test_the_first_decision_counts(self, journal: Journal, run_id: str) -> None:
        await journal.append(run_id, [started(run_id), asked(run_id, 1)], after=0, epoch=None)
        for decision in ("edit", "deny"):
            answer = event(run_id, ApprovalDecided("appr_1", decision, "ann"))
            await journal.append(run_id, [answer], after=None, epoch=None)
        assert [one.decision for one in await journal.approvals()] == ["edit"]

    async def test_approvals_are_filtered(self, journal: Journal) -> None:
        for number, expires_at in enumerate((None, 5_000, None, None, None), 1):
            run_id = f"run_{(number + 1) // 2}"
            news = [started(run_id)] if number % 2 else []
            news.append(asked(run_id, number, expires_at=expires_at))
            await journal.append(run_id, news, after=None, epoch=None)
        answers = [ApprovalDecided("appr_3", "approve"), ApprovalDecided("appr_4", "deny")]
        await journal.append("run_2", [event("run_2", answer) for answer in answers], after=None, epoch=None)
        await journal.append("run_3", [event("run_3", ApprovalDecided("appr_5", "edit"))], after=None, epoch=None)

        async def listed(wanted: ApprovalFilter) -> str:
            return "".join(row.approval_id[-1] for row in await journal.approvals(wanted))

        assert await listed(ApprovalFilter()) == "54321"
        assert await listed(ApprovalFilter(id="appr_4")) == "4"
        assert await listed(ApprovalFilter(id="appr_9")) == ""
        assert await listed(ApprovalFilter(run_id="run_2")) == "43"
        assert await listed(ApprovalFilter(limit=2)) == "54"
        assert await listed(ApprovalFilter(limit=2, before="appr_4")) == "32"
        assert await listed(ApprovalFilter(status="pending")) == "21"
        assert await listed(ApprovalFilter(status="pending", now=4_999)) == "21"
        assert await listed(ApprovalFilter(status="pending", now=5_000)) == "1"
        assert await listed(ApprovalFilter(status="expired", now=5_000)) == "2"
        assert await listed(ApprovalFilter(status="expired")) == ""
        assert [await listed(ApprovalFilter(status=one)) for one in ("approved", "denied", "edited")] == ["3", "4", "5"]
        assert await listed(ApprovalFilter(status="decided")) == "543"
        assert await listed(ApprovalFilter(status="decided", run_id="run_2", limit=1)) == "4"

    async def test_an_approval_is_the_business_of_its_owner_and_of_its_role_in_the_tenant(
        self, journal: Journal
    ) -> None:
        owners = [ANN, Identity("ann"), Identity(None, "acme"), Identity("bob", "acme"), Identity("bob", "other")]
        for number, owner in enumerate(owners, 1):
            role = "supervisor" if owner.user == "bob" else None
            news = [started(f"run_{number}", identity=owner), asked(f"run_{number}", number, role=role)]
            await journal.append(f"run_{number}", news, after=0, epoch=None)

        async def seen_by(who: Identity) -> str:
            return "".join(row.approval_id[-1] for row in await journal.approvals(ApprovalFilter(concerns=who)))

        assert await seen_by(Identity("ann", "acme", session="any")) == "1"
        assert await seen_by(Identity("ann")) == "2"
        assert await seen_by(Identity(None, "acme")) == "3"
        assert await seen_by(Identity("bob", "acme")) == "4"
        assert await seen_by(Identity("sam", "acme", ("clerk", "supervisor"))) == "4"
        assert await seen_by(Identity("sam", "other", ("supervisor",))) == "5"
        assert await seen_by(Identity("sam", "acme", ("clerk",))) == ""
        assert await seen_by(Identity()) == ""

    async def test_an_approval_is_withdrawn_when_its_run_ends_and_a_deferred_one_stays(self, journal: Journal) -> None:
        news = [started("run_1"), asked("run_1", 1), asked("run_1", 2, mode="defer"), asked("run_1", 3)]
        await journal.append("run_1", [*news, event("run_1", ApprovalDecided("appr_3", "deny"))], after=0, epoch=None)
        await journal.append("run_2", [started("run_2"), asked("run_2", 4)], after=0, epoch=None)
        await journal.append("run_1", [event("run_1", RunFinished("cancelled", None))], after=5, epoch=None)

        async def listed(filter: ApprovalFilter) -> str:
            return "".join(row.approval_id[-1] for row in await journal.approvals(filter))

        assert await listed(ApprovalFilter(status="pending")) == "42"
        assert await listed(ApprovalFilter(status="withdrawn")) == "1"
        assert await listed(ApprovalFilter(status="decided")) == "3"
        [row] = await journal.approvals(ApprovalFilter(id="appr_1"))
        assert (row.status(0), row.decided_by) == ("withdrawn", None)
        await journal.append(
            "run_1", [event("run_1", ApprovalDecided("appr_1", "approve", "ann"))], after=6, epoch=None
        )
        assert await listed(ApprovalFilter(status="withdrawn")) == "1"

    async def test_an_approval_of_text_that_is_not_unicode_is_listed(self, journal: Journal, run_id: str) -> None:
        half = "\ud83d"
        identity = Identity(f"user{half}", session=f"s{half}")
        answer = event(run_id, ApprovalDecided("appr_1", "deny", f"user{half}", half))
        await journal.append(
            run_id, [started(run_id, identity=identity), asked(run_id, 1), answer], after=0, epoch=None
        )
        assert [one.decision for one in await journal.approvals()] == ["deny"]

    async def test_a_deferred_call_is_asked_about_once_and_decided_with_its_own_run(self, journal: Journal) -> None:
        held = asked("run_1", 1, mode="defer")
        await journal.append("run_1", [started("run_1"), held], after=0, epoch=None)
        begun = event("run_2", RunStarted("desk", "print", Identity(), None, Limits(), kind="call", parent="run_1"))
        answer = event("run_2", ApprovalDecided("appr_1", "approve", "ann"))
        await journal.append("run_2", [begun, asked("run_2", 1), answer], after=0, epoch=None)
        [row] = await journal.approvals()
        assert (row.run_id, row.mode, row.decision) == ("run_1", "defer", "approve")
        await journal.append("run_2", [asked("run_2", 2)], after=None, epoch=None)  # it may have happened: a doubt
        assert [one.run_id for one in await journal.approvals()] == ["run_2", "run_1"]
