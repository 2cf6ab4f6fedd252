"""What every test stands on: an environment of its own, and an event loop that nobody blocks."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from blockbuster import BlockBuster
from pydantic import TypeAdapter

import glassloop

sys.path.append(str(Path(__file__).parent))

from servers import REDIS_DATABASES, PostgresProcess, RedisProcess, postgres_server, redis_server

_OUTSIDE = re.compile(
    r"(?i)^(MODEL|MODEL_.+|EMBEDDING_.+|STORE|SESSIONS|APPROVE_TOOLS|EXAMPLE|Q|QUICK|PORT|GLASSLOOP_.+"
    r"|.+_API_KEY|.+_AUTH_TOKEN|.+_BASE_URL|(https?|all|no)_proxy)$"
)
"""Variables that would make a test talk to the developer's own models, stores or proxies, or that make exports."""

ROOT = Path(__file__).parents[1]


def pytest_configure() -> None:
    for name in filter(_OUTSIDE.match, list(os.environ)):
        del os.environ[name]
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background ignores it, and what starts there


@pytest.fixture(scope="session", autouse=True)
def event_loop_guard() -> Iterator[BlockBuster]:
    """Make a blocking call that Glassloop's code makes on an event loop an error.

    The test doubles may block: their callers wait for a server's thread on purpose.
    """
    guard = BlockBuster(scanned_modules=[glassloop], excluded_modules=["glassloop.testing"])
    for harmless in ("os.path.abspath", "os.getcwd"):  # they ask the kernel, never a disk
        guard.functions.pop(harmless)
    for function in guard.functions.values():
        function.can_block_in("postgres/wire.py", "connect")  # it looks for certificates, on a loop where nobody waits
        function.can_block_in("stores/__init__.py", "_open_postgres")  # imports SQLAlchemy, once in a process
    TypeAdapter(int)  # looks for plugins on the disk, once in the life of a process
    guard.activate()
    yield guard
    guard.deactivate()


@pytest.fixture(scope="session")
def root() -> Path:
    """The root of the repository."""
    return ROOT


@pytest.fixture(scope="session")
def redis_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisProcess]:
    """A Redis server, for all tests."""
    with redis_server(tmp_path_factory.mktemp("redis")) as server:
        yield server


_databases = count()


@pytest.fixture
def redis_url(redis_process: RedisProcess) -> str:
    """An empty database of a Redis server, for this test alone."""
    return redis_process.database(next(_databases) % REDIS_DATABASES)


@pytest.fixture(scope="session")
def postgres_process() -> Iterator[PostgresProcess]:
    """A PostgreSQL server, for all tests."""
    with postgres_server() as server:
        yield server


@pytest.fixture
def postgres_url(postgres_process: PostgresProcess) -> Iterator[str]:
    """An empty database of a PostgreSQL server, for this test alone."""
    with postgres_process.database() as url:
        yield url


@pytest.fixture
def clean_environment(tmp_path: Path) -> dict[str, str]:
    """The environment of a process that a test starts: no keys, no proxies, an empty home, this interpreter first."""
    kept = {name: os.environ[name] for name in ("PATH", "TMPDIR", "SSL_CERT_FILE") if name in os.environ}
    kept["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{kept.get('PATH', os.defpath)}"
    return {**kept, "HOME": str(tmp_path), "LANG": "C.UTF-8", "PYTHONUTF8": "1"}
