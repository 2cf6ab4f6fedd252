"""`search_knowledge`, as a model meets it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from glassloop import Agent
from glassloop.core.encoding import digest
from glassloop.knowledge.documents import Document, Passage
from glassloop.knowledge.knowledge import Knowledge
from glassloop.models.scripted import ScriptedModel, call


@pytest.fixture
async def knowledge(tmp_path: Path) -> AsyncIterator[Knowledge]:
    async with Knowledge(f"sqlite:///{tmp_path / 'k.db'}") as knowledge:
        policy = Passage("policy.pdf", "Refund policy", 0, "Refunds take 48 hours.", ("Money", "Refunds"), page=3)
        faq = Passage("faq.md", "faq.md", 0, "Usually a refund takes 24 hours.", (), line=12)
        for passage in (policy, faq):
            await knowledge.put(Document(passage.source, passage.title, (), digest(passage.text.encode())), [passage])
        yield knowledge


async def said(knowledge: Knowledge, query: str, **options: Any) -> str:
    model = ScriptedModel([call("search_knowledge", query=query), "done"])
    result = await Agent(model, [knowledge.tool(**options)]).run("look it up")
    return result.tool_executions[0].content


async def test_passages_come_with_source_place_and_who_says_otherwise(knowledge: Knowledge) -> None:
    found = {passage["source"]: passage for passage in json.loads(await said(knowledge, "refunds"))["passages"]}
    assert found["policy.pdf"] == {
        "source": "policy.pdf",
        "title": "Refund policy",
        "heading": "Money > Refunds",
        "page": 3,
        "text": "Refunds take 48 hours.",
        "conflicts": [
            {
                "here": "48 hours",
                "source": "faq.md",
                "says": "24 hours",
                "there": "Usually a refund takes 24 hours.",
            }
        ],
    }
    assert found["faq.md"]["line"] == 12
    assert "title" not in found["faq.md"]
    assert found["faq.md"]["conflicts"][0]["source"] == "policy.pdf"


async def test_no_more_passages_than_wanted(knowledge: Knowledge) -> None:
    assert len(json.loads(await said(knowledge, "refunds", limit=1))["passages"]) == 1


async def test_nothing_found_is_said_plainly(knowledge: Knowledge) -> None:
    assert (await said(knowledge, "zzz")).startswith("No results: nothing found for 'zzz'")


def test_what_the_tool_says_of_itself(knowledge: Knowledge) -> None:
    tool = knowledge.tool("search_manual", description="The manual of the pump.")
    assert (tool.name, tool.description) == ("search_manual", "The manual of the pump.")
    assert (tool.effect, tool.trusted_output) == ("read", False)
    assert set(tool.parameters["properties"]) == {"query"}
    assert "cite" in knowledge.tool().description
