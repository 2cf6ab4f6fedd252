"""What every session store must do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from glassloop.core.errors import Fenced
from glassloop.core.messages import (
    Media,
    Message,
    Opaque,
    Reply,
    SystemMessage,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    UserMessage,
)
from glassloop.core.usage import Usage
from glassloop.memory.session import SessionBusy, SessionStore

TURN: list[Message] = [
    SystemMessage("Be brief."),
    UserMessage("What is on the picture? 图"),
    UserMessage((Text("This one:"), Media.of(b"\x89PNG", "image/png", "a.png"))),
    Reply(
        (
            Thinking("Hm.", "signature"),
            Thinking(redacted="sealed"),
            Text("I look."),
            ToolCall("call_1", "look", '{"x": 1.0}', "", {"index": 0}, "cut off"),
            Opaque({"type": "server_tool", "id": 7}),
        ),
        "unknown",
        Usage(10, 5, 2, 1, 3, 1),
        "model",
        "anthropic",
        None,
        {"unknown_field": {"x": [1, None]}},
        2,
    ),
    ToolResult("call_1", "look", "a cat", "error", (Media.of(b"cat", "image/png"),)),
    UserMessage("Go on.", origin="nudge"),
]


class SessionsConformance:
    """Needs a fixture `open_sessions`: a function that opens the same sessions again with each call."""

    @pytest.fixture
    async def sessions(self, open_sessions: Callable[[], SessionStore]) -> AsyncIterator[SessionStore]:
        """The sessions under test."""
        sessions = open_sessions()
        yield sessions
        await sessions.close()

    @pytest.fixture
    async def other(self, open_sessions: Callable[[], SessionStore]) -> AsyncIterator[SessionStore]:
        """The same sessions, opened again."""
        sessions = open_sessions()
        yield sessions
        await sessions.close()

    # Messages

    async def test_messages_are_loaded_as_they_were_appended(self, sessions: SessionStore, other: SessionStore) -> None:
        await sessions.append("s", "run_1", TURN)
        assert await sessions.load("s") == TURN
        assert await other.load("s") == TURN

    async def test_an_unknown_session_is_empty(self, sessions: SessionStore) -> None:
        assert await sessions.load("nobody") == []

    async def test_sessions_are_apart(self, sessions: SessionStore) -> None:
        await sessions.append("a", "run_1", [UserMessage("secret of a")])
        await sessions.append("b", "run_2", [UserMessage("secret of b")])
        assert await sessions.load("a") == [UserMessage("secret of a")]

    async def test_runs_follow_each_other(self, sessions: SessionStore) -> None:
        for n in range(3):
            await sessions.append("s", f"run_{n}", [UserMessage(f"{n}"), SystemMessage(f"{n}")])
        assert [m.text for m in await sessions.load("s") if isinstance(m, UserMessage)] == ["0", "1", "2"]

    async def test_a_run_is_appended_once(self, sessions: SessionStore, other: SessionStore) -> None:
        await sessions.append("s", "run_1", TURN[:2])
        await sessions.append("s", "run_1", TURN)
        await other.append("s", "run_1", TURN)
        await other.append("t", "run_1", TURN[:1])
        assert await sessions.load("s") == TURN[:2]
        assert await sessions.load("t") == TURN[:1]

    async def test_an_empty_turn_counts_as_appended(self, sessions: SessionStore) -> None:
        await sessions.append("s", "run_1", [])
        await sessions.append("s", "run_1", TURN)
        assert await sessions.load("s") == []

    @pytest.mark.parametrize(("limit", "length"), [(None, 6), (0, 0), (1, 1), (5, 5), (6, 6), (99, 6)])
    async def test_limit_counts_from_the_end(self, sessions: SessionStore, limit: int | None, length: int) -> None:
        await sessions.append("s", "run_1", TURN)
        assert await sessions.load("s", limit) == TURN[len(TURN) - length :]

    async def test_a_negative_limit_is_refused(self, sessions: SessionStore) -> None:
        with pytest.raises(ValueError, match="limit=-1"):
            await sessions.load("s", -1)

    async def test_what_is_loaded_is_the_caller_s(self, sessions: SessionStore) -> None:
        await sessions.append("s", "run_1", TURN)
        (await sessions.load("s")).clear()
        assert len(await sessions.load("s")) == len(TURN)

    async def test_a_long_session_is_loaded_whole(self, sessions: SessionStore) -> None:
        for n in range(2):
            await sessions.append("s", f"run_{n}", [UserMessage(f"{n}.{m}") for m in range(1_100)])
        texts = [f"{n}.{m}" for n in range(2) for m in range(1_100)]
        assert await sessions.load("s") == list(map(UserMessage, texts))
        assert await sessions.load("s", 1_700) == list(map(UserMessage, texts[500:]))

    async def test_turns_that_come_at_once_stay_whole(self, sessions: SessionStore, other: SessionStore) -> None:
        turns = [(f"run_{n}", [UserMessage(f"{n}")] * 5) for n in range(20)]
        await asyncio.gather(*((sessions, other)[n % 2].append("s", *turn) for n, turn in enumerate(turns)))
        loaded = await sessions.load("s")
        found = [loaded[place : place + 5] for place in range(0, len(loaded), 5)]
        assert sorted(map(str, found)) == sorted(str(messages) for _, messages in turns)

    async def test_names_and_texts_may_hold_anything(self, sessions: SessionStore) -> None:
        name = "'; DROP TABLE x; -- 会话 \ud83d\x00"
        await sessions.append(name, "run_1", [UserMessage("half \ud83d of an emoji")])
        assert len(await sessions.load(name)) == 1
        async with sessions.lock(name, "run_2"):
            pass

    # The lock

    async def test_runs_of_one_session_do_not_overlap(self, sessions: SessionStore, other: SessionStore) -> None:
        inside = 0
        order: list[int] = []

        async def run(n: int) -> None:
            nonlocal inside
            async with (sessions, other)[n % 2].lock("s", f"run_{n}"):
                inside += 1
                assert inside == 1
                await asyncio.sleep(0.001)
                order.append(n)
                inside -= 1

        async with asyncio.timeout(30):
            await asyncio.gather(*map(run, range(10)))
        assert sorted(order) == list(range(10))

    async def test_first_come_first_served(self, sessions: SessionStore) -> None:
        order: list[int] = []

        async def run(n: int) -> None:
            async with sessions.lock("s", f"run_{n}"):
                order.append(n)
                await asyncio.sleep(0)

        async with asyncio.timeout(30):
            await asyncio.gather(*map(run, range(20)))
        assert order == list(range(20))

    async def test_sessions_do_not_wait_for_each_other(self, sessions: SessionStore) -> None:
        async with asyncio.timeout(5), sessions.lock("a", "run_1"), sessions.lock("b", "run_2"):
            pass

    async def test_a_busy_session_can_be_refused(self, sessions: SessionStore, other: SessionStore) -> None:
        async with sessions.lock("s", "run_1"):
            for store in (sessions, other):
                with pytest.raises(SessionBusy, match="run_1") as caught:
                    async with store.lock("s", "run_2", "refuse"):
                        pass
                assert (caught.value.session, caught.value.holder) == ("s", "run_1")
        async with asyncio.timeout(5), sessions.lock("s", "run_2", "refuse"):
            pass

    async def test_an_error_inside_frees_the_session(self, sessions: SessionStore) -> None:
        with pytest.raises(ZeroDivisionError):
            async with sessions.lock("s", "run_1"):
                raise ZeroDivisionError
        async with asyncio.timeout(5), sessions.lock("s", "run_2"):
            pass

    async def test_a_cancelled_holder_frees_the_session(self, sessions: SessionStore, other: SessionStore) -> None:
        inside = asyncio.Event()

        async def run() -> None:
            async with sessions.lock("s", "run_1"):
                inside.set()
                await asyncio.Event().wait()

        holder = asyncio.create_task(run())
        await inside.wait()
        holder.cancel()
        await asyncio.wait([holder])
        assert holder.cancelled()
        async with asyncio.timeout(5), other.lock("s", "run_2"):
            pass

    async def test_a_cancelled_waiter_leaves_the_queue(self, sessions: SessionStore) -> None:
        async def run(run_id: str) -> None:
            async with sessions.lock("s", run_id):
                pass

        async with sessions.lock("s", "run_1"):
            waiters = [asyncio.create_task(run(f"run_{n}")) for n in range(2, 6)]
            await asyncio.sleep(0.05)
            for waiter in waiters[::2]:
                waiter.cancel()
            await asyncio.wait(waiters[::2])
        async with asyncio.timeout(5):
            assert await asyncio.gather(*waiters[1::2]) == [None, None]

    async def test_a_waiter_cancelled_at_once_leaves_the_queue(self, sessions: SessionStore) -> None:
        async def run() -> None:
            async with sessions.lock("s", "run_1"):
                raise AssertionError

        task = asyncio.create_task(run())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        async with asyncio.timeout(5), sessions.lock("s", "run_2"):
            pass

    async def test_the_lock_belongs_to_the_run(self, sessions: SessionStore, other: SessionStore) -> None:
        async with asyncio.timeout(5), sessions.lock("s", "run_1"):
            async with other.lock("s", "run_1"):
                with pytest.raises(SessionBusy):
                    async with sessions.lock("s", "run_2", "refuse"):
                        pass
            async with sessions.lock("s", "run_2", "refuse"):
                pass

    async def test_whoever_lost_its_run_does_not_free_the_session(
        self, sessions: SessionStore, other: SessionStore
    ) -> None:
        first = sessions.lock("s", "run_1")
        await first.__aenter__()
        async with other.lock("s", "run_1"):
            await first.__aexit__(None, None, None)
            with pytest.raises(SessionBusy):
                async with sessions.lock("s", "run_2", "refuse"):
                    pass

    async def test_another_driver_takes_the_place_in_the_queue(
        self, sessions: SessionStore, other: SessionStore
    ) -> None:
        order: list[str] = []

        async def run(store: SessionStore, run_id: str, name: str) -> None:
            async with store.lock("s", run_id):
                order.append(name)

        async with asyncio.timeout(10):
            async with sessions.lock("s", "run_1"):
                old = asyncio.create_task(run(sessions, "run_2", "old driver of 2"))
                await asyncio.sleep(0.05)
                third = asyncio.create_task(run(sessions, "run_3", "3"))
                await asyncio.sleep(0.05)
                new = asyncio.create_task(run(other, "run_2", "new driver of 2"))
                with pytest.raises(Fenced):
                    await old
            await asyncio.gather(new, third)
        assert order == ["new driver of 2", "3"]

    async def test_a_session_is_taken_over_with_its_queue(self, sessions: SessionStore, other: SessionStore) -> None:
        order: list[str] = []

        async def run(store: SessionStore, run_id: str) -> None:
            async with store.lock("s", run_id):
                order.append(run_id)

        async with asyncio.timeout(10):
            abandoned = sessions.lock("s", "run_1")
            await abandoned.__aenter__()
            waiter = asyncio.create_task(run(sessions, "run_2"))
            await asyncio.sleep(0.05)
            async with other.lock("s", "run_1"):  # without waiting, although run_2 does
                await abandoned.__aexit__(None, None, None)
                await asyncio.sleep(0.05)
                order.append("run_1")
            await waiter
        assert order == ["run_1", "run_2"]

    async def test_event_loops_share_it(self, sessions: SessionStore) -> None:
        def in_another_loop(run_id: str) -> list[Message]:
            return asyncio.run(turn(run_id))

        async def turn(run_id: str) -> list[Message]:
            async with asyncio.timeout(10), sessions.lock("s", run_id):
                before = await sessions.load("s")
                await sessions.append("s", run_id, [UserMessage(run_id)])
                return before

        async with sessions.lock("s", "run_1"):
            waiting = asyncio.create_task(asyncio.to_thread(in_another_loop, "run_2"))
            await asyncio.sleep(0.1)
            await sessions.append("s", "run_1", [UserMessage("run_1")])
        assert await waiting == [UserMessage("run_1")]
        assert await turn("run_3") == [UserMessage("run_1"), UserMessage("run_2")]
