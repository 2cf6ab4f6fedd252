"""The processes of a session: the model server and one resident worker per peer."""

import json
import os
import socket
import subprocess
import threading
import time
import urllib.request
from typing import IO, Any, Self

from bench.environments import ROOT, python
from bench.registry import Entry

START_SECONDS = 60.0


class Server:
    """The model server in a process of its own, on a free port."""

    def __init__(self, log: IO[str]) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self.url = f"http://127.0.0.1:{self.port}"
        command = f"-m uvicorn bench.server:app --port {self.port} --loop uvloop --http httptools"
        options = "--no-access-log --log-level warning --timeout-keep-alive 900 --backlog 4096"
        self._process = subprocess.Popen(
            [python("server"), *command.split(), *options.split()], cwd=ROOT, stdout=log, stderr=log
        )

    def __enter__(self) -> Self:
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                self.get("/stats")
                return self
            except OSError:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    self.__exit__()
                    raise SystemExit("the model server did not start, see bench/raw/processes.log") from None
                time.sleep(0.05)

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait()

    def get(self, path: str) -> dict[str, Any]:
        """GET /stats or /reset."""
        with urllib.request.urlopen(self.url + path, timeout=60) as response:
            return json.loads(response.read())


class Worker:
    """A peer's process, see `bench/worker.py`."""

    def __init__(self, entry: Entry, server: Server, log: IO[str]) -> None:
        self.key = entry.key
        self.entry = entry
        self._process = subprocess.Popen(
            [python(entry.environment), "-m", f"bench.peers.{entry.module}"],
            cwd=ROOT,
            env=_environment(entry, server.url),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        self._failed = self._read(START_SECONDS).get("error", "")

    def ask(self, message: dict[str, Any], timeout: float = 300.0) -> dict[str, Any]:
        """Sends one order and waits for its result; whatever goes wrong is a result with `error`."""
        if self._failed:
            return {"error": self._failed}
        try:
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps(message) + "\n")
            self._process.stdin.flush()
        except OSError as error:
            return {"error": repr(error)}
        return self._read(timeout)

    def _read(self, timeout: float) -> dict[str, Any]:
        """The next line of the worker, which is killed when it does not come in time."""
        watchdog = threading.Timer(timeout, self._process.kill)
        watchdog.start()
        try:
            assert self._process.stdout is not None
            line = self._process.stdout.readline()
        finally:
            watchdog.cancel()
        return json.loads(line) if line else {"error": "the worker ended, see bench/raw/processes.log"}

    def close(self) -> None:
        """Ends the worker: at the end of its input it closes what it opened."""
        try:
            self._process.communicate(timeout=10)
        except (subprocess.TimeoutExpired, OSError):
            self._process.kill()
            self._process.wait()


def _environment(entry: Entry, url: str) -> dict[str, str]:
    """The caller's environment without proxies, with the server in the place of the provider."""
    kept = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    ours = {
        "OPENAI_BASE_URL": f"{url}/v1",
        "OPENAI_API_KEY": "sk-fake",
        "VARIANT": entry.variant,
        "PYTHONHASHSEED": "0",
    }
    return {**kept, **ours}
