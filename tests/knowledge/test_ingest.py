"""Files into knowledge: only what is new or changed, whatever else is wrong."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from glassloop.core.errors import ConfigurationError, ModelError
from glassloop.knowledge.ingest import Failure, IngestReport, Progress, ingest
from glassloop.knowledge.knowledge import Knowledge

FILES = {
    "refund.md": "# Refunds\n\nA refund takes 48 hours.\n\n## 期限\n\n客户在七天内可以申请退款。\n",
    "sub/faq.html": "<title>FAQ</title><h1>Questions</h1><p>Parcels arrive on Tuesday.</p>",
    "prices.csv": "name,price\ntea,12\ncoffee,15\n",
}


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    folder = tmp_path / "docs"
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, "utf-8")
    return folder


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/k.db" if request.param == "sqlite" else str(request.getfixturevalue("postgres_url"))


@pytest.fixture
async def knowledge(url: str) -> AsyncIterator[Knowledge]:
    async with Knowledge(url) as opened:
        yield opened


def numbers(report: IngestReport) -> tuple[int, int, int]:
    return report.passages_added, report.passages_removed, report.passages_kept


async def found(knowledge: Knowledge, query: str) -> list[str]:
    return [hit.passage.text for hit in await knowledge.search(query)]


async def test_what_went_in_is_found_with_its_place(knowledge: Knowledge, docs: Path) -> None:
    report = await ingest(knowledge, [docs])
    assert report.added == ["docs/prices.csv", "docs/refund.md", "docs/sub/faq.html"]
    assert numbers(report) == (5, 0, 0)
    assert (report.changed, report.unchanged, report.failed, report.vanished) == ([], [], [], [])
    assert report.seconds > 0
    passage = (await knowledge.search("退款"))[0].passage
    assert (passage.source, passage.headings, passage.line) == ("docs/refund.md", ("Refunds", "期限"), 7)
    passage = (await knowledge.search("coffee"))[0].passage
    assert (passage.source, passage.text, passage.line) == ("docs/prices.csv", "name: coffee\nprice: 15", 3)
    passage = (await knowledge.search("Tuesday"))[0].passage
    assert (passage.title, passage.headings) == ("FAQ", ("Questions",))


async def test_the_second_time_nothing_changes(knowledge: Knowledge, docs: Path) -> None:
    await ingest(knowledge, [docs])
    before = await knowledge.sources()
    report = await ingest(knowledge, [docs])
    assert report.unchanged == ["docs/prices.csv", "docs/refund.md", "docs/sub/faq.html"]
    assert numbers(report) == (0, 0, 5)
    assert (report.added, report.changed) == ([], [])
    assert await knowledge.sources() == before


async def test_an_edit_changes_the_passages_of_its_section_only(knowledge: Knowledge, docs: Path) -> None:
    await ingest(knowledge, [docs])
    (docs / "refund.md").write_text(FILES["refund.md"].replace("七天", "十四天"), "utf-8")
    report = await ingest(knowledge, [docs])
    assert report.changed == ["docs/refund.md"]
    assert numbers(report) == (1, 1, 4)
    assert await found(knowledge, "十四天") == ["客户在十四天内可以申请退款。"]
    assert "七天" not in "".join(await found(knowledge, "七天内可以"))


async def test_bad_files_are_named_and_the_others_go_in(knowledge: Knowledge, docs: Path) -> None:
    (docs / "broken.pdf").write_bytes(b"%PDF-1.4 nonsense")
    (docs / "empty.md").touch()
    (docs / "picture.png").write_bytes(b"\x89PNG")
    report = await ingest(knowledge, [docs, docs.parent / "gone"])
    assert [failure.source for failure in report.failed] == [
        "docs/broken.pdf",
        "docs/empty.md",
        "docs/picture.png",
        "gone",
    ]
    assert report.failed[1] == Failure("docs/empty.md", "is empty: write something into it, or leave it out.")
    assert len(report.added) == 3


async def test_a_file_that_has_become_bad_keeps_what_was_known(knowledge: Knowledge, docs: Path) -> None:
    await ingest(knowledge, [docs])
    (docs / "refund.md").write_bytes(b"\xff\xfe\xff")
    report = await ingest(knowledge, [docs], prune=True)
    assert [failure.source for failure in report.failed] == ["docs/refund.md"]
    assert report.pruned == []
    assert await found(knowledge, "48 hours") == ["A refund takes 48 hours."]


async def test_too_large_a_file_is_skipped(knowledge: Knowledge, docs: Path) -> None:
    report = await ingest(knowledge, [docs], max_bytes=50)
    assert [failure.source for failure in report.failed] == ["docs/refund.md", "docs/sub/faq.html"]


async def test_what_has_vanished_is_told_and_removed_only_when_asked(knowledge: Knowledge, docs: Path) -> None:
    (docs.parent / "docs2.md").write_text("Another source, of docs2.", "utf-8")
    await ingest(knowledge, [docs, docs.parent / "docs2.md"])
    (docs / "prices.csv").unlink()
    (docs.parent / "docs2.md").unlink()
    report = await ingest(knowledge, [docs])
    assert (report.vanished, report.pruned) == (["docs/prices.csv"], [])
    assert await found(knowledge, "coffee") == ["name: coffee\nprice: 15"]
    report = await ingest(knowledge, [docs], prune=True)
    assert (report.vanished, report.pruned) == ([], ["docs/prices.csv"])
    assert numbers(report) == (0, 2, 3)
    assert await found(knowledge, "coffee") == []
    assert await found(knowledge, "docs2")


async def test_a_folder_that_became_a_link_is_not_pruned(knowledge: Knowledge, docs: Path) -> None:
    await ingest(knowledge, [docs])
    (docs / "sub").rename(docs.parent / "elsewhere")
    (docs / "sub").symlink_to(docs.parent / "elsewhere")
    report = await ingest(knowledge, [docs], prune=True)
    assert report.pruned == []
    assert [failure.source for failure in report.failed] == ["docs/sub"]
    assert await found(knowledge, "Tuesday")


async def test_a_single_file_says_nothing_about_others(knowledge: Knowledge, docs: Path) -> None:
    await ingest(knowledge, [docs], root=docs)
    report = await ingest(knowledge, [docs / "refund.md"], root=docs, prune=True)
    assert (report.unchanged, report.vanished, report.pruned) == (["refund.md"], [], [])


async def test_collections_know_nothing_of_each_other(knowledge: Knowledge, docs: Path) -> None:
    await ingest(knowledge, [docs])
    async with Knowledge(knowledge.url, collection="other") as other:
        report = await ingest(other, [docs / "refund.md"])
        assert report.added == ["refund.md"]
        assert await found(other, "coffee") == []


async def test_progress_counts_every_file_once(knowledge: Knowledge, docs: Path) -> None:
    (docs / "empty.md").touch()
    seen: list[Progress] = []
    await ingest(knowledge, [docs], on_progress=seen.append, concurrency=2)
    assert [each.done for each in seen] == [1, 2, 3, 4]
    assert {each.total for each in seen} == {4}
    assert {each.source: each.outcome for each in seen}["docs/empty.md"] == "failed"
    assert sorted(each.outcome for each in seen) == ["added", "added", "added", "failed"]


async def test_one_that_was_cancelled_goes_on_the_next_time(knowledge: Knowledge, docs: Path) -> None:
    def stop(progress: Progress) -> None:
        task.cancel()

    task = asyncio.create_task(ingest(knowledge, [docs], on_progress=stop, concurrency=1))
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(await knowledge.sources()) == 1
    report = await ingest(knowledge, [docs])
    assert (len(report.unchanged), len(report.added)) == (1, 2)


async def test_two_at_once_leave_what_one_would(url: str, docs: Path) -> None:
    for number in range(20):
        (docs / f"{number}.md").write_text(f"# Title\n\nText {number}.\n\n## Same\n\nThe same text.\n", "utf-8")
    async with Knowledge(url) as one, Knowledge(url) as other:
        await asyncio.gather(ingest(one, [docs]), ingest(other, [docs]))
        assert sum(source.passages for source in await one.sources()) == 45
        assert numbers(await ingest(one, [docs])) == (0, 0, 45)
        assert len(await one.search("same", limit=50)) == 20


class Broken:
    """An embedding model that fails."""

    name = "broken"

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        raise ModelError("The embedding model is down.", kind="connection")


async def test_a_failing_embedding_model_is_told_as_it_is(tmp_path: Path, docs: Path) -> None:
    async with Knowledge(f"sqlite:///{tmp_path}/k.db", embeddings=Broken()) as knowledge:
        with pytest.raises(ModelError, match="is down"):
            await ingest(knowledge, [docs])


async def test_nothing_at_once_is_refused(knowledge: Knowledge, docs: Path) -> None:
    with pytest.raises(ConfigurationError, match="0 files at once"):
        await ingest(knowledge, [docs], concurrency=0)
