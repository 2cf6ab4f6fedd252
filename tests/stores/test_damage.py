"""Rows that cannot be read any more, or that a newer version wrote."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from pathlib import Path

import pytest

from glassloop.core.errors import StoreError
from glassloop.core.events import ModelReplied, Unknown
from glassloop.core.messages import Reply, UserMessage
from glassloop.stores import Store, open_store
from glassloop.testing.conformance.journal import replied, started

Tamper = Callable[..., None]


@pytest.fixture
async def store(url: str) -> AsyncIterator[Store]:
    async with open_store(url) as store:
        yield store


@pytest.fixture
def tamper(path: Path) -> Tamper:
    """A function that changes the file behind the store's back."""

    def tamper(statement: str, *values: object) -> None:
        with closing(sqlite3.connect(path)) as connection, connection:
            assert connection.execute(statement, values).rowcount > 0

    return tamper


async def fill(store: Store, number: int = 5) -> None:
    await store.sessions.append("s", "run_1", [UserMessage(f"{n}") for n in range(number)])


async def texts(store: Store, limit: int | None = None) -> list[str]:
    return [m.text for m in await store.sessions.load("s", limit) if isinstance(m, UserMessage)]


@pytest.mark.parametrize("damage", ["{broken", '{"role": "nobody"}', "[]", '{"role": "user"}', b"\x00\xff"])
async def test_a_damaged_message_is_reported_and_does_not_shorten_the_window(
    store: Store, tamper: Tamper, caplog: pytest.LogCaptureFixture, damage: str | bytes
) -> None:
    await fill(store)
    tamper("UPDATE glassloop_messages SET message = ? WHERE position = 4", damage)
    with caplog.at_level(logging.WARNING, "glassloop.stores"):
        assert await texts(store, 3) == ["1", "2", "4"]
    assert "Message 4 of session 's' is damaged and left out" in caplog.text
    assert await texts(store, 0) == []
    assert await texts(store, 1) == ["4"]
    assert await texts(store) == ["0", "1", "2", "4"]


async def test_a_damaged_message_stays_in_the_file(store: Store, tamper: Tamper) -> None:
    await fill(store)
    tamper("UPDATE glassloop_messages SET message = '{broken' WHERE position = 4")
    await store.sessions.append("s", "run_2", [UserMessage("5")])
    tamper("DELETE FROM glassloop_messages WHERE position = 4 AND message = '{broken'")


async def test_messages_with_unknown_or_missing_fields_are_read(store: Store, tamper: Tamper) -> None:
    await fill(store, 2)
    tamper(
        "UPDATE glassloop_messages SET message = ? WHERE position = 1",
        '{"role": "assistant", "parts": [{"kind": "text", "text": "hello", "mood": 1}], "from_the_future": {"x": 1}}',
    )
    tamper("""UPDATE glassloop_messages SET message = '{"role": "assistant", "parts": []}' WHERE position = 2""")
    first, second = await store.sessions.load("s")
    assert isinstance(first, Reply)
    assert first.text == "hello"
    assert second == Reply(())


async def test_messages_of_a_newer_version_are_an_error_and_not_lost(store: Store, tamper: Tamper) -> None:
    await fill(store)
    tamper("UPDATE glassloop_messages SET v = 2 WHERE position = 3")
    with pytest.raises(StoreError, match=r"newer Glassloop wrote to session 's' \(message version 2\)"):
        await store.sessions.load("s")
    assert await texts(store, 2) == ["3", "4"]


async def test_a_damaged_event_is_an_error_that_names_it(store: Store, tamper: Tamper) -> None:
    await store.journal.append("run_1", [started("run_1"), replied("run_1")], after=0, epoch=1)
    tamper("UPDATE glassloop_events SET data = '{broken' WHERE seq = 2")
    with pytest.raises(StoreError, match=r"Event 2 of run run_1 \(model_replied\) is damaged"):
        await store.journal.read("run_1")
    assert await store.journal.read("run_1", 2) == []


async def test_events_of_another_version_are_read(store: Store, tamper: Tamper) -> None:
    await store.journal.append("run_1", [started("run_1"), replied("run_1"), replied("run_1")], after=0, epoch=1)
    tamper("UPDATE glassloop_events SET type = 'shiny', data = '{\"x\": 1}' WHERE seq = 1")
    tamper("UPDATE glassloop_events SET v = 99 WHERE seq = 2")
    tamper("UPDATE glassloop_events SET data = json_set(data, '$.shiny', 1) WHERE seq = 3")
    first, second, third = await store.journal.read("run_1")
    assert first.data == Unknown("shiny", {"x": 1})
    assert isinstance(second.data, Unknown)
    assert second.type == "model_replied"
    assert third.data == replied("run_1").data
    assert isinstance(third.data, ModelReplied)
