"""Opening a store: URLs, and every way in which a file can be wrong."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from glassloop.core.errors import ConfigurationError, StoreError
from glassloop.journal.journal import MemoryJournal
from glassloop.stores import Store, open_store
from glassloop.stores.sqlite import schema
from glassloop.testing.conformance.journal import asked, started


def use(url: str) -> None:
    """Open a store and write a run to it."""

    async def write() -> None:
        async with open_store(url) as store:
            await store.journal.append("run_1", [started("run_1")], after=0, epoch=1)

    asyncio.run(write())


def stored(url: str) -> int:
    """How many runs a store lists."""

    async def count() -> int:
        async with open_store(url) as store:
            return len(await store.journal.runs())

    return asyncio.run(count())


@pytest.mark.parametrize("url", ["memory:", "memory://"])
async def test_a_store_in_memory(url: str) -> None:
    async with open_store(url) as store:
        assert isinstance(store.journal, MemoryJournal)
        assert store.url == url


def test_an_absolute_file(path: Path) -> None:
    use(f"sqlite:///{path}")
    assert [file.name for file in path.parent.iterdir()] == ["store.db"]


async def test_a_relative_file_stays_where_it_was_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    async with open_store("sqlite:///store.db") as store:
        monkeypatch.chdir(tmp_path / "elsewhere")
        await store.journal.append("run_1", [started("run_1")], after=0, epoch=1)
        assert len(await store.journal.runs()) == 1
    assert (tmp_path / "store.db").exists()
    assert not list((tmp_path / "elsewhere").iterdir())


def test_a_name_is_taken_as_it_is(tmp_path: Path) -> None:
    use(f"sqlite:///{tmp_path}/100% 数据 #1.db")
    assert (tmp_path / "100% 数据 #1.db").exists()


def test_home_is_understood(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    use("sqlite:///~/store.db")
    assert (tmp_path / "store.db").exists()


def test_opening_touches_no_file(path: Path, url: str) -> None:
    open_store(url)
    assert not path.exists()


@pytest.mark.parametrize(
    ("url", "hint"),
    [
        ("store.db", "write sqlite:///store.db for a file"),
        ("/var/lib/store.db", "write sqlite:////var/lib/store.db for a file"),
        ("", "no URL"),
        ("sqlite:store.db", "three slashes"),
        ("sqlite://store.db", "three slashes"),
        ("sqlite:///", "names no file"),
        ("sqlite:///:memory:", "memory:"),
        ("sqlite:///store.db?mode=ro", "takes none"),
        ("postgresql:/ann:secret@db/glassloop", "names no server: write postgresql://"),
        ("postgresql://ann:secret#x@db/glassloop", "# as %23"),
        ("postgresql://ann:secret/x@db/glassloop", "/ as %2F"),
        ("postgresql://ann:secret@db:secret/glassloop", "port in the store's URL is no number"),
        ("mysql://ann:secret@db/glassloop", "'mysql' are not supported. Supported are"),
        ("redis://:secret@db/0", "Redis keeps sessions and the ledger, not the journal: set STORE=sqlite"),
        ("sqlite+aiosqlite:///store.db", "'sqlite\\+aiosqlite' are not supported"),
    ],
)
def test_another_url_is_refused_with_a_hint(url: str, hint: str) -> None:
    with pytest.raises(ConfigurationError, match=hint) as caught:
        open_store(url)
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/none/store.db"
    with pytest.raises(ConfigurationError, match=f"there is no directory {tmp_path}/none"):
        use(url)
    (tmp_path / "none").mkdir()
    use(url)


async def test_an_open_store_recovers_once_the_directory_is_there(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/none/store.db")
    for _ in range(2):
        with pytest.raises(ConfigurationError):
            await store.journal.read("run_1")
    (tmp_path / "none").mkdir()
    assert await store.journal.read("run_1") == []
    await store.close()


def test_a_directory_is_not_a_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="it is a directory"):
        use(f"sqlite:///{tmp_path}")


def test_another_kind_of_file_is_left_alone(path: Path, url: str) -> None:
    path.write_text("Dear diary, " * 1_000)
    with pytest.raises(ConfigurationError, match=r"store\.db is not an SQLite file"):
        use(url)
    assert path.read_text() == "Dear diary, " * 1_000
    assert [file.name for file in path.parent.iterdir()] == ["store.db"]


def test_a_newer_file_is_left_alone(path: Path, url: str) -> None:
    use(url)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE glassloop_schema SET version = 99")
    before = path.read_bytes()
    known = len(schema.MIGRATIONS)
    with pytest.raises(ConfigurationError, match=rf"newer Glassloop \(schema 99, this one knows {known}\): upgrade"):
        use(url)
    assert path.read_bytes() == before


def test_an_older_file_is_brought_up_to_date(path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use(url)
    newer = ("ALTER TABLE glassloop_runs ADD COLUMN shiny INTEGER", "CREATE TABLE glassloop_shiny (id TEXT) STRICT")
    monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, newer))
    assert stored(url) == 1
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT id, shiny FROM glassloop_runs").fetchall() == [("run_1", None)]
        version = connection.execute("SELECT version FROM glassloop_schema").fetchall()
    assert version == [(len(schema.MIGRATIONS),)]


async def test_a_file_from_before_there_were_questions_takes_them(
    path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(schema, "MIGRATIONS", schema.MIGRATIONS[:2])
        async with open_store(url) as store:
            await store.journal.append("run_1", [started("run_1")], after=0, epoch=1)
    old = ("appr_1", "run_1", "call_1", "refund", "{}", "Refund?", "high", None, "call", "park", *[None] * 3, "desk", 7)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"INSERT INTO glassloop_approvals VALUES ({', '.join('?' * 19)})", (*old, *[None] * 4))
    async with open_store(url) as store:
        await store.journal.append("run_1", [asked("run_1", 2, choices=("a", "b"))], after=1, epoch=1)
        rows = await store.journal.approvals()
        assert [(row.choices, row.answer) for row in rows] == [('["a","b"]', None), ("[]", None)]


def test_a_migration_that_fails_changes_nothing(path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use(url)
    broken = ("CREATE TABLE glassloop_shiny (id TEXT) STRICT", "CREATE TABLE nonsense")
    with monkeypatch.context() as patch:
        patch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, broken))
        with pytest.raises(StoreError):
            use(url)
    assert stored(url) == 1
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'glassloop_shiny'").fetchone() is None


def test_the_store_lives_beside_your_own_tables(path: Path, url: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA user_version = 7")
        connection.execute("CREATE TABLE runs (id TEXT)")
        connection.execute("INSERT INTO runs VALUES ('a marathon')")
    use(url)
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT id FROM runs").fetchall() == [("a marathon",)]
        assert connection.execute("PRAGMA user_version").fetchone() == (7,)
        assert connection.execute("SELECT id FROM glassloop_runs").fetchall() == [("run_1",)]


def test_a_damaged_file_is_told(path: Path, url: str) -> None:
    use(url)
    content = bytearray(path.read_bytes())
    content[200:] = b"\xff" * (len(content) - 200)
    path.write_bytes(content)
    with pytest.raises(StoreError, match="is damaged: restore a backup"):
        use(url)


@pytest.fixture
def ordinary_user(tmp_path: Path) -> Iterator[None]:
    """Run the test as somebody for whom permissions count, and who owns the temporary directory."""
    if os.geteuid() != 0:
        yield
        return
    nobody = 65_534
    os.chown(tmp_path, nobody, nobody)
    for parent in tmp_path.parents[:3]:
        if parent.stat().st_uid == 0 and parent.name.startswith("pytest"):
            parent.chmod(0o755)
    os.setresuid(nobody, nobody, 0)
    try:
        yield
    finally:
        os.setresuid(0, 0, 0)


@pytest.mark.usefixtures("ordinary_user")
def test_a_read_only_file_is_told(path: Path, url: str) -> None:
    use(url)
    path.chmod(0o444)
    with pytest.raises(ConfigurationError, match=r"store\.db is read-only: the store needs to write"):
        use(url)
    assert [file.name for file in path.parent.iterdir()] == ["store.db"]
    path.chmod(0o644)
    assert stored(url) == 1


@pytest.mark.usefixtures("ordinary_user")
def test_a_file_that_may_not_be_read_is_told(path: Path, url: str) -> None:
    use(url)
    path.chmod(0o200)
    with pytest.raises(ConfigurationError, match="no permission to read and write"):
        use(url)
    path.chmod(0o644)


@pytest.mark.usefixtures("ordinary_user")
def test_a_read_only_directory_is_told(path: Path, url: str) -> None:
    path.parent.chmod(0o555)
    with pytest.raises(ConfigurationError, match="no permission to read and write"):
        use(url)
    path.parent.chmod(0o755)


async def test_entering_a_store_finds_out_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError):
        async with open_store(f"sqlite:///{tmp_path}/none/store.db"):
            raise AssertionError


async def test_closing_is_idempotent_and_final(url: str) -> None:
    store = open_store(url)
    await store.journal.append("run_1", [started("run_1")], after=0, epoch=1)
    await store.close()
    await store.close()
    with pytest.raises(StoreError, match="is closed"):
        await store.journal.read("run_1")
    with pytest.raises(StoreError, match="is closed"):
        await store.journal.append("run_1", [started("run_1")], after=1, epoch=1)
    await open_store(url).close()


def test_stores_compare_by_what_they_are(url: str) -> None:
    store = open_store(url)
    assert store == Store(url, store.journal, store.sessions, store.ledger, store.open_facts)
    assert store != open_store(url)


def test_a_store_in_memory_does_not_load_sqlite() -> None:
    code = "import sys; from glassloop.stores import open_store; open_store('memory:'); print('sqlite3' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"
