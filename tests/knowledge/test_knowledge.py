"""Knowledge: the same on SQLite and on PostgreSQL."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from glassloop.core.encoding import digest
from glassloop.core.errors import ConfigurationError, ModelError, StoreError
from glassloop.knowledge.documents import Document, Passage
from glassloop.knowledge.index import Change
from glassloop.knowledge.knowledge import Knowledge
from glassloop.stores import open_store
from glassloop.testing.embeddings import embedding
from servers import PostgresProcess

CHINESE = {
    "退款": "订单可以在七天内退款，款项原路退回。",
    "发票": "发票会寄到您的邮箱，抬头可以修改。",
    "周末": "仓库周末不发货，周一恢复。",
    "保修": "整机保修两年，人为损坏除外。",
    "运费": "偏远地区的运费由买家承担。",
    "会员": "会员每月可以领取优惠券。",
    "地址": "下单后一小时内可以更改收货地址。",
    "客服": "客服的工作时间是早上九点到晚上六点。",
}


def passages(source: str, *texts: str, title: str = "", headings: tuple[str, ...] = ()) -> list[Passage]:
    return [
        Passage(
            source, title or source, at, text, headings, line=at + 1, digest=digest(repr((headings, text)).encode())
        )
        for at, text in enumerate(texts)
    ]


def document(source: str, *texts: str, title: str = "") -> Document:
    return Document(source, title or source, (), digest(repr(texts).encode()))


async def put(knowledge: Knowledge, source: str, *texts: str, title: str = "") -> Change:
    return await knowledge.put(document(source, *texts, title=title), passages(source, *texts, title=title))


async def texts(knowledge: Knowledge, query: str, limit: int = 5) -> list[str]:
    return [hit.passage.text for hit in await knowledge.search(query, limit)]


class HashedWords:
    """An embedding model without a server; counts what it is asked."""

    def __init__(self, name: str = "hashed", size: int = 64) -> None:
        self.name = name
        self.asked: list[str] = []
        self.broken = False
        self._size = size

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        if self.broken:
            raise ModelError("The embedding server is down.", kind="connection")
        self.asked += texts
        return [embedding(text, self._size) for text in texts]


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'knowledge.db'}"
    return str(request.getfixturevalue("postgres_url"))


@pytest.fixture
async def knowledge(url: str) -> AsyncIterator[Knowledge]:
    async with Knowledge(url) as knowledge:
        yield knowledge


async def test_what_was_put_is_found_with_its_place(knowledge: Knowledge) -> None:
    wanted = Passage("a/b.pdf", "Guide", 0, "Refunds take 48 hours.", ("Money", "Refunds"), 3, 7, digest(b"1"))
    change = await knowledge.put(document("a/b.pdf", title="Guide"), [wanted])
    assert change == Change(added=1, removed=0, kept=0)
    [hit] = await knowledge.search("refunds")
    assert hit.passage == wanted
    assert hit.score > 0
    [source] = await knowledge.sources()
    assert (source.source, source.title, source.passages, source.characters) == ("a/b.pdf", "Guide", 1, 22)
    assert source.added_at > 1_700_000_000_000
    assert await knowledge.digest_of("a/b.pdf") == document("a/b.pdf").digest
    assert await knowledge.digest_of("other") is None


async def test_every_two_character_query_finds_its_passage(knowledge: Knowledge) -> None:
    for name, text in CHINESE.items():
        await put(knowledge, f"{name}.md", text, f"{name}以外的内容在别处说明。")
    for name, text in CHINESE.items():
        assert text in await texts(knowledge, name)
    for run in CHINESE.values():
        pairs = {run[at : at + 2] for at in range(len(run) - 1)}
        for pair in pairs:
            if "，" not in pair and "。" not in pair:
                assert run in await texts(knowledge, pair, 16), pair


async def test_nothing_that_fits_is_an_empty_list(knowledge: Knowledge) -> None:
    assert await knowledge.search("anything") == []
    await put(knowledge, "a.md", "Refunds take two days.", "退款需要两天。")
    for query in ("zzz", "", "   ", "…！", '"', "AND OR NOT", "保修"):
        assert await knowledge.search(query) == [], query


async def test_rare_words_count_more_than_frequent_ones(knowledge: Knowledge) -> None:
    fillers = [f"The shop has the item {number} in the shop." for number in range(30)]
    await put(knowledge, "a.md", *fillers, "A warranty is given for all.", "the the the shop the shop has the the")
    assert (await texts(knowledge, "the shop has which warranty"))[0] == "A warranty is given for all."


async def test_a_question_finds_the_passage_that_answers_it(knowledge: Knowledge) -> None:
    await put(knowledge, "zh.md", *CHINESE.values())
    assert (await texts(knowledge, "请问我的订单多少天内可以退款？"))[0] == CHINESE["退款"]
    assert (await texts(knowledge, "周末发货吗"))[0] == CHINESE["周末"]


async def test_titles_and_headings_are_found_too(knowledge: Knowledge) -> None:
    pump = passages("x", "It is 2 years.", title="Pump 3000", headings=("Warranty",))
    await knowledge.put(document("x", title="Pump 3000"), pump)
    await put(knowledge, "y", "Something else.")
    assert await texts(knowledge, "warranty") == ["It is 2 years."]
    assert await texts(knowledge, "pump") == ["It is 2 years."]


async def test_a_heading_counts_more_than_the_text(knowledge: Knowledge) -> None:
    for at, (heading, text) in enumerate([("Given", "warranty for years"), ("Warranty", "given for years")]):
        await knowledge.put(document(f"{at}"), passages(f"{at}", text, headings=(heading,)))
    assert await texts(knowledge, "warranty") == ["given for years", "warranty for years"]


async def test_putting_again_changes_only_what_is_new(knowledge: Knowledge) -> None:
    assert await put(knowledge, "a.md", "one", "two", "three", "two") == Change(4, 0, 0)
    assert await put(knowledge, "a.md", "one", "two", "three", "two") == Change(0, 0, 4)
    assert await put(knowledge, "a.md", "zero", "two", "one") == Change(1, 2, 2)
    assert await texts(knowledge, "three") == []
    assert await texts(knowledge, "zero") == ["zero"]
    assert [hit.passage.position for hit in await knowledge.search("one")] == [2]
    assert [hit.passage.line for hit in await knowledge.search("two")] == [2]
    assert (await knowledge.sources())[0].passages == 3


async def test_a_new_title_reaches_the_passages_that_stay(knowledge: Knowledge) -> None:
    await put(knowledge, "a.md", "one", title="Old")
    assert await put(knowledge, "a.md", "one", title="New") == Change(0, 0, 1)
    assert await texts(knowledge, "old") == []
    [hit] = await knowledge.search("new")
    assert hit.passage.title == "New"


async def test_removing_leaves_nothing(knowledge: Knowledge) -> None:
    await put(knowledge, "a.md", "apples", "pears")
    await put(knowledge, "b.md", "apples")
    assert await knowledge.remove("a.md") == 2
    assert await knowledge.remove("a.md") == 0
    assert [hit.passage.source for hit in await knowledge.search("apples")] == ["b.md"]
    assert [source.source for source in await knowledge.sources()] == ["b.md"]
    assert await knowledge.collections() == ["default"]
    await knowledge.remove("b.md")
    assert await knowledge.collections() == []
    assert await knowledge.search("apples") == []
    await put(knowledge, "a.md", "apples")
    assert await texts(knowledge, "apples") == ["apples"]


async def test_collections_do_not_see_each_other(url: str, knowledge: Knowledge) -> None:
    await put(knowledge, "a.md", "apples here")
    async with Knowledge(url, collection="其他") as other:
        await put(other, "a.md", "apples there")
        assert await texts(other, "apples") == ["apples there"]
        assert await other.collections() == ["default", "其他"]
        assert await other.remove("a.md") == 1
    assert await texts(knowledge, "apples") == ["apples here"]


async def test_text_that_no_database_can_hold_is_kept_spelled_out(knowledge: Knowledge) -> None:
    await put(knowledge, "caf\udce9.md", "half \ud83d an emoji", "a nul \x00 inside", "quotes ' \" \\ : & | ! 'x':1")
    assert (await texts(knowledge, "emoji"))[0].startswith("half ")
    assert (await texts(knowledge, "nul"))[0].startswith("a nul ")
    assert await texts(knowledge, "quotes") == ["quotes ' \" \\ : & | ! 'x':1"]
    assert await knowledge.digest_of("caf\udce9.md")
    assert await knowledge.remove("caf\udce9.md") == 3


async def test_long_words_and_long_queries_do_no_harm(knowledge: Knowledge) -> None:
    await put(knowledge, "a.md", "x" * 5000 + " apples", "字" * 20_000)
    assert len(await knowledge.search("apples")) == 1
    assert len(await knowledge.search("x" * 5000)) == 1
    assert len(await knowledge.search("字" * 5000 + " pear" * 5000)) == 1


async def test_many_put_and_search_at_once(url: str, knowledge: Knowledge) -> None:
    async def one(number: int) -> None:
        own = knowledge if number % 2 else other
        await put(own, f"{number % 5}.md", f"apples of {number}", "the same everywhere")
        assert await own.search("apples")

    async with Knowledge(url) as other:
        await asyncio.gather(*(one(number) for number in range(20)))
        sources = await other.sources()
    assert [source.passages for source in sources] == [2] * 5
    assert len(await knowledge.search("apples", 50)) == 5


# Vectors


async def test_vectors_find_what_words_rank_low_and_are_made_once(url: str) -> None:
    model = HashedWords()
    async with Knowledge(url, embeddings=model) as knowledge:
        await put(knowledge, "a.md", "apples and pears", "plums")
        assert len(model.asked) == 2
        await put(knowledge, "a.md", "apples and pears", "plums", "cherries")
        assert len(model.asked) == 3
        assert model.asked[2] == "a.md\ncherries"
        [first, *_] = await knowledge.search("plums")
        assert first.passage.text == "plums"
        assert first.score > 1 / 61  # words and vectors agree
        await knowledge.remove("a.md")
        assert await knowledge.search("plums") == []


async def test_passages_without_a_common_word_are_found_by_their_vectors(url: str) -> None:
    class Meaning(HashedWords):
        async def embed(self, texts: Sequence[str]) -> list[list[float]]:
            return [[1.0, 0.1] if "money" in text or "refund" in text else [-0.1, 1.0] for text in texts]

    async with Knowledge(url, embeddings=Meaning()) as knowledge:
        await put(knowledge, "a.md", "your money comes back", "closed on sundays")
        assert (await texts(knowledge, "refund"))[0] == "your money comes back"


@pytest.mark.parametrize("size", [64, 32])
async def test_vectors_of_two_models_are_not_mixed(url: str, size: int, caplog: pytest.LogCaptureFixture) -> None:
    async with Knowledge(url, embeddings=HashedWords("old")) as knowledge:
        await put(knowledge, "a.md", "apples")
        assert await knowledge.digest_of("a.md") is not None
    new = HashedWords("new", size)
    async with Knowledge(url, embeddings=new) as knowledge:
        with caplog.at_level(logging.WARNING, "glassloop.knowledge"):
            [hit] = await knowledge.search("apples")
            await knowledge.search("apples")
        assert [record.getMessage() for record in caplog.records] == [
            "1 passages of collection 'default' have no vector of new and are found by words alone: ingest them again."
        ]
        assert hit.score == pytest.approx(1 / 61)  # found by its words alone
        assert await knowledge.digest_of("a.md") is None  # so that it is put again
        assert await put(knowledge, "a.md", "apples") == Change(0, 0, 1)
        assert new.asked.count("a.md\napples") == 1
        assert await knowledge.digest_of("a.md") is not None
        [hit] = await knowledge.search("apples")
        assert hit.score == pytest.approx(2 / 61)


async def test_a_model_whose_vectors_have_another_length_now(url: str) -> None:
    async with Knowledge(url, embeddings=HashedWords("m", 64)) as knowledge:
        await put(knowledge, "a.md", "apples")
    async with Knowledge(url, embeddings=HashedWords("m", 32)) as knowledge:
        assert await texts(knowledge, "apples") == ["apples"]


async def test_a_model_that_fails(url: str, caplog: pytest.LogCaptureFixture) -> None:
    model = HashedWords()
    async with Knowledge(url, embeddings=model) as knowledge:
        await put(knowledge, "a.md", "apples")
        model.broken = True
        with pytest.raises(ModelError, match="is down"):
            await put(knowledge, "a.md", "pears")
        with caplog.at_level(logging.WARNING, "glassloop.knowledge"):
            assert await texts(knowledge, "apples") == ["apples"]
        assert "by words alone: The embedding server is down." in caplog.text


async def test_another_process_changes_the_vectors(url: str) -> None:
    async with Knowledge(url, embeddings=HashedWords()) as one, Knowledge(url, embeddings=HashedWords()) as two:
        await put(one, "a.md", "apples")
        [hit] = await one.search("apples")
        await put(two, "a.md", "pears and apples")
        [hit] = await one.search("apples")
        assert hit.passage.text == "pears and apples"
        assert hit.score == pytest.approx(2 / 61)


# Sources that disagree


async def test_hits_name_the_source_that_says_otherwise(knowledge: Knowledge) -> None:
    await put(knowledge, "policy.md", "退款将在48小时内到账。", title="退款政策")
    await put(knowledge, "faq.html", "退款一般二十四小时内到账。", title="常见问题")
    await put(knowledge, "other.md", "发货需要48小时。")
    hits = {hit.passage.source: hit for hit in await knowledge.search("退款多久到账")}
    [conflict] = hits["policy.md"].conflicts
    assert (conflict.value, conflict.source, conflict.other) == ("48小时", "faq.html", "二十四小时")
    [conflict] = hits["faq.html"].conflicts
    assert (conflict.value, conflict.source, conflict.other) == ("二十四小时", "policy.md", "48小时")
    [first] = await knowledge.search("退款多久到账", 1)
    assert first.conflicts  # the other source need not be among the hits


# What can be wrong


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("memory:", "not kept in memory"),
        ("sqlite://file.db", "names no file"),
        ("sqlite:///", "names no file"),
        ("mysql://x/y", "of kind 'mysql'"),
        ("file.db", "write sqlite:///FILE"),
        ("postgresql:nonsense", "is none"),
    ],
)
def test_a_url_that_names_no_database(url: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Knowledge(url)


def test_a_collection_has_a_name() -> None:
    with pytest.raises(ConfigurationError, match="collection"):
        Knowledge("sqlite:///x.db", collection=" ")


async def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("hello " * 100)
    with pytest.raises(ConfigurationError, match="is not an SQLite file"):
        async with Knowledge(f"sqlite:///{path}"):
            pass


async def test_a_server_that_is_down() -> None:
    with pytest.raises(StoreError, match="cannot be reached") as caught:
        async with Knowledge("postgresql://ann:s3cret@127.0.0.1:1/x"):
            pass
    assert "s3cret" not in str(caught.value)


@pytest.fixture
def bare_postgres_url(postgres_process: PostgresProcess, postgres_url: str) -> Iterator[str]:
    """A database whose server seems to have no extensions to offer."""
    name = urlsplit(postgres_url).path[1:]
    postgres_process.execute("CREATE SCHEMA bare", name)
    postgres_process.execute("CREATE VIEW bare.pg_available_extensions AS SELECT '' AS name", name)
    postgres_process.execute(f"ALTER DATABASE {name} SET search_path = bare, pg_catalog, public", name)
    yield postgres_url
    postgres_process.execute(f"ALTER DATABASE {name} RESET search_path", name)
    postgres_process.execute("DROP SCHEMA bare CASCADE", name)


async def test_a_server_without_pgvector_says_so_at_start(bare_postgres_url: str) -> None:
    async with Knowledge(bare_postgres_url) as knowledge:
        await put(knowledge, "a.md", "apples")
        assert await texts(knowledge, "apples") == ["apples"]
    with pytest.raises(ConfigurationError, match=r"no pgvector: install it .* or unset EMBEDDING_MODEL"):
        async with Knowledge(bare_postgres_url, embeddings=HashedWords()):
            pass


def test_one_object_serves_several_event_loops(url: str) -> None:
    knowledge = Knowledge(url)
    asyncio.run(put(knowledge, "a.md", "apples"))
    assert asyncio.run(texts(knowledge, "apples")) == ["apples"]
    asyncio.run(knowledge.close())


async def test_the_file_of_a_store(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'glassloop.db'}"
    async with open_store(url) as store, Knowledge(url) as knowledge:
        await put(knowledge, "a.md", "apples")
        assert await store.journal.read("none") == []
        assert await texts(knowledge, "apples") == ["apples"]


async def test_where_it_is_kept_by_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.chdir(tmp_path)
    assert Knowledge().url == "sqlite:///glassloop.db"
    monkeypatch.setenv("STORE", url)
    assert Knowledge().url == url


async def test_a_file_keeps_nothing_of_what_was_removed(tmp_path: Path) -> None:
    path = tmp_path / "k.db"
    async with Knowledge(f"sqlite:///{path}", embeddings=HashedWords()) as knowledge:
        await put(knowledge, "a.md", "apples")
        await knowledge.remove("a.md")
    connection = sqlite3.connect(path)
    names = [name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
    tables = [name for name in names if name.startswith("glassloop_knowledge_") and not name.endswith("_schema")]
    assert {name: connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in tables} == {
        "glassloop_knowledge_collections": 0,
        "glassloop_knowledge_documents": 0,
        "glassloop_knowledge_passages": 0,
        "glassloop_knowledge_vectors": 0,
    }
    connection.close()


async def test_knowledge_of_a_newer_version(tmp_path: Path) -> None:
    path = tmp_path / "k.db"
    async with Knowledge(f"sqlite:///{path}") as knowledge:
        await put(knowledge, "a.md", "apples")
    connection = sqlite3.connect(path)
    connection.execute("UPDATE glassloop_knowledge_schema SET version = 99")
    connection.commit()
    connection.close()
    with pytest.raises(ConfigurationError, match="newer Glassloop"):
        async with Knowledge(f"sqlite:///{path}"):
            pass
