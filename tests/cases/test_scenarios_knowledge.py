"""Public failures of search in documents, under their ids in cases.jsonl; through the public API and over the wire."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from scenario import chat, results_in

from glassloop import Agent
from glassloop.core.encoding import digest
from glassloop.knowledge.documents import Document, Passage
from glassloop.knowledge.knowledge import Knowledge
from glassloop.testing import ModelServer, call

DOCUMENTS = ["订单可以在七天内退款", "发票会寄到邮箱", "仓库周末不发货", "model X-200 manual", "返品の手続きについて"]


@pytest.fixture(params=["sqlite", "postgresql"])
async def knowledge(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Knowledge]:
    """The documents of G19, on each database."""
    file = f"sqlite:///{tmp_path / 'knowledge.db'}"
    url = file if request.param == "sqlite" else str(request.getfixturevalue("postgres_url"))
    async with Knowledge(url) as knowledge:
        for number, text in enumerate(DOCUMENTS):
            source, key = f"{number}.txt", digest(text.encode())
            await knowledge.put(Document(source, source, (), key), [Passage(source, source, 0, text, digest=key)])
        yield knowledge


@pytest.mark.parametrize(
    ("query", "first"),
    [("退款", DOCUMENTS[0]), ("周末", DOCUMENTS[2]), ("返品", DOCUMENTS[4]), ("X-200", DOCUMENTS[3])],
)
async def test_G19_words_of_languages_without_spaces_are_found(knowledge: Knowledge, query: str, first: str) -> None:
    hits = await knowledge.search(query)
    assert hits[0].passage.text == first
    assert all(hit.score > 0 for hit in hits)


async def test_G19_what_stands_nowhere_is_an_empty_list(knowledge: Knowledge) -> None:
    assert await knowledge.search("zzz") == []


async def test_G21_an_empty_search_says_that_it_worked_and_found_nothing(knowledge: Knowledge) -> None:
    script = [call("search_knowledge", query="zzz"), call("search_knowledge", query="退款"), "7 days"]
    async with ModelServer(script=script) as server:
        result = await Agent(chat(server), [knowledge.tool()]).run("find")
    assert result.output == "7 days"
    empty, found = results_in(server.requests[-1])["search_knowledge"]
    assert re.search("(?i)no (matching )?(results|documents|matches)", empty)
    assert "nothing found for 'zzz'" in empty
    assert [execution.status for execution in result.tool_executions] == ["ok", "ok"]
    assert json.loads(found)["passages"][0] == {"source": "0.txt", "text": DOCUMENTS[0]}
