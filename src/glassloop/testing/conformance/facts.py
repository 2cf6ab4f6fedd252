"""What every store of facts must do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from glassloop.memory.fact_store import Embedding, FactOwner, FactStore

ANN = FactOwner("acme", "ann")
OTHERS = (
    FactOwner("acme", "bob"),
    FactOwner("other", "ann"),
    FactOwner(None, "ann"),
    FactOwner("acme", "ANN"),
    FactOwner("ann", "acme"),
    FactOwner("acme", "ann "),
)


class FactsConformance:
    """Needs a fixture `open_facts`: a function that opens the same facts again with each call."""

    @pytest.fixture
    async def facts(self, open_facts: Callable[[], FactStore]) -> AsyncIterator[FactStore]:
        """The facts under test."""
        facts = open_facts()
        yield facts
        await facts.close()

    @pytest.fixture
    async def other(self, open_facts: Callable[[], FactStore]) -> AsyncIterator[FactStore]:
        """The same facts, opened again."""
        facts = open_facts()
        yield facts
        await facts.close()

    # Keeping

    async def test_what_is_remembered_is_there(self, facts: FactStore, other: FactStore) -> None:
        first = await facts.remember(ANN, "Ann likes quiet towns.", run_id="run_1")
        second = await other.remember(ANN, "我喜欢安静的小镇")
        assert (first.text, first.run_id, second.run_id) == ("Ann likes quiet towns.", "run_1", "")
        assert first.id != second.id
        assert 1_600_000_000_000 < first.created_at <= second.created_at
        for store in (facts, other):
            assert await store.all(ANN) == [first, second]

    async def test_nobody_has_facts_at_first(self, facts: FactStore) -> None:
        assert await facts.all(ANN) == []
        assert await facts.recall(ANN, "anything") == []
        assert await facts.forget(ANN, "fact_1") is False

    async def test_the_same_text_is_the_same_fact(self, facts: FactStore, other: FactStore) -> None:
        first = await facts.remember(ANN, "I like green tea", run_id="run_1")
        for again in (
            "I like green tea",
            "I like GREEN tea",
            "  i like\n green  tea ",
            "Ｉ ｌｉｋｅ ｇｒｅｅｎ ｔｅａ",
        ):
            assert await other.remember(ANN, again, run_id="run_2") == first
        assert await facts.all(ANN) == [first]
        assert await facts.recall(ANN, "tea") == [first]

    async def test_the_same_text_at_once_is_one_fact(self, facts: FactStore, other: FactStore) -> None:
        made = await asyncio.gather(*((facts, other)[n % 2].remember(ANN, "I like tea") for n in range(20)))
        assert {fact.id for fact in made} == {made[0].id}
        assert len(await facts.all(ANN)) == 1

    async def test_a_blank_text_is_refused(self, facts: FactStore) -> None:
        for text in ("", " \n\t", "\x00"):
            with pytest.raises(ValueError, match="blank"):
                await facts.remember(ANN, text)
        assert await facts.all(ANN) == []

    async def test_names_and_texts_may_hold_anything(self, facts: FactStore) -> None:
        odd = FactOwner("'; DROP TABLE x; -- \x00", "会话 \ud83d")
        fact = await facts.remember(odd, "half \ud83d of an \x00 emoji")
        assert await facts.recall(odd, "emoji") == await facts.all(odd) == [fact]
        assert await facts.all(FactOwner("'; DROP TABLE x; -- \x00", "会话 ?")) == []
        for query in ("\x00", "\ud83d", "'", '"', "a AND", "%", "\\", "é́"):
            await facts.recall(odd, query)

    # Whose they are

    async def test_nobody_sees_anothers_facts(self, facts: FactStore) -> None:
        near = Embedding("m", (1.0, 0.0))
        fact = await facts.remember(ANN, "My safe is behind the picture", embedding=near)
        for stranger in OTHERS:
            assert await facts.all(stranger) == []
            assert await facts.recall(stranger, "safe behind the picture", 100, embedding=near) == []
            assert await facts.forget(stranger, fact.id) is False
        own = [await facts.remember(stranger, "My safe is behind the picture") for stranger in OTHERS]
        assert len({fact.id, *(each.id for each in own)}) == 1 + len(OTHERS)
        for stranger, each in zip(OTHERS, own, strict=True):
            assert await facts.recall(stranger, "safe", embedding=near) == await facts.all(stranger) == [each]
            assert await facts.forget(stranger, each.id)
        assert await facts.all(ANN) == await facts.recall(ANN, "safe") == [fact]

    # Finding

    async def test_chinese_is_found(self, facts: FactStore) -> None:
        await facts.remember(ANN, "花生过敏")
        fact = await facts.remember(ANN, "我喜欢安静的小镇")
        for query in ("安静", "小镇", "静", "喜欢什么？", "安静的小镇", "我想去安静的地方", "我喜欢安静的小镇"):
            assert await facts.recall(ANN, query) == [fact], query

    async def test_words_are_found(self, facts: FactStore) -> None:
        await facts.remember(ANN, "The user is allergic to what grows on trees")
        fact = await facts.remember(ANN, "The user drinks green tea.")
        for query in ("tea", "TEA!", "Ｔｅａ", "What teas do I drink?", "Is there GREEN tea?", "drink", "drinks"):
            assert await facts.recall(ANN, query) == [fact], query

    async def test_what_does_not_match_is_not_found(self, facts: FactStore) -> None:
        await facts.remember(ANN, "Green tea")
        await facts.remember(ANN, "我喜欢安静的小镇")
        for query in ("", " ", "…", "coffee", "咖啡", "What is it that you do?", "这是什么"):
            assert await facts.recall(ANN, query) == [], query

    async def test_the_best_comes_first_and_the_latest_of_equals(self, facts: FactStore) -> None:
        texts = ["Tea at five", "Green tea in the morning", "Tea at nine", "Coffee after lunch"]
        by_text = {text: await facts.remember(ANN, text) for text in texts}
        found = await facts.recall(ANN, "green tea", 10)
        assert found == [by_text[text] for text in (texts[1], texts[2], texts[0])]
        assert await facts.recall(ANN, "green tea", 2) == found[:2]
        assert await facts.recall(ANN, "green tea", 0) == []

    async def test_a_rare_word_counts_more_than_a_frequent_one(self, facts: FactStore) -> None:
        rare = await facts.remember(ANN, "the parrot number one was ill")
        for n in range(9):
            await facts.remember(ANN, f"the order number {n} was late")
        assert (await facts.recall(ANN, "order parrot"))[0] == rare

    async def test_many_facts(self, facts: FactStore) -> None:
        made = await asyncio.gather(*(facts.remember(ANN, f"Parcel {n} lies in box {n % 7}") for n in range(300)))
        assert [fact.text for fact in await facts.recall(ANN, "parcel 123", 1)] == ["Parcel 123 lies in box 4"]
        assert len(await facts.recall(ANN, "parcel", 1_000)) == len(made)

    # Vectors

    async def test_facts_are_found_by_meaning(self, facts: FactStore, other: FactStore) -> None:
        dog = await facts.remember(ANN, "Has a dog", embedding=Embedding("m", (1.0, 0.0, 0.1)))
        await facts.remember(ANN, "Plays chess", embedding=Embedding("m", (0.0, 1.0, 0.0)))
        asked = Embedding("m", (2.0, 0.1, 0.0))
        for store in (facts, other):
            assert await store.recall(ANN, "any pets?", embedding=asked) == [dog]
            assert await store.recall(ANN, "any pets?") == []
            assert await store.recall(ANN, "any pets?", embedding=Embedding("other", asked.vector)) == []

    async def test_how_near_is_near_can_be_said(self, facts: FactStore) -> None:
        near = await facts.remember(ANN, "Has a dog", embedding=Embedding("m", (1.0, 0.0)))
        far = await facts.remember(ANN, "Plays chess", embedding=Embedding("m", (0.5, 0.866)))
        asked = Embedding("m", (1.0, 0.0))
        assert await facts.recall(ANN, "", embedding=asked, near=0.6) == [near]
        assert await facts.recall(ANN, "", embedding=asked, near=0.4) == [near, far]

    async def test_words_and_meaning_are_fused(self, facts: FactStore) -> None:
        words = await facts.remember(ANN, "The parrot is called Rio", embedding=Embedding("m", (0.0, 1.0)))
        both = await facts.remember(ANN, "The parrot eats nuts", embedding=Embedding("m", (0.9, 0.1)))
        meaning = await facts.remember(ANN, "Feeds a bird", embedding=Embedding("m", (1.0, 0.0)))
        bare = await facts.remember(ANN, "No vector, but a parrot")
        found = await facts.recall(ANN, "parrot", 10, embedding=Embedding("m", (1.0, 0.0)))
        assert found[0] == both
        assert {fact.id for fact in found} == {each.id for each in (words, both, meaning, bare)}

    async def test_a_later_vector_takes_the_place_of_an_earlier_one(self, facts: FactStore) -> None:
        fact = await facts.remember(ANN, "Has a dog")
        asked = Embedding("m", (1.0, 0.0))
        assert await facts.recall(ANN, "pets", embedding=asked) == []
        await facts.remember(ANN, "Has a dog", embedding=Embedding("m", (1.0, 0.0)))
        assert await facts.recall(ANN, "pets", embedding=asked) == [fact]
        await facts.remember(ANN, "Has a dog", embedding=Embedding("new", (1.0, 0.0)))
        assert await facts.recall(ANN, "pets", embedding=asked) == []

    async def test_vectors_that_cannot_be_compared_are_left_out(self, facts: FactStore) -> None:
        await facts.remember(ANN, "short", embedding=Embedding("m", (1.0,)))
        await facts.remember(ANN, "none", embedding=Embedding("m", (0.0, 0.0)))
        fact = await facts.remember(ANN, "same", embedding=Embedding("m", (1.0, 0.0)))
        assert await facts.recall(ANN, "", embedding=Embedding("m", (1.0, 0.0))) == [fact]

    # Forgetting

    async def test_what_is_forgotten_is_gone(self, facts: FactStore, other: FactStore) -> None:
        tea = await facts.remember(ANN, "Green tea", embedding=Embedding("m", (1.0, 0.0)))
        kept = await facts.remember(ANN, "Green soap")
        assert await other.forget(ANN, tea.id) is True
        assert await facts.forget(ANN, tea.id) is False
        assert await facts.all(ANN) == [kept]
        assert await facts.recall(ANN, "green tea", embedding=Embedding("m", (1.0, 0.0))) == [kept]

    async def test_what_was_forgotten_can_be_remembered_again(self, facts: FactStore) -> None:
        first = await facts.remember(ANN, "Green tea")
        await facts.forget(ANN, first.id)
        second = await facts.remember(ANN, "Green tea")
        assert second.id != first.id
        assert await facts.recall(ANN, "tea") == await facts.all(ANN) == [second]
        assert await facts.forget(ANN, first.id) is False

    async def test_closing_is_idempotent(self, open_facts: Callable[[], FactStore]) -> None:
        facts = open_facts()
        await facts.remember(ANN, "x")
        await facts.close()
        await facts.close()
