"""Redis servers that are away, refuse, or are something else: one sentence each, and never the password."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from glassloop.core.errors import ConfigurationError, GlassloopError, StoreError
from glassloop.core.messages import UserMessage
from glassloop.journal.ledger import Yours
from glassloop.stores import Store, open_store
from servers import RedisProcess, redis_client, redis_server

Server = Callable[..., RedisProcess]

ENOUGH = "~glassloop:* &glassloop:* +@all -@admin -@dangerous"
"""What the user of a Redis server must be allowed (ACL rules)."""


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("glassloop.stores.redis.server._PATIENCE_S", 1.0)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A function that starts a Redis server with these options."""
    with ExitStack() as running:

        def start(*options: str) -> RedisProcess:
            started: AbstractContextManager[RedisProcess] = redis_server(tmp_path, *options)
            return running.enter_context(started)

        yield start


async def told_at_start(url: str) -> str:
    """What is told when a store with its sessions at `url` is opened."""
    with pytest.raises(GlassloopError) as caught:
        async with open_store("memory:", url):
            pass
    told = str(caught.value)
    assert "secret" not in told
    assert "\n" not in told
    return told


# The URL


@pytest.mark.parametrize(
    ("url", "hint"),
    [
        ("redis://:secret@db:port/0", "The port in the Redis URL is no number"),
        ("redis://:secret@db:99999/0", "The port in the Redis URL is no number"),
        ("redis://:secret@db/cache", "A database of Redis is a number, not 'cache': write redis://db:6379/0."),
        ("redis://:secret@db/0/1", "A database of Redis is a number"),
        ("redis://:secret@db/0?password=secret", "has an option 'password': it takes none"),
        ("redis://:secret@db/0?ssl_ca_certs=a.pem", "has an option 'ssl_ca_certs': it takes none"),
        ("rediss://:secret@db/0?timeout=secret", "has an option 'timeout'"),
        ("redis://:sec/ret@db/0", "write / as %2F"),
        ("redis://:secret#@db/0", "# as %23"),
        ("rediss+unix://:secret@db/0", "Stores of kind 'rediss\\+unix' are not supported"),
    ],
)
def test_a_wrong_url_is_told_when_the_store_is_made(url: str, hint: str) -> None:
    with pytest.raises(ConfigurationError, match=hint) as caught:
        open_store("memory:", url)
    assert "secret" not in str(caught.value)
    assert "sec/ret" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://", "redis://localhost:6379/0"),
        ("redis://db", "redis://db:6379/0"),
        ("REDIS://ann:secret%2F@db:7000/3", "redis://db:7000/3"),
        ("redis://[::1]:7000", "redis://[::1]:7000/0"),
        ("rediss://:secret@db/2?ssl_ca_certs=ca.pem", "rediss://db:6379/2"),
    ],
)
def test_a_url_is_shown_without_what_is_secret(url: str, shown: str) -> None:
    store = open_store("sqlite:///store.db", url)
    assert store.sessions_url == shown
    assert store.places == f"sqlite:///store.db, sessions in {shown}"
    assert "secret" not in repr(store)


# The server


async def test_a_server_that_is_away_is_told_at_start(server: Server) -> None:
    redis = server()
    redis.stop()
    told = await told_at_start(redis.database(0).replace("//", "//ann:secret@"))
    assert told == (
        f"Redis at 127.0.0.1:{redis.port} cannot be reached (connection refused): start it, or correct the URL."
    )


async def test_an_unknown_host_is_told() -> None:
    told = await told_at_start("redis://:secret@nowhere.invalid/0")
    assert told.startswith("Redis at nowhere.invalid:6379 cannot be reached (there is no such host)")


async def test_a_wrong_password_is_told(server: Server) -> None:
    redis = server("--requirepass", "another-secret")
    place = f"Redis at 127.0.0.1:{redis.port}"
    for login in ("", "//:secret@", "//ann:secret@"):
        url = redis.database(0).replace("//", login or "//")
        assert await told_at_start(url) == f"{place} refuses the user or the password: correct them in the URL."
    async with open_store("memory:", redis.database(0).replace("//", "//:another-secret@")) as store:
        assert await store.sessions.load("s") == []


async def test_a_user_who_may_not_write_is_told_what_is_missing(server: Server) -> None:
    redis = server("--user", "ann", "on", ">secret", "~glassloop:*", "+@all", "-@scripting")
    url = redis.database(0).replace("//", "//ann:secret@")
    assert f"give it the rules {ENOUGH}." in await told_at_start(url)
    with redis_client(redis.database(0)) as client:
        client.execute_command("ACL", "SETUSER", "ann", "reset", "on", ">secret", "resetchannels", *ENOUGH.split())
    async with open_store("memory:", url) as store, store.sessions.lock("s", "run_1"):
        await store.sessions.append("s", "run_1", [UserMessage("hello")])
        await store.ledger.claim("k", ("run_1", "call_1"), 60)
        await store.ledger.settle("k", ("run_1", "call_1"), b"")
        await store.ledger.wait("k")


async def test_a_replica_is_told_at_start(server: Server) -> None:
    primary = server()
    replica = server("--replicaof", "127.0.0.1", str(primary.port))
    async with asyncio.timeout(20):
        while "is a read-only replica" not in (told := await told_at_start(replica.database(0))):
            assert "LOADING" in told or "MASTERDOWN" in told
    assert "use the URL of the primary" in told


async def test_a_full_server_is_told(server: Server) -> None:
    redis = server("--maxmemory", "1mb")
    assert "is out of memory and takes no more: raise its maxmemory" in await told_at_start(redis.database(0))


async def test_a_database_that_is_not_there_is_told(server: Server) -> None:
    assert "DB index is out of range" in await told_at_start(server().database(5_000))


async def test_something_else_is_told() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as other:
        port = other.sockets[0].getsockname()[1]
        told = await told_at_start(f"redis://:secret@127.0.0.1:{port}/0")
    assert told == f"What answers as Redis at 127.0.0.1:{port} is none: correct the URL."


async def test_a_server_that_restarts_is_waited_for(server: Server, tmp_path: Path) -> None:
    redis = server("--appendonly", "yes", "--appendfsync", "always")
    async with open_store("memory:", redis.database(0)) as store:
        await store.sessions.append("s", "run_1", [UserMessage("1")])
        redis.stop()
        appending = asyncio.create_task(store.sessions.append("s", "run_2", [UserMessage("2")]))
        await asyncio.sleep(0.2)
        await asyncio.to_thread(redis.start)
        await appending
        assert await store.sessions.load("s") == [UserMessage("1"), UserMessage("2")]


async def test_a_server_that_stays_away_is_one_error_until_it_is_back(server: Server) -> None:
    redis = server("--appendonly", "yes")
    async with open_store("memory:", redis.database(0)) as store:
        async with store.sessions.lock("s", "run_1"):
            redis.stop()
            with pytest.raises(StoreError, match="cannot be reached"):
                await store.sessions.append("s", "run_1", [UserMessage("1")])
        await asyncio.to_thread(redis.start)
        await store.sessions.append("s", "run_1", [UserMessage("1")])
        assert await store.sessions.load("s") == [UserMessage("1")]


async def test_who_waits_hears_of_it_after_the_server_was_restarted(server: Server) -> None:
    redis = server("--appendonly", "yes", "--appendfsync", "always")

    async def wait() -> None:
        async with store.sessions.lock("s", "run_2"):
            pass

    async with open_store("memory:", redis.database(0)) as store, asyncio.timeout(20):
        async with store.sessions.lock("s", "run_1"):
            waiter = asyncio.create_task(wait())
            await asyncio.sleep(0.1)
            redis.stop()
            await asyncio.to_thread(redis.start)
        await waiter


@asynccontextmanager
async def losing(key: str, port: int) -> AsyncGenerator[tuple[int, list[bytes]]]:
    """Let connections to another port go on to `port`, and cut off the first that runs a script on `key`, when it has.

    Yields:
        The other port, and what was asked with such scripts.
    """
    asked: list[bytes] = []

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", port)
        while data := await reader.read(65_536):
            back.write(data)
            answer = await there.read(65_536)
            if b"EVALSHA" in data and key.encode() in data and not answer.startswith(b"-NOSCRIPT"):
                asked.append(data)
                if len(asked) == 1:
                    break
            writer.write(answer)
        for each in (back, writer):
            each.close()

    async with await asyncio.start_server(forward, "127.0.0.1", 0) as proxy:
        yield proxy.sockets[0].getsockname()[1], asked


@asynccontextmanager
async def store_that_loses(key: str, redis: RedisProcess) -> AsyncGenerator[Store]:
    """A store for which the first answer to a script on `key` gets lost."""
    async with open_store("memory:", redis.database(0)) as known, losing(key, redis.port) as (port, asked):
        await known.ledger.claim("k", ("run_0", "call_0"), 60)  # so that the server knows the scripts
        await known.ledger.release("k")
        async with known.sessions.lock("s", "run_0"):
            await known.sessions.append("s", "run_0", [])
        async with open_store("memory:", f"redis://127.0.0.1:{port}/0") as store:
            yield store
        assert len(asked) > 1


async def test_a_turn_whose_answer_got_lost_is_appended_once(server: Server) -> None:
    async with store_that_loses("glassloop:{s}:messages", server()) as store:
        await store.sessions.append("s", "run_1", [UserMessage("1")])
        assert await store.sessions.load("s") == [UserMessage("1")]


async def test_a_claim_whose_answer_got_lost_has_not_begun(server: Server) -> None:
    async with store_that_loses("glassloop:ledger:k", server()) as store:
        assert await store.ledger.claim("k", ("run_1", "call_1"), 60) == Yours(again=False)
        assert await store.ledger.claim("k", ("run_1", "call_1"), 60) == Yours(again=True)


async def test_a_lock_whose_answer_got_lost_is_held_once(server: Server) -> None:
    async with store_that_loses("glassloop:{s}:queue", server()) as store:
        async with store.sessions.lock("s", "run_1", "refuse"):
            pass
        async with store.sessions.lock("s", "run_2", "refuse"):
            pass


# TLS


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A certificate for 127.0.0.1, and its key, in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    path = tmp_path / "certificate.pem"
    path.write_bytes(key.private_bytes(pem, form, serialization.NoEncryption()) + made.public_bytes(pem))
    return path


@asynccontextmanager
async def behind_tls(certificate: Path, port: int) -> AsyncGenerator[int]:
    """Let connections to another port go on to `port`, without their TLS; the other port."""

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65_536):
            writer.write(data)
        writer.close()

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(pump(reader, back), pump(there, writer), return_exceptions=True)

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)
    async with await asyncio.start_server(forward, "127.0.0.1", 0, ssl=context) as proxy:
        yield proxy.sockets[0].getsockname()[1]


async def test_tls_is_checked(redis_process: RedisProcess, certificate: Path) -> None:
    async with behind_tls(certificate, redis_process.port) as port:
        url = f"rediss://127.0.0.1:{port}/0"
        assert "cannot be reached (its certificate: self" in await told_at_start(url)
        async with open_store("memory:", f"{url}?ssl_ca_certs={certificate}") as store:
            await store.sessions.append("tls", "run_1", [UserMessage("sealed")])
            assert await store.sessions.load("tls") == [UserMessage("sealed")]
