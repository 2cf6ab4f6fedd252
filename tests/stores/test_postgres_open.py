"""Opening a store in PostgreSQL, every way in which that can fail, and servers that come and go."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from typing import Any, NoReturn

import pytest
from sqlalchemy import Connection, text

from children import end
from glassloop.core.errors import ConfigurationError, GlassloopError, StoreError
from glassloop.core.events import Event
from glassloop.stores import open_store
from glassloop.stores.postgres import engine
from glassloop.stores.postgres.address import Address
from glassloop.stores.postgres.engine import Database
from glassloop.stores.postgres.schema import STORE, check_server
from glassloop.testing.conformance.journal import asked, cancelled, claimed, replied, started
from servers import PostgresProcess, postgres_server

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def url(postgres_url: str) -> str:
    return postgres_url


@pytest.fixture(scope="module")
def own_server() -> Iterator[PostgresProcess]:
    """A server that a test may stop."""
    with postgres_server("max_connections=20") as server:
        yield server


async def trouble(url: str) -> tuple[type[GlassloopError], str]:
    """What opening a store says."""
    with pytest.raises(GlassloopError) as caught:
        async with open_store(url):
            raise AssertionError
    said = str(caught.value)
    assert "s3cret" not in said
    assert "\n" not in said
    return type(caught.value), said


def name_of(url: str) -> str:
    return url.rpartition("/")[2]


# URLs


@pytest.mark.parametrize(
    ("url", "shown", "user", "password"),
    [
        ("postgresql://ann:s3cret%2F%3F@db:5433/runs", "postgresql://ann@db:5433/runs", "ann", "s3cret/?"),
        ("postgresql://ann:s3c:ret@db/runs?sslmode=disable", "postgresql://ann@db/runs", "ann", "s3c:ret"),
        ("postgres://db/runs", "postgresql://db/runs", "", None),
        ("postgresql://a%40b@[::1]:5433/runs", "postgresql://a@b@[::1]:5433/runs", "a@b", None),
        ("postgresql://ann@one:1,two:2/runs", "postgresql://ann@one:1,two:2/runs", "ann", None),
        ("postgresql:///runs?host=/var/run&user=ann&password=s3cret", "postgresql://ann@/var/run/runs", "ann", None),
    ],
)
def test_a_url_is_shown_without_its_password(url: str, shown: str, user: str, password: str | None) -> None:
    address = Address.parse(url)
    assert (address.url, address.user, address.password) == (shown, user, password)
    assert "s3cret" not in repr(address)
    assert open_store(url).url == shown


# What is wrong is said when the store is opened


async def test_a_server_that_is_down_is_told() -> None:
    kind, said = await trouble("postgresql://ann:s3cret@127.0.0.1:1/runs")
    assert kind is StoreError
    assert said == (
        "PostgreSQL at 127.0.0.1:1 cannot be reached (nothing listens there): start it, or correct the URL."
    )


async def test_a_host_that_does_not_exist_is_told() -> None:
    kind, said = await trouble("postgresql://ann:s3cret@no-such-host.invalid/runs")
    assert kind is StoreError
    assert "no-such-host.invalid cannot be reached" in said


async def test_a_wrong_password_is_told(postgres_process: PostgresProcess) -> None:
    wrong = postgres_process.url().replace("s3cret", "s3cret-of-another")
    kind, said = await trouble(wrong)
    assert kind is ConfigurationError
    assert "does not let 'ann' in: correct user and password in the URL" in said


async def test_a_missing_database_is_told(postgres_process: PostgresProcess) -> None:
    kind, said = await trouble(postgres_process.url("nowhere"))
    assert kind is ConfigurationError
    assert "has no database 'nowhere': create it with createdb" in said


async def test_a_url_without_a_database_is_told(postgres_process: PostgresProcess) -> None:
    kind, said = await trouble(postgres_process.url("").rstrip("/"))
    assert kind is ConfigurationError
    assert said.startswith("The URL names no database, and PostgreSQL at 127.0.0.1")


async def test_a_url_without_a_user_is_told(postgres_process: PostgresProcess) -> None:
    kind, said = await trouble(f"postgresql://127.0.0.1:{postgres_process.port}/postgres")
    assert kind is ConfigurationError
    assert "does not let a user whom the URL does not name in" in said


async def test_a_server_without_tls_is_told(url: str) -> None:
    kind, said = await trouble(f"{url}?sslmode=require")
    assert kind is ConfigurationError
    assert "does not speak TLS: set it up there, or take sslmode out of the URL" in said


async def test_an_unknown_option_is_told(url: str) -> None:
    kind, said = await trouble(f"{url}?shiny=yes")
    assert kind is ConfigurationError
    assert 'does not know an option of the URL (unrecognized configuration parameter "shiny")' in said


async def test_a_user_without_rights_is_told(postgres_process: PostgresProcess, url: str) -> None:
    postgres_process.execute("DROP ROLE IF EXISTS guest; CREATE ROLE guest LOGIN PASSWORD 's3cret'")
    for rights in ("USAGE, CREATE", "CREATE"):
        grant = f"GRANT USAGE ON SCHEMA public TO PUBLIC; REVOKE {rights} ON SCHEMA public FROM PUBLIC"
        postgres_process.execute(grant, name_of(url))
        kind, said = await trouble(f"postgresql://guest:s3cret@127.0.0.1:{postgres_process.port}/{name_of(url)}")
        assert kind is ConfigurationError
        assert "'guest' needs the right to create tables" in said


async def test_a_read_only_database_is_told(postgres_process: PostgresProcess, url: str) -> None:
    kind, said = await trouble(f"{url}?default_transaction_read_only=on")
    assert kind is ConfigurationError
    assert "read-only, a standby perhaps: name the primary" in said


async def test_a_database_of_another_encoding_is_told(postgres_process: PostgresProcess) -> None:
    postgres_process.execute("CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0")
    kind, said = await trouble(postgres_process.url("latin"))
    assert kind is ConfigurationError
    assert "holds text as LATIN1: create one with ENCODING 'UTF8'" in said


def test_an_old_server_is_told() -> None:
    check_server(130_000, "UTF8", read_only=False)
    with pytest.raises(ConfigurationError, match="PostgreSQL 12 is too old: Glassloop needs 13"):
        check_server(120_022, "UTF8", read_only=False)


async def test_a_newer_database_is_left_alone(postgres_process: PostgresProcess, url: str) -> None:
    async with open_store(url):
        pass
    postgres_process.execute("UPDATE glassloop_schema SET version = 99", name_of(url))
    kind, said = await trouble(url)
    assert kind is ConfigurationError
    assert f"newer Glassloop (store schema 99, this one knows {STORE.version}): upgrade" in said
    assert postgres_process.execute("SELECT version FROM glassloop_schema", name_of(url)) == "99"


# The tables


async def test_an_older_database_is_brought_up_to_date(
    postgres_process: PostgresProcess, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_store(url) as store:
        await store.journal.append("run_1", [started("run_1")], after=0, epoch=1)

    def step(connection: Connection) -> None:
        connection.execute(text("ALTER TABLE glassloop_runs ADD COLUMN shiny integer"))

    monkeypatch.setattr(engine, "STORE", replace(STORE, steps=(*STORE.steps, step)))
    async with open_store(url) as store:
        assert len(await store.journal.runs()) == 1
    assert postgres_process.execute("SELECT id, shiny FROM glassloop_runs", name_of(url)) == "run_1|"
    assert postgres_process.execute("SELECT version FROM glassloop_schema", name_of(url)) == str(STORE.version + 1)


async def test_a_database_from_before_there_were_questions_takes_them(
    postgres_process: PostgresProcess, url: str
) -> None:
    async with open_store(url) as store:
        await store.journal.append("run_1", [started("run_1"), asked("run_1", 1)], after=0, epoch=1)
    columns = "DROP COLUMN choices, DROP COLUMN answer"
    postgres_process.execute(f"ALTER TABLE glassloop_approvals {columns}", name_of(url))
    postgres_process.execute("UPDATE glassloop_schema SET version = 1 WHERE name = 'store'", name_of(url))
    async with open_store(url) as store:
        await store.journal.append("run_1", [asked("run_1", 2, choices=("a", "b"))], after=2, epoch=1)
        rows = await store.journal.approvals()
        assert [(row.choices, row.answer) for row in rows] == [('["a","b"]', None), ("[]", None)]


async def test_a_migration_that_fails_changes_nothing(
    postgres_process: PostgresProcess, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_store(url):
        pass

    def step(connection: Connection) -> None:
        connection.execute(text("CREATE TABLE glassloop_shiny (id integer)"))
        connection.execute(text("CREATE TABLE nonsense"))

    with monkeypatch.context() as patch:
        patch.setattr(engine, "STORE", replace(STORE, steps=(*STORE.steps, step)))
        assert (await trouble(url))[0] is StoreError
    assert postgres_process.execute("SELECT to_regclass('glassloop_shiny')", name_of(url)) == ""
    async with open_store(url) as store:
        assert await store.journal.runs() == []


async def test_many_processes_may_create_the_tables_at_once(url: str, start: Start) -> None:
    others = [
        start("""
    sys.stdin.readline()
    async with store:
        await store.journal.append(f"run_{sys.argv[2]}", [event("", CancelRequested("ann"))], after=0, epoch=1)
    """, str(n))
        for n in range(4)
    ]  # fmt: skip
    await asyncio.gather(*map(end, others))
    async with open_store(url) as store:
        assert [len(await store.journal.read(f"run_{n}")) for n in range(4)] == [1] * 4


async def test_the_store_lives_beside_your_own_tables(postgres_process: PostgresProcess, url: str) -> None:
    postgres_process.execute("CREATE TABLE runs (id text); INSERT INTO runs VALUES ('a marathon')", name_of(url))
    async with open_store(url) as store:
        await store.journal.append("run_1", [started("run_1")], after=0, epoch=1)
    assert postgres_process.execute("SELECT id FROM runs", name_of(url)) == "a marathon"


# A server that comes and goes


async def test_a_server_that_is_started_again_is_used_again(own_server: PostgresProcess) -> None:
    own_server.execute("CREATE DATABASE again")
    async with open_store(own_server.url("again")) as store:
        await store.journal.append("run_1", [started("run_1"), claimed("run_1", 1)], after=0, epoch=1)
        follower = asyncio.create_task(first(store.journal.follow("run_1", 3)))
        own_server.stop()
        with pytest.raises(StoreError, match=r"cannot be reached|is starting or stopping|went away") as caught:
            await store.journal.append("run_1", [replied("run_1")], after=2, epoch=1)
        assert "s3cret" not in str(caught.value)
        follower.cancel()
        await asyncio.wait([follower])
        own_server.start()
        assert await store.journal.append("run_1", [replied("run_1")], after=2, epoch=1) == 3
        async with asyncio.timeout(20):
            last = asyncio.create_task(first(store.journal.follow("run_1", 3)))
            await asyncio.sleep(0)
            async with open_store(own_server.url("again")) as other:
                await other.journal.append("run_1", [cancelled("run_1")], after=None, epoch=None)
            assert (await last).seq == 4


async def test_connections_that_were_cut_meanwhile_are_no_matter(postgres_process: PostgresProcess, url: str) -> None:
    async with open_store(url) as store:
        last = await store.journal.append("run_1", [started("run_1"), claimed("run_1", 1)], after=0, epoch=1)
        for expected in range(3, 7):
            cut(postgres_process, url)
            last = await store.journal.append("run_1", [replied("run_1")], after=last, epoch=1)
            assert last == expected
            cut(postgres_process, url)
            assert len(await store.journal.read("run_1")) == expected


async def test_what_an_administrator_s_timeout_breaks_off_is_told_and_undone(url: str) -> None:
    def sleeps(writing: Any) -> NoReturn:
        writing.transaction.exec_driver_sql("SELECT pg_sleep(60)")
        raise AssertionError("the statement was not broken off")

    async with open_store(url) as store, open_store(f"{url}?statement_timeout=3000") as limited:
        await store.journal.append("run_1", [started("run_1"), claimed("run_1", 1)], after=0, epoch=1)
        with pytest.raises(StoreError, match=r"broke off what took too long for it .*raise that timeout for 'ann'"):
            await limited.journal.transact("run_1", sleeps, after=2, epoch=1)
        assert await store.journal.append("run_1", [replied("run_1")], after=2, epoch=1) == 3


async def first(events: AsyncIterator[Event]) -> Event:
    return await anext(events)


def cut(server: PostgresProcess, url: str) -> None:
    """Cut all connections to a database."""
    others = "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    server.execute(f"SELECT pg_terminate_backend(pid, 5000) {others}", name_of(url))


async def test_a_statement_that_was_committed_when_the_connection_broke_is_not_repeated(url: str) -> None:
    async with open_store(url) as store:
        database = store.database
        assert isinstance(database, Database)
        await store.journal.append("run_1", [started("run_1"), claimed("run_1", 1)], after=0, epoch=1)
        async with open_store(url) as other:  # as the statement that was sent before the connection broke
            assert await other.journal.append("run_1", [replied("run_1")], after=2, epoch=1) == 3
        write, calls = database.write, 0

        async def breaks_once(work: Callable[[Connection], object], **options: object) -> object:
            nonlocal calls
            calls += 1
            if calls == 1:
                raise engine.CutOff("The connection broke.")
            return await write(work, **options)  # type: ignore[arg-type]  # as given

        database.write = breaks_once  # type: ignore[method-assign]  # no server breaks a connection just then
        assert await store.journal.append("run_1", [replied("run_1")], after=2, epoch=1) == 3
        assert len(await store.journal.read("run_1")) == 3


async def test_closing_is_idempotent_and_final(url: str) -> None:
    store = open_store(url)
    await store.journal.append("run_1", [started("run_1")], after=0, epoch=1)
    await store.close()
    await store.close()
    with pytest.raises(StoreError, match="is closed"):
        await store.journal.read("run_1")
    await open_store(url).close()
