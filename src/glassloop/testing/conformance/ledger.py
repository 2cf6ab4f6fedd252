"""What every ledger must do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from glassloop.journal.ledger import DAY, Claim, Done, InDoubt, InFlight, Ledger, Owner, Yours

ANN: Owner = ("run_a", "call_1")
BOB: Owner = ("run_b", "call_1")


class Clock:
    """A clock that a test sets. Calling it gives seconds."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


OpenLedger = Callable[[Callable[[], float]], Ledger]


async def claim_or_share(ledger: Ledger, key: str, owner: Owner) -> Claim:
    """Claim, waiting for whoever is at it."""
    while isinstance(claim := await ledger.claim(key, owner, 60.0), InFlight):
        await ledger.wait(key)
    return claim


class LedgerConformance:
    """Needs a fixture `open_ledger`: a function from a clock to the same ledger, opened again with each call."""

    @pytest.fixture
    def clock(self) -> Clock:
        """The ledgers' clock."""
        return Clock()

    @pytest.fixture
    async def ledger(self, open_ledger: OpenLedger, clock: Clock) -> AsyncIterator[Ledger]:
        """The ledger under test."""
        ledger = open_ledger(clock)
        yield ledger
        await ledger.close()

    @pytest.fixture
    async def other(self, open_ledger: OpenLedger, clock: Clock) -> AsyncIterator[Ledger]:
        """The same ledger, opened again."""
        ledger = open_ledger(clock)
        yield ledger
        await ledger.close()

    async def test_the_first_claim_is_yours(self, ledger: Ledger) -> None:
        assert await ledger.claim("k", ANN, 60) == Yours()
        assert await ledger.claim("other", BOB, 60) == Yours()

    async def test_the_same_owner_re_enters(self, ledger: Ledger, other: Ledger) -> None:
        await ledger.claim("k", ANN, 60)
        assert await other.claim("k", ANN, 60) == Yours(again=True)

    async def test_another_sees_it_in_flight(self, ledger: Ledger, other: Ledger) -> None:
        await ledger.claim("k", ANN, 60)
        assert await other.claim("k", BOB, 60) == InFlight(ANN)
        assert await ledger.claim("k", ("run_a", "call_2"), 60) == InFlight(ANN)

    async def test_a_success_is_remembered_for_everybody(self, ledger: Ledger, other: Ledger) -> None:
        await ledger.claim("k", ANN, 60)
        assert await ledger.settle("k", ANN, b'{"id": 7}')
        assert await other.claim("k", BOB, 60) == Done(ANN, b'{"id": 7}')
        assert await ledger.claim("k", ANN, 60) == Done(ANN, b'{"id": 7}')

    async def test_an_empty_result_is_a_result(self, ledger: Ledger) -> None:
        await ledger.claim("k", ANN, 60)
        await ledger.settle("k", ANN, b"")
        assert await ledger.claim("k", BOB, 60) == Done(ANN, b"")

    async def test_a_failure_is_not_remembered(self, ledger: Ledger) -> None:
        await ledger.claim("k", ANN, 60)
        await ledger.release("k", ANN)
        assert await ledger.claim("k", BOB, 60) == Yours()

    async def test_a_lapsed_claim_is_in_doubt_and_never_yours(self, ledger: Ledger, clock: Clock) -> None:
        await ledger.claim("k", ANN, 60)
        clock.now += 59
        assert await ledger.claim("k", BOB, 60) == InFlight(ANN)
        for seconds in (1, 60, 10 * DAY):
            clock.now += seconds
            assert await ledger.claim("k", BOB, 60) == InDoubt(ANN)
        assert await ledger.claim("k", ANN, 60) == Yours(again=True)
        assert await ledger.claim("k", BOB, 60) == InFlight(ANN)

    async def test_claiming_again_renews_the_lease(self, ledger: Ledger, clock: Clock) -> None:
        await ledger.claim("k", ANN, 60)
        clock.now += 50
        await ledger.claim("k", ANN, 60)
        clock.now += 50
        assert await ledger.claim("k", BOB, 60) == InFlight(ANN)

    async def test_a_late_answer_settles_the_doubt(self, ledger: Ledger, clock: Clock) -> None:
        await ledger.claim("k", ANN, 60)
        clock.now += 100
        assert await ledger.claim("k", BOB, 60) == InDoubt(ANN)
        assert await ledger.settle("k", ANN, b"late")
        assert await ledger.claim("k", BOB, 60) == Done(ANN, b"late")

    async def test_a_human_decides_the_doubt(self, ledger: Ledger, clock: Clock) -> None:
        await ledger.claim("k", ANN, 60)
        clock.now += 100
        await ledger.release("k")
        assert await ledger.claim("k", BOB, 60) == Yours()
        assert not await ledger.settle("k", ANN, b"too late")
        assert await ledger.claim("k", ANN, 60) == InFlight(BOB)

    async def test_only_the_owner_releases_its_claim(self, ledger: Ledger) -> None:
        await ledger.claim("k", ANN, 60)
        await ledger.release("k", BOB)
        assert await ledger.claim("k", BOB, 60) == InFlight(ANN)

    async def test_a_success_is_not_released(self, ledger: Ledger) -> None:
        await ledger.claim("k", ANN, 60)
        await ledger.settle("k", ANN, b"1")
        await ledger.release("k", ANN)
        await ledger.release("k")
        assert await ledger.claim("k", BOB, 60) == Done(ANN, b"1")

    async def test_another_s_success_is_not_overwritten(self, ledger: Ledger) -> None:
        await ledger.claim("k", ANN, 60)
        await ledger.settle("k", ANN, b"1")
        assert not await ledger.settle("k", BOB, b"2")
        assert await ledger.claim("k", BOB, 60) == Done(ANN, b"1")

    async def test_a_success_without_a_claim_is_remembered_too(self, ledger: Ledger) -> None:
        assert await ledger.settle("k", ANN, b"1")
        assert await ledger.claim("k", BOB, 60) == Done(ANN, b"1")

    @pytest.mark.parametrize("ttl", [None, 90.0])
    async def test_a_success_is_forgotten_after_its_time(self, ledger: Ledger, clock: Clock, ttl: float | None) -> None:
        await (ledger.claim("k", ANN, 60) if ttl is None else ledger.claim("k", ANN, 60, ttl))
        clock.now += 30
        await ledger.settle("k", ANN, b"1")
        clock.now += (ttl or DAY) - 1
        assert await ledger.claim("k", BOB, 60) == Done(ANN, b"1")
        clock.now += 1
        assert await ledger.claim("k", BOB, 60) == Yours()
        assert await ledger.claim("k", ANN, 60) == InFlight(BOB)

    async def test_what_is_forgotten_makes_room(self, ledger: Ledger, clock: Clock) -> None:
        for n in range(5):
            await ledger.settle(f"k{n}", ANN, b"1")
        await ledger.claim("doubt", ANN, 60)
        clock.now += 2 * DAY
        assert await ledger.claim("k5", BOB, 60) == Yours()
        assert await ledger.claim("k0", BOB, 60) == Yours()
        assert await ledger.claim("doubt", BOB, 60) == InDoubt(ANN)

    async def test_concurrent_duplicates_share_one_effect(self, ledger: Ledger, other: Ledger) -> None:
        effects = 0

        async def call(n: int) -> bytes:
            nonlocal effects
            mine, owner = (ledger, other)[n % 2], (f"run_{n}", "call")
            match await claim_or_share(mine, "k", owner):
                case Yours():
                    effects += 1
                    await asyncio.sleep(0.05)
                    await mine.settle("k", owner, b"ticket 7")
                    return b"ticket 7"
                case Done(result=result):
                    return result
                case claim:
                    raise AssertionError(claim)

        async with asyncio.timeout(20):
            assert await asyncio.gather(*map(call, range(20))) == [b"ticket 7"] * 20
        assert effects == 1

    async def test_waiting_ends_when_the_claim_is_released(self, ledger: Ledger, other: Ledger) -> None:
        await ledger.claim("k", ANN, 60)
        waiters = [
            asyncio.create_task(claim_or_share(mine, "k", (f"run_{n}", "call")))
            for n, mine in enumerate((ledger, other))
        ]
        await asyncio.sleep(0.05)
        assert not any(waiter.done() for waiter in waiters)
        await ledger.release("k", ANN)
        async with asyncio.timeout(5):
            done, [second] = await asyncio.wait(waiters, return_when=asyncio.FIRST_COMPLETED)
            first = done.pop()
            assert first.result() == Yours()
            assert not second.done()
            await ledger.settle("k", (f"run_{waiters.index(first)}", "call"), b"1")
            assert isinstance(await second, Done)

    async def test_waiting_ends_when_the_claim_lapses(self, ledger: Ledger, clock: Clock) -> None:
        await ledger.claim("k", ANN, 60)
        waiter = asyncio.create_task(claim_or_share(ledger, "k", BOB))
        await asyncio.sleep(0.05)
        clock.now += 60
        async with asyncio.timeout(5):
            assert await waiter == InDoubt(ANN)

    async def test_waiting_for_nothing_ends_at_once(self, ledger: Ledger) -> None:
        async with asyncio.timeout(5):
            await ledger.wait("never claimed")
            await ledger.settle("k", ANN, b"1")
            await ledger.wait("k")
